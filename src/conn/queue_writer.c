/*
 * The writer thread of a queue, and what those who want the writer's role have to do with the queue.
 *
 * A writer exists while a socket is full and something is queued (on demand), or from the first
 * queued message to the end (resident). Where no thread can be made, the queue is stranded: the
 * server's watch, the reader, and whoever writes send from it in passing.
 */
#include "conn/queue.h"

#include "base/clock.h"

#include <errno.h>

/* ---- The thread ---- */

/* Somebody waits for the role who may have it before the next queued message. */
bool conn_queue_asked_locked(const tws_conn *c)
{
    const struct conn_queue *q = conn_queue(c);

    for (const struct queue_turn *t = q ? q->asking : NULL; t; t = t->next)
        if (!conn_queue_before_locked(c, t->turn, t->seq) &&
            !(t->turn == CONN_TURN_DATA && c->writer))
            return true;
    return false;
}

static bool resident_locked(const tws_conn *c, const struct conn_queue *q)
{
    return q->opt.writer == TWS_WRITER_RESIDENT && conn_state(c) == CONN_OPEN;
}

/* Until the peer takes data. A peer that takes nothing ends the connection, unless the policy is to
 * drop messages for it. */
static tws_err await_peer_locked(tws_conn *c, struct conn_queue *q)
{
    struct conn_cause cause = {TWS_ERR_STALLED, TWS_PHASE_WRITE, TWS_CAUSE_TIMEOUT, 0,
                               "the peer took nothing of what was queued"};
    bool patient = q->opt.policy == TWS_QUEUE_DROP_NEWEST || q->opt.policy == TWS_QUEUE_DROP_OLDEST;
    tws_ms ms = conn_timeout(c, TWS_TIMEOUT_WRITE);
    int64_t mark = INT64_MAX;
    tws_err err;

    if (patient || ms < 0) /* nor does a deadline of the callers' count */
        ms = TWS_NO_LIMIT;
    conn_queue_progress(c, &mark);
    do
        err = conn_queue_room_locked(c, task_deadline(ms));
    while (err == TWS_ERR_TIMEOUT && conn_queue_progress(c, &mark));
    return err == TWS_ERR_TIMEOUT ? conn_end_locked(c, &cause) : err;
}

/* Sends until nothing is left that may leave, or somebody else is to have the role. */
static void work_locked(tws_conn *c, struct conn_queue *q)
{
    for (;;) {
        switch (conn_queue_push_locked(c, 1, false)) {
        case QUEUE_EMPTY:
        case QUEUE_OVER:
            return;
        case QUEUE_MORE:
            break;
        case QUEUE_FULL:
            if (await_peer_locked(c, q))
                return;
            break;
        }
        if (conn_queue_asked_locked(c)) {
            q->yield = true;
            return;
        }
    }
}

static void writer_main(void *conn)
{
    tws_conn *c = conn;
    struct conn_env *env = c->env;
    struct conn_queue *q = conn_queue(c);

    task_set_label(c->id);
    pthread_mutex_lock(&c->mu);
    while (conn_state(c) != CONN_ENDED && (q->head || resident_locked(c, q))) {
        if (c->writing || q->yield || !conn_queue_ready_locked(c)) {
            task_queue_wait(&q->work, &c->mu, TASK_FOREVER);
            continue;
        }
        c->writing = true;
        work_locked(c, q);
        conn_turn_release_locked(c);
    }
    q->writer = false;
    pthread_mutex_unlock(&c->mu);
    /* Its callers may have let go of it while this thread had messages in hand. */
    conn_tell_untold(env);
    atomic_fetch_sub(&env->writers, 1);
    conn_drop(c);
}

/* ---- Starting it ---- */

static void unstrand_locked(tws_conn *c, struct conn_queue *q)
{
    if (conn_queue_stranded(c) && c->hold && conn_out_len(c) == 0)
        hold_end(c->hold);
    atomic_store_explicit(&q->stranded, false, memory_order_relaxed);
}

static void spawned_locked(tws_conn *c, struct conn_queue *q)
{
    q->writer = true;
    q->count.writers_started++;
    unstrand_locked(c, q);
}

/* The watch looks at connections that hold something back. */
static void strand_locked(tws_conn *c, struct conn_queue *q)
{
    atomic_store(&q->stranded, true);
    if (c->hold)
        hold_begin(c->env->hold, c->hold);
}

void conn_queue_start_locked(tws_conn *c)
{
    struct conn_queue *q = conn_queue(c);
    bool resident = q && q->opt.writer == TWS_WRITER_RESIDENT;

    if (!q || conn_state(c) == CONN_ENDED)
        return;
    if (!q->head) {
        unstrand_locked(c, q);
        return;
    }
    if (q->writer) {
        task_queue_wake_all(&q->work);
        return;
    }
    /* Who gives the role back, or ends the message that is open, comes by here. */
    if (!resident && (c->writing || !conn_queue_ready_locked(c)))
        return;
    conn_keep(c);
    atomic_fetch_add(&c->env->writers, 1);
    if (conn_env_spawn(c->env, writer_main, c) == 0) {
        spawned_locked(c, q);
        return;
    }
    atomic_fetch_sub(&c->env->writers, 1);
    conn_drop(c); /* not the last: the caller has one */
    strand_locked(c, q);
}

/* ---- Those who want the role ---- */

bool conn_queue_waiting_locked(const tws_conn *c)
{
    const struct conn_queue *q = conn_queue(c);

    return q && q->head;
}

bool conn_queue_before_locked(const tws_conn *c, enum conn_turn turn, uint64_t seq)
{
    const struct conn_queue *q = conn_queue(c);

    if (!q || !q->head)
        return false;
    return q->head->begun || turn == CONN_TURN_CLOSE ||
           (turn == CONN_TURN_DATA && (q->head->bound || q->head->seq <= seq));
}

tws_err conn_queue_clear_locked(tws_conn *c, enum conn_turn turn, uint64_t seq, struct conn_wait *w)
{
    bool begun_only = turn == CONN_TURN_CONTROL || turn == CONN_TURN_WRITER;
    tws_err err = TWS_OK;

    while (!err && conn_queue_before_locked(c, turn, seq)) {
        if (turn != CONN_TURN_CLOSE && conn_state(c) != CONN_OPEN)
            return conn_sticky_locked(c);
        switch (conn_queue_push_locked(c, 1, begun_only)) {
        case QUEUE_EMPTY:
        case QUEUE_MORE:
            break;
        case QUEUE_OVER:
            return conn_sticky_locked(c);
        case QUEUE_FULL:
            if (w->ms == TWS_NOWAIT)
                return TWS_ERR_TIMEOUT;
            c->write_blocked = turn != CONN_TURN_CLOSE;
            err = conn_queue_room_locked(c, conn_wait_deadline(w));
            c->write_blocked = false;
            break;
        }
    }
    return err;
}

tws_err conn_queue_help_locked(tws_conn *c, int64_t deadline)
{
    struct conn_queue *q = conn_queue(c);
    struct conn_wait w = {.ms = TWS_NO_LIMIT, .deadline = deadline};
    tws_err err;

    conn_queue_start_locked(c);
    if (q->writer || c->writing || !conn_queue_ready_locked(c))
        return TWS_OK;
    c->writing = true;
    err = conn_queue_clear_locked(c, CONN_TURN_DATA, q->head->seq, &w);
    conn_turn_give_locked(c);
    return err;
}
