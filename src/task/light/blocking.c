/* Functions that block outside the library run on helper pthreads while the light thread waits. */
#include <tws/thread.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "task/light/light.h"

#include <errno.h>

#define HELPERS_MAX 256
#define HELPER_IDLE_MS 10000
#define HELPER_STACK (256 * 1024)

struct light_job {
    struct light_job *next;
    void (*fn)(void *arg);
    void *arg;
    /* One of its light threads does; NULL: nobody, and it is on the heap. */
    struct task_runtime *waits;
    struct task_park done;
};

static _Thread_local struct task_runtime *waiting __attribute__((tls_model("initial-exec")));

struct task_runtime *light_waiting_runtime(void)
{
    return waiting;
}

static struct light_job *take_job(struct light_helpers *h)
{
    struct light_job *job = h->head;

    if (job) {
        h->head = job->next;
        if (!h->head)
            h->tail = NULL;
    }
    return job;
}

/* Waits for a job; NULL after some idle time, or when the runtime ends. mu is held. */
static struct light_job *next_job(struct light_helpers *h)
{
    struct light_job *job;

    while (!(job = take_job(h)) && !h->stop)
        if (task_queue_wait(&h->idle, &h->mu, task_deadline(HELPER_IDLE_MS)) == -ETIMEDOUT)
            return take_job(h);
    return job;
}

static void *helper_main(void *p)
{
    struct light_helpers *h = p;
    struct light_job *job;
    pthread_t previous;
    bool join;

    pthread_setname_np(pthread_self(), "tws-helper");
    pthread_mutex_lock(&h->mu);
    while ((job = next_job(h))) {
        pthread_mutex_unlock(&h->mu);
        waiting = job->waits;
        job->fn(job->arg);
        waiting = NULL;
        if (!job->waits)
            base_free(NULL, job);
        else
            task_unpark(&job->done); /* the job lies on the stack of who waits: gone after this */
        pthread_mutex_lock(&h->mu);
    }
    h->takers--;
    /* Each helper that ends joins the one that ended before. */
    join = h->have_last;
    previous = h->last;
    h->last = pthread_self();
    h->have_last = true;
    pthread_mutex_unlock(&h->mu);
    if (join)
        pthread_join(previous, NULL);
    pthread_mutex_lock(&h->mu);
    if (--h->count == 0)
        task_queue_wake_all(&h->gone);
    pthread_mutex_unlock(&h->mu);
    return NULL;
}

static int start_helper(struct light_helpers *h)
{
    pthread_attr_t attr;
    pthread_t thread;
    int r;

    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, HELPER_STACK);
    r = task_pthread_create(&thread, &attr, helper_main, h);
    pthread_attr_destroy(&attr);
    if (r == 0) {
        h->count++;
        h->takers++;
    }
    return r;
}

static int submit(struct light_helpers *h, struct light_job *job)
{
    int r = 0;

    pthread_mutex_lock(&h->mu);
    /* One that has been woken is not in the queue any more: it has its job. */
    if (!h->idle.head && h->takers < HELPERS_MAX)
        r = start_helper(h);
    if (r == 0 || h->takers > 0) { /* a busy one takes it in time */
        r = 0;
        if (h->tail)
            h->tail->next = job;
        else
            h->head = job;
        h->tail = job;
        task_queue_wake_one(&h->idle);
    }
    pthread_mutex_unlock(&h->mu);
    return r;
}

tws_err tws_blocking(void (*fn)(void *arg), void *arg)
{
    struct light_task *t = light_current();
    struct light_job job = {.fn = fn, .arg = arg};

    if (!t) {
        fn(arg);
        return TWS_OK;
    }
    job.waits = &t->carrier->rt->rt;
    task_park_init(&job.done);
    if (submit(&t->carrier->rt->helpers, &job) < 0)
        return TWS_ERR_SYSTEM;
    task_park(&job.done, TASK_FOREVER);
    return TWS_OK;
}

int light_background(struct task_runtime *rt, void (*fn)(void *), void *arg)
{
    struct light_job *job = base_calloc(NULL, sizeof *job);
    int r;

    if (!job)
        return -ENOMEM;
    job->fn = fn;
    job->arg = arg;
    r = submit(&((struct light_runtime *)rt)->helpers, job);
    if (r < 0)
        base_free(NULL, job);
    return r;
}

void light_helpers_init(struct light_helpers *h)
{
    pthread_mutex_init(&h->mu, NULL);
}

void light_helpers_stop(struct light_helpers *h)
{
    pthread_mutex_lock(&h->mu);
    h->stop = true;
    task_queue_wake_all(&h->idle);
    while (h->count > 0)
        task_queue_wait(&h->gone, &h->mu, TASK_FOREVER);
    pthread_mutex_unlock(&h->mu);
    if (h->have_last)
        pthread_join(h->last, NULL);
    pthread_mutex_destroy(&h->mu);
}
