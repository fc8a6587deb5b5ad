/* Connections by name. */
#include "conn/conn.h"

#include <tws/map.h>

struct tws_map {
    const tws_allocator *allocator;
    struct base_dict *names;
};

static void hold(void *conn)
{
    tws_conn_ref(conn);
}

static void unref(void *conn)
{
    tws_conn_unref(conn);
}

tws_map *tws_map_new(const tws_allocator *allocator)
{
    tws_map *m = base_calloc(allocator, sizeof *m);

    if (!m)
        return NULL;
    m->allocator = allocator;
    m->names = base_dict_new(allocator);
    if (m->names)
        return m;
    base_free(allocator, m);
    return NULL;
}

void tws_map_free(tws_map *m)
{
    if (!m)
        return;
    base_dict_free(m->names);
    base_free(m->allocator, m);
}

tws_err tws_map_set(tws_map *m, const char *key, tws_conn *c, tws_conn **old)
{
    enum base_dict_result r;
    void *was = NULL;

    if (old)
        *old = NULL;
    if (!key || !c)
        return TWS_ERR_ARGUMENT;
    r = base_dict_set(m->names, key, tws_conn_ref(c), unref, hold, old ? &was : NULL);
    if (r != BASE_DICT_SET)
        tws_conn_unref(c); /* it has a reference already, or will have none */
    if (r == BASE_DICT_NO_MEMORY)
        return TWS_ERR_MEMORY;
    if (old)
        *old = was;
    return TWS_OK;
}

tws_conn *tws_map_get(tws_map *m, const char *key)
{
    return key ? base_dict_get(m->names, key, hold) : NULL;
}

bool tws_map_delete(tws_map *m, const char *key, const tws_conn *only)
{
    return key && base_dict_delete(m->names, key, only);
}

size_t tws_map_count(tws_map *m)
{
    return base_dict_count(m->names);
}

/* ---- Visiting ---- */

struct visit {
    tws_map_fn fn;
    void *arg;
};

static bool visit_one(const char *key, void *value, void *arg)
{
    const struct visit *v = arg;

    return v->fn(key, value, v->arg);
}

size_t tws_map_each(tws_map *m, tws_map_fn fn, void *arg)
{
    struct visit v = {fn, arg};

    return base_dict_each(m->names, visit_one, &v);
}
