/*
 * stream.h: a connection as a stream of bytes, and messages that come from a file.
 *
 * Bytes are read across the borders of messages, text and binary alike: for tunnels, parsers,
 * anything that would read a socket. WebSocket has no half-close, so an empty message stands for it:
 * tws_stream_end() sends one, and a read reports it as the end while the other direction goes on.
 * Peers who know nothing of that may send empty messages for no reason: tws_stream_join(c, "") skips
 * them.
 *
 *     char buf[4096];
 *     size_t n;
 *     tws_error e;
 *     while (tws_stream_read(c, buf, sizeof buf, &n) == TWS_OK && n > 0)
 *         fwrite(buf, 1, n, stdout);
 *     tws_conn_error(c, &e); // TWS_OK: the peer has ended its direction only; else all is over
 */
#ifndef TWS_STREAM_H
#define TWS_STREAM_H

#include <tws/conn.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Reads some bytes of the stream, waiting until there is at least one.
 *
 * n is 0 with TWS_OK when the peer has sent all it will: it sent an empty message, or closed with
 * 1000, 1001 or without a code, and not in the middle of a message. After an empty message the connection is still open: writing goes on
 * (tws_conn_error() gives TWS_OK), and another read waits for what comes behind it. After a close all
 * further reads give the same.
 *
 * Messages are never kept whole, but each counts against the limit on their size. Text is checked;
 * pieces may end inside a character. Reading in other ways (tws_read_message()) goes on with the next
 * message.
 *
 * @param c the connection
 * @param buf where the bytes go
 * @param size room in buf, at least 1
 * @param n set to the number of bytes, 0 on errors
 * @return as tws_reader_read(), without TWS_ERR_STATE; a close with another code, or in the middle of a
 *         message, is TWS_ERR_PEER_CLOSED.
 * Threads: one at a time, as all reading.
 */
TWS_API tws_err tws_stream_read(tws_conn *c, void *buf, size_t size, size_t *n);

/**
 * Writes bytes of the stream, as binary messages of at most 64 KiB.
 *
 * Bytes of several threads are mixed in such pieces.
 *
 * @param c the connection
 * @param data the bytes
 * @param len how many; 0: nothing is sent or looked at, TWS_OK
 * @param n set to how many have left, less than len on errors: go on from there after
 *        TWS_ERR_TIMEOUT; may be NULL
 * @return as tws_write_message().
 * Threads: any.
 * Ownership: data stays the caller's.
 */
TWS_API tws_err tws_stream_write(tws_conn *c, const void *data, size_t len, size_t *n);

/**
 * Tells the peer's tws_stream_read() that no more bytes will come, by an empty binary message.
 * Reading goes on. To end both directions, tws_close().
 *
 * @param c the connection
 * @return as tws_write_message().
 * Threads: any.
 */
TWS_API tws_err tws_stream_end(tws_conn *c);

/**
 * Puts a terminator behind every message that tws_stream_read() reads from now on, for instance
 * "\n" in front of a parser of lines. Empty messages are then no end: they give a terminator, or, with
 * the terminator "", nothing at all.
 *
 * @param c the connection
 * @param terminator zero-terminated, at most 255 bytes; "": messages are simply joined; NULL: as at
 *        first, an empty message is the end; copied
 * @return TWS_OK; TWS_ERR_ARGUMENT; TWS_ERR_MEMORY; TWS_ERR_BUSY while another thread reads.
 * Threads: the one that reads, or before reading begins.
 */
TWS_API tws_err tws_stream_join(tws_conn *c, const char *terminator);

/* The rest of a file: tws_write_file(). */
#define TWS_FILE_REST (-1)

/**
 * Sends the bytes of a file, or of a pipe, as one message, in constant memory (16 KiB).
 *
 * Where they need not be looked at they go from the file to the socket inside the system
 * (sendfile): a server's binary message without TLS and compression, in frames of 64 KiB or more.
 * Else they are read and sent piece by piece. When compression was agreed and the mode of the
 * connection says so, the message is compressed, in fragments of 16 KiB; TWS_COMPRESS_NEVER
 * (tws_set_compression()) suits files that are compressed already.
 *
 * The write timeout is one for each fragment, or each 256 KiB of a long one, not for all. A
 * tws_set_deadline() is one for all. Pings, pongs and close frames of other threads pass between
 * fragments; other messages wait for the end.
 *
 * A file that is shorter than offset and length say is refused before anything is sent. One
 * that cannot be read on or gets shorter meanwhile, and text that is not UTF-8, leave the peer with
 * a message that will not end: if nothing of it has left the connection is as healthy as before;
 * else it ends, between fragments by closing with 1011, inside a frame (one frame, or fragments of
 * more than 16,000 bytes) at once.
 *
 * A pipe, socket or terminal is read to its end, without knowing how much there is: what it has
 * leaves as soon as there is nothing more to read for now, in fragments of at most 16 KiB, unless it
 * is compressed.
 * Its silence is not limited in time; closing the connection ends the call. With a length, so many
 * bytes of it are read, and it must not end before.
 *
 * The peer must allow messages of that size (max_message of its options, if it uses this library: 0
 * for no limit) and should read them in pieces (tws_next_reader(), tws_stream_read()).
 *
 * On a light thread reading a file is treated as a handler that blocks.
 *
 * @param c the connection
 * @param opcode TWS_TEXT or TWS_BINARY
 * @param fd what to read from; its position does not matter and stays, except of pipes
 * @param offset where in the file to begin; for pipes 0, else TWS_ERR_ARGUMENT
 * @param length bytes; TWS_FILE_REST: to the end
 * @param fragment_size payload of each fragment; 0: one frame, if the length is known. For large
 *        files 65,536 lets pings pass.
 * @return TWS_OK; TWS_ERR_FILE: see above, and errno when it is not 0; TWS_ERR_MEMORY; else as
 *         tws_write_message(). After TWS_ERR_TIMEOUT nothing of it was sent.
 * Threads: any.
 * Ownership: fd stays the caller's.
 * RFC: 6455 5.4
 */
TWS_API tws_err tws_write_file(tws_conn *c, tws_opcode opcode, int fd, int64_t offset,
                               int64_t length, size_t fragment_size);

#ifdef __cplusplus
}
#endif
#endif
