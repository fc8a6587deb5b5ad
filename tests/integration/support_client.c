#include "support.h"
#include "support_tls.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* ---- Connecting ---- */

static int dial_unix(const char *path)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    size_t n = strlen(path);
    socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || n >= sizeof un.sun_path)
        return -1;
    memcpy(un.sun_path, path, n);
    if (path[0] == '@')
        un.sun_path[0] = 0;
    else
        len++;
    if (connect(fd, (struct sockaddr *)&un, len) == 0)
        return fd;
    close(fd);
    return -1;
}

static int dial_tcp(const char *address)
{
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
                             .ai_socktype = SOCK_STREAM};
    struct addrinfo *list = NULL;
    const char *colon = strrchr(address, ':');
    char host[64];
    bool brackets = address[0] == '[';
    int one = 1;
    int fd = -1;

    if (!colon || (size_t)(colon - address) >= sizeof host)
        return -1;
    snprintf(host, sizeof host, "%.*s", (int)(colon - address - 2 * brackets), address + brackets);
    if (getaddrinfo(host, colon + 1, &hints, &list) != 0)
        return -1;
    fd = socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, list->ai_addr, list->ai_addrlen) < 0) {
        close(fd);
        fd = -1;
    }
    if (fd >= 0)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    freeaddrinfo(list);
    return fd;
}

int client_dial(const char *address)
{
    int fd = strncmp(address, "unix:", 5) == 0 ? dial_unix(address + 5) : dial_tcp(address);

    return fd >= 0 && support_tls_wanted() ? support_tls_bridge(fd) : fd;
}

size_t client_request(char *buf, size_t size, const char *headers)
{
    int n = snprintf(buf, size,
                     "GET /test?x=1 HTTP/1.1\r\nHost: test.example:8080\r\nUpgrade: websocket\r\n"
                     "Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
                     "Sec-WebSocket-Version: 13\r\n%s\r\n",
                     headers ? headers : "");

    assert_in_range(n, 1, size - 1);
    return (size_t)n;
}

int client_upgrade(struct client *c, int fd, const char *headers)
{
    char request[4096];
    size_t len = client_request(request, sizeof request, headers);

    memset(c, 0, sizeof *c);
    c->fd = fd;
    if (!client_send_bytes(fd, request, len))
        return 0;
    return client_read_head(c);
}

