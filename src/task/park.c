/* Park and wake, and the queue built on them. */
#include "task/task.h"

#include "base/clock.h"
#include "task/light/light.h"
#include "task/park.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

int64_t task_deadline(tws_ms ms)
{
    if (ms == TWS_NO_LIMIT || ms == INT64_MIN) /* which has no opposite; callers refuse it */
        return TASK_FOREVER;
    if (ms < 0)
        return ms == TWS_NOWAIT ? TASK_NOW : -ms;
    if (ms > INT64_MAX / (4 * BASE_NS_PER_MS))
        return TASK_FOREVER;
    return base_clock_ns() + ms * BASE_NS_PER_MS;
}

/* Waits while *word is `value`; an early return is harmless. False when the deadline has come. */
static bool futex_wait(_Atomic uint32_t *word, uint32_t value, int64_t deadline)
{
    struct timespec ts;
    struct timespec *limit = NULL;

    if (deadline != TASK_FOREVER) {
        ts = base_timespec(deadline);
        limit = &ts;
    }
    return syscall(SYS_futex, word, FUTEX_WAIT_BITSET_PRIVATE, value, limit, NULL,
                   FUTEX_BITSET_MATCH_ANY) == 0 ||
           errno != ETIMEDOUT;
}

void task_park_init(struct task_park *p)
{
    atomic_init(&p->state, PARK_EMPTY);
    atomic_init(&p->task, NULL);
}

int task_park(struct task_park *p, int64_t deadline)
{
    struct light_task *t = light_current();
    uint32_t state = PARK_EMPTY;

    if (t)
        return light_park(t, p, deadline);
    if (atomic_compare_exchange_strong(&p->state, &state, PARK_WAITING)) {
        while (atomic_load(&p->state) == PARK_WAITING)
            if (!futex_wait(&p->state, PARK_WAITING, deadline))
                break;
    }
    /* A word that came together with the deadline counts. */
    return atomic_exchange(&p->state, PARK_EMPTY) == PARK_NOTIFIED ? 0 : -ETIMEDOUT;
}

void task_unpark(struct task_park *p)
{
    uint32_t state = atomic_load(&p->state);
    void *task;

    /* Once the word is there the waiter may go on, and p with it: who it is has to be known before. */
    do
        task = state == PARK_WAITING ? atomic_load_explicit(&p->task, memory_order_relaxed) : NULL;
    while (!atomic_compare_exchange_weak(&p->state, &state, PARK_NOTIFIED));
    if (state != PARK_WAITING)
        return;
    if (task)
        light_make_ready(task);
    else /* no more than an address to the kernel */
        syscall(SYS_futex, &p->state, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void queue_remove(struct task_queue *q, struct task_wait *w)
{
    if (w->prev)
        w->prev->next = w->next;
    else
        q->head = w->next;
    if (w->next)
        w->next->prev = w->prev;
    else
        q->tail = w->prev;
    w->queued = false;
}

int task_queue_wait(struct task_queue *q, task_mutex *mu, int64_t deadline)
{
    struct task_wait w = {.next = NULL, .prev = q->tail, .queued = true};
    int r;

    task_park_init(&w.park);
    if (q->tail)
        q->tail->next = &w;
    else
        q->head = &w;
    q->tail = &w;
    pthread_mutex_unlock(mu);
    r = task_park(&w.park, deadline);
    pthread_mutex_lock(mu);
    if (!w.queued)
        return 0;
    queue_remove(q, &w);
    return r;
}

void task_queue_wake_one(struct task_queue *q)
{
    struct task_wait *w = q->head;

    if (!w)
        return;
    queue_remove(q, w);
    task_unpark(&w->park);
}

void task_queue_wake_all(struct task_queue *q)
{
    while (q->head)
        task_queue_wake_one(q);
}
