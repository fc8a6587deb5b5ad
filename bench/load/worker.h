#ifndef LOAD_WORKER_H
#define LOAD_WORKER_H

#include <pthread.h>

#include "run.h"
#include "schedule.h"

struct conn;

struct conn_list {
    struct conn *first, *last;
    unsigned count;
};

enum { RX_BUFFER = 256 * 1024 };

/* A load thread with its share of the connections. */
struct worker {
    struct run *run;
    unsigned index;
    pthread_t thread;
    bool started;
    clockid_t cpu_clock;
    _Atomic int tid; /* 0 until the thread runs */
    int epoll, wake;

    struct conn *conns;
    unsigned count;
    unsigned next_connect; /* first that was not tried */
    unsigned source_shift; /* local addresses given up for want of ports */

    struct heap heap;
    struct pace pace;
    struct conn_list opening, closing; /* by deadline */
    struct frames frames[DEFLATE_FRAMES];
    bool frames_made[DEFLATE_FRAMES];
    uint8_t *rx_buffer;

    /* Copies of the run's, taken when the phase changed. */
    enum phase phase;
    uint64_t steady_start, end;

    struct stats *stats;
    struct url_stats *url_stats;
};

/* Both return 0, or -1 with *why set. */
int worker_init(struct worker *w, struct run *r, unsigned index, const char **why);
int worker_start(struct worker *w);
void worker_clear(struct worker *w);

/* Makes the thread look at the phase. */
void worker_wake(struct worker *w);

/* Frames for the agreed window (0 = not deflated); NULL when memory ran out. */
struct frames *worker_frames(struct worker *w, int window_bits);

void list_add(struct conn_list *l, struct conn *c);
void list_remove(struct conn_list *l, struct conn *c);

/* Whether a message that was due then belongs to the steady window. */
static inline int worker_when(const struct worker *w, uint64_t due)
{
    return due >= w->steady_start && due < w->end ? WHEN_STEADY : WHEN_OUTSIDE;
}

#endif