void client_open(struct client *c, const char *address)
{
    int fd = client_dial(address);

    if (fd < 0)
        fail_msg("connect to %s: %s", address, strerror(errno));
    assert_int_equal(client_upgrade(c, fd, NULL), 101);
    assert_non_null(strstr(c->head, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
}

void client_close(struct client *c)
{
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
    free(c->buf);
    c->buf = NULL;
    c->rd = c->wr = c->cap = 0;
}

void client_reset(struct client *c)
{
    struct linger now = {.l_onoff = 1, .l_linger = 0};

    setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    client_close(c);
}

/* ---- Sending ---- */

bool client_send_bytes(int fd, const void *data, size_t len)
{
    const uint8_t *p = data;

    while (len > 0) {
        ssize_t n = send(fd, p, len, MSG_NOSIGNAL);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        p += n;
        len -= (size_t)n;
    }
    return true;
}

size_t client_frame(uint8_t *out, unsigned first, const void *data, size_t len)
{
    static const uint8_t key[4] = {0x37, 0xfa, 0x21, 0x3d};
    const uint8_t *p = data;
    size_t n = 0;

    out[n++] = (uint8_t)first;
    if (len < 126) {
        out[n++] = (uint8_t)(0x80 | len);
    } else if (len < 65536) {
        out[n++] = 0x80 | 126;
        out[n++] = (uint8_t)(len >> 8);
        out[n++] = (uint8_t)len;
    } else {
        out[n++] = 0x80 | 127;
        for (int shift = 56; shift >= 0; shift -= 8)
            out[n++] = (uint8_t)((uint64_t)len >> shift);
    }
    memcpy(out + n, key, 4);
    n += 4;
    for (size_t i = 0; i < len; i++)
        out[n + i] = p[i] ^ key[i & 3];
    return n + len;
}

void client_send(struct client *c, unsigned first, const void *data, size_t len)
{
    uint8_t *out = support_alloc(len + CLIENT_HEAD_MAX);
    bool ok = client_send_bytes(c->fd, out, client_frame(out, first, data, len));

    free(out);
    assert_true(ok);
}

void client_send_text(struct client *c, const char *text)
{
    client_send(c, CLIENT_FIN | CLIENT_TEXT, text, strlen(text));
}

void client_send_close(struct client *c, unsigned code, const char *reason)
{
    uint8_t payload[125] = {(uint8_t)(code >> 8), (uint8_t)code};
    size_t len = reason ? strlen(reason) : 0;

    memcpy(payload + 2, reason ? reason : "", len);
    client_send(c, CLIENT_FIN | CLIENT_CLOSE, payload, code ? len + 2 : 0);
}

static void *sender_main(void *arg)
{
    struct sender *s = arg;
    const uint8_t *p = s->data;

    s->ok = true;
    for (size_t done = 0; done < s->len && s->ok;) {
        size_t n = s->piece && s->piece < s->len - done ? s->piece : s->len - done;

        s->ok = client_send_bytes(s->fd, p + done, n);
        done += n;
        if (s->pause_ms && done < s->len)
            support_pause_ms(s->pause_ms);
    }
    return NULL;
}

void sender_start(struct sender *s, int fd, const void *data, size_t len)
{
    s->fd = fd;
    s->data = data;
    s->len = len;
    support_thread(&s->thread, sender_main, s);
}

bool sender_join(struct sender *s)
{
    pthread_join(s->thread, NULL);
    return s->ok;
}

/* ---- Receiving ---- */

/* Receives more. 1, 0 at end of file, -errno; -ETIMEDOUT when nothing comes. */
static int receive(struct client *c)
{
    struct pollfd pfd = {.fd = c->fd, .events = POLLIN};
    ssize_t n;

    if (c->rd > 0) {
        memmove(c->buf, c->buf + c->rd, c->wr - c->rd);
        c->wr -= c->rd;
        c->rd = 0;
    }
    if (c->wr + 1 >= c->cap) { /* a zero stands behind what was received: tests read it as text */
        size_t cap = c->cap ? c->cap * 2 : 65536;
        uint8_t *grown = realloc(c->buf, cap);

        if (!grown)
            return -ENOMEM;
        c->buf = grown;
        c->cap = cap;
    }
    if (poll(&pfd, 1, SUPPORT_HANG_MS) == 0)
        return -ETIMEDOUT;
    do
        n = recv(c->fd, c->buf + c->wr, c->cap - c->wr - 1, 0);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return -errno;
    c->wr += (size_t)n;
    c->buf[c->wr] = 0;
    return n > 0;
}

int client_read_head(struct client *c)
{
    int status = 0;

    for (;;) {
        uint8_t *end = c->wr > c->rd ? memmem(c->buf + c->rd, c->wr - c->rd, "\r\n\r\n", 4) : NULL;

        if (end) {
            size_t len = (size_t)(end + 4 - (c->buf + c->rd));

            if (len >= sizeof c->head)
                return 0;
            memcpy(c->head, c->buf + c->rd, len);
            c->head[len] = 0;
            c->rd += len;
            return sscanf(c->head, "HTTP/1.1 %d ", &status) == 1 ? status : 0;
        }
        if (receive(c) <= 0)
            return 0;
    }
}

/* Length of the header at p, 0 when more is needed, -1 when it is not allowed from a server. */
static int parse_header(const uint8_t *p, size_t have, struct client_frame *f)
{
    size_t n = 2;

    if (have < 2)
        return 0;
    f->fin = p[0] & 0x80;
    f->rsv = p[0] >> 4 & 7;
    f->opcode = p[0] & 15;
    f->len = p[1];
    if (f->len > 127)
        return -1;
    if (f->len == 126) {
        n = 4;
        if (have < n)
            return 0;
        f->len = (size_t)p[2] << 8 | p[3];
        if (f->len < 126)
            return -1;
    } else if (f->len == 127) {
        n = 10;
        if (have < n)
            return 0;
        f->len = 0;
        for (int i = 2; i < 10; i++)
            f->len = f->len << 8 | p[i];
        if (f->len < 65536)
            return -1;
    }
    if (f->opcode >= 8 && (f->len > 125 || !f->fin))
        return -1;
    return (int)n;
}

int client_try_next(struct client *c, struct client_frame *f)
{
    for (;;) {
        int n = parse_header(c->buf + c->rd, c->wr - c->rd, f);
        int r;

        if (n < 0)
            return -1;
        if (n > 0 && c->wr - c->rd >= (size_t)n + f->len) {
            f->data = c->buf + c->rd + n;
            c->rd += (size_t)n + f->len;
            return 1;
        }
        r = receive(c);
        if (r <= 0)
            return r == -ETIMEDOUT || r == -ENOMEM ? -1 : 0;
    }
}

bool client_next(struct client *c, struct client_frame *f)
{
    int r = client_try_next(c, f);

    if (r < 0)
        fail_msg("no frame came, or one that is not allowed");
    return r > 0;
}

void client_expect(struct client *c, unsigned first, const void *data, size_t len)
{
    struct client_frame f;

    if (!client_next(c, &f))
        fail_msg("the stream ended before the frame %02x", first);
    if ((unsigned)(f.opcode | f.rsv << 4 | f.fin << 7) != first)
        fail_msg("frame of %02x instead of %02x, %zu bytes", f.opcode | f.rsv << 4 | f.fin << 7,
                 first, f.len);
    assert_int_equal(f.len, len);
    if (len > 0 && memcmp(f.data, data, len) != 0)
        fail_msg("frame %02x of %zu bytes has other content", first, len);
}

void client_expect_text(struct client *c, const char *text)
{
    client_expect(c, CLIENT_FIN | CLIENT_TEXT, text, strlen(text));
}

void client_expect_close(struct client *c, unsigned code, const char *reason)
{
    struct client_frame f;

    if (!client_next(c, &f))
        fail_msg("the stream ended before the close frame %u", code);
    assert_int_equal(f.opcode, CLIENT_CLOSE);
    assert_int_equal(f.len >= 2 ? f.data[0] << 8 | f.data[1] : 0, code);
    if (reason) {
        assert_int_equal(f.len, strlen(reason) + (code ? 2 : 0));
        assert_memory_equal(f.data + (code ? 2 : 0), reason, strlen(reason));
    }
}

void client_expect_eof(struct client *c)
{
    int r = c->wr > c->rd ? 1 : receive(c);

    if (r != 0)
        fail_msg("%s instead of the end of the stream", r > 0 ? "bytes" : strerror(-r));
}

size_t client_drain(struct client *c)
{
    size_t total = c->wr - c->rd;

    for (;;) {
        c->rd = c->wr = 0;
        if (receive(c) <= 0)
            return total;
        total += c->wr;
    }
}

bool client_is_quiet(struct client *c)
{
    char byte;

    return c->wr == c->rd && recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 &&
           (errno == EAGAIN || errno == EWOULDBLOCK);
}

int client_http(const char *address, const char *request, char *answer, size_t size)
{
    struct client c = {.fd = client_dial(address)};
    int status = 0;
    int r = 1;

    answer[0] = 0;
    if (c.fd < 0)
        return 0;
    if (request[0] && !client_send_bytes(c.fd, request, strlen(request)))
        r = -EPIPE;
    while (r > 0)
        r = receive(&c);
    snprintf(answer, size, "%.*s", (int)c.wr, c.wr ? (const char *)c.buf : "");
    client_close(&c);
    if (r < 0)
        return -1;
    return sscanf(answer, "HTTP/1.1 %d ", &status) == 1 ? status : 0;
}
