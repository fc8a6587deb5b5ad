/*
 * tls.h: certificates, trust, and TLS contexts for servers and clients.
 *
 * A tws_tls holds what many connections share: certificates and keys, trusted authorities, rules,
 * session tickets. One serves any number of servers, upgrades or dials.
 *
 *     tws_tls_certificate cert = {.cert_file = "fullchain.pem", .key_file = "privkey.pem"};
 *     tws_tls_server_options t;
 *     tws_error error;
 *     tws_tls_server_options_init(&t);
 *     t.certificates = &cert, t.certificate_count = 1;
 *     if (tws_tls_server_new(&opt.tls, &t, &error) != TWS_OK)
 *         fprintf(stderr, "%s\n", error.text);
 *
 * TLS 1.2 and 1.3 are spoken, with ciphers that are forward secret and authenticated; ALPN knows
 * "http/1.1" only; renegotiation and compression are refused. An existing SSL_CTX or SSL is taken by
 * the functions of <tws/openssl.h>, the only header that includes OpenSSL.
 *
 * In a build without TLS (docs/install.md) making a tws_tls, and dialling wss://, is
 * TWS_ERR_UNSUPPORTED.
 */
#ifndef TWS_TLS_H
#define TWS_TLS_H

#include <tws/error.h>
#include <tws/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A certificate chain, the server's own certificate first, with its private key, in PEM form. Each
 * from a file or from memory; what is not used stays zero. */
typedef struct tws_tls_certificate {
    const char *cert_file;
    const char *key_file; /* may be the same file; NULL: the key is where the certificate is */
    const void *cert_pem;
    size_t cert_pem_len;
    const void *key_pem;
    size_t key_pem_len;
    const char *password; /* of an encrypted key; NULL: none. Never asked for on a terminal. */
    uint64_t reserved[4];
} tws_tls_certificate;

typedef enum tws_tls_version { TWS_TLS_1_2 = 0x0303, TWS_TLS_1_3 = 0x0304 } tws_tls_version;

/* Whether a server asks clients for certificates. One that is given must always be valid. */
typedef enum tws_client_auth {
    TWS_CLIENT_AUTH_NONE = 0,
    TWS_CLIENT_AUTH_REQUEST = 1, /* a client may do without */
    TWS_CLIENT_AUTH_REQUIRE = 2
} tws_client_auth;

/*
 * Chooses what a client gets that asks for a name (SNI). `server_name` is in lower case, or NULL
 * when the client gave none. Returns another server's tws_tls, or NULL for the one that asks, where
 * the certificate is then chosen by name as always. Runs on the connection's own thread, inside its
 * handshake, and must not wait. What it returns stays the caller's and must be valid as long as
 * the function may return it; its certificates and its rules for client certificates are used. Where
 * those ask for a certificate, a session that began under another name is refused.
 */
typedef tws_tls *(*tws_tls_sni_fn)(const char *server_name, void *arg);

typedef struct tws_tls_server_options {
    size_t size; /* set by the initialiser */
    /*
     * At least one. Of several the one whose names (subjectAltName, or the common name if it has
     * none) fit the name that the client asks for is used, an exact name before "*.example.com";
     * else the first.
     */
    const tws_tls_certificate *certificates;
    size_t certificate_count;
    tws_tls_sni_fn on_sni; /* asked first; default NULL */
    void *sni_arg;
    tws_client_auth client_auth; /* default TWS_CLIENT_AUTH_NONE */
    const char *client_ca_file;  /* authorities that clients' certificates must come from, PEM */
    const void *client_ca_pem;
    size_t client_ca_pem_len;
    tws_tls_version min_version; /* default TWS_TLS_1_2 */
    const char *ciphers;         /* of TLS 1.2, in OpenSSL's form; default: AEAD with ECDHE */
    const char *ciphersuites;    /* of TLS 1.3; default: OpenSSL's */
    bool no_tickets; /* no session tickets: every handshake is a whole one; default false */
    bool ktls;       /* kernel TLS: TWS_ERR_UNSUPPORTED in this version; default false */
    const tws_allocator *allocator; /* default NULL: malloc. OpenSSL's memory is its own. */
    uint64_t reserved[16];
} tws_tls_server_options;

typedef struct tws_tls_client_options {
    size_t size; /* set by the initialiser */
    /* Authorities to trust in place of the system's: a PEM file, a directory as `openssl rehash`
     * makes it, PEM in memory, or several of these. Default: the system's alone. */
    const char *ca_file;
    const char *ca_dir;
    const void *ca_pem;
    size_t ca_pem_len;
    bool system_trust_too; /* besides those above; default false */
    /* Accepts any certificate of anybody: the connection is secret but may lead to an attacker.
     * Meant for tests. Default false: chain, dates, and name or address are verified. */
    bool insecure_skip_verify;
    /* Verified, and sent as SNI, in place of the host of the URL; default NULL */
    const char *server_name;
    const tws_tls_certificate *certificate; /* the client's own; default NULL: none */
    tws_tls_version min_version;            /* default TWS_TLS_1_2 */
    const char *ciphers;                    /* of TLS 1.2, in OpenSSL's form */
    const char *ciphersuites;               /* of TLS 1.3 */
    bool no_sessions;               /* do not resume earlier sessions; default false: resume */
    bool ktls;                      /* TWS_ERR_UNSUPPORTED in this version; default false */
    const tws_allocator *allocator; /* default NULL: malloc. OpenSSL's memory is its own. */
    uint64_t reserved[16];
} tws_tls_client_options;

