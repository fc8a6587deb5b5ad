/* error.h: error codes and the error record. */
#ifndef TWS_ERROR_H
#define TWS_ERROR_H

#include <tws/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Every error of the library: name, value, text. Values are part of the ABI and never change.
 *
 * Three groups. Local refusals (-1 to -19): the call was wrong or could not be carried out; the
 * connection is as healthy as before. TWS_ERR_TIMEOUT and TWS_ERR_BUSY belong here too. Endings
 * (-20 to -39): the connection is over; every later read or write on it fails with the code that
 * ended it. Opening (-40 to -59): there is no connection.
 */
#define TWS_ERROR_MAP(X)                                                                           \
    X(TWS_OK, 0, "success")                                                                        \
    X(TWS_ERR_ARGUMENT, -1, "an argument is not allowed")                                          \
    X(TWS_ERR_MEMORY, -2, "out of memory")                                                         \
    X(TWS_ERR_SYSTEM, -3, "a system call failed")                                                  \
    X(TWS_ERR_STATE, -4, "the call is not possible in this state")                                 \
    X(TWS_ERR_BUSY, -5, "another thread is reading this connection")                               \
    X(TWS_ERR_TIMEOUT, -6, "time ran out; nothing is lost and the call may be repeated")           \
    X(TWS_ERR_MESSAGE_SIZE, -7, "the message to send is larger than the write limit")              \
    X(TWS_ERR_TEXT, -8, "the text to send is not valid UTF-8")                                     \
    X(TWS_ERR_CLOSE_CODE, -9, "this close code may not be sent")                                   \
    X(TWS_ERR_CONTROL_SIZE, -10, "a control frame carries at most 125 bytes")                      \
    X(TWS_ERR_UNSUPPORTED, -11, "not supported by this build or this system")                      \
    X(TWS_ERR_QUEUE_FULL, -12, "the send queue is full; the message was not taken")                \
    X(TWS_ERR_DROPPED, -13, "the message was dropped from the send queue for a newer one")         \
    X(TWS_ERR_FILE, -14, "the file cannot be read or is shorter than was said")                    \
    X(TWS_ERR_CLOSED, -20, "the connection was closed on this side")                               \
    X(TWS_ERR_PEER_CLOSED, -21, "the peer closed the connection")                                  \
    X(TWS_ERR_EOF, -22, "the peer ended the connection without a close frame")                     \
    X(TWS_ERR_NETWORK, -23, "the network failed or the peer reset the connection")                 \
    X(TWS_ERR_PEER_SILENT, -24, "the peer did not answer a keepalive ping")                        \
    X(TWS_ERR_STALLED, -25, "the peer stopped taking data in the middle of a frame")               \
    X(TWS_ERR_IDLE, -26, "no message came within the idle timeout")                                \
    X(TWS_ERR_PROTOCOL, -27, "the peer broke the WebSocket protocol")                              \
    X(TWS_ERR_UTF8, -28, "the peer sent text that is not valid UTF-8")                             \
    X(TWS_ERR_TOO_BIG, -29, "the peer sent a message larger than the limit")                       \
    X(TWS_ERR_FLOOD, -30, "the peer sent more, or more often, than allowed")                       \
    X(TWS_ERR_RESOURCE, -31, "the connection was ended for lack of memory")                        \
    X(TWS_ERR_SLOW, -32, "the peer sent a frame more slowly than the limit allows")                \
    X(TWS_ERR_CLOSE_TIMEOUT, -33, "the peer did not answer the close frame in time")               \
    X(TWS_ERR_TRUNCATED, -34, "the peer ended TLS without saying so: data may be missing")         \
    X(TWS_ERR_DEFLATE, -35, "the peer sent compressed data that does not inflate")                 \
    X(TWS_ERR_OVERFLOW, -36, "the peer read too slowly and its send queue overflowed")             \
    X(TWS_ERR_HANDED_OVER, -37, "the connection was handed to another process")                    \
    X(TWS_ERR_ADDRESS, -40, "the address is not valid or cannot be used")                          \
    X(TWS_ERR_HANDSHAKE, -41, "the opening handshake was not acceptable")                          \
    X(TWS_ERR_REFUSED, -42, "the upgrade was refused")                                             \
    X(TWS_ERR_NOT_UPGRADE, -43, "the request was plain HTTP and has been answered")                \
    X(TWS_ERR_HANDSHAKE_TIMEOUT, -44, "the opening handshake took too long")                       \
    X(TWS_ERR_RESOLVE, -45, "the name could not be resolved")                                      \
    X(TWS_ERR_CONNECT, -46, "no address could be connected to")                                    \
    X(TWS_ERR_TLS, -47, "TLS failed")                                                              \
    X(TWS_ERR_CERTIFICATE, -48, "the peer's certificate was not accepted")                         \
    X(TWS_ERR_PROXY, -49, "the proxy refused or failed")                                           \
    X(TWS_ERR_REDIRECT, -50, "the redirect could not be followed")                                 \
    X(TWS_ERR_CANCELLED, -51, "the call was cancelled")

#define TWS_ERROR_ENUM_(name, value, text) name = value,
typedef enum tws_err { TWS_ERROR_MAP(TWS_ERROR_ENUM_) TWS_ERR_FORCE_INT_ = -0x7fffffff } tws_err;
#undef TWS_ERROR_ENUM_

