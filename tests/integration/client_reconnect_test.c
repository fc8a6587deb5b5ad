/*
 * tws_reconnect(): comes back after an end, gives up when told to, and is woken from every wait.
 * Each loop runs on a thread of a group, of the kind that the environment asks for.
 */
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

enum { FOR_EVER_MS = 24 * 3600 * 1000 };

struct loop {
    struct support_census before;
    struct support_server s;
    char url[200];
    tws_group *group;
    tws_dial_options dial;
    tws_reconnect_options opt;
    tws_connection_fn run;
    _Atomic int dials, runs, served; /* connect callbacks; connections here; connections there */
    _Atomic int last_code;           /* of the close frame that the server received last */
    int refuse;                      /* of so many dials all but the last are refused */
    int stop_after;                  /* runs; 0: never */
    _Atomic bool ended;
    tws_err result;
    tws_error error;
};

/* ---- The server: echoes one message and closes ---- */

static void serve_one(tws_conn *c, void *arg)
{
    struct loop *l = arg;
    tws_message m;
    tws_error e;

    atomic_fetch_add(&l->served, 1);
    if (tws_read_message(c, &m) == TWS_OK) {
        tws_write_message(c, m.opcode, m.data, m.len);
        return;
    }
    tws_conn_error(c, &e);
    atomic_store(&l->last_code, e.close_code);
}

/* ---- The client ---- */

static void talk(tws_conn *c, void *arg)
{
    struct loop *l = arg;
    tws_message m;

    if (tws_write_text(c, "hello") != TWS_OK || tws_read_message(c, &m) != TWS_OK || m.len != 5)
        return;
    if (atomic_fetch_add(&l->runs, 1) + 1 == l->stop_after)
        tws_cancel_now(l->dial.cancel);
    tws_read_message(c, &m); /* the end */
}

static void only_wait(tws_conn *c, void *arg)
{
    struct loop *l = arg;
    tws_message m;

    atomic_fetch_add(&l->runs, 1);
    tws_read_message(c, &m);
}

static int connect_sometimes(const char *host, uint16_t port, tws_ms timeout, void *arg)
{
    struct loop *l = arg;
    int n = atomic_fetch_add(&l->dials, 1) + 1;

    (void)host;
    (void)port;
    (void)timeout;
    if (l->refuse == 0 || n % l->refuse != 0)
        return -ECONNREFUSED;
    return client_dial(l->s.address);
}

static void loop_thread(void *arg)
{
    struct loop *l = arg;

    l->result = tws_reconnect(l->url, &l->dial, &l->opt, l->run, l, &l->error);
    atomic_store(&l->ended, true);
}

/* The same as talk() by events. */
static void event_open(tws_conn *c, void *arg)
{
    (void)arg;
    tws_write_text(c, "hello");
}

static void event_message(tws_conn *c, tws_message *m, void *arg)
{
    struct loop *l = arg;

    (void)c;
    if (m->len == 5 && atomic_fetch_add(&l->runs, 1) + 1 == l->stop_after)
        tws_cancel_now(l->dial.cancel);
}

/* ---- Around it ---- */

static void loop_init(struct loop *l, tws_connection_fn run)
{
    tws_server_options server;
    tws_group_options group;

    memset(l, 0, sizeof *l);
    l->before = support_census();
    l->run = run;
    support_server_options(&server, serve_one, l);
    support_server_start(&l->s, &server);
    snprintf(l->url, sizeof l->url, "ws://%s/", l->s.address);
    tws_group_options_init(&group);
    group.threads = server.threads;
    assert_ok(tws_group_new(&l->group, &group));
    tws_dial_options_init(&l->dial);
    tws_reconnect_options_init(&l->opt);
    l->opt.min_delay = l->opt.max_delay = 1;
    l->dial.cancel = tws_cancel_new();
    l->dial.connect_arg = l;
}

static void loop_start(struct loop *l)
{
    assert_ok(tws_group_spawn(l->group, loop_thread, l));
}

