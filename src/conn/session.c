/* Values by name, kept with a connection. Made when the first one is stored. */
#include "conn/conn.h"

#include <tws/session.h>

/* NULL: no memory. */
static struct base_dict *session_of(tws_conn *c)
{
    struct base_dict *made, *was = atomic_load(&c->session);

    if (was)
        return was;
    made = base_dict_new(c->env->allocator);
    if (!made || atomic_compare_exchange_strong(&c->session, &was, made))
        return made;
    base_dict_free(made); /* another thread was faster */
    return was;
}

tws_err tws_session_set(tws_conn *c, const char *key, void *value, tws_destroy_fn destroy)
{
    struct base_dict *d;

    if (!key)
        return TWS_ERR_ARGUMENT;
    d = session_of(c);
    if (!d || base_dict_set(d, key, value, destroy, NULL, NULL) == BASE_DICT_NO_MEMORY)
        return TWS_ERR_MEMORY;
    return TWS_OK;
}

void *tws_session_get(tws_conn *c, const char *key)
{
    struct base_dict *d = atomic_load(&c->session);

    return d && key ? base_dict_get(d, key, NULL) : NULL;
}

bool tws_session_delete(tws_conn *c, const char *key)
{
    struct base_dict *d = atomic_load(&c->session);

    return d && key && base_dict_delete(d, key, NULL);
}

size_t tws_session_each(tws_conn *c, tws_session_fn fn, void *arg)
{
    struct base_dict *d = atomic_load(&c->session);

    return d ? base_dict_each(d, fn, arg) : 0;
}