/* What the connection was doing when it ended. */
typedef enum tws_phase {
    TWS_PHASE_NONE = 0,
    TWS_PHASE_LISTEN = 1,
    TWS_PHASE_HANDSHAKE = 2,
    TWS_PHASE_READ = 3,
    TWS_PHASE_WRITE = 4,
    TWS_PHASE_CLOSE = 5,
    TWS_PHASE_RESOLVE = 6,
    TWS_PHASE_CONNECT = 7,
    TWS_PHASE_PROXY = 8,
    TWS_PHASE_TLS = 9
} tws_phase;

/* Who or what ended the connection. */
typedef enum tws_cause {
    TWS_CAUSE_NONE = 0, /* it has not ended */
    TWS_CAUSE_LOCAL = 1,
    TWS_CAUSE_PEER = 2,
    TWS_CAUSE_NETWORK = 3,
    TWS_CAUSE_TIMEOUT = 4,
    TWS_CAUSE_LIMIT = 5
} tws_cause;

#define TWS_REASON_MAX 123 /* bytes of a close reason, RFC 6455 section 5.5 */

/* All that is known about how something ended. */
typedef struct tws_error {
    tws_err code;
    tws_phase phase;
    tws_cause cause;
    int sys_errno;           /* errno of the system call, or 0 */
    unsigned long tls_error; /* OpenSSL's error code, or 0 */
    int http_status;         /* status of a refused handshake, or 0 */
    uint16_t close_code;     /* received, or sent when we closed first; 1005, 1006 as in RFC 6455 */
    bool clean;              /* close frames went both ways */
    char reason[TWS_REASON_MAX + 1]; /* the close frame's reason, zero-terminated */
    char text[256];                  /* one line for a person */
    uint64_t reserved[4];
} tws_error;

/**
 * The name of an error code, for example "TWS_ERR_TIMEOUT".
 *
 * @param err an error code
 * @return a constant string; "TWS_ERR_UNKNOWN" for a value that is not in the table.
 * Threads: any.
 */
TWS_API const char *tws_err_name(tws_err err);

/**
 * What an error code means, in one English phrase.
 *
 * @param err an error code
 * @return a constant string.
 * Threads: any.
 */
TWS_API const char *tws_err_text(tws_err err);

/**
 * Tells whether a code ends the connection for good (values -20 and below).
 *
 * @param err an error code
 * @return true when no later call on that connection can succeed; false for TWS_OK and for local
 *         refusals such as TWS_ERR_TIMEOUT.
 * Threads: any.
 */
TWS_API bool tws_err_is_final(tws_err err);

/* Close codes as arguments of the two functions below: TWS_CODES(TWS_CLOSE_NORMAL, 4001). */
#define TWS_CODES(...)                                                                             \
    (const uint16_t[]){__VA_ARGS__}, sizeof((const uint16_t[]){__VA_ARGS__}) / sizeof(uint16_t)

/**
 * Tells whether a connection ended with one of these close codes.
 *
 * That is with a close frame of the peer's, whoever began, or without one when the peer just went
 * away (TWS_CLOSE_ABNORMAL). Other endings have no close code: network errors, timeouts, and what
 * the library itself objected to.
 *
 *     if (tws_is_close_error(&e, TWS_CODES(TWS_CLOSE_NORMAL, TWS_CLOSE_GOING_AWAY)))
 *         puts(e.reason);
 *
 * @param e from tws_conn_error()
 * @param codes the codes; may be NULL when count is 0
 * @param count how many
 * @return true when it did.
 * Threads: any.
 * RFC: 6455 7.1.5
 */
TWS_API bool tws_is_close_error(const tws_error *e, const uint16_t *codes, size_t count);

/**
 * Tells whether the peer ended a connection in another way than expected: by a close frame with none
 * of these codes, or without one (TWS_CLOSE_ABNORMAL) unless that is among them.
 *
 * False while it is open, and after an ending that began on this side or in the network.
 *
 * @param e from tws_conn_error()
 * @param codes the codes that are expected; may be NULL when count is 0
 * @param count how many
 * @return true when it did.
 * Threads: any.
 * RFC: 6455 7.1.5
 */
TWS_API bool tws_is_unexpected_close(const tws_error *e, const uint16_t *codes, size_t count);

/**
 * Writes the payload of a close frame, for programs that send or compare such frames themselves.
 * tws_close() needs none.
 *
 * @param buf where it goes
 * @param size room in buf; 125 is always enough
 * @param code a code that may be sent; 0 or 1005: the payload is empty
 * @param reason UTF-8, at most 123 bytes, or NULL
 * @param len set to the number of bytes; 0 on errors
 * @return TWS_OK; TWS_ERR_CLOSE_CODE; TWS_ERR_TEXT; TWS_ERR_CONTROL_SIZE: the reason is too long, or
 *         buf too small.
 * Threads: any.
 * RFC: 6455 5.5.1
 */
TWS_API tws_err tws_format_close(void *buf, size_t size, uint16_t code, const char *reason,
                                 size_t *len);

#ifdef __cplusplus
}
#endif
#endif
