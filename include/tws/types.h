/* types.h: version, export macro and the small types every other header uses. */
#ifndef TWS_TYPES_H
#define TWS_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TWS_VERSION_MAJOR 0
#define TWS_VERSION_MINOR 1
#define TWS_VERSION_PATCH 0
#define TWS_VERSION "0.1.0"

#if defined(__GNUC__) || defined(__clang__)
#define TWS_API __attribute__((visibility("default")))
#else
#define TWS_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Durations are milliseconds. Everywhere in this library 0 means "no limit". TWS_NOWAIT, where a
 * function allows it, means "try once and do not wait". Any other negative value is refused with
 * TWS_ERR_ARGUMENT.
 */
typedef int64_t tws_ms;
#define TWS_NO_LIMIT ((tws_ms)0)
#define TWS_NOWAIT ((tws_ms)-1)

/* One WebSocket connection. Reference-counted, see tws_conn_ref(). */
typedef struct tws_conn tws_conn;
/* A listening server and the connections it has accepted. */
typedef struct tws_server tws_server;
/* An opening handshake's request, as the peer sent it. */
typedef struct tws_request tws_request;
/* The answer to a request that a hook is preparing. */
typedef struct tws_reply tws_reply;
/* A message that is being written piece by piece. */
typedef struct tws_writer tws_writer;
/* How TLS is spoken: certificates, trust. Reference-counted. */
typedef struct tws_tls tws_tls;

/* What a connection's thread is. The same handlers run on both. */
typedef enum tws_threads {
    /* A pthread per connection: handlers may block in anything. */
    TWS_THREADS_KERNEL = 0,
    /*
     * A user-space thread per connection, many on one pthread: costs what an event loop costs.
     * Handlers wait in this library's calls; what blocks elsewhere should be wrapped in
     * tws_blocking(). A handler that keeps the processor, or blocks, for more than 10 ms does not
     * stop the others: they move to another pthread.
     */
    TWS_THREADS_LIGHT = 1
} tws_threads;

/* A header line of HTTP. Terminated strings. */
typedef struct tws_header {
    const char *name;
    const char *value;
} tws_header;

/* The two kinds of message, with their opcodes of RFC 6455, section 11.8. */
typedef enum tws_opcode { TWS_TEXT = 1, TWS_BINARY = 2 } tws_opcode;

/* Close codes of RFC 6455, section 7.4.1, and its registry. */
typedef enum tws_close_code {
    TWS_CLOSE_NORMAL = 1000,
    TWS_CLOSE_GOING_AWAY = 1001,
    TWS_CLOSE_PROTOCOL_ERROR = 1002,
    TWS_CLOSE_UNSUPPORTED_DATA = 1003,
    TWS_CLOSE_NO_STATUS = 1005, /* never on the wire: the close frame was empty */
    TWS_CLOSE_ABNORMAL = 1006,  /* never on the wire: there was no close frame */
    TWS_CLOSE_INVALID_PAYLOAD = 1007,
    TWS_CLOSE_POLICY_VIOLATION = 1008,
    TWS_CLOSE_MESSAGE_TOO_BIG = 1009,
    TWS_CLOSE_MANDATORY_EXTENSION = 1010,
    TWS_CLOSE_INTERNAL_ERROR = 1011,
    TWS_CLOSE_SERVICE_RESTART = 1012,
    TWS_CLOSE_TRY_AGAIN_LATER = 1013,
    TWS_CLOSE_BAD_GATEWAY = 1014,
    TWS_CLOSE_TLS_HANDSHAKE = 1015 /* never on the wire */
} tws_close_code;

/*
 * A message as tws_read_message() shows it. `data` is never NULL, also for an empty message, and
 * one zero byte stands behind the last byte, so that text can be used as a C string. The bytes
 * belong to the connection and may be changed in place; they are valid until the next read on it.
 */
typedef struct tws_message {
    tws_opcode opcode;
    uint32_t flags; /* TWS_MESSAGE_COMPRESSED; others may come */
    char *data;
    size_t len;
    void *owner; /* the library's own, do not touch */
} tws_message;

/* In tws_message.flags: it arrived compressed (deflate.h). */
#define TWS_MESSAGE_COMPRESSED 1u

#define TWS_MESSAGE_INIT                                                                           \
    {                                                                                              \
        TWS_TEXT, 0, 0, 0, 0                                                                       \
    }

/*
 * Memory for the library, in place of malloc, realloc and free. `alloc` and `resize` return NULL
 * when there is none. All three may be called from several threads at once.
 *
 * It has to stay a moment longer than what it was given to: a thread of the library's that has written or
 * called back gives its memory back when the last reference may have gone already. tws_server_free()
 * and tws_group_free() wait for theirs. Where there is neither (tws_upgrade(), tws_dial(), tws_pair()),
 * keep it as long as the program runs.
 */
typedef struct tws_allocator {
    void *(*alloc)(size_t size, void *arg);
    void *(*resize)(void *block, size_t size, void *arg);
    void (*release)(void *block, void *arg);
    void *arg;
} tws_allocator;

typedef enum tws_log_level {
    TWS_LOG_ERROR = 1,
    TWS_LOG_WARNING = 2,
    TWS_LOG_INFO = 3,
    TWS_LOG_DEBUG = 4
} tws_log_level;

/*
 * Receives one line without a line end. Called from any of the library's threads, several at once.
 * The library itself never prints; without this hook its lines go nowhere.
 */
typedef void (*tws_log_fn)(tws_log_level level, const char *text, void *arg);

/**
 * Tells whether bytes are valid UTF-8, as text messages must be (RFC 3629, RFC 6455 8.1).
 *
 * @param data the bytes; may be NULL when len is 0
 * @param len how many
 * @return true when they are.
 * Threads: any.
 */
TWS_API bool tws_utf8_valid(const void *data, size_t len);

/**
 * The version of the library that is linked, for example "0.1.0".
 *
 * Compare with TWS_VERSION, the version of the header that was compiled.
 *
 * @return a constant string.
 * Threads: any.
 */
TWS_API const char *tws_version(void);

#ifdef __cplusplus
}
#endif
#endif
