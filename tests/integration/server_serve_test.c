/* tws_serve() and tws_serve_events(), in a process of their own, which is the only end they have. */
#include "support.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <tws/event.h>
#include <unistd.h>

/* Before any thread is made: a child with threads of its parent's would have none of them. */
static pid_t start(const char *address, bool events)
{
    pid_t pid = fork();

    if (pid == 0) {
        if (events)
            tws_serve_events(address, NULL, NULL, NULL);
        else
            tws_serve(address, support_echo, NULL, NULL);
        _exit(1);
    }
    assert_true(pid > 0);
    return pid;
}

static void open_when_there(struct client *c, const char *address)
{
    int fd;

    WAIT_FOR((fd = client_dial(address)) >= 0);
    close(fd);
    client_open(c, address);
}

static void stop(pid_t pid, struct client *c)
{
    int status;

    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    client_close(c);
}

static void test_serve(void **state)
{
    const char *address = support_unix_address("serve");
    pid_t pid = start(address, false);
    struct client c;

    (void)state;
    open_when_there(&c, address);
    client_send_text(&c, "hello");
    client_expect_text(&c, "hello");
    stop(pid, &c);
}

/* Without handlers: pings are answered, messages dropped. */
static void test_serve_no_events(void **state)
{
    const char *address = support_unix_address("serve-events");
    pid_t pid = start(address, true);
    struct client c;

    (void)state;
    open_when_there(&c, address);
    client_send_text(&c, "hello");
    client_send(&c, CLIENT_FIN | CLIENT_PING, "there?", 6);
    client_expect(&c, CLIENT_FIN | CLIENT_PONG, "there?", 6);
    stop(pid, &c);
}

/* What returns at once, and says why. */
static void test_refused(void **state)
{
    static const char *const wrong[] = {"8080", "127.0.0.1", ":http", "::1:80", ":"};
    tws_error e;

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_err(tws_serve(wrong[i], support_echo, NULL, &e), TWS_ERR_ADDRESS);
        assert_non_null(strstr(e.text, "HOST:PORT"));
        assert_non_null(strstr(e.text, wrong[i]));
        assert_err(tws_serve_events(wrong[i], NULL, NULL, &e), TWS_ERR_ADDRESS);
    }
    assert_err(tws_serve(NULL, support_echo, NULL, &e), TWS_ERR_ARGUMENT);
    assert_err(tws_serve("127.0.0.1:0", NULL, NULL, &e), TWS_ERR_ARGUMENT);
    assert_non_null(strstr(e.text, "neither on_connection nor events"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_serve),
        cmocka_unit_test(test_serve_no_events),
        cmocka_unit_test(test_refused),
    };

    return cmocka_run_group_tests_name("server_serve", tests, NULL, NULL);
}
