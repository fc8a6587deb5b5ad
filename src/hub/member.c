/* Joining and leaving. */
#include "hub/hub.h"

#include <string.h>

/* ---- Rooms ---- */

static struct hub_room *find_room_locked(tws_hub *h, const char *name, size_t len, uint64_t hash)
{
    struct base_node *n = base_table_first(&h->rooms, hash);

    for (; n; n = base_table_next(n))
        if (room_of_node(n)->name_len == len && memcmp(room_of_node(n)->name, name, len) == 0)
            return room_of_node(n);
    return NULL;
}

struct hub_room *hub_room_use_locked(tws_hub *h, const char *name)
{
    size_t len = name ? strlen(name) : 0;
    struct hub_room *r =
        name ? find_room_locked(h, name, len, base_hash(&h->key, name, len)) : h->everyone;

    if (r)
        r->users++;
    return r;
}

void hub_room_unuse_locked(tws_hub *h, struct hub_room *r)
{
    if (--r->users > 0)
        return;
    base_table_remove(&h->rooms, &r->node);
    room_free(r);
}

static tws_err make_room_locked(tws_hub *h, const char *name, struct hub_room **out)
{
    struct hub_room *r = hub_room_use_locked(h, name);
    size_t len = strlen(name);

    *out = r;
    if (r)
        return TWS_OK;
    if (h->max_rooms > 0 && h->rooms.count >= h->max_rooms)
        return TWS_ERR_STATE;
    r = room_new(h->allocator, name, len);
    if (!r)
        return TWS_ERR_MEMORY;
    r->users = 1;
    r->node.hash = base_hash(&h->key, name, len);
    base_table_insert(&h->rooms, &r->node);
    *out = r;
    return TWS_OK;
}

/* ---- Seats ---- */

static uint64_t seat_hash(const tws_hub *h, const tws_conn *c, const struct hub_room *r)
{
    uintptr_t pair[2] = {(uintptr_t)c, (uintptr_t)r};

    return base_hash(&h->key, pair, sizeof pair);
}

static struct hub_seat *find_seat_locked(tws_hub *h, const tws_conn *c, const struct hub_room *r)
{
    struct base_node *n = base_table_first(&h->seats, seat_hash(h, c, r));

    for (; n; n = base_table_next(n)) {
        struct hub_seat *s = (struct hub_seat *)(void *)n;

        if (s->member->conn == c && s->room == r)
            return s;
    }
    return NULL;
}

static struct hub_member *find_member_locked(tws_hub *h, const tws_conn *c)
{
    struct hub_seat *s = find_seat_locked(h, c, h->everyone);

    return s ? s->member : NULL;
}

/* Takes over the caller's use of the room, also when there is no memory. */
static bool seat_take_locked(tws_hub *h, struct hub_seat *s, struct hub_member *m,
                             struct hub_room *r)
{
    if (!room_enter(r, m->conn, &s->slot)) {
        hub_room_unuse_locked(h, r);
        return false;
    }
    s->member = m;
    s->room = r;
    s->node.hash = seat_hash(h, m->conn, r);
    base_table_insert(&h->seats, &s->node);
    return true;
}

static void seat_give_locked(tws_hub *h, struct hub_seat *s)
{
    base_table_remove(&h->seats, &s->node);
    room_exit(s->room, s->slot);
    hub_room_unuse_locked(h, s->room);
}

static void seat_drop_locked(tws_hub *h, struct hub_seat *s)
{
    struct hub_member *m = s->member;
    struct hub_room *r = s->room;

    if (s->prev)
        s->prev->next = s->next;
    else
        m->seats = s->next;
    if (s->next)
        s->next->prev = s->prev;
    m->seat_count--;
    r->users++;
    seat_give_locked(h, s);
    hub_watch_tell_locked(h, r);
    hub_room_unuse_locked(h, r);
    base_free(h->allocator, s);
}

/* ---- Members ---- */

void hub_unref(tws_hub *h)
{
    if (!base_ref_put(&h->refs))
        return;
    room_free(h->everyone);
    base_table_destroy(&h->rooms);
    base_table_destroy(&h->seats);
    pthread_mutex_destroy(&h->mu);
    base_free(h->allocator, h);
}

static void member_unref(struct hub_member *m)
{
    tws_hub *h = m->hub;

    if (!base_ref_put(&m->refs))
        return;
    base_free(h->allocator, m);
    hub_unref(h);
}

/* Out of all rooms. True: the caller has the hub's reference now. */
static bool member_gone_locked(tws_hub *h, struct hub_member *m)
{
    if (m->gone)
        return false;
    while (m->seats)
        seat_drop_locked(h, m->seats);
    seat_give_locked(h, &m->all);
    m->gone = true;
    return true;
}

/* On a thread of the library's, after the connection has ended. */
static void connection_ended(tws_conn *c, struct conn_end_hook *hook)
{
    struct hub_member *m =
        (struct hub_member *)(void *)((char *)hook - offsetof(struct hub_member, hook));
    tws_hub *h = m->hub;
    bool mine;

    (void)c;
    pthread_mutex_lock(&h->mu);
    mine = member_gone_locked(h, m);
    pthread_mutex_unlock(&h->mu);
    if (mine)
        member_unref(m);
    member_unref(m);
}

/* What is left to do for one that is gone, while its connection is still valid. */
static void member_forget(struct hub_member *m)
{
    if (conn_off_end(m->conn, &m->hook))
        member_unref(m);
    member_unref(m);
}

