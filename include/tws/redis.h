/*
 * redis.h: Redis as the broker of a cluster. In a library of its own, libtws_redis, on libhiredis.
 *
 *     #include <tws/redis.h>
 *     static tws_err begin(tws_cluster **cluster, tws_hub *hub, tws_error *error)
 *     {
 *         tws_redis_options opt;
 *         tws_broker broker;
 *         tws_err err;
 *         tws_redis_options_init(&opt);
 *         opt.address = "10.0.0.1:6379";
 *         err = tws_redis_open(&broker, &opt, error);
 *         return err ? err : tws_cluster_new(cluster, hub, &broker, NULL, error);
 *     }
 *
 * Build with `pkg-config --cflags --libs tws-redis`.
 *
 * Uses PUBLISH, SUBSCRIBE and two connections to one server. While that restarts, nodes hear nothing
 * of each other, and afterwards they are told what they have missed. There is no TLS: Debian 12's
 * hiredis (0.14) has none; keep the way to the server private, by a tunnel (stunnel, WireGuard) if it
 * leaves the machine, or take NATS. tws_cluster_free() waits for an attempt to connect that is under
 * way, resolving a name included, and a second for what is still to be sent.
 */
#ifndef TWS_REDIS_H
#define TWS_REDIS_H

#include <tws/cluster.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tws_redis_options {
    size_t size; /* set by the initialiser */
    /* HOST:PORT, HOST, [IPv6]:PORT, or the path of a Unix socket, which begins with '/'; default
     * "127.0.0.1:6379". */
    const char *address;
    const char *user, *password; /* AUTH; a password alone is that of the default user */
    tws_ms connect_timeout;      /* of each attempt; default 2,000 */
    tws_ms ping_interval; /* a server that has not answered two of these is away; default 2,000 */
    /* Attempts wait so long after the first failure, then twice that and so on, with a random share,
     * up to the second. Defaults 50, 500. */
    tws_ms retry_first, retry_most;
    /* Bytes that the network has not taken, above which publish says TWS_ERR_TIMEOUT, so that the
     * cluster's own queue fills; default 1 MiB. */
    size_t max_pending;
    uint64_t reserved[8];
} tws_redis_options;

/**
 * Fills options with the defaults.
 *
 * @param opt the options
 * @param size sizeof *opt; use the macro tws_redis_options_init(opt)
 * Threads: any.
 */
TWS_API void tws_redis_options_init_sized(tws_redis_options *opt, size_t size);
#define tws_redis_options_init(opt) tws_redis_options_init_sized((opt), sizeof *(opt))

/**
 * Makes an adapter for Redis. It connects when a cluster is made with it.
 *
 * @param out filled; zeros on errors
 * @param opt the options, copied; NULL: the defaults
 * @param error filled on errors; may be NULL
 * @return TWS_OK; TWS_ERR_ARGUMENT for options that cannot be; TWS_ERR_MEMORY; TWS_ERR_SYSTEM when
 *         there is no descriptor.
 * Threads: any.
 * Ownership: the next tws_cluster_new() takes it over, also when that fails. To give it up without
 *         one, call out->release(out->state).
 */
TWS_API tws_err tws_redis_open(tws_broker *out, const tws_redis_options *opt, tws_error *error);

#ifdef __cplusplus
}
#endif
#endif
