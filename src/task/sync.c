/* Mutex, condition and channel for application code on any kind of thread (tws/thread.h). */
#include <tws/thread.h>

#include "base/alloc.h"
#include "task/task.h"

#include <errno.h>

void tws_sleep(tws_ms ms)
{
    if (ms > 0)
        task_sleep(task_deadline(ms));
}

/* ---- Mutex ---- */

struct tws_mutex {
    task_mutex mu;
    uintptr_t owner;           /* mu; 0: free */
    struct task_queue waiters; /* mu */
};

tws_mutex *tws_mutex_new(void)
{
    tws_mutex *m = base_calloc(NULL, sizeof *m);

    if (m)
        pthread_mutex_init(&m->mu, NULL);
    return m;
}

void tws_mutex_free(tws_mutex *m)
{
    if (!m)
        return;
    pthread_mutex_destroy(&m->mu);
    base_free(NULL, m);
}

tws_err tws_mutex_lock(tws_mutex *m, tws_ms ms)
{
    int64_t deadline = task_deadline(ms);
    uintptr_t self = task_self();
    tws_err err = TWS_OK;

    if (ms < TWS_NOWAIT)
        return TWS_ERR_ARGUMENT;
    pthread_mutex_lock(&m->mu);
    if (m->owner == self)
        err = TWS_ERR_STATE;
    /* The one who unlocks promises it to the first in the queue. */
    else if (m->owner != 0 &&
             (ms == TWS_NOWAIT || task_queue_wait(&m->waiters, &m->mu, deadline) == -ETIMEDOUT))
        err = TWS_ERR_TIMEOUT;
    else
        m->owner = self;
    pthread_mutex_unlock(&m->mu);
    return err;
}

/* Hands the mutex to the thread that has waited longest; mu is held. Until that thread has run, the
 * owner is nobody in particular, so that a newcomer queues up behind it. */
static void release_locked(tws_mutex *m)
{
    static const uintptr_t promised = 1;

    m->owner = m->waiters.head ? promised : 0;
    task_queue_wake_one(&m->waiters);
}

tws_err tws_mutex_unlock(tws_mutex *m)
{
    tws_err err = TWS_OK;

    pthread_mutex_lock(&m->mu);
    if (m->owner == task_self())
        release_locked(m);
    else
        err = TWS_ERR_STATE;
    pthread_mutex_unlock(&m->mu);
    return err;
}

/* ---- Condition ---- */

struct tws_cond {
    task_mutex mu;
    struct task_queue waiters; /* mu */
};

tws_cond *tws_cond_new(void)
{
    tws_cond *c = base_calloc(NULL, sizeof *c);

    if (c)
        pthread_mutex_init(&c->mu, NULL);
    return c;
}

void tws_cond_free(tws_cond *c)
{
    if (!c)
        return;
    pthread_mutex_destroy(&c->mu);
    base_free(NULL, c);
}

tws_err tws_cond_wait(tws_cond *c, tws_mutex *m, tws_ms ms)
{
    int64_t deadline = task_deadline(ms);
    tws_err err;
    int r;

    if (ms < TWS_NOWAIT)
        return TWS_ERR_ARGUMENT;
    /* In the queue before the mutex is free: no signal in between is lost. */
    pthread_mutex_lock(&c->mu);
    err = tws_mutex_unlock(m);
    if (err) {
        pthread_mutex_unlock(&c->mu);
        return err;
    }
    r = task_queue_wait(&c->waiters, &c->mu, deadline);
    pthread_mutex_unlock(&c->mu);
    tws_mutex_lock(m, TWS_NO_LIMIT);
    return r == -ETIMEDOUT ? TWS_ERR_TIMEOUT : TWS_OK;
}

void tws_cond_signal(tws_cond *c)
{
    pthread_mutex_lock(&c->mu);
    task_queue_wake_one(&c->waiters);
    pthread_mutex_unlock(&c->mu);
}

void tws_cond_broadcast(tws_cond *c)
{
    pthread_mutex_lock(&c->mu);
    task_queue_wake_all(&c->waiters);
    pthread_mutex_unlock(&c->mu);
}

/* ---- Channel ---- */

struct tws_channel {
    task_mutex mu;
    struct task_queue senders, receivers; /* mu */
    size_t capacity, first, count;        /* mu */
    bool closed;                          /* mu */
    void *items[];
};

tws_channel *tws_channel_new(size_t capacity)
{
    tws_channel *ch;

    if (capacity == 0 || capacity > (SIZE_MAX - sizeof *ch) / sizeof(void *))
        return NULL;
    ch = base_calloc(NULL, sizeof *ch + capacity * sizeof(void *));
    if (!ch)
        return NULL;
    pthread_mutex_init(&ch->mu, NULL);
    ch->capacity = capacity;
    return ch;
}

void tws_channel_free(tws_channel *ch)
{
    if (!ch)
        return;
    pthread_mutex_destroy(&ch->mu);
    base_free(NULL, ch);
}

tws_err tws_channel_send(tws_channel *ch, void *item, tws_ms ms)
{
    int64_t deadline = task_deadline(ms);
    tws_err err = TWS_OK;

    if (ms < TWS_NOWAIT)
        return TWS_ERR_ARGUMENT;
    pthread_mutex_lock(&ch->mu);
    while (!ch->closed && ch->count == ch->capacity && !err)
        if (ms == TWS_NOWAIT || task_queue_wait(&ch->senders, &ch->mu, deadline) == -ETIMEDOUT)
            err = TWS_ERR_TIMEOUT;
    if (ch->closed) {
        err = TWS_ERR_CLOSED;
    } else if (ch->count < ch->capacity) {
        err = TWS_OK;
        ch->items[(ch->first + ch->count++) % ch->capacity] = item;
        task_queue_wake_one(&ch->receivers);
    }
    pthread_mutex_unlock(&ch->mu);
    return err;
}

tws_err tws_channel_receive(tws_channel *ch, void **item, tws_ms ms)
{
    int64_t deadline = task_deadline(ms);
    tws_err err = TWS_OK;

    *item = NULL;
    if (ms < TWS_NOWAIT)
        return TWS_ERR_ARGUMENT;
    pthread_mutex_lock(&ch->mu);
    while (!ch->closed && ch->count == 0 && !err)
        if (ms == TWS_NOWAIT || task_queue_wait(&ch->receivers, &ch->mu, deadline) == -ETIMEDOUT)
            err = TWS_ERR_TIMEOUT;
    if (ch->count > 0) {
        err = TWS_OK;
        *item = ch->items[ch->first];
        ch->first = (ch->first + 1) % ch->capacity;
        ch->count--;
        task_queue_wake_one(&ch->senders);
    } else if (ch->closed) {
        err = TWS_ERR_CLOSED;
    }
    pthread_mutex_unlock(&ch->mu);
    return err;
}

void tws_channel_close(tws_channel *ch)
{
    pthread_mutex_lock(&ch->mu);
    ch->closed = true;
    task_queue_wake_all(&ch->senders);
    task_queue_wake_all(&ch->receivers);
    pthread_mutex_unlock(&ch->mu);
}
