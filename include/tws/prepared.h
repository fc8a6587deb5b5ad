/*
 * prepared.h: one message for many connections, encoded once.
 *
 * A prepared message is immutable. Each form that some connection needs is made once, when it is
 * first needed, and shared: the plain frame, and one compressed frame per set of compression
 * parameters. A queue holds a reference, not a copy. Frames of clients are masked with a key of
 * their own, so they are made each time (RFC 6455 5.3).
 */
#ifndef TWS_PREPARED_H
#define TWS_PREPARED_H

#include <tws/queue.h>

#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A message prepared for sending. Reference-counted, see tws_prepared_ref(). */
typedef struct tws_prepared tws_prepared;

/* Gives back what tws_prepared_adopt() took. */
typedef void (*tws_release_fn)(void *data, size_t len, void *arg);

/**
 * Prepares a message, copying its payload once.
 *
 * @param out set to the message, with one reference; NULL on errors
 * @param opcode TWS_TEXT or TWS_BINARY
 * @param data the payload; may be NULL when len is 0
 * @param len bytes
 * @return TWS_OK; TWS_ERR_ARGUMENT; TWS_ERR_TEXT when text is not valid UTF-8; TWS_ERR_MEMORY.
 * Threads: any.
 * Ownership: give the message back with tws_prepared_unref().
 */
TWS_API tws_err tws_prepared_new(tws_prepared **out, tws_opcode opcode, const void *data,
                                 size_t len);

/**
 * Prepares a message that lies in several pieces, copying them together.
 *
 * @param out set to the message, with one reference; NULL on errors
 * @param opcode TWS_TEXT or TWS_BINARY
 * @param iov the pieces; not changed
 * @param count how many; 0 to 1,024
 * @return as tws_prepared_new().
 * Threads: any.
 * Ownership: give the message back with tws_prepared_unref().
 */
TWS_API tws_err tws_prepared_newv(tws_prepared **out, tws_opcode opcode, const struct iovec *iov,
                                  int count);

/**
 * Prepares a message from bytes that become the library's.
 *
 * @param out set to the message, with one reference; NULL on errors
 * @param opcode TWS_TEXT or TWS_BINARY
 * @param data the payload, not to be changed any more; may be NULL when len is 0
 * @param len bytes
 * @param release called once with data, len and arg when the last reference has gone, on the
 *        thread that gave it back, with no lock of the library held; for a queue's reference that is
 *        where completions run; NULL: nobody needs to know, as for constants
 * @param arg handed to release
 * @return as tws_prepared_new(); after an error data is still the caller's and release is not
 *         called.
 * Threads: any.
 * Ownership: data is the library's until release is called. Give the message back with
 *         tws_prepared_unref().
 */
TWS_API tws_err tws_prepared_adopt(tws_prepared **out, tws_opcode opcode, void *data, size_t len,
                                   tws_release_fn release, void *arg);

/**
 * Takes one more reference.
 *
 * @param p the message
 * @return p
 * Threads: any that already holds a valid reference.
 * Ownership: give it back with tws_prepared_unref().
 */
TWS_API tws_prepared *tws_prepared_ref(tws_prepared *p);

/**
 * Gives a reference back; the last one frees the message. Queues have references of their own.
 *
 * @param p the message, or NULL
 * Threads: any.
 */
TWS_API void tws_prepared_unref(tws_prepared *p);

/**
 * The kind of message.
 *
 * @param p the message
 * @return TWS_TEXT or TWS_BINARY.
 * Threads: any.
 */
TWS_API tws_opcode tws_prepared_opcode(const tws_prepared *p);

/**
 * The payload.
 *
 * @param p the message
 * @param len set to its length; may be NULL
 * @return the bytes, never NULL; valid as long as p, not to be changed.
 * Threads: any.
 */
TWS_API const void *tws_prepared_data(const tws_prepared *p, size_t *len);

/**
 * Sends a prepared message as tws_write_message() would.
 *
 * @param c the connection
 * @param p the message
 * @return as tws_write_message().
 * Threads: any.
 * Ownership: p stays the caller's.
 */
TWS_API tws_err tws_write_prepared(tws_conn *c, tws_prepared *p);

/**
 * Sends a prepared message as tws_write_async() would, without copying the payload.
 *
 * @param c the connection
 * @param p the message
 * @param done as for tws_write_async()
 * @param arg handed to done
 * @return as tws_write_async().
 * Threads: any.
 * Ownership: p stays the caller's; the queue takes its own reference.
 */
TWS_API tws_err tws_write_prepared_async(tws_conn *c, tws_prepared *p, tws_written_fn done,
                                         void *arg);

#ifdef __cplusplus
}
#endif
#endif
