/*
 * handoff_record.h: a connection as bytes, on their way to another process of the same machine. The
 * reader trusts nothing.
 */
#ifndef SERVER_HANDOFF_RECORD_H
#define SERVER_HANDOFF_RECORD_H

#include <tws/handoff.h>

#include "conn/conn.h"
#include "server/request.h"

#define RECORD_VERSION 1
#define RECORD_HEAD 16
#define RECORD_ANSWER 8
/* A head, its parts a blank further apart; input; data; the rest. */
#define RECORD_BODY_MAX (256 * 1024)

struct record {
    bool server;     /* the role */
    bool compressed; /* without context takeover */
    uint8_t server_bits, client_bits;
    uint8_t mode; /* tws_compression */
    union net_peer peer;
    struct wire_text subprotocol; /* at NULL: none */
    struct wire_text head;        /* the request; empty: none */
    struct wire_text input;       /* received and not yet read */
    struct wire_text data;        /* the application's */
};

/* The connection's record, on the heap; *len is that of the body. NULL: no memory. */
uint8_t *record_of(tws_conn *c, const void *data, size_t data_len, size_t *len);
/* The length of the body that follows, or -errno: -EPROTONOSUPPORT for another version, -EBADMSG. */
ptrdiff_t record_head_read(const uint8_t head[RECORD_HEAD]);
void record_head_write(uint8_t head[RECORD_HEAD], size_t len);
/* Points into body. What is wrong with it; NULL when all is well. */
const char *record_read(struct record *r, const uint8_t *body, size_t len);
/* A request of its own. NULL, with *why, for one that no peer can have sent, or no memory. */
tws_request *record_request(const struct record *r, const tws_allocator *a,
                            const union net_peer *peer, int fd, const char **why);

/* The receiver's answer: TWS_OK, or why not. */
void record_answer_write(uint8_t answer[RECORD_ANSWER], tws_err err);
bool record_answer_read(const uint8_t answer[RECORD_ANSWER], tws_err *err);

#endif
