/* Listening sockets that exist already: "fd:N", and those that a service manager passes. */
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static void check_echo(const char *address)
{
    struct client c;

    client_open(&c, address);
    client_send_text(&c, "hello");
    client_expect_text(&c, "hello");
    client_close(&c);
}

/* A blocking socket that listens on any port; -1 in its place when `backlog` is 0: it does not. */
static int tcp_socket(int type, int backlog)
{
    struct sockaddr_in in = {.sin_family = AF_INET};
    int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);

    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&in, sizeof in), 0);
    if (backlog > 0)
        assert_int_equal(listen(fd, backlog), 0);
    return fd;
}

static tws_err start_on(tws_server **s, const char *const *listen, size_t count, tws_error *e)
{
    tws_server_options opt;

    support_server_options(&opt, support_echo, NULL);
    opt.listen = listen;
    opt.listen_count = count;
    return tws_server_start(s, &opt, e);
}

static void test_fd(void **state)
{
    struct support_census before = support_census();
    int fd = tcp_socket(SOCK_STREAM, 16);
    char listen[16], address[64];
    const char *list[] = {listen, "127.0.0.1:0"};
    struct support_census with_fd;
    tws_server *s;
    int kept;

    (void)state;
    snprintf(listen, sizeof listen, "fd:%d", fd);
    assert_int_equal(fcntl(fd, F_SETFD, 0), 0);
    assert_ok(start_on(&s, list, 2, NULL));
    assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
    kept = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    tws_server_address(s, 1, address, sizeof address);
    check_echo(address);
    tws_server_address(s, 0, address, sizeof address);
    check_echo(address);
    tws_server_free(s);

    /* Whoever has kept a descriptor of it goes on, and nobody is turned away meanwhile. */
    with_fd = support_census();
    struct client c;
    memset(&c, 0, sizeof c);
    c.fd = client_dial(address);
    assert_true(c.fd >= 0);
    snprintf(listen, sizeof listen, "plain:fd:%d", kept);
    assert_ok(start_on(&s, list, 1, NULL));
    assert_int_equal(client_upgrade(&c, c.fd, NULL), 101);
    client_close(&c);
    tws_server_free(s);
    with_fd.descriptors--;
    support_assert_census(with_fd);
    support_assert_census(before);
}

static void check_refused(const char *address, const char *second, int error, const char *text)
{
    const char *list[] = {address, second};
    tws_server *s = (void *)1;
    tws_error e;

    assert_err(start_on(&s, list, second ? 2 : 1, &e), TWS_ERR_ADDRESS);
    assert_null(s);
    if (e.sys_errno != error || !strstr(e.text, text) || !strstr(e.text, second ? second : address))
        fail_msg("%s: %d, %s", address, e.sys_errno, e.text);
}

static void test_fd_refused(void **state)
{
    struct support_census before = support_census();
    char text[32];
    int fd, pair[2];

    (void)state;
    check_refused("fd:", NULL, EINVAL, "not a number");
    check_refused("fd:-1", NULL, EINVAL, "not a number");
    check_refused("fd:3x", NULL, EINVAL, "not a number");
    check_refused("fd:99999999999999999999", NULL, EINVAL, "not a number");
    check_refused("fd:987654", NULL, EBADF, "no such descriptor");
    fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    snprintf(text, sizeof text, "fd:%d", fd);
    check_refused(text, NULL, ENOTSOCK, "not a socket");
    close(fd);
    fd = tcp_socket(SOCK_DGRAM, 0);
    snprintf(text, sizeof text, "fd:%d", fd);
    check_refused(text, NULL, EPROTOTYPE, "not a stream socket");
    close(fd);
    fd = tcp_socket(SOCK_STREAM, 0);
    snprintf(text, sizeof text, "fd:%d", fd);
    check_refused(text, NULL, EINVAL, "not listening");
    close(fd);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    snprintf(text, sizeof text, "fd:%d", pair[0]); /* as inetd passes one */
    check_refused(text, NULL, EINVAL, "not listening");
    close(pair[0]);
    close(pair[1]);

    /* What failed to start leaves the socket alone. */
    fd = tcp_socket(SOCK_STREAM, 16);
    assert_int_equal(fcntl(fd, F_SETFD, 0), 0);
    snprintf(text, sizeof text, "fd:%d", fd);
    check_refused(text, text, EBUSY, "listed twice");
    check_refused(text, "no address", EINVAL, "Invalid");
    assert_int_equal(fcntl(fd, F_GETFD), 0);
    close(fd);
    support_assert_census(before);
}

