#include "hub/room.h"

#include "conn/conn.h"

#include <string.h>

/* Most rooms are small: their only chunk begins with so many slots. */
#define FIRST_SLOTS 4

struct hub_room *room_new(const tws_allocator *a, const char *name, size_t len)
{
    struct hub_room *r;

    if (len > SIZE_MAX - sizeof *r - 1)
        return NULL;
    r = base_alloc(a, sizeof *r + len + 1);
    if (!r)
        return NULL;
    memset(r, 0, sizeof *r);
    r->allocator = a;
    pthread_mutex_init(&r->mu, NULL);
    r->name_len = len;
    memcpy(r->name, name, len);
    r->name[len] = 0;
    return r;
}

void room_free(struct hub_room *r)
{
    for (size_t i = 0; i < r->chunk_count; i++)
        base_free(r->allocator, r->chunks[i]);
    base_free(r->allocator, r->chunks);
    pthread_mutex_destroy(&r->mu);
    base_free(r->allocator, r);
}

/* ---- Slots ---- */

static uint64_t all_slots(const struct room_chunk *k)
{
    return k->cap == ROOM_CHUNK ? UINT64_MAX : (UINT64_C(1) << k->cap) - 1;
}

static size_t chunk_size(uint32_t cap)
{
    return sizeof(struct room_chunk) + cap * sizeof(struct room_slot);
}

static bool add_chunk(struct hub_room *r)
{
    uint32_t slots = r->chunk_count == 0 ? FIRST_SLOTS : ROOM_CHUNK;
    struct room_chunk *k;

    if (r->chunk_count == r->chunk_cap) {
        size_t cap = r->chunk_cap ? 2 * r->chunk_cap : 1;
        struct room_chunk **chunks =
            base_resize(r->allocator, r->chunks, cap * sizeof(struct room_chunk *));

        if (!chunks)
            return false;
        r->chunks = chunks;
        r->chunk_cap = cap;
    }
    k = base_alloc(r->allocator, chunk_size(slots));
    if (!k)
        return false;
    k->used = 0;
    k->cap = slots;
    r->chunks[r->chunk_count++] = k;
    return true;
}

static bool widen_chunk(struct hub_room *r, size_t index)
{
    uint32_t cap = 2 * r->chunks[index]->cap;
    struct room_chunk *k = base_resize(r->allocator, r->chunks[index], chunk_size(cap));

    if (!k)
        return false;
    k->cap = cap;
    r->chunks[index] = k;
    return true;
}

/* The lowest chunk with a free slot, so that large rooms that empty shrink from the end. */
static struct room_chunk *find_space_locked(struct hub_room *r)
{
    for (;; r->hint++) {
        if (r->hint == r->chunk_count && !add_chunk(r))
            return NULL;
        if (r->chunks[r->hint]->used != all_slots(r->chunks[r->hint]))
            break;
        if (r->chunks[r->hint]->cap == ROOM_CHUNK)
            continue;
        if (!widen_chunk(r, r->hint))
            return NULL;
        break;
    }
    return r->chunks[r->hint];
}

bool room_enter(struct hub_room *r, tws_conn *c, size_t *slot)
{
    struct room_chunk *k;

    pthread_mutex_lock(&r->mu);
    k = find_space_locked(r);
    if (k) {
        unsigned i = (unsigned)__builtin_ctzll(~k->used);

        k->used |= UINT64_C(1) << i;
        k->slots[i].conn = c;
        k->slots[i].since = r->seq + 1;
        *slot = r->hint * ROOM_CHUNK + i;
        r->members++;
    }
    pthread_mutex_unlock(&r->mu);
    return k != NULL;
}

void room_exit(struct hub_room *r, size_t slot)
{
    size_t index = slot / ROOM_CHUNK;

    pthread_mutex_lock(&r->mu);
    r->chunks[index]->used &= ~(UINT64_C(1) << slot % ROOM_CHUNK);
    r->members--;
    if (index < r->hint)
        r->hint = index;
    /* One empty chunk stays, for a member that comes and goes at the border. */
    while (r->chunk_count > 1 && r->chunks[r->chunk_count - 1]->used == 0 &&
           r->chunks[r->chunk_count - 2]->used == 0)
        base_free(r->allocator, r->chunks[--r->chunk_count]);
    if (r->hint > r->chunk_count)
        r->hint = r->chunk_count;
    pthread_mutex_unlock(&r->mu);
}

size_t room_members(struct hub_room *r)
{
    size_t members;

    pthread_mutex_lock(&r->mu);
    members = r->members;
    pthread_mutex_unlock(&r->mu);
    return members;
}

uint64_t room_mark(struct hub_room *r)
{
    uint64_t seq;

    pthread_mutex_lock(&r->mu);
    seq = ++r->seq;
    pthread_mutex_unlock(&r->mu);
    return seq;
}

static bool hold_conn(tws_conn *c, enum room_hold hold)
{
    if (hold == ROOM_REF)
        return conn_try_ref(c);
    conn_keep(c);
    return true;
}

bool room_copy(struct hub_room *r, size_t index, enum room_hold hold, struct room_slot *slots,
               size_t *count)
{
    bool there;
    size_t n = 0;

    pthread_mutex_lock(&r->mu);
    there = index < r->chunk_count;
    if (there) {
        const struct room_chunk *k = r->chunks[index];

        for (uint64_t left = k->used; left; left &= left - 1) {
            slots[n] = k->slots[__builtin_ctzll(left)];
            if (hold_conn(slots[n].conn, hold))
                n++;
        }
    }
    pthread_mutex_unlock(&r->mu);
    *count = n;
    return there;
}

/* ---- Turns ---- */

bool room_line_up(struct hub_room *r, struct room_publish *p)
{
    bool leads;

    p->next = NULL;
    p->state = PUBLISH_WAITS;
    task_park_init(&p->park);
    pthread_mutex_lock(&r->mu);
    p->seq = ++r->seq;
    if (r->tail)
        r->tail->next = p;
    else
        r->head = p;
    r->tail = p;
    leads = !r->led;
    r->led = true;
    pthread_mutex_unlock(&r->mu);
    if (leads)
        return true;
    task_park(&p->park, TASK_FOREVER);
    return p->state == PUBLISH_LEADS;
}

size_t room_batch(struct hub_room *r, struct room_publish **list)
{
    size_t n = 0;

    pthread_mutex_lock(&r->mu);
    while (r->head && n < ROOM_BATCH) {
        list[n++] = r->head;
        r->head = r->head->next;
    }
    if (!r->head)
        r->tail = NULL;
    pthread_mutex_unlock(&r->mu);
    for (size_t i = 0; i < n; i++)
        list[i]->together = n > 1;
    return n;
}

static void tell(struct room_publish *p, enum publish_state state)
{
    p->state = state;
    task_unpark(&p->park);
}

void room_served(struct hub_room *r, struct room_publish **list, size_t count)
{
    struct room_publish *next;

    pthread_mutex_lock(&r->mu);
    next = r->head;
    r->led = next != NULL;
    pthread_mutex_unlock(&r->mu);
    /* It stays at the head until it leads. */
    if (next)
        tell(next, PUBLISH_LEADS);
    for (size_t i = 1; i < count; i++)
        tell(list[i], PUBLISH_DONE);
}
