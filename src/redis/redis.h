/*
 * redis.h: Redis, inside. hiredis makes connections, writes commands and reads replies; the bytes are
 * moved here, because hiredis would raise SIGPIPE, and wait.
 */
#ifndef REDIS_REDIS_H
#define REDIS_REDIS_H

#include <tws/redis.h>
#include <tws/thread.h>

#include <hiredis/hiredis.h>

/* One connection. */
struct link {
    int fd; /* -1: none */
    redisReader *reader;
    redisReplyObjectFunctions functions; /* the reader's */
    char *out; /* redis->mu, like the numbers: bytes from `sent` to `len` are to go */
    size_t sent, len, cap;
    int64_t heard, asked; /* when something came, and when a ping left */
};

/* ---- link.c ---- */

int64_t redis_now_ms(void);
/* Connects, and signs on; false with a text. Waits up to `ms` for each step. */
bool link_open(struct link *l, const tws_redis_options *o, char *why, size_t size);
void link_close(struct link *l);
size_t link_pending(const struct link *l);
/* Appends a command. False: no memory. */
bool link_command(struct link *l, int argc, const char **argv, const size_t *lens);
/* Sends what the socket takes. False: the connection is over. */
bool link_send(struct link *l);
/* Receives some of what is there. False: the connection is over. */
bool link_receive(struct link *l);
/* Something is there to be received, if only the end. */
bool link_has_input(const struct link *l);
/* The next reply that is complete; NULL: none. *broken: what came is none. */
redisReply *link_reply(struct link *l, bool *broken);

#endif
