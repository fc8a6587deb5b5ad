/* The TLS handshake, on the thread of the connection, under one deadline. */
#include "net/tls_stream.h"

#include "base/alloc.h"

#include <openssl/err.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#define NAME_MAX_LEN 253
#define ROOM_MAX 8192

/* ---- Callbacks of contexts ---- */

static char *lower_copy(const tws_allocator *a, const char *name)
{
    char *copy = base_strdup(a, name);

    for (char *p = copy; p && *p; p++)
        if (*p >= 'A' && *p <= 'Z')
            *p = (char)(*p - 'A' + 'a');
    return copy;
}

/* The set of a tws_tls that the application chose; NULL: none, or not a server's. */
static struct tls_set *ask_application(struct net_tls *t)
{
    const struct tls_settings *s = &t->shared->settings;
    struct tws_tls *other = s->on_sni ? s->on_sni(t->name, s->sni_arg) : NULL;

    return other && other->settings.server ? tls_set_get(other) : NULL;
}

/*
 * Tickets are opened with the first context's keys, whatever name they were given for: one from a name
 * that asks for no client certificate would do for a name that requires one.
 */
static bool resumes_another(SSL *ssl, SSL_CTX *ctx, const char *name)
{
    const char *began = NULL;

    if (!SSL_session_reused(ssl) || SSL_CTX_get_verify_mode(ctx) == SSL_VERIFY_NONE)
        return false;
    began = SSL_SESSION_get0_hostname(SSL_get_session(ssl));
    return began && name ? strcasecmp(began, name) != 0 : began != name;
}

/* Once, or twice when the first ClientHello has to be repeated (RFC 8446 4.1.4). */
int tls_on_name(SSL *ssl, int *alert, void *arg)
{
    struct net_tls *t = tls_of(ssl);
    const char *name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
    SSL_CTX *ctx;

    (void)arg;
    if (!t->set)
        return SSL_TLSEXT_ERR_NOACK;
    if (name && !t->name) {
        t->name = lower_copy(t->allocator, name);
        if (!t->name) {
            *alert = SSL_AD_INTERNAL_ERROR;
            return SSL_TLSEXT_ERR_ALERT_FATAL;
        }
    }
    if (!t->other)
        t->other = ask_application(t);
    ctx = tls_set_choose(t->other ? t->other : t->set, t->name);
    if (t->shared->settings.on_sni && resumes_another(ssl, ctx, t->name)) {
        tls_note_locked(t, 0,
                        "the client resumed a session of another name, and this one asks for its "
                        "certificate");
        *alert = SSL_AD_HANDSHAKE_FAILURE;
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    }
    if (ctx != SSL_get_SSL_CTX(ssl)) {
        /* Without memory it goes on with the first one: its certificate, and whom it trusts. */
        if (SSL_set_SSL_CTX(ssl, ctx) != ctx) {
            *alert = SSL_AD_INTERNAL_ERROR;
            return SSL_TLSEXT_ERR_ALERT_FATAL;
        }
        SSL_set_verify(ssl, SSL_CTX_get_verify_mode(ctx), SSL_CTX_get_verify_callback(ctx));
    }
    return name ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_NOACK;
}

int tls_on_alpn(SSL *ssl, const unsigned char **out, unsigned char *out_len,
                const unsigned char *in, unsigned int in_len, void *arg)
{
    static const char protocol[] = "http/1.1";

    (void)ssl;
    (void)arg;
    for (unsigned int i = 0; i < in_len; i += 1U + in[i]) {
        if (in[i] == sizeof protocol - 1 && in_len - i > in[i] &&
            memcmp(in + i + 1, protocol, in[i]) == 0) {
            *out = in + i + 1;
            *out_len = in[i];
            return SSL_TLSEXT_ERR_OK;
        }
    }
    return SSL_TLSEXT_ERR_ALERT_FATAL; /* RFC 7301 3.2 */
}

int tls_on_session(SSL *ssl, SSL_SESSION *session)
{
    struct net_tls *t = tls_of(ssl);

    if (t->set && t->set->sessions && t->name && SSL_SESSION_is_resumable(session))
        tls_sessions_put(t->set->sessions, t->set->allocator, t->name, session);
    return 0; /* we keep no reference */
}

