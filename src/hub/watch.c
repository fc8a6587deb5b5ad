/* Telling a cluster which rooms have members. */
#include "hub/hub.h"

bool hub_watch_tell_locked(tws_hub *h, struct hub_room *r)
{
    size_t members;
    bool told;

    if (!h->watch)
        return true;
    members = room_members(r);
    told = h->watch->changed(h->watch, r, &r->mark, members);
    if (members == 0)
        r->mark = NULL;
    return told;
}

static struct hub_room *next_room_locked(tws_hub *h, size_t *at, struct hub_room *last)
{
    struct base_node *n = base_table_walk(&h->rooms, at, last ? &last->node : NULL);

    return n ? room_of_node(n) : NULL;
}

static void end_locked(tws_hub *h)
{
    struct hub_room *r = NULL;
    size_t at = 0;

    h->watch = NULL;
    while ((r = next_room_locked(h, &at, r)))
        r->mark = NULL;
}

tws_err hub_watch_begin(tws_hub *h, struct hub_watch *w)
{
    struct hub_room *r = NULL;
    tws_err err = TWS_OK;
    size_t at = 0;

    pthread_mutex_lock(&h->mu);
    if (h->watch) {
        pthread_mutex_unlock(&h->mu);
        return TWS_ERR_STATE;
    }
    h->watch = w;
    while (!err && (r = next_room_locked(h, &at, r)))
        if (!hub_watch_tell_locked(h, r))
            err = TWS_ERR_MEMORY;
    if (err)
        end_locked(h);
    pthread_mutex_unlock(&h->mu);
    return err;
}

void hub_watch_end(tws_hub *h)
{
    pthread_mutex_lock(&h->mu);
    end_locked(h);
    pthread_mutex_unlock(&h->mu);
}
