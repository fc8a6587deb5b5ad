/*
 * deflate.h: permessage-deflate (RFC 7692), message by message.
 *
 * Off unless options are given: `deflate` in tws_upgrade_options and tws_dial_options. It is agreed
 * in the opening handshake; peers that do not know it talk uncompressed.
 *
 *     tws_deflate_options deflate;
 *     tws_deflate_options_init(&deflate);
 *     opt.upgrade.deflate = &deflate;
 *
 * What it costs. Without context takeover (the default) a connection holds nothing between
 * messages: compressors are lent for the length of a call. With it, a side that compresses keeps
 * what it has sent last, and a side that inflates what it has received last: see
 * docs/compression.md for the bytes.
 *
 * In a build without zlib (docs/install.md) whatever is given such options is TWS_ERR_UNSUPPORTED.
 */
#ifndef TWS_DEFLATE_H
#define TWS_DEFLATE_H

#include <tws/conn.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A threshold of 512 bytes, or 0 where this side's compressor keeps its context. */
#define TWS_DEFLATE_AUTO UINT32_MAX

/* How messages are compressed, and what is asked of the peer. */
typedef struct tws_deflate_options {
    size_t size;      /* set by the initialiser */
    int level;        /* 1 (fastest, default) to 9 (smallest) */
    int memory_level; /* 1 to 9 (default 5): memory of a compressor while it works */
    /*
     * Largest windows, as powers of two, of what the server and what the client compresses: 9 to
     * 15. Default 0: 15, but 12 for a side of the server's connections that keeps its context,
     * and for a client's own side if that does. The peer may agree on less. A server can limit a
     * client's window only if the client has offered that; a server that cannot limit its own
     * declines what a client asks for.
     */
    int server_max_window_bits;
    int client_max_window_bits;
    /* Every message compressed by itself; default true. False: later messages may refer to earlier
     * ones, which makes small, similar messages much smaller and costs memory all the time. */
    bool server_no_context_takeover;
    bool client_no_context_takeover;
    /* Smaller messages are sent uncompressed, and those that do not get smaller. 0: none are, but
     * empty ones. Default TWS_DEFLATE_AUTO. */
    uint32_t threshold;
    /*
     * TWS_ERR_TOO_BIG, 1009: a received message grew to over 64 KiB and to more than so many times
     * its compressed size. Default 0: no such limit, since honest data (a page of one colour)
     * reaches 1,000. max_message, counted on inflated bytes, holds in any case.
     */
    uint32_t max_ratio;
    uint64_t reserved[8];
} tws_deflate_options;

/**
 * Fills options with the defaults.
 *
 * @param opt the options
 * @param size sizeof *opt; use the macro tws_deflate_options_init(opt)
 * Threads: any.
 */
TWS_API void tws_deflate_options_init_sized(tws_deflate_options *opt, size_t size);
#define tws_deflate_options_init(opt) tws_deflate_options_init_sized((opt), sizeof *(opt))

/* Whether a message is compressed. */
typedef enum tws_compression {
    TWS_COMPRESS_AUTO = 0,  /* as the threshold says */
    TWS_COMPRESS_NEVER = 1, /* for what is compressed already, and for secrets (RFC 7692 8) */
    TWS_COMPRESS_ALWAYS = 2 /* whatever its size and whatever comes of it, unless it is empty */
} tws_compression;

/**
 * Sets how the messages of a connection are compressed from the next one on.
 *
 * Has no effect when the peer did not agree to compression.
 *
 * @param c the connection
 * @param mode one of tws_compression; at first TWS_COMPRESS_AUTO
 * @return TWS_OK; TWS_ERR_ARGUMENT.
 * Threads: any.
 */
TWS_API tws_err tws_set_compression(tws_conn *c, tws_compression mode);

/**
 * Sends one message, compressed or not as the call says.
 *
 * @param c the connection
 * @param opcode TWS_TEXT or TWS_BINARY
 * @param mode how, for this message
 * @param data the payload; may be NULL when len is 0
 * @param len bytes
 * @return as tws_write_message(). Without memory to compress with, it leaves uncompressed.
 * Threads: any.
 * Ownership: data stays the caller's.
 * RFC: 7692 7.2.1
 */
TWS_API tws_err tws_write_message_as(tws_conn *c, tws_opcode opcode, tws_compression mode,
                                     const void *data, size_t len);

/**
 * Begins a message that is written in pieces, compressed or not as the call says.
 *
 * A compressed message leaves in fragments of up to 16 KiB of compressed bytes. One that is ended
 * before it has the threshold's size (16 KiB at most) leaves uncompressed.
 *
 * @param c the connection
 * @param opcode TWS_TEXT or TWS_BINARY
 * @param mode how, for this message
 * @param w set to the writer; NULL on failure
 * @return as tws_next_writer().
 * Threads: any; the writer itself is used by the thread that opened it.
 * Ownership: tws_writer_close(), also when tws_writer_write() has failed.
 * RFC: 7692 7.2.1
 */
TWS_API tws_err tws_next_writer_as(tws_conn *c, tws_opcode opcode, tws_compression mode,
                                   tws_writer **w);

/* What was agreed, and what it has brought. */
typedef struct tws_deflate_info {
    int server_max_window_bits, client_max_window_bits;
    bool server_no_context_takeover, client_no_context_takeover;
    uint64_t messages_in, messages_out;    /* that were compressed */
    uint64_t compressed_in, original_in;   /* their payload as it came, and inflated */
    uint64_t original_out, compressed_out; /* their payload as it was given, and as it left */
    uint64_t memory; /* bytes that the connection holds now to compress and to inflate */
} tws_deflate_info;

/**
 * Tells what compression was agreed with the peer, and what it has brought.
 *
 * @param c the connection
 * @param out filled; all 0 when there is no compression
 * @param size sizeof *out; use the macro tws_conn_deflate(c, out)
 * @return true when messages may be compressed.
 * Threads: any.
 * RFC: 7692 7.1
 */
TWS_API bool tws_conn_deflate_sized(tws_conn *c, tws_deflate_info *out, size_t size);
#define tws_conn_deflate(c, out) tws_conn_deflate_sized((c), (out), sizeof *(out))

#ifdef __cplusplus
}
#endif
#endif
