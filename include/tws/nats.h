/*
 * nats.h: NATS as the broker of a cluster. In a library of its own, libtws_nats, on libnats.
 *
 *     #include <tws/nats.h>
 *     static tws_err begin(tws_cluster **cluster, tws_hub *hub, tws_error *error)
 *     {
 *         static const char *const urls[] = {"nats://10.0.0.1:4222", "nats://10.0.0.2:4222"};
 *         tws_nats_options opt;
 *         tws_broker broker;
 *         tws_err err;
 *         tws_nats_options_init(&opt);
 *         opt.urls = urls;
 *         opt.url_count = 2;
 *         err = tws_nats_open(&broker, &opt, error);
 *         return err ? err : tws_cluster_new(cluster, hub, &broker, NULL, error);
 *     }
 *
 * Build with `pkg-config --cflags --libs tws-nats`.
 *
 * libnats finds the other servers of a NATS cluster by itself, and goes on to the next one when its own
 * fails. It has threads and memory for the whole process: they end with nats_Close(), which is the
 * program's to call, after the last tws_cluster_free(). Messages come on one thread for all rooms;
 * the program may ask for more with nats_SetMessageDeliveryPoolSize(). Like every user of libnats, a
 * program has SIGPIPE ignored from then on.
 *
 * A server that is there but takes nothing for `write_timeout` is given up for another.
 * tws_cluster_free() waits for an attempt to connect that is under way, and a second for what is still to
 * be sent.
 */
#ifndef TWS_NATS_H
#define TWS_NATS_H

#include <tws/cluster.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tws_nats_options {
    size_t size; /* set by the initialiser */
    /* "nats://host:port", "tls://host:port"; one with tls: means all. Default: 127.0.0.1:4222 */
    const char *const *urls;
    size_t url_count;
    /* Of this connection, as the server's monitoring shows it; default "libtws". */
    const char *name;

    /* Who this is: at most one of user and password, token, credentials, nkey. Default: nobody. */
    const char *user, *password;
    const char *token;
    const char *credentials;      /* a file with JWT and seed, as nsc makes it */
    const char *nkey, *nkey_seed; /* the public key, and the file with its seed */

    /* TLS 1.2 or 1.3. The server's name is checked against its certificate. */
    bool tls;              /* also for nats:// */
    const char *ca;        /* file of trusted certificates; default: the system's */
    const char *cert;      /* files of a certificate of this client's own and its key */
    const char *key;       /* (both or none) */
    const char *host_name; /* to be found in the certificate; default: that of the URL */

    tws_ms connect_timeout; /* of each attempt; default 2,000 */
    tws_ms write_timeout;   /* default 2,000 */
    tws_ms ping_interval;   /* a server that has not answered two of these is away; default 2,000 */
    /* Attempts wait so long after the first failure, then twice that and so on, with a random share,
     * up to the second. Defaults 50, 500. */
    tws_ms retry_first, retry_most;
    /* Messages of one room that wait to be handled before further ones are dropped (and show as a
     * gap), and their bytes; defaults 65,536 and 64 MiB. */
    uint32_t max_pending;
    uint64_t max_pending_bytes;
    uint64_t reserved[7];
} tws_nats_options;

/**
 * Fills options with the defaults.
 *
 * @param opt the options
 * @param size sizeof *opt; use the macro tws_nats_options_init(opt)
 * Threads: any.
 */
TWS_API void tws_nats_options_init_sized(tws_nats_options *opt, size_t size);
#define tws_nats_options_init(opt) tws_nats_options_init_sized((opt), sizeof *(opt))

/**
 * Makes an adapter for NATS. It connects when a cluster is made with it.
 *
 * @param out filled; zeros on errors
 * @param opt the options, copied; NULL: the defaults
 * @param error filled on errors; may be NULL
 * @return TWS_OK; TWS_ERR_ARGUMENT for options that cannot be, a URL or file among them (the record's
 *         text says more); TWS_ERR_TLS when certificates or a key cannot be used; TWS_ERR_MEMORY.
 * Threads: any.
 * Ownership: the next tws_cluster_new() takes it over, also when that fails. To give it up without
 *         one, call out->release(out->state).
 */
TWS_API tws_err tws_nats_open(tws_broker *out, const tws_nats_options *opt, tws_error *error);

#ifdef __cplusplus
}
#endif
#endif
