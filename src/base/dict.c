#include "base/dict.h"

#include "base/random.h"

#include <string.h>

/*
 * Entries stand in a table, where they are found, and in a list in order of age, where they are
 * visited. A visitor pins the entry it is at: a pinned one that is deleted stays in the list, so
 * that the visitor finds the way on.
 */
struct entry {
    struct base_node node; /* of table, unless it is dead */
    struct entry *next, *prev;
    uint64_t seq;
    uint32_t pins;
    bool dead; /* replaced or deleted */
    void *value;
    void (*destroy)(void *);
    char key[];
};

struct base_dict {
    const tws_allocator *allocator;
    struct base_key hash_key;
    pthread_mutex_t mu;
    struct base_table table;   /* mu */
    struct entry *head, *tail; /* mu */
    uint64_t seq;              /* mu: of the youngest entry */
};

struct base_dict *base_dict_new(const tws_allocator *a)
{
    struct base_dict *d = base_calloc(a, sizeof *d);

    if (!d)
        return NULL;
    d->allocator = a;
    if (!base_random(&d->hash_key, sizeof d->hash_key) || !base_table_init(&d->table, a)) {
        base_free(a, d);
        return NULL;
    }
    pthread_mutex_init(&d->mu, NULL);
    return d;
}

/* ---- Entries ---- */

static struct entry *find_locked(struct base_dict *d, const char *key, uint64_t hash)
{
    struct base_node *n = base_table_first(&d->table, hash);

    while (n && strcmp(((struct entry *)(void *)n)->key, key) != 0)
        n = base_table_next(n);
    return (struct entry *)(void *)n;
}

static struct entry *entry_new(struct base_dict *d, const char *key, size_t len)
{
    struct entry *e = base_calloc(d->allocator, sizeof *e + len + 1);

    if (e)
        memcpy(e->key, key, len + 1);
    return e;
}

static void link_locked(struct base_dict *d, struct entry *e)
{
    e->seq = ++d->seq;
    e->prev = d->tail;
    if (d->tail)
        d->tail->next = e;
    else
        d->head = e;
    d->tail = e;
    base_table_insert(&d->table, &e->node);
}

static void unlink_locked(struct base_dict *d, struct entry *e)
{
    if (e->prev)
        e->prev->next = e->next;
    else
        d->head = e->next;
    if (e->next)
        e->next->prev = e->prev;
    else
        d->tail = e->prev;
}

static void entry_free(struct base_dict *d, struct entry *e)
{
    if (e && e->destroy)
        e->destroy(e->value);
    base_free(d->allocator, e);
}

/* Gives e back to be freed when the lock is not held any more; NULL: a visitor will do that. */
static struct entry *bury_locked(struct base_dict *d, struct entry *e)
{
    if (e->pins > 0)
        return NULL;
    unlink_locked(d, e);
    return e;
}

static struct entry *remove_locked(struct base_dict *d, struct entry *e)
{
    base_table_remove(&d->table, &e->node);
    e->dead = true;
    return bury_locked(d, e);
}

void base_dict_free(struct base_dict *d)
{
    struct entry *e;

    if (!d)
        return;
    while ((e = d->head)) { /* what destroys one may delete another */
        if (!e->dead)
            base_table_remove(&d->table, &e->node);
        unlink_locked(d, e);
        entry_free(d, e);
    }
    base_table_destroy(&d->table);
    pthread_mutex_destroy(&d->mu);
    base_free(d->allocator, d);
}

/* ---- Calls ---- */

enum base_dict_result base_dict_set(struct base_dict *d, const char *key, void *value,
                                    void (*destroy)(void *), base_dict_hold *hold, void **old)
{
    enum base_dict_result result = BASE_DICT_SET;
    size_t len = strlen(key);
    struct entry *e = entry_new(d, key, len), *was, *dead = NULL;

    if (!e)
        return BASE_DICT_NO_MEMORY;
    e->node.hash = base_hash(&d->hash_key, key, len);
    e->value = value;
    e->destroy = destroy;
    pthread_mutex_lock(&d->mu);
    was = find_locked(d, key, e->node.hash);
    if (was && old) {
        *old = was->value;
        if (hold)
            hold(*old);
    }
    if (was && was->value == value) {
        was->destroy = destroy;
        e->destroy = NULL;
        dead = e;
        result = BASE_DICT_SAME;
    } else {
        if (was)
            dead = remove_locked(d, was);
        link_locked(d, e);
    }
    pthread_mutex_unlock(&d->mu);
    entry_free(d, dead);
    return result;
}

void *base_dict_get(struct base_dict *d, const char *key, base_dict_hold *hold)
{
    uint64_t hash = base_hash(&d->hash_key, key, strlen(key));
    void *value = NULL;
    struct entry *e;

    pthread_mutex_lock(&d->mu);
    e = find_locked(d, key, hash);
    if (e)
        value = e->value;
    if (e && hold)
        hold(value);
    pthread_mutex_unlock(&d->mu);
    return value;
}

bool base_dict_delete(struct base_dict *d, const char *key, const void *only)
{
    uint64_t hash = base_hash(&d->hash_key, key, strlen(key));
    struct entry *e, *dead = NULL;

    pthread_mutex_lock(&d->mu);
    e = find_locked(d, key, hash);
    if (e && only && e->value != only)
        e = NULL;
    if (e)
        dead = remove_locked(d, e);
    pthread_mutex_unlock(&d->mu);
    entry_free(d, dead);
    return e != NULL;
}

size_t base_dict_count(struct base_dict *d)
{
    size_t count;

    pthread_mutex_lock(&d->mu);
    count = d->table.count;
    pthread_mutex_unlock(&d->mu);
    return count;
}

/* ---- Visiting ---- */

/* e, or the next one behind it that is there and not younger than `last`; pinned. */
static struct entry *pin_from_locked(struct entry *e, uint64_t last)
{
    while (e && e->dead && e->seq <= last)
        e = e->next;
    if (!e || e->seq > last)
        return NULL;
    e->pins++;
    return e;
}

size_t base_dict_each(struct base_dict *d, bool (*fn)(const char *key, void *value, void *arg),
                      void *arg)
{
    struct entry *e, *next, *dead;
    size_t visited = 0;
    uint64_t last;
    bool go_on;

    pthread_mutex_lock(&d->mu);
    last = d->seq;
    e = pin_from_locked(d->head, last);
    while (e) {
        pthread_mutex_unlock(&d->mu);
        visited++;
        go_on = fn(e->key, e->value, arg);
        pthread_mutex_lock(&d->mu);
        next = go_on ? pin_from_locked(e->next, last) : NULL;
        e->pins--;
        dead = e->dead ? bury_locked(d, e) : NULL;
        if (dead) {
            pthread_mutex_unlock(&d->mu);
            entry_free(d, dead);
            pthread_mutex_lock(&d->mu);
        }
        e = next;
    }
    pthread_mutex_unlock(&d->mu);
    return visited;
}