/* The file of a Unix socket belongs to who made it. */
static void test_unix_file_stays(void **state)
{
    char path[] = "/tmp/tws-test-XXXXXX", listen_on[32], address[160];
    const char *list[] = {listen_on};
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct stat st;
    tws_server *s;

    (void)state;
    assert_non_null(mkdtemp(path));
    snprintf(un.sun_path, sizeof un.sun_path, "%s/socket", path);
    assert_int_equal(bind(fd, (struct sockaddr *)&un, sizeof un), 0);
    assert_int_equal(listen(fd, 4), 0);
    snprintf(listen_on, sizeof listen_on, "fd:%d", fd);
    assert_ok(start_on(&s, list, 1, NULL));
    tws_server_address(s, 0, address, sizeof address);
    assert_string_equal(address + 5, un.sun_path);
    check_echo(address);
    tws_server_free(s);
    assert_int_equal(stat(un.sun_path, &st), 0);
    unlink(un.sun_path);
    rmdir(path);
}

/* ---- LISTEN_FDS ---- */

/* As a service manager would have left things: sockets from descriptor 3 on. */
static int saved[8];
static void pass(int count, bool right_pid, const char *names)
{
    char text[16];

    snprintf(text, sizeof text, "%d", (int)getpid() + !right_pid);
    setenv("LISTEN_PID", text, 1);
    snprintf(text, sizeof text, "%d", count);
    setenv("LISTEN_FDS", text, 1);
    if (names)
        setenv("LISTEN_FDNAMES", names, 1);
    else
        unsetenv("LISTEN_FDNAMES");
    for (int i = 0; i < count; i++) {
        int fd = tcp_socket(SOCK_STREAM, 16);

        saved[i] = fcntl(3 + i, F_DUPFD_CLOEXEC, 20); /* -1: there was nothing */
        if (fd != 3 + i) {
            assert_int_equal(dup2(fd, 3 + i), 3 + i);
            close(fd);
        }
        assert_int_equal(fcntl(3 + i, F_SETFD, 0), 0);
    }
}

static void take_back(int count)
{
    unsetenv("LISTEN_PID");
    unsetenv("LISTEN_FDS");
    unsetenv("LISTEN_FDNAMES");
    for (int i = 0; i < count; i++) {
        if (saved[i] < 0) {
            close(3 + i);
            continue;
        }
        dup2(saved[i], 3 + i);
        close(saved[i]);
    }
}

static void test_systemd(void **state)
{
    const char *all[] = {"systemd:"};
    const char *some[] = {"127.0.0.1:0", "systemd:api"};
    char address[64];
    tws_server *s;
    tws_error e;

    (void)state;
    pass(3, true, "web:api:api");
    assert_ok(start_on(&s, some, 2, NULL));
    assert_int_equal(fcntl(3, F_GETFD), 0); /* not asked for */
    assert_int_equal(fcntl(4, F_GETFD), FD_CLOEXEC);
    for (size_t i = 0; i < 3; i++) {
        assert_true(tws_server_address(s, i, address, sizeof address) > 0);
        check_echo(address);
    }
    assert_int_equal(tws_server_address(s, 3, address, sizeof address), 0);
    assert_string_equal(getenv("LISTEN_FDS"), "3"); /* read only */
    tws_server *second;
    assert_err(start_on(&second, all, 1, &e), TWS_ERR_ADDRESS);
    assert_non_null(strstr(e.text, "somebody has taken it"));
    tws_server_free(s);
    take_back(3);

    pass(2, true, NULL);
    assert_ok(start_on(&s, all, 1, NULL));
    tws_server_address(s, 1, address, sizeof address);
    check_echo(address);
    tws_server_free(s);
    take_back(2);
}

static void test_systemd_refused(void **state)
{
    (void)state;
    check_refused("systemd:", NULL, ENOENT, "not set");
    pass(1, false, NULL);
    check_refused("systemd:", NULL, ESRCH, "another process");
    take_back(1);
    pass(1, true, "web");
    check_refused("systemd:api", NULL, ENOENT, "no socket of that name");
    check_refused("systemd:we", NULL, ENOENT, "no socket of that name");
    setenv("LISTEN_FDS", "0", 1);
    check_refused("systemd:", NULL, EINVAL, "no number from 1");
    setenv("LISTEN_FDS", "2000000000", 1);
    check_refused("systemd:", NULL, EINVAL, "no number from 1");
    setenv("LISTEN_FDS", "1x", 1);
    check_refused("systemd:", NULL, EINVAL, "no number from 1");
    setenv("LISTEN_PID", "", 1);
    check_refused("systemd:", NULL, ESRCH, "another process");
    take_back(1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fd),
        cmocka_unit_test(test_fd_refused),
        cmocka_unit_test(test_unix_file_stays),
        cmocka_unit_test(test_systemd),
        cmocka_unit_test(test_systemd_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
