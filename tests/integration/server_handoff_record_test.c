/* What a receiver makes of records, byte by byte, and of the descriptors that come with them. */
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HEAD = 16, ANSWER = 8 };

/* What a real sender has sent, with the descriptor. Its connection goes on. */
static size_t recorded(uint8_t *bytes, size_t cap)
{
    tws_handoff *h;
    struct rig r;
    size_t len = 0;
    ssize_t n;
    int fd;

    h = support_handoff_half(&fd);
    rig_open(&r, NULL);
    assert_err(tws_handoff_send(h, r.conn, "data", 4, 20, NULL), TWS_ERR_TIMEOUT);
    while ((n = recv(fd, bytes + len, cap - len, MSG_DONTWAIT)) > 0)
        len += (size_t)n; /* the descriptor is dropped with it */
    assert_true(len > HEAD);
    client_send_text(&r.client, "here");
    tws_message m;
    assert_ok(tws_read_message(r.conn, &m));
    assert_string_equal(m.data, "here");
    close(fd);
    tws_handoff_free(h);
    client_close(&r.client);
    rig_close(&r);
    return len;
}

static void send_with_fds(int sock, const void *data, size_t len, const int *fds, size_t count)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(32 * sizeof(int))];
    } control;
    struct iovec iov = {.iov_base = (void *)(uintptr_t)data, .iov_len = len};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    struct cmsghdr *c;

    memset(&control, 0, sizeof control);
    if (count > 0) {
        msg.msg_control = control.bytes;
        msg.msg_controllen = CMSG_SPACE(count * sizeof(int));
        c = CMSG_FIRSTHDR(&msg);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(c), fds, count * sizeof(int));
    }
    assert_int_equal(sendmsg(sock, &msg, MSG_NOSIGNAL), (ssize_t)len);
}

/* A receiver gets these bytes and descriptors, and then the end. */
static void check_record(struct support_server *s, const uint8_t *bytes, size_t len, const int *fds,
                         size_t count, tws_err wanted)
{
    uint8_t answer[ANSWER];
    tws_conn *c = (void *)1;
    tws_error e;
    tws_handoff *h;
    int fd;

    h = support_handoff_half(&fd);
    send_with_fds(fd, bytes, len, fds, count);
    shutdown(fd, SHUT_WR);
    if (s)
        assert_err(tws_handoff_serve(h, s->server, 5000, &e), wanted);
    else
        assert_err(tws_handoff_receive(&c, h, NULL, 5000, &e), wanted);
    if (wanted == TWS_OK) {
        assert_int_equal(recv(fd, answer, sizeof answer, 0), ANSWER);
        assert_memory_equal(answer, "TWSA\0\0\0\0", ANSWER);
        if (!s)
            tws_conn_unref(c);
    } else {
        if (!s)
            assert_null(c);
        assert_true(strlen(e.text) > 20);
        /* Nothing more is read from it. */
        assert_err(tws_handoff_serve(h, NULL, 5000, &e), TWS_ERR_SYSTEM);
    }
    close(fd);
    tws_handoff_free(h);
}

static void test_lying_sender(void **state)
{
    struct support_census before = support_census();
    static uint8_t good[4096], bad[4096];
    size_t len = recorded(good, sizeof good);
    struct support_server s;
    int pair[2], null = open("/dev/null", O_RDWR | O_CLOEXEC), many[20];

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    for (int i = 0; i < 20; i++)
        many[i] = pair[0];
    support_handoff_server(&s, support_echo, false);
    check_record(NULL, good, len, pair, 1, TWS_OK);
    check_record(&s, good, len, pair, 1, TWS_OK);

    /* Descriptors: none, another kind, too many. */
    check_record(NULL, good, len, NULL, 0, TWS_ERR_PROTOCOL);
    check_record(&s, good, len, &null, 1, TWS_ERR_PROTOCOL);
    check_record(NULL, good, len, pair, 2, TWS_ERR_PROTOCOL);
    check_record(NULL, good, len, many, 20, TWS_ERR_PROTOCOL);
    /* Every length, short of the end. */
    for (size_t cut = 1; cut < len; cut++)
        check_record(NULL, good, cut, pair, 1, TWS_ERR_PROTOCOL);
    /* Every byte of what is not text another one: refused, or a connection that is in order. */
    for (size_t at = 0; at < len; at++) {
        bool number = at < HEAD + 4;

        memcpy(bad, good, len);
        bad[at] ^= 0xff;
        if (number && (at < 12 || at >= HEAD))
            check_record(NULL, bad, len, pair, 1, TWS_ERR_PROTOCOL);
    }
    /* Lengths of the parts, as large as can be. */
    for (size_t at = HEAD + 4; at + 4 <= len; at++) {
        tws_handoff *h;
        tws_conn *c;
        int fd;

        memcpy(bad, good, len);
        memset(bad + at, 0xff, 4);
        h = support_handoff_half(&fd);
        send_with_fds(fd, bad, len, pair, 1);
        shutdown(fd, SHUT_WR);
        if (tws_handoff_receive(&c, h, NULL, 5000, NULL) == TWS_OK)
            tws_conn_unref(c);
        close(fd);
        tws_handoff_free(h);
    }
    tws_server_free(s.server);
    close(pair[0]);
    close(pair[1]);
    close(null);
    support_assert_census(before);
}

