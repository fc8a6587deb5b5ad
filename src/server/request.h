/*
 * request.h: an opening handshake's request, kept for as long as its connection, and the answer
 * that hooks prepare.
 */
#ifndef SERVER_REQUEST_H
#define SERVER_REQUEST_H

#include <tws/server.h>

#include "base/dict.h"
#include "net/address.h"
#include "wire/handshake.h"
#include "wire/http.h"

struct request_field {
    uint16_t name, value; /* offsets into text */
};

/* One block: the structure, the fields, the text with a zero behind each string. */
struct tws_request {
    union net_peer peer;
    int fd;        /* for the local address; the connection's */
    uint32_t text; /* offset of the text from the structure's beginning */
    uint16_t nfields;
    uint16_t method, path, query; /* offsets into text */
    struct request_field fields[];
};

/* Bytes that the copy of this head needs. */
size_t request_size(const struct http_head *h, const struct handshake_request *hs);
/* Builds it in `mem`. */
tws_request *request_build(void *mem, const struct http_head *h, const uint8_t *buf,
                           const struct handshake_request *hs, const union net_peer *peer, int fd);

struct tws_reply {
    const tws_allocator *allocator;
    const struct http_head *head; /* to see which subprotocols are offered */
    const uint8_t *head_buf;
    int status; /* 0: not set */
    tws_header *headers;
    size_t nheaders;
    char *type;
    void *body;
    size_t body_len;
    char *subprotocol;
    bool subprotocol_set; /* the hook has chosen, perhaps none */
    void *user;
    struct base_dict *session; /* becomes the connection's; NULL: nothing was stored */
};

void reply_init(tws_reply *a, const tws_allocator *allocator);
/* Forgets status, headers and body, not the user pointer and the session. */
void reply_clear(tws_reply *a);

#endif
