#include "worker.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "conn.h"

enum {
    EVENTS = 256,
    SENDS_PER_TURN = 64, /* then replies are read */
};

/*
 * A thread with many messages a second looks at the schedule at most so often: a wake-up for each would cost more
 * than the message. The wait is part of the lag that is reported. Quiet threads wake exactly when a message is due.
 */
#define BUSY_TICK (200 * UINT64_C(1000))
#define BUSY_RATE 5000

void list_add(struct conn_list *l, struct conn *c)
{
    c->next = NULL;
    c->prev = l->last;
    if (l->last != NULL)
        l->last->next = c;
    else
        l->first = c;
    l->last = c;
    l->count++;
}

void list_remove(struct conn_list *l, struct conn *c)
{
    if (c->prev != NULL)
        c->prev->next = c->next;
    else
        l->first = c->next;
    if (c->next != NULL)
        c->next->prev = c->prev;
    else
        l->last = c->prev;
    c->next = c->prev = NULL;
    l->count--;
}

static void init_conn(struct worker *w, unsigned i)
{
    const struct options *o = w->run->opt;
    struct conn *c = &w->conns[i];
    c->worker = w;
    c->stream.fd = -1;
    c->id = w->index + i * w->run->worker_count;
    c->url_index = c->id % o->url_count;
    c->url = &o->urls[c->url_index];
    c->sender = !o->connect_only && (!o->broadcast || c->id < o->senders);
    c->muted = o->broadcast && c->id >= o->connections - o->muted;
}

int worker_init(struct worker *w, struct run *r, unsigned index, const char **why)
{
    const struct options *o = r->opt;
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = NULL};
    *w = (struct worker){.run = r, .index = index, .epoll = -1, .wake = -1};
    w->steady_start = w->end = UINT64_MAX;
    w->count = (o->connections - index + r->worker_count - 1) / r->worker_count;
    w->pace.burst = o->burst;
    w->pace.interval = o->rate > 0 ? o->burst / o->rate * 1e9 : 0;
    *why = "out of memory";
    w->conns = calloc(w->count, sizeof *w->conns);
    w->stats = calloc(1, sizeof *w->stats);
    w->url_stats = calloc(o->url_count, sizeof *w->url_stats);
    w->rx_buffer = malloc(RX_BUFFER);
    if (w->conns == NULL || w->stats == NULL || w->url_stats == NULL || w->rx_buffer == NULL ||
        heap_init(&w->heap, w->count) != 0)
        return -1;
    for (unsigned i = 0; i < w->count; i++)
        init_conn(w, i);
    if (worker_frames(w, 0) == NULL)
        return -1;
    w->epoll = epoll_create1(EPOLL_CLOEXEC);
    w->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    *why = strerror(errno);
    if (w->epoll < 0 || w->wake < 0 || epoll_ctl(w->epoll, EPOLL_CTL_ADD, w->wake, &ev) != 0)
        return -1;
    return 0;
}

void worker_clear(struct worker *w)
{
    for (unsigned i = 0; w->conns != NULL && i < w->count; i++)
        if (w->conns[i].state != CONN_IDLE)
            conn_end(&w->conns[i]);
    for (int i = 0; i < DEFLATE_FRAMES; i++)
        frames_clear(&w->frames[i]);
    heap_clear(&w->heap);
    free(w->conns);
    free(w->stats);
    free(w->url_stats);
    free(w->rx_buffer);
    if (w->epoll >= 0)
        close(w->epoll);
    if (w->wake >= 0)
        close(w->wake);
}

struct frames *worker_frames(struct worker *w, int window_bits)
{
    const struct options *o = w->run->opt;
    struct frames *f = &w->frames[window_bits];
    if (!w->frames_made[window_bits] &&
        frames_build(f, &w->run->bodies, window_bits, o->deflate_level, o->zero_mask) != 0)
        return NULL;
    w->frames_made[window_bits] = true;
    return f;
}

void worker_wake(struct worker *w)
{
    eventfd_write(w->wake, 1);
}

static void each_open(struct worker *w, void (*fn)(struct conn *c))
{
    for (unsigned i = 0; i < w->count; i++)
        if (w->conns[i].state == CONN_OPEN)
            fn(&w->conns[i]);
}

static void start_one(struct conn *c)
{
    if (c->start == 0)
        conn_start_schedule(c, c->worker->run->load_start);
}

/* Connections still in the making when it is time to go. */
static void give_up_opening(struct worker *w)
{
    while (w->opening.first != NULL) {
        struct conn *c = w->opening.first;
        counter_add(&w->stats->connecting, (uint64_t)-1);
        list_remove(&w->opening, c);
        stream_close(&c->stream);
        free(c->handshake);
        c->handshake = NULL;
        c->state = CONN_GONE;
    }
}

