/*
 * codec.h: what a connection that compresses has for it, and what it shares with others.
 *
 * With context takeover there are two ways to remember. A window is put away after each message and
 * given to a shared stream before the next one, which costs time in proportion to the window; or the
 * stream itself stays with the connection, which costs memory. Measured (docs/compression.md): to
 * inflate, a window is never slower; to deflate, it is not slower up to CODEC_WINDOW_BITS when there
 * are more than a few connections. Above that the stream stays until the connection falls silent.
 */
#ifndef CONN_CODEC_H
#define CONN_CODEC_H

#include "conn/conn.h"
#include "conn/deflate.h"
#include "conn/zstream.h"
#include "wire/deflate.h"

#define CODEC_WINDOW_BITS 13
#define CODEC_TAIL_SIZE 4

struct conn_deflate {
    struct zstream *out;           /* writer's: while it stays with the connection */
    struct zstream_past *out_past; /* writer's: context takeover, while there is no stream */
    struct zstream *in;            /* reader's: inside a message */
    struct zstream_past *in_past;  /* reader's */
    uint64_t inflated;             /* reader's: bytes of the present message */
    _Atomic uint32_t out_memory, in_memory;
    _Atomic uint8_t mode;           /* tws_compression */
    uint8_t out_bits, in_bits;      /* constant; out_bits below 9: we do not compress */
    bool out_takeover, in_takeover; /* constant */
    bool from_chunk;                /* constant: in one of codec_env's chunks */
    uint8_t tail;                   /* reader's: bytes of the cut-off end still to be inflated */
    bool boundary, pending;         /* reader's: between two blocks; there is more to come out */
    bool finished;                  /* reader's: the last call ended a final block */
    bool used;                      /* reader's: since the connection was silent last */
    _Atomic uint64_t messages_in, compressed_in, original_in;    /* reader's */
    _Atomic uint64_t messages_out, original_out, compressed_out; /* writer's */
};

/* Part of conn_env: shared by its connections. */
struct codec_env {
    tws_deflate_options opt;
    struct zstream_pool out, in;
    pthread_mutex_t mu;
    union codec_block *blocks;  /* mu: free ones, for struct conn_deflate */
    struct codec_chunk *chunks; /* mu */
};

void codec_env_free(struct conn_env *env);
/* Everything a connection has; also when it has none. */
void conn_deflate_free(tws_conn *c);

/* ---- deflate.c ---- */

/* A compressor for one message, and the end of that: `sent` if the peer has got all of it. Between
 * them caller has the writer's role, or an open writer, when conn_deflate_ordered(). */
struct zstream *conn_deflate_open(tws_conn *c);
void conn_deflate_close(tws_conn *c, struct zstream *s, bool sent);
/* From how many bytes on a message is compressed. */
uint64_t conn_deflate_threshold(tws_conn *c, tws_compression mode);
/* Silence: memory that is not needed now goes back. Reader's. */
void conn_deflate_idle(tws_conn *c);
/* Whether there is some. */
bool conn_deflate_warm(const tws_conn *c);

/* ---- inflate.c: the reader's ---- */

enum codec_step {
    CODEC_MORE, /* more of the message is needed: the frame's rest, or the next frame */
    CODEC_FULL, /* more room is needed */
    CODEC_DONE  /* the message has ended */
};

/* Unmasks what has been received of the present frame. */
tws_err conn_inflate_take(tws_conn *c);
/* Takes that and puts what it stands for into out. Checks limits and text; ends frames. */
tws_err conn_inflate(tws_conn *c, uint8_t *out, size_t room, size_t *made, enum codec_step *step);
/* Bytes of the present frame that the input should have room for. */
uint32_t conn_inflate_need(const tws_conn *c);

/* ---- inflate_read.c: a frame of a compressed message has begun ---- */

/* Puts the whole message into the assembly. */
tws_err conn_read_compressed(tws_conn *c, int64_t deadline);
/* Some bytes of it; none when it has ended. */
tws_err conn_stream_compressed(tws_conn *c, uint8_t *buf, size_t size, size_t *n, int64_t deadline);
tws_err conn_skip_compressed(tws_conn *c, int64_t deadline);

#endif
