/*
 * pair.h: two connections that are each other's peer, without a network or a handshake: for tests.
 *
 *     tws_conn *server, *client;
 *     tws_pair(&server, &client, NULL);
 *     tws_write_text(client, "hello");
 *     tws_read_message(server, &m);
 *
 * They are like any other: frames, masking, limits, timeouts and closing are real, over a pair of
 * Unix sockets ("unix" is the peers' address). So handlers can be run as they are: the server's side
 * has a request (tws_conn_request()), which no hook has seen. Replies are not joined
 * (tws_write_message()).
 *
 * Each side needs somebody to read it, as always. When a handler returns, a server closes its
 * connection; here that is the test's to do (tws_close(), with 1000), or the other side's tws_close()
 * waits for the end of the stream until its close timeout. A test of one thread ends by tws_conn_unref() of both,
 * which cuts, or by tws_close_start() on one and a read on the other, then on the first.
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
    const char *target;        /* of the server's request; default "/" */
    const tws_header *headers; /* of the request; default NULL: none */
    size_t header_count;
    const char *subprotocol;            /* what was agreed; default NULL: none */
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
 * @param server_side set to the connection that acts as the server; NULL on failure
 * @param client_side set to the one that acts as the client; NULL on failure
 * @param opt options, or NULL for the defaults; not needed after the call
 * @return TWS_OK; TWS_ERR_ARGUMENT: an option, or a request that cannot be; TWS_ERR_MEMORY;
 *         TWS_ERR_SYSTEM: no descriptors; TWS_ERR_UNSUPPORTED: compression in a build without zlib.
 * Threads: any.
 * Ownership: give both back with tws_conn_unref().
 */
TWS_API tws_err tws_pair(tws_conn **server_side, tws_conn **client_side,
                         const tws_pair_options *opt);

#ifdef __cplusplus
}
#endif
#endif
