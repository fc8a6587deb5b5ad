/*
 * A stream whose peer is the fuzzer's input: no descriptor, no system call, no waiting. It stands in
 * for the library's streams over sockets (net_stream_init() is defined here, and the linker takes
 * that), so that handshakes and dials run on it as they are. Random bytes are made predictable too.
 *
 * There is one at a time: a second one, as a redirect opens it, goes on in the same input.
 */
#ifndef TESTS_FUZZ_LIB_MEMORY_STREAM_H
#define TESTS_FUZZ_LIB_MEMORY_STREAM_H

#include "fuzz.h"
#include "net/stream.h"

#define MEMORY_FD 1000000 /* none that is open */
#define MEMORY_OUT (1 << 18)

struct memory_stream {
    const uint8_t *in; /* what the peer sends */
    size_t in_len, in_at;
    struct fuzz_cuts receives; /* what one receive brings */
    struct fuzz_cuts sends;    /* what one send takes; style 0: all */
    uint8_t pauses;            /* every so many receives nothing comes for a while; 0: never */
    bool reset;                /* the input ends in a reset, not in an end */
    size_t breaks_at;          /* so many bytes can be sent; 0: any number */

    uint8_t *out; /* what was sent: the first MEMORY_OUT bytes */
    size_t out_len;
    bool ended_in, ended_out; /* shut down on this side */
    int opened, closed;       /* how often */
    uint32_t waits;
    bool paused, refused; /* the last call said so: the next one goes on */
};

extern struct memory_stream memory;

/* Forgets the last one. */
void memory_begin(const uint8_t *in, size_t len);
/* A stream as net_stream_init() makes it. */
struct net_stream memory_open(void);

#endif
