/* A hub's life, and looking at what is in it. */
#include "hub/hub.h"

#include "base/random.h"
#include "base/sized.h"

#include <string.h>
#include <unistd.h>

#define WORKERS_MAX 7
#define WORKERS_LIMIT 256

void tws_hub_options_init_sized(tws_hub_options *opt, size_t size)
{
    tws_hub_options o;

    memset(&o, 0, sizeof o);
    o.size = size;
    o.workers = -1;
    o.spread = 256;
    o.max_joined = 1024;
    base_sized_give(opt, size, &o, sizeof o);
}

static uint32_t worker_count(int workers)
{
    long cores;

    if (workers >= 0)
        return (uint32_t)workers;
    cores = sysconf(_SC_NPROCESSORS_ONLN);
    return cores <= 1 ? 0 : cores > WORKERS_MAX ? WORKERS_MAX : (uint32_t)(cores - 1);
}

static tws_hub *make(const tws_hub_options *o)
{
    tws_hub *h = base_calloc(o->allocator, sizeof *h);

    if (!h)
        return NULL;
    base_ref_init(&h->refs);
    h->allocator = o->allocator;
    h->spread = o->spread > 0 ? o->spread : 1;
    h->max_rooms = o->max_rooms;
    h->max_joined = o->max_joined;
    pthread_mutex_init(&h->mu, NULL);
    if (!base_random(&h->key, sizeof h->key) || !base_table_init(&h->rooms, o->allocator))
        goto no_rooms;
    if (!base_table_init(&h->seats, o->allocator))
        goto no_seats;
    h->everyone = room_new(o->allocator, "", 0);
    if (!h->everyone)
        goto no_everyone;
    h->everyone->users = 1;
    if (hub_workers_init(&h->workers, o->allocator, worker_count(o->workers)) == 0)
        return h;
    room_free(h->everyone);
no_everyone:
    base_table_destroy(&h->seats);
no_seats:
    base_table_destroy(&h->rooms);
no_rooms:
    pthread_mutex_destroy(&h->mu);
    base_free(o->allocator, h);
    return NULL;
}

tws_err tws_hub_new(tws_hub **out, const tws_hub_options *opt)
{
    tws_hub_options o;

    *out = NULL;
    tws_hub_options_init(&o);
    if (opt && opt->size == 0)
        return TWS_ERR_ARGUMENT;
    if (opt)
        base_sized_take(&o, sizeof o, opt, opt->size);
    if (o.workers < -1 || o.workers > WORKERS_LIMIT)
        return TWS_ERR_ARGUMENT;
    *out = make(&o);
    return *out ? TWS_OK : TWS_ERR_MEMORY;
}

void tws_hub_free(tws_hub *h)
{
    if (!h)
        return;
    pthread_mutex_lock(&h->mu);
    while (h->calls > 0)
        task_queue_wait(&h->calls_ended, &h->mu, TASK_FOREVER);
    pthread_mutex_unlock(&h->mu);
    hub_workers_free(&h->workers);
    hub_empty(h);
    hub_unref(h);
}

/* ---- Visits ---- */

/* NULL: there is no such room. What is returned is kept, and so is the hub. */
static struct hub_room *visit_begin(tws_hub *h, const char *room)
{
    struct hub_room *r;

    pthread_mutex_lock(&h->mu);
    r = hub_room_use_locked(h, room);
    if (r)
        h->calls++;
    pthread_mutex_unlock(&h->mu);
    return r;
}

static void visit_end(tws_hub *h, struct hub_room *r)
{
    pthread_mutex_lock(&h->mu);
    hub_room_unuse_locked(h, r);
    hub_call_ended_locked(h);
    pthread_mutex_unlock(&h->mu);
}

size_t tws_hub_each(tws_hub *h, const char *room, tws_hub_member_fn fn, void *arg)
{
    struct hub_room *r = visit_begin(h, room);
    struct room_slot slots[ROOM_CHUNK];
    size_t visited = 0, n;
    bool go_on = true;
    uint64_t mark;

    if (!r)
        return 0;
    mark = room_mark(r);
    for (size_t index = 0; go_on && room_copy(r, index, ROOM_REF, slots, &n); index++) {
        for (size_t i = 0; i < n; i++) {
            if (go_on && slots[i].since <= mark) {
                visited++;
                go_on = fn(slots[i].conn, arg);
            }
            tws_conn_unref(slots[i].conn);
        }
    }
    visit_end(h, r);
    return visited;
}

struct room_list {
    struct hub_room **rooms;
    size_t count;
};

/* Keeps all rooms, and the hub. False: no memory. */
static bool list_rooms(tws_hub *h, struct room_list *list)
{
    struct base_node *n = NULL;
    size_t at = 0;

    list->count = 0;
    pthread_mutex_lock(&h->mu);
    list->rooms = base_alloc(h->allocator, (h->rooms.count + 1) * sizeof(struct hub_room *));
    while (list->rooms && (n = base_table_walk(&h->rooms, &at, n))) {
        struct hub_room *r = room_of_node(n);

        r->users++;
        list->rooms[list->count++] = r;
    }
    if (list->rooms)
        h->calls++;
    pthread_mutex_unlock(&h->mu);
    return list->rooms != NULL;
}

size_t tws_hub_rooms(tws_hub *h, tws_hub_room_fn fn, void *arg)
{
    struct room_list list;
    size_t visited = 0;
    bool go_on = true;

    if (!list_rooms(h, &list))
        return 0;
    for (size_t i = 0; i < list.count; i++) {
        size_t members = go_on ? room_members(list.rooms[i]) : 0;

        if (members > 0) {
            visited++;
            go_on = fn(list.rooms[i]->name, members, arg);
        }
    }
    pthread_mutex_lock(&h->mu);
    for (size_t i = 0; i < list.count; i++)
        hub_room_unuse_locked(h, list.rooms[i]);
    base_free(h->allocator, list.rooms);
    hub_call_ended_locked(h);
    pthread_mutex_unlock(&h->mu);
    return visited;
}

void tws_hub_stats_sized(tws_hub *h, tws_hub_stats *out, size_t size)
{
    tws_hub_stats s;

    pthread_mutex_lock(&h->mu);
    s = h->stats;
    s.rooms = h->rooms.count;
    s.members = room_members(h->everyone);
    s.joined = h->seats.count - s.members;
    pthread_mutex_unlock(&h->mu);
    pthread_mutex_lock(&h->workers.mu);
    s.workers = h->workers.count;
    pthread_mutex_unlock(&h->workers.mu);
    base_sized_give(out, size, &s, sizeof s);
}