/**
 * Fills options with the defaults.
 *
 * @param opt the options
 * @param size sizeof *opt; use the macro tws_tls_server_options_init(opt)
 * Threads: any.
 */
TWS_API void tws_tls_server_options_init_sized(tws_tls_server_options *opt, size_t size);
#define tws_tls_server_options_init(opt) tws_tls_server_options_init_sized((opt), sizeof *(opt))

/**
 * Fills options with the defaults.
 *
 * @param opt the options
 * @param size sizeof *opt; use the macro tws_tls_client_options_init(opt)
 * Threads: any.
 */
TWS_API void tws_tls_client_options_init_sized(tws_tls_client_options *opt, size_t size);
#define tws_tls_client_options_init(opt) tws_tls_client_options_init_sized((opt), sizeof *(opt))

/**
 * Makes the TLS side of servers: reads certificates and keys and checks that they fit together.
 *
 * @param out set to it, with one reference; NULL on failure
 * @param opt the options; copied, with the bytes of PEM in memory; files are read now, and again by
 *        tws_tls_reload()
 * @param error filled on failure when not NULL; its text names the file and what is wrong with it
 * @return TWS_OK; TWS_ERR_CERTIFICATE: a certificate, key or authority cannot be read, its password
 *         is wrong or missing, or key and certificate do not belong together; TWS_ERR_ARGUMENT:
 *         there is no certificate, or a cipher is not known; TWS_ERR_UNSUPPORTED: ktls,
 *         or a build without TLS; TWS_ERR_MEMORY.
 * Threads: any.
 * Ownership: give it back with tws_tls_unref(); servers and connections hold references of their own.
 * RFC: 5246, 8446, 6066 3, 7301
 */
TWS_API tws_err tws_tls_server_new(tws_tls **out, const tws_tls_server_options *opt,
                                   tws_error *error);

/**
 * Makes the TLS side of clients.
 *
 * @param out set to it, with one reference; NULL on failure
 * @param opt the options, or NULL for the defaults; copied, with the bytes of PEM in memory
 * @param error filled on failure when not NULL; its text names the file and what is wrong with it
 * @return as tws_tls_server_new().
 * Threads: any.
 * Ownership: give it back with tws_tls_unref().
 * RFC: 5246, 8446, 6066 3, 6125, 7301
 */
TWS_API tws_err tws_tls_client_new(tws_tls **out, const tws_tls_client_options *opt,
                                   tws_error *error);

/**
 * Reads certificates, keys and authorities from their files again.
 *
 * Handshakes that begin later use the new ones; those in progress and open connections go on with
 * what they had. Session tickets handed out before are not accepted any more. On failure everything
 * stays as it was.
 *
 * @param tls a server's or client's
 * @param error filled on failure when not NULL
 * @return TWS_OK; TWS_ERR_STATE when it was made by tws_tls_from_ctx(); else as
 *         tws_tls_server_new().
 * Threads: any, also while handshakes run.
 */
TWS_API tws_err tws_tls_reload(tws_tls *tls, tws_error *error);

/**
 * Takes one more reference.
 *
 * @param tls the tws_tls
 * @return tls
 * Threads: any that already holds a valid reference.
 * Ownership: give it back with tws_tls_unref().
 */
TWS_API tws_tls *tws_tls_ref(tws_tls *tls);

/**
 * Gives a reference back; the last one frees it.
 *
 * @param tls the tws_tls, or NULL
 * Threads: any.
 */
TWS_API void tws_tls_unref(tws_tls *tls);

/* What TLS agreed on for one connection. */
typedef struct tws_tls_info {
    tws_tls_version version;
    bool resumed;         /* by a ticket or session of an earlier connection */
    bool has_certificate; /* the peer showed one */
    bool verified;        /* and it was accepted; never true with insecure_skip_verify */
    bool ktls;
    char cipher[64];         /* OpenSSL's name of the cipher suite */
    char alpn[32];           /* "" when none was agreed */
    char server_name[256];   /* that the client asked for (SNI); "" when it asked for none */
    char peer_subject[256];  /* of the peer's certificate, as RFC 2253 writes it; cut to fit */
    uint8_t peer_sha256[32]; /* fingerprint of the peer's certificate; zero when there is none */
    uint64_t reserved[8];
} tws_tls_info;

/**
 * What TLS agreed on for a connection.
 *
 * @param c the connection
 * @param out filled; emptied when the connection is not TLS
 * @param size sizeof *out; use the macro tws_conn_tls(c, out)
 * @return true; false when the connection does not use TLS.
 * Threads: any.
 */
TWS_API bool tws_conn_tls_sized(tws_conn *c, tws_tls_info *out, size_t size);
#define tws_conn_tls(c, out) tws_conn_tls_sized((c), (out), sizeof *(out))

#ifdef __cplusplus
}
#endif
#endif
