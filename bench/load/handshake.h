#ifndef LOAD_HANDSHAKE_H
#define LOAD_HANDSHAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "deflate.h"
#include "options.h"

enum { HANDSHAKE_HEAD_MAX = 8192, HANDSHAKE_KEY = 24, HANDSHAKE_ACCEPT = 28 };

/* One opening handshake in the making. */
struct handshake {
    size_t sent;
    size_t have;
    char key[HANDSHAKE_KEY + 1];
    char head[HANDSHAKE_HEAD_MAX + 1];
};

enum handshake_result {
    HANDSHAKE_MORE,    /* the head is not complete */
    HANDSHAKE_DONE,    /* upgraded */
    HANDSHAKE_STATUS,  /* another status than 101 */
    HANDSHAKE_INVALID, /* not an answer to this request */
};

struct handshake_answer {
    size_t length; /* bytes of the head */
    int status;
    struct deflate_terms deflate;
};

/*
 * The request for one URL, the same for all its connections but for the key, which goes to *key_at. NULL when
 * memory ran out; free() it.
 */
char *handshake_request(const struct options *o, const struct url *u, size_t *length,
                        size_t *key_at);

/* A fresh random key. Returns 0 or -1. */
int handshake_new_key(char key[HANDSHAKE_KEY + 1]);

/* Sec-WebSocket-Accept for a key. */
void handshake_accept(char out[HANDSHAKE_ACCEPT + 1], const char *key);

/* Reads head[0..have). */
enum handshake_result handshake_read(struct handshake *h, const struct options *o,
                                     struct handshake_answer *a);

/* The parameters of the permessage-deflate offer. */
const char *handshake_deflate_params(const struct options *o);

#endif
