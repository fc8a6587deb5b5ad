#include "support_dial.h"

#include "wire/handshake.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* ---- Listening ---- */

static void fill_address(struct sockaddr_storage *addr, socklen_t *len, int family, uint16_t port)
{
    static _Atomic int number;

    memset(addr, 0, sizeof *addr);
    addr->ss_family = (sa_family_t)family;
    if (family == AF_INET) {
        struct sockaddr_in *in = (void *)addr;

        in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        in->sin_port = htons(port);
        *len = sizeof *in;
    } else if (family == AF_INET6) {
        struct sockaddr_in6 *in6 = (void *)addr;

        in6->sin6_addr = in6addr_loopback;
        in6->sin6_port = htons(port);
        *len = sizeof *in6;
    } else {
        struct sockaddr_un *un = (void *)addr;
        const char *dir = getenv("TMPDIR");

        snprintf(un->sun_path, sizeof un->sun_path, "%s/tws-dial-%d-%d", dir ? dir : "/tmp",
                 (int)getpid(), atomic_fetch_add(&number, 1));
        *len = sizeof *un;
    }
}

/* False when the port is somebody else's. */
static bool try_listen(struct fake *f, int family, uint16_t port, int backlog)
{
    struct sockaddr_storage addr;
    socklen_t len;
    int one = 1;

    fill_address(&addr, &len, family, port);
    f->nfillers = 0;
    f->fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (family != AF_UNIX)
        setsockopt(f->fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (family == AF_INET6)
        setsockopt(f->fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
    if (bind(f->fd, (struct sockaddr *)&addr, len) < 0 || listen(f->fd, backlog) < 0) {
        if (errno != EADDRINUSE)
            fail_msg("cannot listen: errno %d", errno);
        close(f->fd);
        f->fd = -1;
        return false;
    }
    len = sizeof addr;
    getsockname(f->fd, (struct sockaddr *)&addr, &len);
    f->port = 0;
    if (family == AF_INET)
        f->port = ntohs(((struct sockaddr_in *)(void *)&addr)->sin_port);
    else if (family == AF_INET6)
        f->port = ntohs(((struct sockaddr_in6 *)(void *)&addr)->sin6_port);
    if (family == AF_UNIX)
        snprintf(f->host, sizeof f->host, "%s", ((struct sockaddr_un *)(void *)&addr)->sun_path);
    else
        snprintf(f->host, sizeof f->host, family == AF_INET ? "127.0.0.1:%u" : "[::1]:%u", f->port);
    return true;
}

void fake_listen(struct fake *f, int family)
{
    assert_true(try_listen(f, family, 0, 64));
}

/* Linux drops what finds the queue full, so that further attempts stay unanswered. */
static void fill_queue(struct fake *f, int family)
{
    struct sockaddr_storage addr;
    socklen_t len;

    fill_address(&addr, &len, family, f->port);
    while (f->nfillers < (int)(sizeof f->fillers / sizeof *f->fillers)) {
        int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        struct pollfd p = {.fd = fd, .events = POLLOUT};

        f->fillers[f->nfillers++] = fd;
        connect(fd, (struct sockaddr *)&addr, len);
        if (poll(&p, 1, 20) == 0)
            return;
    }
    fail_msg("a queue of length 0 took %d connections", f->nfillers);
}

void fake_listen_deaf(struct fake *f, int family)
{
    assert_true(try_listen(f, family, 0, 0));
    fill_queue(f, family);
}

void fake_listen_dual(struct fake *six, struct fake *four, bool four_deaf)
{
    for (int i = 0; i < 100; i++) {
        assert_true(try_listen(six, AF_INET6, 0, 0));
        if (try_listen(four, AF_INET, six->port, four_deaf ? 0 : 64)) {
            fill_queue(six, AF_INET6);
            if (four_deaf)
                fill_queue(four, AF_INET);
            return;
        }
        fake_close(six);
    }
    fail_msg("no port is free in both families");
}

void fake_close(struct fake *f)
{
    if (f->fd >= 0)
        close(f->fd);
    f->fd = -1;
    for (int i = 0; i < f->nfillers; i++)
        close(f->fillers[i]);
    f->nfillers = 0;
    if (f->port == 0)
        unlink(f->host);
}

bool fake_has_caller(struct fake *f)
{
    struct pollfd p = {.fd = f->fd, .events = POLLIN};

    return poll(&p, 1, 0) > 0;
}

struct fake group_fake;

int group_fake_listen(void **state)
{
    (void)state;
    fake_listen(&group_fake, AF_INET);
    return 0;
}

int group_fake_close(void **state)
{
    (void)state;
    fake_close(&group_fake);
    return 0;
}

int fake_accept(struct fake *f)
{
    struct pollfd p = {.fd = f->fd, .events = POLLIN};
    struct timeval tv = {.tv_sec = SUPPORT_HANG_MS / 1000};
    int one = 1;
    int fd;

    if (poll(&p, 1, SUPPORT_HANG_MS) <= 0)
        fail_msg("nobody connected");
    fd = accept4(f->fd, NULL, NULL, SOCK_CLOEXEC);
    assert_true(fd >= 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one); /* refused by Unix sockets */
    return fd;
}

/* ---- HTTP ---- */

static bool receive_all(int fd, void *buf, size_t len)
{
    uint8_t *at = buf;

    while (len > 0) {
        ssize_t n = recv(fd, at, len, 0);

        if (n <= 0)
            return false;
        at += n;
        len -= (size_t)n;
    }
    return true;
}

const char *fake_header(const char *head, const char *name)
{
    static char value[1024];
    size_t len = strlen(name);

    for (const char *line = strstr(head, "\r\n"); line; line = strstr(line, "\r\n")) {
        line += 2;
        if (strncasecmp(line, name, len) == 0 && line[len] == ':') {
            const char *begin = line + len + 1 + strspn(line + len + 1, " ");

            snprintf(value, sizeof value, "%.*s", (int)strcspn(begin, "\r"), begin);
            return value;
        }
    }
    return NULL;
}

bool fake_read_request(int fd, struct fake_request *r)
{
    size_t n = 0;
    const char *value;

    memset(r, 0, sizeof *r);
    while (n + 1 < sizeof r->text && !strstr(r->text, "\r\n\r\n"))
        if (!receive_all(fd, r->text + n++, 1))
            return false;
    if (sscanf(r->text, "GET %1023s HTTP/1.1", r->target) != 1 &&
        sscanf(r->text, "CONNECT %1023s HTTP/1.1", r->target) != 1)
        return false;
    value = fake_header(r->text, "Host");
    snprintf(r->host, sizeof r->host, "%s", value ? value : "(none)");
    value = fake_header(r->text, "Sec-WebSocket-Key");
    snprintf(r->key, sizeof r->key, "%s", value ? value : "");
    return true;
}

void fake_say(int fd, const char *text)
{
    assert_true(client_send_bytes(fd, text, strlen(text)));
}

static void answer(int fd, const struct fake_request *r, const char *lines, const char *headers,
                   const void *behind, size_t len)
{
    char accept[HANDSHAKE_ACCEPT_LEN + 1] = "";
    char *text = support_alloc(4096 + len);
    int n;

    assert_int_equal(strlen(r->key), HANDSHAKE_KEY_LEN);
    handshake_accept(accept, r->key);
    accept[HANDSHAKE_ACCEPT_LEN] = 0;
    n = snprintf(text, 4096,
                 "HTTP/1.1 101 Switching Protocols\r\n%sSec-WebSocket-Accept: %s\r\n%s\r\n", lines,
                 accept, headers);
    assert_in_range(n, 1, 4095);
    if (len > 0)
        memcpy(text + n, behind, len);
    assert_true(client_send_bytes(fd, text, (size_t)n + len)); /* in one packet */
    free(text);
}

void fake_upgrade(int fd, const struct fake_request *r, const char *headers, const void *behind,
                  size_t len)
{
    answer(fd, r, "Upgrade: websocket\r\nConnection: Upgrade\r\n", headers, behind, len);
}

void fake_upgrade_bare(int fd, const struct fake_request *r, const char *headers)
{
    answer(fd, r, "", headers, NULL, 0);
}

/* ---- Frames ---- */

bool fake_read_frame(int fd, struct fake_frame *f)
{
    uint8_t head[2], ext[8];
    size_t n;

    if (!receive_all(fd, head, 2) || !(head[1] & 0x80))
        return false;
    f->first = head[0];
    f->len = head[1] & 0x7f;
    n = f->len == 126 ? 2 : f->len == 127 ? 8 : 0;
    if (!receive_all(fd, ext, n))
        return false;
    if (n > 0)
        f->len = 0;
    for (size_t i = 0; i < n; i++)
        f->len = f->len << 8 | ext[i];
    if (f->len > sizeof f->data || !receive_all(fd, f->key, 4) || !receive_all(fd, f->data, f->len))
        return false;
    for (size_t i = 0; i < f->len; i++)
        f->data[i] ^= f->key[i & 3];
    return true;
}

void fake_send_frame(int fd, unsigned first, const void *data, size_t len)
{
    uint8_t head[4] = {(uint8_t)first, (uint8_t)len};
    size_t n = 2;

    assert_in_range(len, 0, 65535);
    if (len > 125) {
        head[1] = 126;
        head[2] = (uint8_t)(len >> 8);
        head[3] = (uint8_t)len;
        n = 4;
    }
    assert_true(client_send_bytes(fd, head, n) && client_send_bytes(fd, data, len));
}

unsigned fake_finish(int fd)
{
    struct fake_frame *f = support_alloc(sizeof *f);
    unsigned code = 0;

    while (fake_read_frame(fd, f)) {
        if ((f->first & 15) != CLIENT_CLOSE)
            continue;
        code = f->len >= 2 ? (unsigned)f->data[0] << 8 | f->data[1] : 1005;
        fake_send_frame(fd, CLIENT_FIN | CLIENT_CLOSE, f->data, f->len);
        break;
    }
    free(f);
    close(fd);
    return code;
}

/* ---- Dialling ---- */

static void dial(void *arg)
{
    struct dialing *d = arg;

    d->err = tws_dial(&d->conn, d->url, d->opt, &d->response, &d->error);
    atomic_store(&d->done, true);
}

tws_group *dialing_group(void)
{
    tws_group_options o;
    tws_group *g;

    tws_group_options_init(&o);
    o.carriers = 2;
    if (support_light())
        o.threads = TWS_THREADS_LIGHT;
    assert_ok(tws_group_new(&g, &o));
    return g;
}

void dialing_start_in(struct dialing *d, tws_group *g, const char *url, const tws_dial_options *opt)
{
    memset(d, 0, sizeof *d);
    snprintf(d->url_text, sizeof d->url_text, "%s", url);
    d->url = d->url_text;
    d->opt = opt;
    assert_ok(tws_group_spawn(g, dial, d));
}

void dialing_start(struct dialing *d, const char *url, const tws_dial_options *opt)
{
    tws_group *g = dialing_group();

    dialing_start_in(d, g, url, opt);
    d->group = g;
}

void dialing_start_fake(struct dialing *d, const struct fake *f, const char *path,
                        const tws_dial_options *opt)
{
    char url[512];

    if (f->port)
        snprintf(url, sizeof url, "ws://%s%s", f->host, path);
    else
        snprintf(url, sizeof url, "ws+unix:%s:%s", f->host, path);
    dialing_start(d, url, opt);
}

void dialing_join(struct dialing *d, tws_err wanted)
{
    WAIT_FOR(atomic_load(&d->done));
    if (d->err != wanted)
        fail_msg("%s instead of %s: %s", tws_err_name(d->err), tws_err_name(wanted), d->error.text);
    assert_int_equal(d->error.code, d->err);
    assert_true((d->conn != NULL) == (d->err == TWS_OK));
    if (d->err)
        assert_true(d->error.text[0] != 0);
}

void dialing_end(struct dialing *d)
{
    tws_conn_unref(d->conn);
    tws_response_free(d->response);
    tws_group_free(d->group);
    d->conn = NULL;
    d->response = NULL;
    d->group = NULL;
}

int dialing_open(struct dialing *d, struct fake *f, const tws_dial_options *opt)
{
    struct fake_request r;
    int fd;

    dialing_start_fake(d, f, "/", opt);
    fd = fake_accept(f);
    assert_true(fake_read_request(fd, &r));
    fake_upgrade(fd, &r, "", NULL, 0);
    dialing_join(d, TWS_OK);
    return fd;
}
