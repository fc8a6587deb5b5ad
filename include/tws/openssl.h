/*
 * openssl.h: an SSL_CTX or SSL that the application made itself.
 *
 * The only header of this library that includes OpenSSL, and not part of tws.h. Link with -lssl
 * -lcrypto. OpenSSL 3.0 or later.
 */
#ifndef TWS_OPENSSL_H
#define TWS_OPENSSL_H

#include <tws/server.h>
#include <tws/tls.h>

#include <openssl/ssl.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Makes a tws_tls of an SSL_CTX as it is.
 *
 * Nothing of ctx is changed. A client's context must verify (SSL_CTX_set_verify()) if the server's
 * certificate shall be verified at all; the name or address of the host is then verified as well.
 * Each connection's SSL gets its host as SNI, no renegotiation, and buffers that are released when
 * idle.
 *
 * @param out set to it, with one reference; NULL on failure
 * @param ctx the context
 * @param server whether it is for servers or for clients
 * @return TWS_OK; TWS_ERR_ARGUMENT; TWS_ERR_MEMORY.
 * Threads: any.
 * Ownership: a reference on ctx is taken; do not change it afterwards.
 */
TWS_API tws_err tws_tls_from_ctx(tws_tls **out, SSL_CTX *ctx, bool server);

/**
 * Performs the server's opening handshake over TLS that somebody else has set up.
 *
 * Like tws_upgrade(), but the TLS handshake on ssl is done already. The SSL's BIOs are replaced, so
 * they must hold no bytes of their own: socket BIOs of fd do not.
 *
 * @param out set to the connection, with one reference; NULL on failure
 * @param ssl after its handshake, in the server's role; nobody else uses it any more
 * @param fd its socket
 * @param buffered bytes already read from ssl (decrypted), or NULL; copied
 * @param buffered_len how many; at most max_head_bytes and 16,383
 * @param opt options, or NULL for the defaults; copied; `tls` in it is not used
 * @param error filled on failure when not NULL
 * @return as tws_upgrade(); TWS_ERR_STATE when the TLS handshake is not done.
 * Threads: any.
 * Ownership: ssl and fd are the library's from the call on, and freed and closed on failure; the
 *         caller gives the connection back with tws_conn_unref().
 * RFC: 6455 4.2
 */
TWS_API tws_err tws_upgrade_ssl(tws_conn **out, SSL *ssl, int fd, const void *buffered,
                                size_t buffered_len, const tws_upgrade_options *opt,
                                tws_error *error);

/**
 * Runs a function on a connection's SSL, under the lock that reading and writing take.
 *
 * For questions (SSL_get_peer_certificate()) and for SSL_key_update(), whose message leaves before
 * the call returns if the socket takes it. fn must not read, write, shut down or free the SSL, nor
 * call this library with the same connection, nor wait.
 *
 * @param c the connection
 * @param fn the function
 * @param arg handed to fn
 * @return TWS_OK; TWS_ERR_STATE when the connection does not use TLS; TWS_ERR_ARGUMENT.
 * Threads: any.
 */
TWS_API tws_err tws_conn_ssl_do(tws_conn *c, void (*fn)(SSL *ssl, void *arg), void *arg);

#ifdef __cplusplus
}
#endif
#endif