/* ---- Beginning ---- */

/* Whom a client talks to: what is verified, and what the server is asked for. 0, -ENOMEM, or -EINVAL:
 * nobody, or a name that is none. */
static int name_peer(struct net_tls *t, const char *host)
{
    const struct tls_settings *s = &t->shared->settings;
    size_t len;

    if (s->server_name)
        host = s->server_name;
    if (!host || !host[0])
        return SSL_get_verify_mode(t->ssl) == SSL_VERIFY_NONE ? 0 : -EINVAL;
    t->name = lower_copy(t->allocator, host);
    if (!t->name)
        return -ENOMEM;
    t->name[strcspn(t->name, "%")] = 0; /* the zone of an address is this machine's affair */
    len = strlen(t->name);
    if (len > 1 && t->name[len - 1] == '.')
        t->name[--len] = 0; /* certificates name hosts without the root's dot */
    if (len == 0 || len > NAME_MAX_LEN)
        return -EINVAL;
    return tls_verify_name(t) ? 0 : -ENOMEM;
}

static void resume(struct net_tls *t)
{
    SSL_SESSION *session;

    if (!t->set->sessions || !t->name)
        return;
    session = tls_sessions_take(t->set->sessions, t->set->allocator, t->name);
    if (session)
        SSL_set_session(t->ssl, session); /* refused: a whole handshake, then */
    SSL_SESSION_free(session);
}

/* A new SSL in its role. 0, -ENOMEM or -EINVAL. */
static int begin(struct net_tls *t, const struct net_tls_params *p)
{
    int r;

    t->set = tls_set_get(t->shared);
    t->ssl = t->set ? SSL_new(t->set->ctx[0]) : NULL;
    if (!t->ssl)
        return -ENOMEM;
    SSL_set_options(t->ssl, SSL_OP_NO_RENEGOTIATION);
    if (p->server) {
        SSL_set_accept_state(t->ssl);
        return 0;
    }
    SSL_set_connect_state(t->ssl);
    if (t->shared->foreign) {
        t->foreign_verify = SSL_get_verify_callback(t->ssl);
        SSL_set_verify(t->ssl, SSL_get_verify_mode(t->ssl), tls_on_foreign_verify);
    }
    r = name_peer(t, p->host);
    if (r == -EINVAL)
        tls_note_locked(t, 0, "there is no valid host name to verify (server_name)");
    if (r == 0)
        resume(t);
    return r;
}

static struct net_tls *tls_new(const struct net_tls_params *p)
{
    struct net_tls *t = base_calloc(p->allocator, sizeof *t);

    if (!t)
        return NULL;
    t->allocator = p->allocator;
    pthread_mutex_init(&t->mu, NULL);
    t->shared = p->ssl ? tls_new_bare(p->allocator) : tws_tls_ref(p->tls);
    if (t->shared)
        return t;
    tls_free(t);
    return NULL;
}

/* Has the SSL use our BIO; the connection may be found by it from now on. */
static int connect_bio(struct net_tls *t)
{
    BIO *bio = tls_bio_new(t);

    if (!bio)
        return -ENOMEM;
    SSL_set_bio(t->ssl, bio, bio);
    SSL_set_mode(t->ssl, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                             SSL_MODE_AUTO_RETRY);
    SSL_clear_mode(t->ssl, SSL_MODE_ENABLE_PARTIAL_WRITE);
    SSL_set_read_ahead(t->ssl, 0);
    return 0;
}

/* ---- The handshake ---- */

static void explain(struct net_tls_error *err, struct net_tls *t, int r)
{
    char text[64];

    memset(err, 0, sizeof *err);
    if (t && t->error)
        *err = *t->error;
    if (err->text[0])
        return;
    if (r == -ETIMEDOUT)
        snprintf(err->text, sizeof err->text, "the peer did not finish the TLS handshake in time");
    else if (r == -ECONNABORTED)
        snprintf(err->text, sizeof err->text,
                 "the peer ended the connection during the TLS handshake");
    else
        snprintf(err->text, sizeof err->text, "the TLS handshake failed: %s",
                 strerror_r(task_errno(r), text, sizeof text));
}