/* A process without a free descriptor refuses, and takes the next one when it has. */
static void test_no_descriptor_left(void **state)
{
    struct support_census before = support_census();
    static uint8_t good[4096];
    size_t len = recorded(good, sizeof good);
    uint8_t answer[ANSWER];
    struct rlimit was, full;
    tws_handoff *h;
    tws_conn *c;
    tws_error e;
    tws_err err;
    int pair[2], fd, next;

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    h = support_handoff_half(&fd);
    send_with_fds(fd, good, len, pair, 1);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
    full = was;
    next = dup(fd);
    close(next);
    full.rlim_cur = (rlim_t)next;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &full), 0);
    err = tws_handoff_receive(&c, h, NULL, 5000, &e);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
    assert_err(err, TWS_ERR_REFUSED);
    assert_null(c);
    assert_non_null(strstr(e.text, "no descriptor"));
    assert_int_equal(recv(fd, answer, sizeof answer, 0), ANSWER);
    assert_memory_not_equal(answer, "TWSA\0\0\0\0", ANSWER);

    send_with_fds(fd, good, len, pair, 1);
    assert_ok(tws_handoff_receive(&c, h, NULL, 5000, &e));
    tws_conn_unref(c);
    close(fd);
    tws_handoff_free(h);
    close(pair[0]);
    close(pair[1]);
    support_assert_census(before);
}

/* A socket on which the peer's reset has arrived. */
static int reset_socket(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct client c = {.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    int listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), fd;
    struct pollfd p = {.events = 0};
    socklen_t len = sizeof a;

    assert_int_equal(bind(listening, (struct sockaddr *)&a, len), 0);
    assert_int_equal(listen(listening, 1), 0);
    assert_int_equal(getsockname(listening, (struct sockaddr *)&a, &len), 0);
    assert_int_equal(connect(c.fd, (struct sockaddr *)&a, len), 0);
    fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
    assert_true(fd >= 0);
    close(listening);
    client_reset(&c);
    p.fd = fd;
    assert_int_equal(poll(&p, 1, -1), 1);
    assert_true(p.revents & POLLHUP);
    return fd;
}

/* One peer that resets at the wrong moment is the end of its own connection alone. */
static void test_peer_resets(void **state)
{
    struct support_census before = support_census();
    static uint8_t good[4096];
    size_t len = recorded(good, sizeof good);
    int gone = reset_socket(), pair[2], fd;
    struct support_server s;
    uint8_t answer[ANSWER];
    tws_handoff *h;
    tws_conn *c;
    tws_error e;

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    support_handoff_server(&s, support_echo, false);
    h = support_handoff_half(&fd);
    send_with_fds(fd, good, len, &gone, 1);
    assert_err(tws_handoff_serve(h, s.server, 5000, &e), TWS_ERR_REFUSED);
    assert_non_null(strstr(e.text, "peer has gone"));
    assert_int_equal(recv(fd, answer, sizeof answer, 0), ANSWER);
    assert_memory_not_equal(answer, "TWSA\0\0\0\0", ANSWER);
    send_with_fds(fd, good, len, &gone, 1);
    assert_err(tws_handoff_receive(&c, h, NULL, 5000, &e), TWS_ERR_REFUSED);
    assert_null(c);
    assert_int_equal(recv(fd, answer, sizeof answer, 0), ANSWER);

    send_with_fds(fd, good, len, pair, 1);
    assert_ok(tws_handoff_serve(h, s.server, 5000, &e));
    close(fd);
    tws_handoff_free(h);
    close(gone);
    close(pair[0]);
    close(pair[1]);
    tws_server_free(s.server);
    support_assert_census(before);
}

/* The other process dies with an answer unread, in the middle of a record: that breaks no rule. */
static void test_sender_dies(void **state)
{
    struct support_census before = support_census();
    static uint8_t good[4096];
    size_t len = recorded(good, sizeof good);
    tws_handoff *h;
    tws_conn *c;
    tws_error e;
    int pair[2], fd;

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    h = support_handoff_half(&fd);
    send_with_fds(fd, good, len, pair, 1);
    assert_ok(tws_handoff_receive(&c, h, NULL, 5000, &e));
    tws_conn_unref(c);
    send_with_fds(fd, good, len - 5, pair, 1);
    close(fd);
    assert_err(tws_handoff_receive(&c, h, NULL, 5000, &e), TWS_ERR_SYSTEM);
    assert_null(c);
    assert_int_equal(e.sys_errno, ECONNRESET);
    assert_err(tws_handoff_receive(&c, h, NULL, 5000, &e), TWS_ERR_SYSTEM);
    tws_handoff_free(h);
    close(pair[0]);
    close(pair[1]);
    support_assert_census(before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lying_sender),
        cmocka_unit_test(test_no_descriptor_left),
        cmocka_unit_test(test_peer_resets),
        cmocka_unit_test(test_sender_dies),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
