/* metrics.h: what a server has done, as numbers and as Prometheus text. */
#ifndef TWS_METRICS_H
#define TWS_METRICS_H

#include <tws/hub.h>
#include <tws/server.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Sums over a server's connections, open and ended. */
typedef struct tws_server_stats {
    uint64_t open;                /* connections after their handshake */
    uint64_t handshaking;         /* connections before it */
    uint64_t accepted;            /* sockets accepted */
    uint64_t upgraded;            /* handshakes that became connections */
    uint64_t refused_full;        /* max_connections */
    uint64_t refused_address;     /* max_per_address */
    uint64_t refused_descriptors; /* no descriptor to accept with */
    uint64_t refused_threads;     /* no thread or no memory for it */
    uint64_t pages;               /* plain HTTP requests answered */
    uint64_t threads;             /* connection threads, of either kind, without writers */
    uint64_t carriers;            /* pthreads that run light threads, without spare ones */
    uint64_t handovers;           /* carriers taken from a handler that did not come back */
    uint64_t helpers;             /* pthreads that run tws_blocking() */
    uint64_t deepest_stack;       /* bytes, with the option measure_stacks */
    uint64_t buffers_lent;        /* shared receive buffers in use now */
    uint64_t messages_in, messages_out, bytes_in, bytes_out, wire_in, wire_out;
    uint64_t pings_in, pings_out, pongs_in, pongs_out;
    uint64_t timeouts, joined;
    uint64_t compressed_messages_in, compressed_messages_out;
    uint64_t compressed_in, compressed_out, original_in, original_out; /* see tws_stats */
    uint64_t compressors;                 /* compressors and decompressors that exist now */
    uint64_t tls_handshakes;              /* TLS handshakes that were completed */
    uint64_t tls_resumed;                 /* of these: sessions that were resumed */
    uint64_t tls_failed;                  /* TLS handshakes that failed, or took too long */
    uint64_t writers;                     /* threads that send what is queued, that exist now */
    uint64_t writers_started;             /* over time */
    uint64_t queue_bytes, queue_messages; /* queued now, of all connections */
    uint64_t queue_accepted;              /* messages that queued writes took */
    uint64_t queue_dropped_oldest, queue_dropped_newest, queue_wait_timeouts, queue_overflows;
    uint64_t refused_handshakes; /* max_handshakes */
    uint64_t refused_rate;       /* max_address_rate */
    /* Connections ended because their peer passed a limit, by the limit. */
    uint64_t limit_message, limit_ratio, limit_fragments, limit_fragment_rate, limit_control_rate;
    uint64_t limit_rate, limit_min_rate, limit_tls_updates, limit_queue;
    uint64_t log_suppressed; /* lines about such things that were counted instead of told */
} tws_server_stats;

/**
 * Adds up the counters of a server.
 *
 * @param s the server
 * @param out filled
 * @param size sizeof *out; use the macro tws_server_get_stats(s, out)
 * Threads: any.
 */
TWS_API void tws_server_stats_sized(tws_server *s, tws_server_stats *out, size_t size);
#define tws_server_get_stats(s, out) tws_server_stats_sized((s), (out), sizeof *(out))

/**
 * Writes all counters in the Prometheus text format, version 0.0.4.
 *
 * Besides those of tws_server_stats: handshake failures by HTTP status and reason, connections
 * closed by code, errors by kind, CPU seconds and memory of the process. Serve it with the type
 * TWS_METRICS_TYPE.
 *
 * @param s the server
 * @param buf where the text goes; zero-terminated whenever size is above 0
 * @param size room in buf; 32 KiB is enough
 * @return the length of the whole text, as snprintf() counts.
 * Threads: any.
 */
TWS_API size_t tws_server_metrics(tws_server *s, char *buf, size_t size);

/**
 * Writes the counters of a hub in the same format, to be put behind those of a server.
 *
 * Rooms, members, messages by what became of them, and a histogram of how long publishes took. A
 * page may hold the text of one hub only.
 *
 * @param h the hub
 * @param buf where the text goes; zero-terminated whenever size is above 0
 * @param size room in buf; 4 KiB is enough
 * @return the length of the whole text, as snprintf() counts.
 * Threads: any.
 */
TWS_API size_t tws_hub_metrics(tws_hub *h, char *buf, size_t size);

#define TWS_METRICS_TYPE "text/plain; version=0.0.4; charset=utf-8"

#ifdef __cplusplus
}
#endif
#endif