static void loop_end(struct loop *l, tws_err expected)
{
    WAIT_FOR(atomic_load(&l->ended));
    if (l->result != expected || l->error.code != expected || l->error.text[0] == '\0')
        fail_msg("%s instead of %s: %s", tws_err_name(l->result), tws_err_name(expected),
                 l->error.text);
    tws_group_free(l->group);
    tws_server_free(l->s.server);
    tws_cancel_free(l->dial.cancel);
    support_assert_census(l->before);
}

/* ---- Tests ---- */

static void test_comes_back(void **state)
{
    struct loop l;

    (void)state;
    loop_init(&l, talk);
    l.stop_after = 5;
    loop_start(&l);
    loop_end(&l, TWS_ERR_CANCELLED);
    assert_int_equal(l.runs, 5);
    assert_int_equal(l.served, 5);
}

static void test_events(void **state)
{
    tws_events ev;
    struct loop l;

    (void)state;
    loop_init(&l, NULL);
    tws_events_init(&ev);
    ev.on_open = event_open;
    ev.on_message = event_message;
    l.dial.events = &ev;
    l.dial.events_arg = &l;
    l.stop_after = 5;
    loop_start(&l);
    loop_end(&l, TWS_ERR_CANCELLED);
    assert_int_equal(l.runs, 5);
    assert_int_equal(l.served, 5);
}

static void test_gives_up(void **state)
{
    struct loop l;

    (void)state;
    loop_init(&l, talk);
    l.dial.connect = connect_sometimes;
    l.opt.max_attempts = 4;
    loop_start(&l);
    loop_end(&l, TWS_ERR_CONNECT);
    assert_int_equal(l.dials, 4);
    assert_int_equal(l.error.sys_errno, ECONNREFUSED);
    assert_int_equal(l.served, 0);
}

/* It counts failures in a row: a success begins anew. */
static void test_success_counts_anew(void **state)
{
    struct loop l;

    (void)state;
    loop_init(&l, talk);
    l.dial.connect = connect_sometimes;
    l.refuse = 3;
    l.opt.max_attempts = 3;
    l.stop_after = 4;
    loop_start(&l);
    loop_end(&l, TWS_ERR_CANCELLED);
    assert_int_equal(l.dials, 12);
    assert_int_equal(l.runs, 4);
}

struct pauses {
    tws_err code[8];
    uint32_t failures[8];
    int count;
    bool as_asked; /* each with a sentence, and no longer than max_delay */
};

static void on_pause(const tws_error *error, uint32_t failures, tws_ms pause, void *arg)
{
    struct pauses *p = arg;

    p->as_asked = p->as_asked && error->text[0] != '\0' && pause >= 0 && pause <= 1;
    if (p->count < 8) {
        p->code[p->count] = error->code;
        p->failures[p->count] = failures;
    }
    p->count++;
}

static void test_tells_of_pauses(void **state)
{
    struct pauses p = {.as_asked = true};
    struct loop l;

    (void)state;
    loop_init(&l, talk);
    l.dial.connect = connect_sometimes;
    l.refuse = 3;
    l.stop_after = 2;
    l.opt.on_pause = on_pause;
    l.opt.pause_arg = &p;
    loop_start(&l);
    loop_end(&l, TWS_ERR_CANCELLED); /* refused, refused, served; and the same once more */
    assert_int_equal(p.count, 5);
    assert_true(p.as_asked);
    for (int i = 0; i < 5; i++) {
        bool served = i == 2;
        assert_int_equal(p.code[i], served ? TWS_ERR_PEER_CLOSED : TWS_ERR_CONNECT);
        assert_int_equal(p.failures[i], served ? 0 : i % 3 + 1);
    }
}

/* ---- Retry-After ---- */

struct refusal {
    struct loop *loop;
    const char *retry_after;
    int ends[2]; /* ends[1]: the server's */
    tws_ms pause;
};

