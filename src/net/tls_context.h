/*
 * tls_context.h: what connections share: settings, and the contexts that were made from them.
 *
 * A set of contexts never changes once it is made. Loading certificates again makes a new set;
 * handshakes hold a reference on the one they began with.
 */
#ifndef NET_TLS_CONTEXT_H
#define NET_TLS_CONTEXT_H

#include <tws/tls.h>

#include "base/pool.h"
#include "base/ref.h"
#include "task/task.h"

#include <openssl/ssl.h>

/* A whole record's plaintext, and what is received at once in a handshake. */
#define TLS_BUFFER 16384

/* The options of both roles; strings and bytes are copies. */
struct tls_settings {
    const tws_allocator *allocator;
    bool server;
    tws_tls_certificate *certificates;
    size_t certificate_count;
    tws_tls_sni_fn on_sni;
    void *sni_arg;
    tws_client_auth client_auth;
    char *ca_file, *ca_dir;
    void *ca_pem;
    size_t ca_pem_len;
    bool system_trust;
    bool skip_verify;
    char *server_name;
    tws_tls_version min_version;
    char *ciphers, *ciphersuites;
    bool keep_sessions; /* tickets of a server, sessions of a client */
};

/* False when there is no memory; tls_settings_clear() either way. */
bool tls_settings_server(struct tls_settings *s, const tws_tls_server_options *o);
bool tls_settings_client(struct tls_settings *s, const tws_tls_client_options *o);
void tls_settings_clear(struct tls_settings *s);

/* ---- Faults ---- */

/* What is wrong with a file or an option. */
struct tls_fault {
    tws_err code;
    unsigned long tls; /* OpenSSL's code, or 0 */
    int sys_errno;
    char text[200];
};

/* This thread's queue of errors, which is then empty; 0: none. */
struct tls_errors {
    unsigned long first, last;
    unsigned long memory; /* the first that tells of a lack of memory: others may follow from it */
};
struct tls_errors tls_errors_take(void);

/* Sets *f and returns its code, or TWS_ERR_MEMORY when OpenSSL's error queue tells of that. The reason
 * is that of the queue when `queue` is set. */
tws_err tls_fault_set(struct tls_fault *f, tws_err code, bool queue, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* ---- tls_cert.c ---- */

/* Chain and key into a context. */
tws_err tls_load_certificate(SSL_CTX *ctx, const tws_tls_certificate *c, struct tls_fault *f);
/* Authorities into a context, also as those a server names to its clients when `name_them`. */
tws_err tls_load_authorities(SSL_CTX *ctx, const struct tls_settings *s, bool name_them,
                             struct tls_fault *f);
/*
 * OpenSSL remembers for good what it has found in a certificate, and what it could not look at for lack
 * of memory it takes for invalid, weak or unknown, and says nothing else. Whether a fresh copy is better.
 */
bool tls_misread(X509 *cert);
enum tls_fit { TLS_FIT_NONE, TLS_FIT_WILDCARD, TLS_FIT_EXACT };
/* How well a certificate's names fit a name in lower case. */
enum tls_fit tls_certificate_fit(X509 *cert, const char *name);

/* ---- tls_session.c: sessions of a client, by the name that was verified ---- */

#define TLS_SESSIONS 32

struct tls_sessions {
    task_mutex mu;
    uint64_t stamp; /* mu */
    struct tls_session {
        char *name; /* NULL: free */
        unsigned char *data;
        size_t len;
        bool once;         /* may be used once only */
        uint64_t stamp;    /* the oldest goes first */
    } slots[TLS_SESSIONS]; /* mu */
};

void tls_sessions_init(struct tls_sessions *t);
void tls_sessions_clear(struct tls_sessions *t, const tws_allocator *a);
void tls_sessions_put(struct tls_sessions *t, const tws_allocator *a, const char *name,
                      SSL_SESSION *session);
/* A copy of the caller's own; NULL: none. */
SSL_SESSION *tls_sessions_take(struct tls_sessions *t, const tws_allocator *a, const char *name);

/* ---- tls_context.c ---- */

struct tls_set {
    struct base_ref refs;
    const tws_allocator *allocator;
    struct tls_sessions *sessions; /* a client's that keeps them; NULL */
    size_t count;
    SSL_CTX *ctx[]; /* one for each certificate; at least one */
};

struct tws_tls {
    struct base_ref refs;
    struct tls_settings settings;
    bool foreign; /* made of the application's SSL_CTX, or for one SSL */
    BIO_METHOD *method;
    struct base_pool buffers; /* TLS_BUFFER bytes */
    task_mutex mu;
    struct tls_set *set; /* mu; NULL: made for one SSL */
};

/* With a reference. */
struct tls_set *tls_set_get(struct tws_tls *tls);
void tls_set_unref(struct tls_set *set);
/* The context for a client that asks for a name; NULL: it gave none. */
SSL_CTX *tls_set_choose(const struct tls_set *set, const char *name);
/* Has no contexts; for an SSL that exists already. NULL: no memory. */
struct tws_tls *tls_new_bare(const tws_allocator *a);

/* ---- Callbacks of contexts, in tls_handshake.c and tls_verify.c; they find their connection by the SSL's BIO ---- */

int tls_on_name(SSL *ssl, int *alert, void *arg);
int tls_on_alpn(SSL *ssl, const unsigned char **out, unsigned char *out_len,
                const unsigned char *in, unsigned int in_len, void *arg);
int tls_on_verify(int ok, X509_STORE_CTX *store);
int tls_on_foreign_verify(int ok, X509_STORE_CTX *store);
int tls_on_session(SSL *ssl, SSL_SESSION *session);

/* ---- The BIO, in tls_bio.c ---- */

/* NULL: no memory. */
BIO_METHOD *tls_bio_method(void);

#endif