/* TWS_ERR_CLOSED stands for whatever has ended the connection. */
static tws_err member_new_locked(tws_hub *h, tws_conn *c, struct hub_member **out)
{
    struct hub_member *m = base_calloc(h->allocator, sizeof *m);

    if (!m)
        return TWS_ERR_MEMORY;
    base_ref_init(&m->refs);
    base_ref_get(&m->refs);
    m->hub = h;
    m->conn = c;
    m->hook.fn = connection_ended;
    h->everyone->users++;
    if (!seat_take_locked(h, &m->all, m, h->everyone)) {
        base_free(h->allocator, m);
        return TWS_ERR_MEMORY;
    }
    if (!conn_on_end(c, &m->hook)) {
        seat_give_locked(h, &m->all);
        base_free(h->allocator, m);
        return TWS_ERR_CLOSED;
    }
    base_ref_get(&h->refs);
    *out = m;
    return TWS_OK;
}

/* ---- Calls ---- */

static tws_err take_seat_locked(tws_hub *h, struct hub_member *m, struct hub_room *r)
{
    struct hub_seat *s;

    if (h->max_joined > 0 && m->seat_count >= h->max_joined) {
        hub_room_unuse_locked(h, r);
        return TWS_ERR_STATE;
    }
    s = base_calloc(h->allocator, sizeof *s);
    if (!s || !seat_take_locked(h, s, m, r)) {
        if (!s)
            hub_room_unuse_locked(h, r);
        base_free(h->allocator, s);
        return TWS_ERR_MEMORY;
    }
    s->next = m->seats;
    if (s->next)
        s->next->prev = s;
    m->seats = s;
    m->seat_count++;
    if (hub_watch_tell_locked(h, r))
        return TWS_OK;
    seat_drop_locked(h, s);
    return TWS_ERR_MEMORY;
}

tws_err tws_hub_join(tws_hub *h, tws_conn *c, const char *room)
{
    struct hub_member *m, *empty = NULL;
    struct hub_room *r;
    tws_err err;

    if (!room)
        return TWS_ERR_ARGUMENT;
    if (conn_state(c) == CONN_ENDED)
        return conn_sticky(c);
    pthread_mutex_lock(&h->mu);
    err = make_room_locked(h, room, &r);
    m = find_member_locked(h, c);
    if (err)
        goto out;
    if (m && find_seat_locked(h, c, r)) {
        hub_room_unuse_locked(h, r);
        goto out;
    }
    if (!m && (err = member_new_locked(h, c, &m)) != TWS_OK) {
        hub_room_unuse_locked(h, r);
        goto out;
    }
    err = take_seat_locked(h, m, r);
    if (m->seat_count == 0 && member_gone_locked(h, m))
        empty = m;
out:
    pthread_mutex_unlock(&h->mu);
    if (empty)
        member_forget(empty);
    return err == TWS_ERR_CLOSED ? conn_sticky(c) : err;
}

tws_err tws_hub_leave(tws_hub *h, tws_conn *c, const char *room)
{
    struct hub_member *m = NULL;
    struct hub_seat *s = NULL;
    struct hub_room *r;

    if (!room)
        return TWS_ERR_ARGUMENT;
    pthread_mutex_lock(&h->mu);
    r = hub_room_use_locked(h, room);
    if (r) {
        s = find_seat_locked(h, c, r);
        if (s) {
            m = s->member;
            seat_drop_locked(h, s);
        }
        hub_room_unuse_locked(h, r);
    }
    if (m && (m->seat_count > 0 || !member_gone_locked(h, m)))
        m = NULL;
    pthread_mutex_unlock(&h->mu);
    if (m)
        member_forget(m);
    return s ? TWS_OK : TWS_ERR_STATE;
}

size_t tws_hub_leave_all(tws_hub *h, tws_conn *c)
{
    struct hub_member *m;
    size_t count = 0;

    pthread_mutex_lock(&h->mu);
    m = find_member_locked(h, c);
    if (m) {
        count = m->seat_count;
        member_gone_locked(h, m);
    }
    pthread_mutex_unlock(&h->mu);
    if (m)
        member_forget(m);
    return count;
}

void hub_empty(tws_hub *h)
{
    size_t at = 0;

    pthread_mutex_lock(&h->mu);
    while (h->seats.count > 0) {
        struct hub_seat *s = (struct hub_seat *)(void *)base_table_walk(&h->seats, &at, NULL);
        struct hub_member *m;
        bool alive;

        at = s ? at - 1 : 0; /* more may be in this bucket, or have moved to those before */
        if (!s)
            continue;
        m = s->member;
        alive = conn_try_ref(m->conn);
        member_gone_locked(h, m);
        pthread_mutex_unlock(&h->mu);
        if (alive) {
            tws_conn *c = m->conn;

            member_forget(m);
            tws_conn_unref(c);
        } else {
            member_unref(m); /* its connection is about to end it */
        }
        pthread_mutex_lock(&h->mu);
    }
    pthread_mutex_unlock(&h->mu);
}

size_t tws_hub_count(tws_hub *h, const char *room)
{
    struct hub_room *r;
    size_t members = 0;

    pthread_mutex_lock(&h->mu);
    r = hub_room_use_locked(h, room);
    if (r) {
        members = room_members(r);
        hub_room_unuse_locked(h, r);
    }
    pthread_mutex_unlock(&h->mu);
    return members;
}