/* Sends what is pending, waiting. A socket that does not send any more may still have an alert. */
static int push(struct net_stream *st, struct net_tls *t, int64_t deadline)
{
    int r;

    while ((r = tls_flush_locked(t)) == -EAGAIN) {
        pthread_mutex_unlock(&t->mu);
        r = task_await_send(&st->sock, deadline);
        pthread_mutex_lock(&t->mu);
        if (r < 0)
            return r;
    }
    return r == -ENOMEM ? r : 0;
}

static int pull(struct net_stream *st, struct net_tls *t, int64_t deadline)
{
    ssize_t n;

    pthread_mutex_unlock(&t->mu);
    do {
        n = task_await(&st->sock, deadline, 0);
        if (n == 0 && (n = task_recv(&st->sock, t->stash, TLS_BUFFER)) == 0)
            n = -ECONNABORTED;
    } while (n == -EAGAIN);
    pthread_mutex_lock(&t->mu);
    if (n < 0)
        return (int)n;
    tls_track(t, t->stash, (size_t)n);
    t->in = t->stash;
    t->in_left = t->stash_end = (uint32_t)n;
    return 0;
}

/* A browser that was sent to the wrong port should be told so. */
static void answer_plain(struct net_tls *t)
{
    static const char text[] = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n"
                               "Content-Length: 45\r\nConnection: close\r\n\r\n"
                               "This port speaks TLS: use https:// or wss://\n";
    struct iovec iov = {.iov_base = (void *)(uintptr_t)text, .iov_len = sizeof text - 1};

    if (t->error && ERR_GET_LIB(t->error->code) == ERR_LIB_SSL &&
        ERR_GET_REASON(t->error->code) == SSL_R_HTTP_REQUEST)
        task_send(t->sock, &iov, 1);
}

/* One step; 1: it is done, 0: more is needed from the peer, or -errno. */
static int step_locked(struct net_tls *t)
{
    int r;

    t->corked = true;
    ERR_clear_error();
    r = SSL_do_handshake(t->ssl);
    t->corked = false;
    if (r == 1)
        return 1;
    r = SSL_get_error(t->ssl, r);
    return r == SSL_ERROR_WANT_READ ? 0 : tls_failure_locked(t, r);
}

static int shake_locked(struct net_stream *st, struct net_tls *t, bool server, int64_t deadline)
{
    for (;;) {
        int r = step_locked(t);
        int sent;

        if (r < 0) {
            tls_flush_locked(t); /* the alert */
            if (server)
                answer_plain(t);
            return r;
        }
        sent = push(st, t, deadline);
        if (sent < 0)
            return sent;
        if (r == 1)
            return t->send_error;
        r = pull(st, t, deadline);
        if (r < 0)
            return r;
    }
}

static int shake(struct net_stream *st, struct net_tls *t, const struct net_tls_params *p,
                 int64_t deadline)
{
    int r;

    t->stash = base_pool_get(&t->shared->buffers);
    if (!t->stash || p->buffered_len > TLS_BUFFER)
        return -ENOMEM;
    if (p->buffered_len > 0)
        memcpy(t->stash, p->buffered, p->buffered_len);
    t->stash_end = (uint32_t)p->buffered_len;
    tls_track(t, t->stash, t->stash_end);
    t->tracked = true;
    pthread_mutex_lock(&t->mu);
    tls_enter_locked(t, st);
    t->in = t->stash;
    t->in_left = t->stash_end;
    r = shake_locked(st, t, p->server, deadline);
    t->stash_begin = t->stash_end - (uint32_t)t->in_left;
    t->more = t->in_left > 0;
    t->in = NULL;
    t->in_left = 0;
    pthread_mutex_unlock(&t->mu);
    if (!t->more) {
        base_pool_put(&t->shared->buffers, t->stash);
        t->stash = NULL;
        t->stash_begin = t->stash_end = 0;
    }
    return r;
}

/* How much a socket takes once it says that it can be written; see room_locked(). */
static void set_room(struct net_tls *t, const struct net_stream *st)
{
    int size = 0;
    socklen_t len = sizeof size;

    if (getsockopt(st->sock.fd, SOL_SOCKET, SO_SNDBUF, &size, &len) == 0 && size > 0)
        t->room_max = size / 8 < ROOM_MAX ? (uint32_t)size / 8 : ROOM_MAX;
}