static int refuse_call(const char *host, uint16_t port, tws_ms timeout, void *arg)
{
    struct refusal *r = arg;
    char answer[200];

    (void)host;
    (void)port;
    (void)timeout;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, r->ends), 0);
    snprintf(answer, sizeof answer,
             "HTTP/1.1 503 Busy\r\nRetry-After: %s\r\nContent-Length: 0\r\n\r\n", r->retry_after);
    assert_int_equal(write(r->ends[1], answer, strlen(answer)), strlen(answer));
    return r->ends[0];
}

static void only_once(const tws_error *error, uint32_t failures, tws_ms pause, void *arg)
{
    struct refusal *r = arg;

    assert_int_equal(error->http_status, 503);
    assert_int_equal(failures, 1);
    r->pause = pause;
    tws_cancel_now(r->loop->dial.cancel);
}

/* What the server asks for comes before the random wait. */
static void test_retry_after(void **state)
{
    static const struct {
        const char *said;
        tws_ms least;
    } cases[] = {
        {"0", 0},
        {"3", 3000},
        {"007", 7000},
        {"9", 8000}, /* max_delay */
        {"99999999999999999999999999", 8000},
        {"", 0},
        {"-1", 0},
        {"2.5", 0},
        {"5 s", 0},
        {"Wed, 21 Oct 2026 07:28:00 GMT", 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct loop l;
        struct refusal r = {.loop = &l, .retry_after = cases[i].said};

        loop_init(&l, talk);
        l.dial.connect = refuse_call;
        l.dial.connect_arg = &r;
        l.opt.max_delay = 8000;
        l.opt.on_pause = only_once;
        l.opt.pause_arg = &r;
        loop_start(&l);
        WAIT_FOR(atomic_load(&l.ended));
        close(r.ends[1]);
        loop_end(&l, TWS_ERR_CANCELLED);
        if (r.pause < cases[i].least || r.pause > cases[i].least + l.opt.min_delay)
            fail_msg("'%s': %d ms", cases[i].said, (int)r.pause);
    }
}

/* Would they count as failures, the last waits would take longer than the universe. */
static void test_what_lasted_counts_anew(void **state)
{
    struct loop l;

    (void)state;
    loop_init(&l, talk);
    l.opt.max_delay = TWS_NO_LIMIT;
    l.opt.stable_after = 0;
    l.stop_after = 60;
    loop_start(&l);
    loop_end(&l, TWS_ERR_CANCELLED);
    assert_int_equal(l.runs, 60);
}

static void test_cancel_wakes_the_wait(void **state)
{
    struct loop l;

    (void)state;
    loop_init(&l, talk);
    l.dial.connect = connect_sometimes;
    l.opt.min_delay = l.opt.max_delay = FOR_EVER_MS;
    loop_start(&l);
    WAIT_FOR(atomic_load(&l.dials) == 1);
    support_pause_ms(20); /* whether it waits already makes no difference */
    tws_cancel_now(l.dial.cancel);
    loop_end(&l, TWS_ERR_CANCELLED);
    assert_int_equal(l.dials, 1);
}

static void test_cancel_goes_away(void **state)
{
    struct loop l;

    (void)state;
    loop_init(&l, only_wait);
    loop_start(&l);
    WAIT_FOR(atomic_load(&l.runs) == 1);
    tws_cancel_now(l.dial.cancel);
    loop_end(&l, TWS_ERR_CANCELLED);
    assert_int_equal(l.runs, 1);
    assert_int_equal(l.last_code, TWS_CLOSE_GOING_AWAY);
}

static void test_cancelled_before(void **state)
{
    struct loop l;

    (void)state;
    loop_init(&l, talk);
    tws_cancel_now(l.dial.cancel);
    loop_start(&l);
    loop_end(&l, TWS_ERR_CANCELLED);
    assert_int_equal(l.runs, 0);
}

/* What no other attempt would mend ends it at once. */
static void test_hopeless(void **state)
{
    static const tws_header forbidden = {"Host", "x"};
    struct loop l;

    (void)state;
    loop_init(&l, talk);
    snprintf(l.url, sizeof l.url, "http://%s/", l.s.address);
    loop_start(&l);
    loop_end(&l, TWS_ERR_ADDRESS);

    loop_init(&l, talk);
    l.dial.headers = &forbidden;
    l.dial.header_count = 1;
    loop_start(&l);
    loop_end(&l, TWS_ERR_ARGUMENT);
}

static void nothing(tws_conn *c, void *arg)
{
    (void)c;
    (void)arg;
}

static void test_arguments(void **state)
{
    tws_reconnect_options o;
    tws_dial_options d;
    tws_events ev;
    tws_error e;

    (void)state;
    tws_reconnect_options_init(&o);
    o.min_delay = 0;
    assert_err(tws_reconnect("ws://127.0.0.1:1/", NULL, &o, nothing, NULL, &e), TWS_ERR_ARGUMENT);
    assert_int_equal(e.code, TWS_ERR_ARGUMENT);
    tws_reconnect_options_init(&o);
    o.max_delay = o.min_delay - 1;
    assert_err(tws_reconnect("ws://127.0.0.1:1/", NULL, &o, nothing, NULL, NULL), TWS_ERR_ARGUMENT);
    tws_reconnect_options_init(&o);
    o.stable_after = -1;
    assert_err(tws_reconnect("ws://127.0.0.1:1/", NULL, &o, nothing, NULL, NULL), TWS_ERR_ARGUMENT);
    memset(&o, 0, sizeof o);
    assert_err(tws_reconnect("ws://127.0.0.1:1/", NULL, &o, nothing, NULL, NULL), TWS_ERR_ARGUMENT);
    assert_err(tws_reconnect(NULL, NULL, NULL, nothing, NULL, NULL), TWS_ERR_ARGUMENT);
    assert_err(tws_reconnect("ws://127.0.0.1:1/", NULL, NULL, NULL, NULL, NULL), TWS_ERR_ARGUMENT);
    tws_dial_options_init(&d);
    tws_events_init(&ev);
    d.events = &ev;
    assert_err(tws_reconnect("ws://127.0.0.1:1/", &d, NULL, nothing, NULL, NULL), TWS_ERR_ARGUMENT);
    ev.size = 0;
    assert_err(tws_reconnect("ws://127.0.0.1:1/", &d, NULL, NULL, NULL, NULL), TWS_ERR_ARGUMENT);
    d.events = NULL;
    assert_ok(tws_group_new(&d.group, NULL));
    assert_err(tws_reconnect("ws://127.0.0.1:1/", &d, NULL, nothing, NULL, NULL), TWS_ERR_ARGUMENT);
    tws_group_free(d.group);
    /* Not initialised: with the defaults in its place the attempt would have been made. */
    memset(&d, 0, sizeof d);
    tws_reconnect_options_init(&o);
    o.max_attempts = 1;
    assert_err(tws_reconnect("ws://127.0.0.1:1/", &d, &o, nothing, NULL, &e), TWS_ERR_ARGUMENT);
    assert_string_equal(e.text, "an argument is not allowed: options were not initialised");
    /* A descriptor leads to one connection only; it stays the caller's. */
    tws_dial_options_init(&d);
    d.fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_err(tws_reconnect("ws://127.0.0.1:1/", &d, NULL, nothing, NULL, NULL), TWS_ERR_ARGUMENT);
    assert_int_equal(close(d.fd), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_comes_back),
        cmocka_unit_test(test_events),
        cmocka_unit_test(test_gives_up),
        cmocka_unit_test(test_success_counts_anew),
        cmocka_unit_test(test_tells_of_pauses),
        cmocka_unit_test(test_retry_after),
        cmocka_unit_test(test_what_lasted_counts_anew),
        cmocka_unit_test(test_cancel_wakes_the_wait),
        cmocka_unit_test(test_cancel_goes_away),
        cmocka_unit_test(test_cancelled_before),
        cmocka_unit_test(test_hopeless),
        cmocka_unit_test(test_arguments),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
