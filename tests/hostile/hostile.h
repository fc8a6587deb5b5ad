/*
 * hostile.h: peers that mean no good, inside.
 *
 * One thread owns a share of the peers and an epoll set. A peer plays one behaviour over and over:
 * connect, get as far as the behaviour wants, do harm, be cut or leave, rest, begin anew. Shares no
 * code with the library.
 */
#ifndef TESTS_HOSTILE_HOSTILE_H
#define TESTS_HOSTILE_HOSTILE_H

#include <netinet/in.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <openssl/ssl.h>

struct peer;

/* How far it behaves before it does harm. */
enum depth { AT_TCP, AT_TLS, AT_WEBSOCKET }; /* AT_TLS: TCP where the server is plain */
enum leaving { LEAVE_CLOSE, LEAVE_RESET };

/* Bytes to send: once from 0 to len, then over and over from `again`. len == again: no more. */
struct script {
    uint8_t *data;
    size_t len, again;
};

struct behaviour {
    const char *name, *says;
    enum depth depth;
    bool (*make)(struct script *s); /* NULL: sends nothing */
    uint32_t piece;                 /* bytes at a time; 0: all that the socket takes */
    uint32_t every_ms;
    uint32_t life_ms; /* leaves after that; 0: stays until it is cut */
    uint32_t rest_ms; /* before the next connection, at least */
    enum leaving leaving;
    bool deaf;         /* reads nothing */
    bool sips;         /* reads 100 bytes at a time, each time it acts */
    bool half_closes;  /* ends its side once its script has been sent */
    bool one_address;  /* all of them come from the same one */
    bool with_request; /* the script stands right behind the request */
    bool compresses;   /* offers permessage-deflate */
    bool only_tls, only_1_2;
    bool (*act)(struct peer *p); /* each time, after sending; false: the connection is over */
};

extern const struct behaviour behaviours[];
extern const size_t behaviour_count;

/* ---- What they meet ---- */

enum { STATUSES = 12, CLOSES = 12 };
extern const uint16_t met_statuses[STATUSES]; /* the last stands for all others */
extern const uint16_t met_closes[CLOSES];

struct met {
    uint64_t connections, not_connected, tls_failed;
    uint64_t statuses[STATUSES], closes[CLOSES];
    uint64_t ends, resets, left; /* the server's end of stream, its reset, our own */
    uint64_t sent, received;     /* bytes, of TLS its plaintext */
    uint64_t silent;             /* cut without any answer, neither HTTP nor WebSocket */
    uint64_t longest_ms;         /* that a connection of theirs lasted */
};

/* ---- How they are run ---- */

struct plan {
    struct sockaddr_in address;
    bool secure;
    uint32_t peers, seconds, threads, ramp_ms;
    bool spread; /* each from an address of its own in 127.0.0.0/8 */
    const struct behaviour **chosen;
    const struct script *scripts; /* by chosen behaviour */
    size_t chosen_count;
    SSL_CTX *tls, *tls_1_2;
    struct met *met; /* by chosen behaviour; each thread adds its own at the end */
    const volatile sig_atomic_t *stop;
};

/* Plays them all until the time is over or *stop is set. False: no memory, descriptors or threads. */
bool hostile_run(struct plan *plan);

/* ---- A connection's bytes (wire.c) ---- */

/* Follows what a server sends: the HTTP head, then frames. */
struct follower {
    char head[16];     /* the beginning of the answer */
    uint32_t head_len; /* bytes of the answer so far */
    uint8_t matched;   /* of the blank line behind it */
    bool in_frames;
    uint8_t frame[12]; /* header, and the first two bytes of its payload */
    uint8_t frame_len;
    uint64_t skip; /* bytes of a payload still to come */
    unsigned status, close_code;
};
void follow(struct follower *f, const uint8_t *data, size_t len);

size_t wire_request(char *out, size_t size, bool compresses);
/* A masked frame; returns its length. `len` may be more than what is there. */
size_t wire_frame_head(uint8_t *out, unsigned first, uint64_t len);

/* ---- For behaviours ---- */

SSL *peer_ssl(struct peer *p);
/* Bytes past the script, as many as fit; false when the connection is over. */
bool peer_send(struct peer *p, const void *data, size_t len);

#endif
