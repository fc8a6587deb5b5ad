/*
 * Messages of one connection handled at the same time: the thread that reads hands copies to workers,
 * which come when they are needed and leave when there is nothing to do.
 */
#include "event/event.h"

#include "base/clock.h"

/* A worker that has had nothing to do for so long leaves. */
#define IDLE_NS BASE_NS_PER_S

/* ---- Workers ---- */

static void handle(struct event_parallel *p, tws_message m)
{
    tws_message shown = m;

    conn_message_lend(&m);
    p->on_message(p->conn, &shown, p->arg);
    conn_message_reclaim(&m);
}

static void done_locked(struct event_parallel *p)
{
    p->busy--;
    task_queue_wake_one(&p->room);
}

static void work_locked(struct event_parallel *p)
{
    tws_message m = p->ring[p->begin];

    p->begin = (p->begin + 1) % p->limit;
    p->waiting--;
    pthread_mutex_unlock(&p->mu);
    handle(p, m);
    pthread_mutex_lock(&p->mu);
    done_locked(p);
}

static void enlist_locked(struct event_parallel *p, struct event_worker *w)
{
    w->thread = task_self();
    w->next = p->workers;
    w->link = &p->workers;
    if (w->next)
        w->next->link = &w->next;
    p->workers = w;
}

static void leave_locked(struct event_parallel *p, struct event_worker *w)
{
    *w->link = w->next;
    if (w->next)
        w->next->link = w->link;
    if (--p->count == 0)
        task_queue_wake_all(&p->gone);
}

static void worker_main(void *arg)
{
    struct event_parallel *p = arg;
    struct event_worker w;
    int r = 0;

    pthread_mutex_lock(&p->mu);
    enlist_locked(p, &w);
    for (;;) {
        if (p->waiting > 0) {
            work_locked(p);
            r = 0;
            continue;
        }
        if (r < 0 || p->stop)
            break;
        p->idle++;
        r = task_queue_wait(&p->work, &p->mu, base_clock_ns() + IDLE_NS);
        p->idle--;
    }
    leave_locked(p, &w);
    pthread_mutex_unlock(&p->mu);
}

bool event_parallel_here(struct event_parallel *p)
{
    uintptr_t self = task_self();
    bool here = false;

    pthread_mutex_lock(&p->mu);
    for (const struct event_worker *w = p->workers; w && !here; w = w->next)
        here = w->thread == self;
    pthread_mutex_unlock(&p->mu);
    return here;
}

/* ---- The reader's side ---- */

/* False: no memory. */
static bool start(struct event_run *r)
{
    uint32_t limit = r->events->parallel;
    struct event_parallel *p =
        base_calloc(r->conn->env->allocator, sizeof *p + limit * sizeof *p->ring);

    if (!p)
        return false;
    p->conn = r->conn;
    p->on_message = r->events->on_message;
    p->arg = r->arg;
    p->limit = limit;
    pthread_mutex_init(&p->mu, NULL);
    pthread_mutex_lock(&r->conn->mu);
    r->parallel = p;
    pthread_mutex_unlock(&r->conn->mu);
    return true;
}

/* A worker for one message more than there are idle ones. False: there is none and can be none. */
static bool call_worker_locked(struct event_parallel *p)
{
    if (p->idle > p->waiting) {
        task_queue_wake_one(&p->work);
        return true;
    }
    if (p->count == p->limit) /* one of them is done and looks for more */
        return true;
    p->count++;
    if (conn_spawn(p->conn, worker_main, p) == 0)
        return true;
    p->count--;
    return false;
}

/* Hands it over. False: it is still the caller's, who counts as a worker until done_locked(). */
static bool put_locked(struct event_parallel *p, const tws_message *m)
{
    if (!call_worker_locked(p))
        return false;
    p->ring[(p->begin + p->waiting) % p->limit] = *m;
    p->waiting++;
    return true;
}

void event_handle_parallel(struct event_run *r, tws_message *m)
{
    struct event_parallel *p;
    bool taken;

    if (!r->parallel && !start(r)) {
        r->events->on_message(r->conn, m, r->arg);
        return;
    }
    p = r->parallel;
    taken = tws_message_take(r->conn, m) == TWS_OK;
    pthread_mutex_lock(&p->mu);
    while (p->busy == p->limit)
        task_queue_wait(&p->room, &p->mu, TASK_FOREVER);
    p->busy++;
    if (!taken || !put_locked(p, m)) {
        pthread_mutex_unlock(&p->mu);
        if (taken)
            handle(p, *m);
        else
            p->on_message(p->conn, m, p->arg);
        pthread_mutex_lock(&p->mu);
        done_locked(p);
    }
    pthread_mutex_unlock(&p->mu);
}

void event_parallel_end(struct event_run *r)
{
    struct event_parallel *p = r->parallel;

    if (!p)
        return;
    pthread_mutex_lock(&p->mu);
    p->stop = true;
    task_queue_wake_all(&p->work);
    while (p->count > 0)
        task_queue_wait(&p->gone, &p->mu, TASK_FOREVER);
    pthread_mutex_unlock(&p->mu);
    pthread_mutex_lock(&r->conn->mu);
    r->parallel = NULL;
    pthread_mutex_unlock(&r->conn->mu);
    pthread_mutex_destroy(&p->mu);
    base_free(r->conn->env->allocator, p);
}
