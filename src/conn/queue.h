/*
 * queue.h: messages that wait for a slow peer, inside.
 *
 * The queue belongs to c->mu, and is made when it is first needed. Its head may be half sent: then
 * nothing else may leave before the rest of it. Whoever has the writer's role sends from it.
 */
#ifndef CONN_QUEUE_H
#define CONN_QUEUE_H

#include <tws/prepared.h>
#include <tws/queue.h>

#include "conn/conn.h"

/* ---- For the hub ---- */

/* What became of a message that was handed over. */
struct conn_put {
    tws_err err;      /* TWS_OK: accepted; TWS_ERR_QUEUE_FULL: not taken; else as tws_write_async */
    bool direct;      /* the socket has taken all of it already; else it is queued */
    uint32_t dropped; /* older messages that made room for it */
};

/*
 * tws_write_prepared_async without a callback, for a publisher: never waits, whatever the policy
 * (under WAIT a full queue refuses at once) and whatever the writer mode (under NONE a message that
 * would have to wait is refused with TWS_ERR_QUEUE_FULL; only for the rest of a frame that the
 * socket took half of, a writer is started).
 */
struct conn_put conn_put_prepared(tws_conn *c, tws_prepared *p);

/* ---- When a connection has ended ---- */

/* Part of whatever its owner keeps about the connection. */
struct conn_end_hook {
    struct conn_end_hook *next, *prev; /* c->mu */
    /* Called once, where completions run (tws/queue.h), with no lock held; c is valid during it. The
     * hook is the owner's again. */
    void (*fn)(tws_conn *c, struct conn_end_hook *hook);
    bool linked; /* c->mu */
};

/* False: the connection has ended already, and fn will not be called. */
bool conn_on_end(tws_conn *c, struct conn_end_hook *hook);
/* True: fn will not be called. False: it has been or is about to be, in another thread. */
bool conn_off_end(tws_conn *c, struct conn_end_hook *hook);

#endif
