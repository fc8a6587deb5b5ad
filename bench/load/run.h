#ifndef LOAD_RUN_H
#define LOAD_RUN_H

#include <openssl/ssl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "deflate.h"
#include "options.h"
#include "payload.h"
#include "stats.h"

/* A run goes through these in order and may leave some out. */
enum phase {
    PHASE_CONNECT,
    PHASE_WARMUP,
    PHASE_STEADY,
    PHASE_DRAIN,
    PHASE_CLOSE,
    PHASE_END,
    PHASE_COUNT
};

const char *phase_name(enum phase p);

struct worker;

/* Frame sets of a thread: [0] plain, [8] to [15] deflated for that window. */
enum { DEFLATE_FRAMES = DEFLATE_WINDOW_MAX + 1 };

/* The handshake request of one URL. */
struct request {
    char *text;
    size_t length, key_at;
};

/*
 * What all threads share. The main thread alone moves the phase; the times are written before the phase that
 * needs them is stored (release) and read after it was loaded (acquire).
 */
struct run {
    const struct options *opt;
    struct bodies bodies;
    struct request *requests; /* one for each URL */
    SSL_CTX *tls;
    const char *deflate_offer;

    _Atomic int phase;
    uint64_t t0;                   /* first connect */
    _Atomic uint64_t load_start;   /* schedules begin (not with --early) */
    _Atomic uint64_t steady_start; /* UINT64_MAX until known */
    _Atomic uint64_t end;          /* nothing is scheduled from here on; UINT64_MAX until known */

    _Atomic unsigned settled; /* connections that opened or failed */
    _Atomic unsigned open;
    _Atomic unsigned readers;        /* open and not muted */
    _Atomic uint64_t broadcast_sent; /* broadcast: by all senders */
    int wake;                        /* eventfd: something the main thread should look at */

    struct worker *workers;
    unsigned worker_count;
};

void run_set_phase(struct run *r, enum phase p);

/* Adds up the counters of all threads, which go on counting. */
void run_stats(const struct run *r, struct stats *out);

/* Replies and messages that a drain still waits for. */
bool run_drained(const struct run *r);

#endif
