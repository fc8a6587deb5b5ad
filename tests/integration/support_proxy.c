#include "support_proxy.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- The proxy ---- */

struct fake {
    pthread_t thread;
    int fd;
    const struct step *script;
    char fault[200]; /* what differed; "" when all was right */
    _Atomic size_t flooded;
};

static bool take(struct fake *f, const struct step *s)
{
    for (size_t i = 0; i < s->len; i++) {
        char c;

        if (recv(f->fd, &c, 1, 0) != 1 || c != s->bytes[i]) {
            snprintf(f->fault, sizeof f->fault, "byte %zu of %zu differs", i, s->len);
            return false;
        }
    }
    return true;
}

static void give(struct fake *f, const struct step *s, size_t piece)
{
    for (size_t i = 0; i < s->len; i += piece) {
        size_t n = s->len - i < piece ? s->len - i : piece;

        if (send(f->fd, s->bytes + i, n, MSG_NOSIGNAL) < 0)
            return;
        if (piece == 1)
            sched_yield();
    }
}

/* Until the client has had enough and closes. */
static void flood(struct fake *f, const struct step *s)
{
    size_t n = strlen(s->bytes);

    while (f->flooded < s->len && send(f->fd, s->bytes, n, MSG_NOSIGNAL) > 0)
        f->flooded += n;
}

static void *play(void *arg)
{
    struct fake *f = arg;
    char c;

    for (const struct step *s = f->script; s->what != END; s++) {
        if (s->what == TAKE && !take(f, s))
            break;
        if (s->what == SEND)
            give(f, s, s->len > 0 ? s->len : 1);
        else if (s->what == DRIP)
            give(f, s, 1);
        else if (s->what == FLOOD)
            flood(f, s);
        else if (s->what == SILENCE) {
            if (recv(f->fd, &c, 1, 0) > 0)
                snprintf(f->fault, sizeof f->fault, "more than the script has");
        }
    }
    close(f->fd);
    return NULL;
}

/* ---- One attempt ---- */

static void on_head(bool sent, const char *text, size_t len, void *arg)
{
    struct seen *seen = arg;
    char *to = sent ? seen->sent : seen->received;
    size_t room = sent ? sizeof seen->sent : sizeof seen->received;

    if (text[len] == '\0' && len < room - strlen(to))
        strcat(to, text);
}

static void assert_leftover(struct net_stream *st, const char *expected)
{
    char byte;

    for (size_t i = 0; expected[i] != '\0'; i++) {
        ssize_t n;

        do
            n = net_stream_recv(st, &byte, 1);
        while (n == -EAGAIN && net_stream_await(st, task_deadline(SUPPORT_HANG_MS), 0) == 0);
        assert_int_equal(n, 1);
        assert_int_equal(byte, expected[i]);
    }
}

static int attempt(const struct attempt *a, const struct step *script, struct proxy_error *err)
{
    struct fake f = {.script = script};
    struct wire_url url;
    struct proxy p;
    struct proxy_source src = {.option = a->proxy};
    struct net_stream st;
    int pair[2], r;
    struct proxy_target target = {.url = &url,
                                  .address = a->address,
                                  .headers = a->headers,
                                  .header_count = a->header_count,
                                  .max_head_bytes = 16384,
                                  .max_head_fields = 100,
                                  .on_head = a->seen ? on_head : NULL,
                                  .on_head_arg = a->seen};

    *err = (struct proxy_error){0};
    assert_int_equal(wire_url_parse(&url, wire_text_of(a->url)), WIRE_URL_OK);
    assert_int_equal(proxy_choose(&p, &src, &url, err), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    f.fd = pair[1];
    assert_int_equal(net_stream_init(&st, NULL, pair[0], NULL), 0);
    support_thread(&f.thread, play, &f);
    r = proxy_open(&st, &p, &target, task_deadline(a->timeout ? a->timeout : SUPPORT_HANG_MS), err);
    if (r == 0 && a->leftover)
        assert_leftover(&st, a->leftover);
    net_stream_close(&st);
    pthread_join(f.thread, NULL);
    proxy_release(&p);
    if (f.fault[0] != '\0')
        fail_msg("%s through %s: %s", a->url, a->proxy, f.fault);
    /* Not more was swallowed than an answer may have, and what two socket buffers hold. */
    assert_true(f.flooded < 4 << 20);
    return r;
}

void assert_opens(const struct attempt *a, const struct step *script)
{
    struct proxy_error err;
    int r = attempt(a, script, &err);

    if (r != 0)
        fail_msg("%s through %s: %d %s", a->url, a->proxy, r, err.text);
}

void assert_refused(const struct attempt *a, const struct step *script, int result,
                    const char *text, int status)
{
    struct proxy_error err;
    int r = attempt(a, script, &err);

    if (r != result || strstr(err.text, text) == NULL)
        fail_msg("%s through %s: %d '%s'", a->url, a->proxy, r, err.text);
    assert_int_equal(err.status, status);
}
