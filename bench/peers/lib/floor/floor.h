/*
 * floor.h: what the floors share. A floor is the least that an echo over WebSocket can cost with one
 * way of waiting: the opening handshake and frames, no checks, no limits, no timeouts. It is no
 * server to be used, but what a server's cost can be compared with in the same run.
 */
#ifndef FLOOR_H
#define FLOOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define FLOOR_BUFFER (64 * 1024)
#define FLOOR_PIECES 64

struct floor_conn {
    int fd;
    bool open;      /* the handshake is done */
    bool closing;   /* the peer's close frame has been answered */
    uint64_t left;  /* of the present frame's payload */
    uint8_t key[4]; /* its mask, turned to the next byte */
    uint8_t *held;  /* input that is no whole header yet */
    size_t held_len;
};

/* What goes back for one piece of input. */
struct floor_reply {
    struct iovec iov[FLOOR_PIECES];
    int count;
    char answer[256]; /* of the handshake */
};

/* Listens at argv[1]:argv[2], says so, and calls accepted(fd) for each connection on this thread. */
int floor_serve(int argc, char **argv, void (*accepted)(int fd));
uint32_t floor_cores(void);

/* Puts held input at the front of the buffer. Where to receive to. */
size_t floor_begin(struct floor_conn *c, uint8_t *buf);
/* Makes the reply to the n bytes at buf, in place. Bytes used, or 0: nothing to be done without more;
 * -1: not WebSocket. */
ptrdiff_t floor_input(struct floor_conn *c, uint8_t *buf, size_t n, struct floor_reply *reply);
/* Keeps what was not used for the next time. */
bool floor_hold(struct floor_conn *c, const uint8_t *rest, size_t n);
/* Takes n sent bytes off the reply; true when all have been. */
bool floor_sent(struct floor_reply *reply, size_t n);

#endif
