#ifndef LOAD_DEFLATE_H
#define LOAD_DEFLATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* permessage-deflate (RFC 7692) for a client that sends ready-made messages. */

/*
 * A deflated message is a stored block with the stamp, then the rest of the body compressed on its
 * own: the stamp can be rewritten in place, and nothing refers to an earlier message, which is allowed with and
 * without context takeover.
 */
enum { DEFLATE_STAMP_OFFSET = 5, DEFLATE_WINDOW_MAX = 15 };

/* What the server agreed to. */
struct deflate_terms {
    bool agreed;
    bool server_no_context_takeover;
    int server_bits, client_bits; /* 8 to 15 */
};

/* Bytes that hold any deflated message of this size. */
size_t deflate_room(size_t size);

/* Length of the deflated message, at least 1; 0 when memory ran out. */
size_t deflate_message(uint8_t *out, size_t room, const uint8_t *body, size_t size, unsigned stamp,
                       int window_bits, int level);

/* Whether the parameters of --deflate=PARAMS can be offered. */
bool deflate_offer_valid(const char *params);

/* Reads the server's Sec-WebSocket-Extensions against what was offered. */
bool deflate_read_answer(const char *answer, const char *offered, struct deflate_terms *t);

struct inflater;
typedef void inflate_sink(void *arg, const uint8_t *p, size_t n);

struct inflater *inflater_new(const struct deflate_terms *t);
void inflater_free(struct inflater *f);

/* Feeds wire bytes of a message; what comes out goes to sink. False when it is not deflate. */
bool inflater_feed(struct inflater *f, const uint8_t *p, size_t n, inflate_sink *sink, void *arg);

/* The message's last frame is over. */
bool inflater_end(struct inflater *f, inflate_sink *sink, void *arg);

#endif
