#include "floor.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <arpa/inet.h>

#include "wire/base64.h"
#include "wire/mask.h"
#include "wire/sha1.h"

#define MAGIC "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
#define KEY_LEN 24

uint32_t floor_cores(void)
{
    cpu_set_t set;

    return sched_getaffinity(0, sizeof set, &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 1;
}

int floor_serve(int argc, char **argv, void (*accepted)(int fd))
{
    struct sockaddr_in a = {.sin_family = AF_INET};
    int one = 1;
    int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (argc < 3 || inet_pton(AF_INET, argv[1], &a.sin_addr) != 1) {
        fprintf(stderr, "usage: %s ADDRESS PORT\n", argv[0]);
        return EXIT_FAILURE;
    }
    a.sin_port = htons((uint16_t)strtoul(argv[2], NULL, 10));
    signal(SIGPIPE, SIG_IGN);
    setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(s, (struct sockaddr *)&a, sizeof a) < 0 || listen(s, 4096) < 0) {
        perror(argv[0]);
        return EXIT_FAILURE;
    }
    printf("listening on %s:%s\n", argv[1], argv[2]);
    fflush(stdout);
    for (;;) {
        int fd = accept4(s, NULL, NULL, SOCK_CLOEXEC);

        if (fd < 0)
            continue;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        accepted(fd);
    }
}

size_t floor_begin(struct floor_conn *c, uint8_t *buf)
{
    size_t n = c->held_len;

    if (n > 0) {
        memcpy(buf, c->held, n);
        free(c->held);
        c->held = NULL;
        c->held_len = 0;
    }
    return n;
}

bool floor_hold(struct floor_conn *c, const uint8_t *rest, size_t n)
{
    if (n == 0)
        return true;
    c->held = malloc(n);
    if (!c->held)
        return false;
    memcpy(c->held, rest, n);
    c->held_len = n;
    return true;
}

bool floor_sent(struct floor_reply *reply, size_t n)
{
    int i = 0;

    while (i < reply->count && n >= reply->iov[i].iov_len)
        n -= reply->iov[i++].iov_len;
    if (i > 0)
        memmove(reply->iov, reply->iov + i, (size_t)(reply->count - i) * sizeof *reply->iov);
    reply->count -= i;
    if (reply->count > 0) {
        reply->iov[0].iov_base = (uint8_t *)reply->iov[0].iov_base + n;
        reply->iov[0].iov_len -= n;
    }
    return reply->count == 0;
}

static void add_piece(struct floor_reply *reply, void *data, size_t len)
{
    reply->iov[reply->count].iov_base = data;
    reply->iov[reply->count++].iov_len = len;
}

static ptrdiff_t handshake(struct floor_conn *c, char *head, size_t n, struct floor_reply *reply)
{
    static const char field[] = "sec-websocket-key:";
    const char *end = memmem(head, n, "\r\n\r\n", 4);
    char joined[KEY_LEN + sizeof MAGIC], accept[32];
    uint8_t digest[WIRE_SHA1_LEN];
    char *key;

    if (!end)
        return n < 8192 ? 0 : -1;
    head[end - head] = 0;
    key = strcasestr(head, field);
    if (!key)
        return -1;
    key += sizeof field - 1;
    key += strspn(key, " ");
    if (strlen(key) < KEY_LEN)
        return -1;
    memcpy(joined, key, KEY_LEN);
    memcpy(joined + KEY_LEN, MAGIC, sizeof MAGIC);
    wire_sha1(joined, KEY_LEN + sizeof MAGIC - 1, digest);
    accept[wire_base64_encode(accept, digest, sizeof digest)] = 0;
    add_piece(reply, reply->answer,
              (size_t)snprintf(reply->answer, sizeof reply->answer,
                               "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                               "Connection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n",
                               accept));
    c->open = true;
    return end + 4 - head;
}

/* The answer's header is the request's without the key: it takes the key's place before the payload. */
static size_t header(struct floor_conn *c, uint8_t *at, size_t n, struct floor_reply *reply)
{
    uint8_t first = at[0];
    uint64_t len = n > 1 ? at[1] & 127 : 0;
    size_t extra = len == 126 ? 2 : len == 127 ? 8 : 0;

    if (n < 2 || n < 6 + extra)
        return 0;
    if (extra) {
        len = 0;
        for (size_t i = 0; i < extra; i++)
            len = len << 8 | at[2 + i];
    }
    memcpy(c->key, at + 2 + extra, 4);
    memmove(at + 6, at + 2, extra);
    if ((first & 15) == 9)
        first ^= 9 ^ 10;
    at[5] = extra == 2 ? 126 : extra == 8 ? 127 : (uint8_t)len;
    at[4] = first;
    c->closing = (first & 15) == 8;
    c->left = len;
    add_piece(reply, at + 4, 2 + extra);
    return 6 + extra;
}

static size_t payload(struct floor_conn *c, uint8_t *at, size_t n, struct floor_reply *reply)
{
    uint8_t key[4];

    if (n > c->left)
        n = (size_t)c->left;
    wire_mask(at, n, c->key, 0);
    memcpy(key, c->key, 4);
    for (size_t i = 0; i < 4; i++)
        c->key[i] = key[(i + n) % 4];
    c->left -= n;
    if (reply->count > 0 &&
        (uint8_t *)reply->iov[reply->count - 1].iov_base + reply->iov[reply->count - 1].iov_len ==
            at)
        reply->iov[reply->count - 1].iov_len += n;
    else if (n > 0)
        add_piece(reply, at, n);
    return n;
}

ptrdiff_t floor_input(struct floor_conn *c, uint8_t *buf, size_t n, struct floor_reply *reply)
{
    size_t used = 0;

    reply->count = 0;
    if (!c->open)
        return handshake(c, (char *)buf, n, reply);
    while (used < n && reply->count < FLOOR_PIECES) {
        size_t step = c->left > 0 ? 0 : header(c, buf + used, n - used, reply);

        if (c->left == 0 && step == 0)
            break; /* no whole header yet */
        used += step;
        if (c->left > 0)
            used += payload(c, buf + used, n - used, reply);
    }
    return (ptrdiff_t)used;
}
