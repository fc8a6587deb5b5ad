/*
 * pair.h: two connections that are each other's peer, without a network or a handshake: for tests.
 *
 *     tws_conn *server, *client;
 *     tws_pair(&server, &client, NULL);
 *     tws_write_text(client, "hello");
 *     tws_read_message(server, &m);
 *
 * They are like any other: frames, masking, limits, timeouts and closing are real, over a pair of
 * Unix sockets. There is no request and no subprotocol, replies are not joined (tws_write_message()).
 */
#ifndef TWS_PAIR_H
#define TWS_PAIR_H

#include <tws/conn.h>
#include <tws/deflate.h>
#include <tws/thread.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tws_pair_options {
    size_t size; /* set by the initialiser */
    /*
     * The threads that will use both connections; default NULL: those like the caller's (on a light
     * thread, of the same server or group; else pthreads and kernel threads).
     */
    tws_group *group;
    const tws_deflate_options *deflate; /* what was agreed; default NULL: no compression */
    const tws_allocator *allocator;     /* default NULL: malloc; must outlive the connections */
    uint64_t reserved[8];
    tws_conn_options server; /* of the side that acts as the server */
    tws_conn_options client;
} tws_pair_options;

/**
 * Fills options with the defaults.
 *
 * @param opt the options
 * @param size sizeof *opt; use the macro tws_pair_options_init(opt)
 * Threads: any.
 */
TWS_API void tws_pair_options_init_sized(tws_pair_options *opt, size_t size);
#define tws_pair_options_init(opt) tws_pair_options_init_sized((opt), sizeof *(opt))

/**
 * Makes two connections that are each other's peer.
 *
 * Each needs somebody to read it, as always: closing one without that on the other runs into the
 * close timeout.
 *
 * @param server_side set to the connection that acts as the server; NULL on failure
 * @param client_side set to the one that acts as the client; NULL on failure
 * @param opt options, or NULL for the defaults; not needed after the call
 * @return TWS_OK; TWS_ERR_ARGUMENT; TWS_ERR_MEMORY; TWS_ERR_SYSTEM: no descriptors.
 * Threads: any.
 * Ownership: give both back with tws_conn_unref().
 */
TWS_API tws_err tws_pair(tws_conn **server_side, tws_conn **client_side,
                         const tws_pair_options *opt);

#ifdef __cplusplus
}
#endif
#endif