int net_tls_wrap(struct net_stream *st, const struct net_tls_params *p, int64_t deadline,
                 struct net_tls_error *err)
{
    struct net_tls *t = tls_new(p);
    int r = t ? 0 : -ENOMEM;

    ERR_clear_error();
    if (r == 0 && p->ssl && SSL_up_ref(p->ssl) == 1)
        t->ssl = p->ssl;
    else if (r == 0)
        r = begin(t, p);
    if (r == 0)
        r = connect_bio(t);
    if (r == 0 && p->ssl)
        t->more = true; /* it may hold what it has read already */
    else if (r == 0)
        r = shake(st, t, p, deadline);
    ERR_clear_error();
    if (r < 0) {
        explain(err, t, r);
        if (t)
            tls_free(t);
        return r;
    }
    memset(err, 0, sizeof *err);
    set_room(t, st);
    tls_updates_watch(t);
    st->tls = t;
    st->ops = &tls_stream_ops;
    return 0;
}

/* ---- What was agreed ---- */

static void copy(char *to, size_t size, const char *text)
{
    snprintf(to, size, "%s", text ? text : "");
}

static void describe_peer(SSL *ssl, tws_tls_info *out)
{
    X509 *cert = SSL_get0_peer_certificate(ssl);
    BIO *text = cert ? BIO_new(BIO_s_mem()) : NULL;
    int n = 0;

    if (!cert)
        return;
    out->has_certificate = true;
    out->verified =
        SSL_get_verify_mode(ssl) != SSL_VERIFY_NONE && SSL_get_verify_result(ssl) == X509_V_OK;
    X509_digest(cert, EVP_sha256(), out->peer_sha256, NULL);
    if (text && X509_NAME_print_ex(text, X509_get_subject_name(cert), 0, XN_FLAG_RFC2253) >= 0)
        n = BIO_read(text, out->peer_subject, sizeof out->peer_subject - 1);
    out->peer_subject[n > 0 ? n : 0] = 0;
    BIO_free(text);
}

void net_tls_thread_trim(void)
{
    OPENSSL_thread_stop(); /* what is needed again is made again */
}

void net_tls_agreed(struct net_stream *st, int *version, bool *resumed)
{
    pthread_mutex_lock(&st->tls->mu);
    *version = SSL_version(st->tls->ssl);
    *resumed = SSL_session_reused(st->tls->ssl) == 1;
    pthread_mutex_unlock(&st->tls->mu);
}

void net_tls_describe(struct net_stream *st, tws_tls_info *out)
{
    struct net_tls *t = st->tls;
    const unsigned char *alpn = NULL;
    unsigned int alpn_len = 0;

    memset(out, 0, sizeof *out);
    if (!t)
        return;
    pthread_mutex_lock(&t->mu);
    out->version = (tws_tls_version)SSL_version(t->ssl);
    out->resumed = SSL_session_reused(t->ssl) == 1;
    copy(out->cipher, sizeof out->cipher, SSL_get_cipher_name(t->ssl));
    SSL_get0_alpn_selected(t->ssl, &alpn, &alpn_len);
    if (alpn_len < sizeof out->alpn && alpn)
        memcpy(out->alpn, alpn, alpn_len);
    copy(out->server_name, sizeof out->server_name,
         SSL_get_servername(t->ssl, TLSEXT_NAMETYPE_host_name));
    describe_peer(t->ssl, out);
    ERR_clear_error();
    pthread_mutex_unlock(&t->mu);
}

bool net_tls_do(struct net_stream *st, void (*fn)(SSL *ssl, void *arg), void *arg)
{
    struct net_tls *t = st->tls;

    if (!t)
        return false;
    pthread_mutex_lock(&t->mu);
    tls_enter_locked(t, st);
    fn(t->ssl, arg);
    ERR_clear_error();
    if (!t->close_sent && !t->error && !t->send_error &&
        SSL_get_key_update_type(t->ssl) != SSL_KEY_UPDATE_NONE)
        SSL_do_handshake(t->ssl); /* sends the key update */
    ERR_clear_error();
    tls_flush_locked(t);
    pthread_mutex_unlock(&t->mu);
    return true;
}
