/* The rooms that a node knows. */
#include "base/clock.h"
#include "cluster/cluster.h"

#include <string.h>

static struct cluster_room *room_of(struct base_node *n)
{
    return (struct cluster_room *)(void *)n;
}

bool cluster_room_wanted(const struct cluster_room *r)
{
    return r->all || r->members > 0;
}

void cluster_room_link_locked(tws_cluster *c, struct cluster_room *r)
{
    r->next = NULL;
    r->prev = c->last;
    if (r->prev)
        r->prev->next = r;
    else
        c->first = r;
    c->last = r;
}

void cluster_room_unlink_locked(tws_cluster *c, struct cluster_room *r)
{
    if (r->prev)
        r->prev->next = r->next;
    else
        c->first = r->next;
    if (r->next)
        r->next->prev = r->prev;
    else
        c->last = r->prev;
}

static struct cluster_room *find_locked(tws_cluster *c, const char *subject, uint64_t hash,
                                        const char *name, size_t len)
{
    struct base_node *n = base_table_first(&c->rooms, hash);

    for (; n; n = base_table_next(n)) {
        struct cluster_room *r = room_of(n);

        /* Both: rooms with long names may share a subject. */
        if (r->name_len == len && memcmp(r->name, name, len) == 0 &&
            strcmp(r->subject, subject) == 0)
            return r;
    }
    return NULL;
}

struct cluster_room *cluster_room_find_locked(tws_cluster *c, const char *name, size_t len)
{
    char subject[CLUSTER_SUBJECT_MAX];
    size_t n;

    if (!name)
        return c->all;
    n = cluster_subject(subject, c->prefix, name, len, c->hash_digits);
    return find_locked(c, subject, base_hash(&c->key, subject, n), name, len);
}

static struct cluster_room *room_make(tws_cluster *c, const char *subject, size_t subject_len,
                                      const char *name, size_t len)
{
    struct cluster_room *r = base_calloc(c->opt.allocator, sizeof *r + len + 1 + subject_len + 1);

    if (!r)
        return NULL;
    r->name_len = len;
    memcpy(r->name, name, len);
    r->subject = r->name + len + 1;
    memcpy(r->subject, subject, subject_len + 1);
    return r;
}

struct cluster_room *cluster_room_get_locked(tws_cluster *c, const char *name, size_t len)
{
    char subject[CLUSTER_SUBJECT_MAX];
    size_t n = cluster_subject(subject, c->prefix, name, len, c->hash_digits);
    uint64_t hash = base_hash(&c->key, subject, n);
    struct cluster_room *r = NULL;

    if (name)
        r = find_locked(c, subject, hash, name, len);
    if (r)
        return r;
    r = room_make(c, subject, n, name ? name : "", len);
    if (!r)
        return NULL;
    r->all = !name;
    r->node.hash = hash;
    r->stream = ++c->streams;
    r->beat_at = INT64_MAX;
    r->spoke = r->empty = base_clock_ns();
    base_table_insert(&c->rooms, &r->node);
    cluster_room_link_locked(c, r);
    return r;
}

void cluster_room_forget_peers_locked(tws_cluster *c, struct cluster_room *r)
{
    while (r->peers) {
        struct cluster_peer *p = r->peers;

        r->peers = p->next;
        base_free(c->opt.allocator, p);
    }
    r->peer_count = 0;
}

void cluster_room_free_locked(tws_cluster *c, struct cluster_room *r)
{
    cluster_room_forget_peers_locked(c, r);
    base_table_remove(&c->rooms, &r->node);
    cluster_room_unlink_locked(c, r);
    base_free(c->opt.allocator, r);
}

void cluster_wake_locked(tws_cluster *c)
{
    c->woken = true;
    task_queue_wake_all(&c->wake);
}

void cluster_todo_locked(tws_cluster *c, struct cluster_room *r, int64_t delay_ns)
{
    int64_t at = base_clock_ns() + delay_ns;

    if (!r->todo) {
        r->todo = true;
        r->todo_next = c->todo;
        c->todo = r;
    }
    if (at < c->todo_at) {
        c->todo_at = at;
        cluster_wake_locked(c);
    }
}

int64_t cluster_random_locked(tws_cluster *c, int64_t limit)
{
    c->random ^= c->random << 13;
    c->random ^= c->random >> 7;
    c->random ^= c->random << 17;
    return limit > 0 ? (int64_t)(c->random % (uint64_t)limit) : 0;
}
