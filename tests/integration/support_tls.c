#include "support_tls.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <openssl/err.h>

/* ---- What a process has one of ---- */

static struct pki ca, leaf;
static tws_tls *server_tls;
static SSL_CTX *client_ctx;
static _Atomic unsigned truncated;

static void make_once(void)
{
    struct pki_spec authority = {.name = "Test CA", .ca = true};
    struct pki_spec spec = {
        .name = "localhost", .alt = "DNS:localhost,IP:127.0.0.1,IP:::1", .issuer = &ca};
    tws_tls_server_options o;
    tws_tls_certificate c;

    pki_make(&ca, &authority);
    pki_make(&leaf, &spec);
    c = (tws_tls_certificate){.cert_pem = leaf.cert,
                              .cert_pem_len = strlen(leaf.cert),
                              .key_pem = leaf.key,
                              .key_pem_len = strlen(leaf.key)};
    tws_tls_server_options_init(&o);
    o.certificates = &c;
    o.certificate_count = 1;
    client_ctx = SSL_CTX_new(TLS_client_method());
    if (tws_tls_server_new(&server_tls, &o, NULL) != TWS_OK || !client_ctx)
        abort();
    SSL_CTX_set_mode(client_ctx,
                     SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    X509_STORE_add_cert(SSL_CTX_get_cert_store(client_ctx), ca.x509);
    SSL_CTX_set_verify(client_ctx, SSL_VERIFY_PEER, NULL);
}

static void once(void)
{
    static pthread_once_t control = PTHREAD_ONCE_INIT;

    pthread_once(&control, make_once);
}

bool support_tls_wanted(void)
{
    const char *wanted = getenv("TWS_TEST_TLS");

    return wanted && strcmp(wanted, "1") == 0;
}

const struct pki *support_tls_ca(void)
{
    once();
    return &ca;
}

const struct pki *support_tls_leaf(void)
{
    once();
    return &leaf;
}

tws_tls *support_tls_server(void)
{
    once();
    return server_tls;
}

unsigned support_tls_truncated(void)
{
    return atomic_load(&truncated);
}

/* ---- The bridge ---- */

struct lane { /* bytes on their way in one direction */
    char buf[16384];
    size_t len, done;
    bool ended;  /* nothing more comes in */
    bool closed; /* and the other side has been told */
};

struct bridge {
    SSL *ssl;
    int plain, secure;
    struct lane up, down; /* to the server, from it */
    bool read_waits_write, broken;
};

/* Closing it then resets the connection. */
static void reset_on_close(int fd)
{
    struct linger now = {.l_onoff = 1, .l_linger = 0};

    setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
}

static void lane_took(struct lane *l, size_t n)
{
    l->done += n;
    if (l->done == l->len)
        l->done = l->len = 0;
}

static bool again(void)
{
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

static void read_plain(struct bridge *b)
{
    ssize_t n;

    if (b->up.ended || b->up.len > 0)
        return;
    n = recv(b->plain, b->up.buf, sizeof b->up.buf, 0);
    if (n > 0) {
        b->up.len = (size_t)n;
    } else if (n == 0) {
        b->up.ended = true;
    } else if (!again()) {
        reset_on_close(b->secure);
        b->broken = true;
    }
}

static void write_secure(struct bridge *b)
{
    size_t n = 0;

    if (b->up.len > 0) {
        ERR_clear_error();
        int r = SSL_write_ex(b->ssl, b->up.buf + b->up.done, b->up.len - b->up.done, &n);

        if (r == 1) {
            lane_took(&b->up, n);
        } else {
            r = SSL_get_error(b->ssl, r);
            if (r != SSL_ERROR_WANT_WRITE && r != SSL_ERROR_WANT_READ)
                b->up.len = 0, b->up.ended = b->up.closed = true; /* what it sent is still read */
        }
    }
    if (b->up.ended && b->up.len == 0 && !b->up.closed) {
        ERR_clear_error();
        SSL_shutdown(b->ssl);
        shutdown(b->secure, SHUT_WR);
        b->up.closed = true;
    }
}

static void read_secure(struct bridge *b)
{
    size_t n = 0;
    int r;

    if (b->down.ended || b->down.len > 0)
        return;
    ERR_clear_error();
    errno = 0;
    r = SSL_read_ex(b->ssl, b->down.buf, sizeof b->down.buf, &n);
    if (r == 1) {
        b->down.len = n;
        return;
    }
    r = SSL_get_error(b->ssl, r);
    if (r == SSL_ERROR_WANT_READ || r == SSL_ERROR_WANT_WRITE)
        return;
    b->down.ended = true;
    if (r != SSL_ERROR_ZERO_RETURN) {
        if (errno == ECONNRESET || errno == EPIPE)
            reset_on_close(b->plain), b->broken = true;
        else
            atomic_fetch_add(&truncated, 1);
    }
}

static void write_plain(struct bridge *b)
{
    if (b->down.len > 0) {
        ssize_t n =
            send(b->plain, b->down.buf + b->down.done, b->down.len - b->down.done, MSG_NOSIGNAL);

        if (n > 0) {
            lane_took(&b->down, (size_t)n);
        } else if (!again()) {
            reset_on_close(b->secure);
            b->broken = true;
        }
    }
    if (b->down.ended && b->down.len == 0 && !b->down.closed) {
        shutdown(b->plain, SHUT_WR);
        b->down.closed = true;
    }
}

static void *bridge_main(void *arg)
{
    struct bridge *b = arg;
    sigset_t pipe_signal; /* OpenSSL's socket BIO raises it; for the test it stays deadly */

    sigemptyset(&pipe_signal);
    sigaddset(&pipe_signal, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_signal, NULL);
    for (;;) {
        struct pollfd fds[2] = {{.fd = b->plain}, {.fd = b->secure}};

        read_plain(b);
        if (!b->broken)
            write_secure(b);
        if (!b->broken)
            read_secure(b);
        if (!b->broken)
            write_plain(b);
        if (b->broken || (b->up.closed && b->down.closed))
            break;
        if (b->down.len == 0 && SSL_pending(b->ssl) > 0)
            continue;
        if (!b->up.ended && b->up.len == 0)
            fds[0].events |= POLLIN;
        if (b->down.len > 0)
            fds[0].events |= POLLOUT;
        if (!b->down.ended && b->down.len == 0)
            fds[1].events |= POLLIN;
        if (b->up.len > 0)
            fds[1].events |= POLLOUT;
        for (int i = 0; i < 2; i++) /* an end that nobody looks at any more would wake for ever */
            if (!fds[i].events)
                fds[i].fd = -1;
        poll(fds, 2, -1);
    }
    SSL_free(b->ssl);
    close(b->secure);
    close(b->plain);
    free(b);
    return NULL;
}

/* Two ends of a TCP connection: unlike a pair of Unix sockets it knows resets. */
static bool tcp_pair(int fds[2])
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof addr;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int one = 1;

    fds[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    fds[1] = -1;
    if (bind(listener, (struct sockaddr *)&addr, len) == 0 && listen(listener, 1) == 0 &&
        getsockname(listener, (struct sockaddr *)&addr, &len) == 0 &&
        connect(fds[0], (struct sockaddr *)&addr, len) == 0)
        fds[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    close(listener);
    setsockopt(fds[0], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fds[1], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fds[1] >= 0;
}

int support_tls_bridge(int fd)
{
    struct bridge *b = calloc(1, sizeof *b);
    pthread_attr_t attr;
    pthread_t thread;
    int small = 256 * 1024; /* so that a peer that reads nothing is felt */
    int pair[2];

    once();
    if (!b || !tcp_pair(pair))
        abort();
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    setsockopt(pair[1], SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    b->ssl = SSL_new(client_ctx);
    b->secure = fd;
    b->plain = pair[1];
    SSL_set_fd(b->ssl, fd);
    SSL_set1_host(b->ssl, "localhost");
    SSL_set_tlsext_host_name(b->ssl, "localhost");
    if (SSL_connect(b->ssl) != 1) {
        ERR_print_errors_fp(stderr);
        SSL_free(b->ssl);
        close(pair[0]);
        close(pair[1]);
        close(fd);
        free(b);
        return -1;
    }
    fcntl(b->secure, F_SETFL, O_NONBLOCK);
    fcntl(b->plain, F_SETFL, O_NONBLOCK);
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    if (pthread_create(&thread, &attr, bridge_main, b) != 0)
        abort();
    pthread_attr_destroy(&attr);
    return pair[0];
}