static void follow_phase(struct worker *w)
{
    int phase = atomic_load_explicit(&w->run->phase, memory_order_acquire);
    while ((int)w->phase < phase) {
        w->phase++;
        w->steady_start = w->run->steady_start;
        w->end = w->run->end;
        if (w->phase == PHASE_WARMUP) {
            if (!w->run->opt->connect_only && phase < PHASE_DRAIN)
                each_open(w, start_one);
        } else if (w->phase == PHASE_CLOSE) {
            give_up_opening(w);
            each_open(w, conn_settle);
            each_open(w, conn_close);
        }
    }
}

/* When the next connection is to be made; UINT64_MAX: not now. */
static uint64_t next_connect(const struct worker *w)
{
    const struct options *o = w->run->opt;
    if (w->next_connect >= w->count || w->phase >= PHASE_DRAIN)
        return UINT64_MAX;
    if (o->connect_rate > 0)
        return w->run->t0 + (uint64_t)(w->conns[w->next_connect].id / o->connect_rate * 1e9);
    unsigned share = (o->connect_parallel + w->run->worker_count - 1) / w->run->worker_count;
    return w->opening.count < share ? 0 : UINT64_MAX;
}

static void make_connections(struct worker *w, uint64_t now)
{
    uint64_t due;
    for (int i = 0; i < SENDS_PER_TURN && (due = next_connect(w)) <= now; i++) {
        struct conn *c = &w->conns[w->next_connect++];
        conn_connect(c, due != 0 ? due : clock_ns());
    }
}

static void send_due(struct worker *w, uint64_t now)
{
    for (int i = 0; i < SENDS_PER_TURN && heap_next(&w->heap) <= now; i++) {
        struct conn *c = heap_pop(&w->heap);
        c->tx.queued = false;
        if (c->state == CONN_OPEN && !c->tx.behind)
            conn_send(c);
    }
    counter_set(&w->stats->queued, heap_next(&w->heap) < w->end ? w->heap.count : 0);
}

static void expire(struct worker *w, uint64_t now)
{
    while (w->opening.first != NULL && w->opening.first->deadline <= now)
        conn_expire(w->opening.first);
    while (w->closing.first != NULL && w->closing.first->deadline <= now)
        conn_expire(w->closing.first);
}

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* How long to wait for events, in nanoseconds; UINT64_MAX: until there is one. */
static uint64_t idle_time(const struct worker *w, uint64_t now)
{
    const struct options *o = w->run->opt;
    uint64_t due = heap_next(&w->heap);
    if (due > now && o->rate * w->count > BUSY_RATE && due < now + BUSY_TICK)
        due = now + BUSY_TICK;
    due = min_u64(due, next_connect(w));
    if (w->opening.first != NULL)
        due = min_u64(due, w->opening.first->deadline);
    if (w->closing.first != NULL)
        due = min_u64(due, w->closing.first->deadline);
    if (due == UINT64_MAX)
        return UINT64_MAX;
    return due > now ? due - now : 0;
}

static void dispatch(struct conn *c, uint32_t events)
{
    if (c->state == CONN_IDLE || c->state == CONN_GONE)
        return;
    if (c->state < CONN_OPEN) {
        conn_progress(c, events);
        return;
    }
    if (c->muted) {
        if ((events & (EPOLLERR | EPOLLHUP)) != 0)
            conn_end(c);
        return;
    }
    if ((events & (EPOLLIN | EPOLLERR | EPOLLHUP)) != 0)
        conn_receive(c);
    bool writable = (events & EPOLLOUT) != 0 || c->stream.ssl != NULL;
    if (writable && (c->state == CONN_OPEN || c->state == CONN_CLOSING) &&
        (c->tx.batch != 0 || c->tx.control_len != 0 || c->tx.behind))
        conn_send(c);
}

static bool finished(const struct worker *w)
{
    return w->phase == PHASE_CLOSE && w->closing.count == 0;
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    struct epoll_event events[EVENTS];
    atomic_store(&w->tid, gettid());
    prctl(PR_SET_TIMERSLACK, 1000UL, 0, 0, 0);
    while (1) {
        uint64_t now = clock_ns();
        follow_phase(w);
        make_connections(w, now);
        send_due(w, now);
        expire(w, now);
        if (finished(w))
            break;
        uint64_t wait = idle_time(w, clock_ns());
        struct timespec ts = {(time_t)(wait / NS_PER_S), (long)(wait % NS_PER_S)};
        int n = epoll_pwait2(w->epoll, events, EVENTS, wait != UINT64_MAX ? &ts : NULL, NULL);
        follow_phase(w); /* what came in may be an effect of the new one */
        for (int i = 0; i < n; i++) {
            eventfd_t ignored;
            if (events[i].data.ptr == NULL)
                eventfd_read(w->wake, &ignored);
            else
                dispatch(events[i].data.ptr, events[i].events);
        }
    }
    eventfd_write(w->run->wake, 1);
    return NULL;
}

int worker_start(struct worker *w)
{
    if (pthread_create(&w->thread, NULL, worker_main, w) != 0)
        return -1;
    w->started = true;
    return pthread_getcpuclockid(w->thread, &w->cpu_clock) == 0 ? 0 : -1;
}
