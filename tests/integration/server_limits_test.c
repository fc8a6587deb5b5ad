/*
 * Limits of rates and numbers: each ends or refuses what passes it, says both numbers, is counted,
 * and is logged in few lines however often that happens.
 */
#include "support.h"
#include "support_tls.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- A log that is kept ---- */

struct lines {
    pthread_mutex_t mu;
    unsigned count, suppressed; /* mu: lines about something, and how many more they speak of */
    char last[512];             /* mu */
};

static void keep_line(tws_log_level level, const char *text, void *arg)
{
    struct lines *l = arg;
    const char *more = strstr(text, " more ");

    if (level > TWS_LOG_WARNING)
        return;
    pthread_mutex_lock(&l->mu);
    l->count += !strstr(text, " more lines suppressed");
    snprintf(l->last, sizeof l->last, "%s", text);
    if (more) { /* "(12 more suppressed)", "12 more lines suppressed" */
        while (more > text && more[-1] >= '0' && more[-1] <= '9')
            more--;
        l->suppressed += (unsigned)strtoul(more, NULL, 10);
    }
    pthread_mutex_unlock(&l->mu);
}

static struct lines lines_make(void)
{
    return (struct lines){.mu = PTHREAD_MUTEX_INITIALIZER};
}

static void assert_last(struct lines *l, const char *part)
{
    pthread_mutex_lock(&l->mu);
    if (!strstr(l->last, part))
        fail_msg("'%s' is not in '%s'", part, l->last);
    pthread_mutex_unlock(&l->mu);
}

static tws_server_stats stats_of(tws_server *s)
{
    tws_server_stats st;

    tws_server_get_stats(s, &st);
    return st;
}

static void assert_sample(tws_server *s, const char *sample, unsigned wanted)
{
    static char text[65536];
    char line[128];

    tws_server_metrics(s, text, sizeof text);
    snprintf(line, sizeof line, "\n%s %u\n", sample, wanted);
    if (!strstr(text, line))
        fail_msg("%s is not %u", sample, wanted);
}

/* ---- Connections that pass a limit ---- */

/* `count` frames; when the first is not a whole message, the others go on with it. */
static void send_many(struct client *c, unsigned first, size_t len, unsigned count)
{
    size_t room = len + CLIENT_HEAD_MAX;
    uint8_t *wire = support_alloc(room * count), *payload = support_alloc(len + 1);
    size_t at = 0;

    memset(payload, 'x', len);
    for (unsigned i = 0; i < count; i++)
        at += client_frame(wire + at, i > 0 && !(first & CLIENT_FIN) ? CLIENT_CONT : first, payload,
                           len);
    client_send_bytes(c->fd, wire, at); /* the server may have gone meanwhile */
    free(wire);
    free(payload);
}

/* Reads on to the close frame, past what was echoed. */
static void expect_close_behind(struct client *c, unsigned code)
{
    struct client_frame f;

    do
        assert_true(client_next(c, &f));
    while (f.opcode != CLIENT_CLOSE);
    assert_int_equal(f.len >= 2 ? f.data[0] << 8 | f.data[1] : 0, code);
}

struct passing {
    const char *option, *says, *numbers;
    unsigned first, count;
    size_t len;
    unsigned code;
};

static void pass(const struct passing *p, tws_server_options *opt)
{
    struct lines lines = lines_make();
    struct support_server s;
    struct client c;
    char sample[96];

    opt->log = keep_line;
    opt->log_arg = &lines;
    support_server_start(&s, opt);
    client_open(&c, s.address);
    send_many(&c, p->first, p->len, p->count);
    expect_close_behind(&c, p->code);
    client_close(&c);
    WAIT_FOR(stats_of(s.server).threads == 0);
    assert_last(&lines, p->says);
    assert_last(&lines, p->numbers);
    assert_last(&lines, " of "); /* whose connection */
    snprintf(sample, sizeof sample, "tws_limits_passed_total{limit=\"%s\"}", p->option);
    assert_sample(s.server, sample, 1);
    tws_server_free(s.server);
    assert_int_equal(lines.count, 1);
}

/* Each limit by itself: the close code, the words with both numbers, the counter, the line. The rates
 * are low, lest a slow machine keep them. */
static void test_passed(void **state)
{
    static const struct passing passing[] = {
        {"max_message", "larger than the limit", ": 1001, the limit is 1000",
         CLIENT_FIN | CLIENT_BINARY, 1, 1001, 1009},
        {"max_fragments", "small fragments in one message", ": 11, the limit is 10", CLIENT_TEXT,
         12, 1, 1008},
        {"max_fragment_rate", "small fragments in a second", ": 51, the limit is 50", CLIENT_TEXT,
         20000, 1, 1008},
        {"max_control_rate", "pings and pongs in a second", ": 51, the limit is 50",
         CLIENT_FIN | CLIENT_PONG, 20000, 0, 1008},
        {"max_rate", "too many bytes in 4 seconds", ", the limit is 40000",
         CLIENT_FIN | CLIENT_BINARY, 200, 900, 1008},
    };

    (void)state;
    for (size_t i = 0; i < sizeof passing / sizeof *passing; i++) {
        tws_server_options opt;
        tws_conn_options *conn = &opt.upgrade.conn;

        support_server_options(&opt, support_echo, NULL);
        conn->max_message = i == 0 ? 1000 : 1 << 20;
        conn->max_fragments = i == 1 ? 10 : 0;
        conn->max_fragment_rate = i == 2 ? 50 : 0;
        conn->max_control_rate = i == 3 ? 50 : 0;
        conn->max_rate = i == 4 ? 10000 : 0;
        pass(&passing[i], &opt);
    }
}

/* A limit that is set while the connection runs. */
static void test_set_limit(void **state)
{
    tws_message m;
    tws_error e;
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    assert_err(tws_set_limit(r.conn, (tws_limit)(TWS_LIMIT_FRAGMENT_RATE + 1), 1),
               TWS_ERR_ARGUMENT);
    assert_ok(tws_set_limit(r.conn, TWS_LIMIT_RATE, 1000));
    send_many(&r.client, CLIENT_FIN | CLIENT_BINARY, 4100, 1);
    assert_err(tws_read_message(r.conn, &m), TWS_ERR_FLOOD);
    tws_conn_error(r.conn, &e);
    assert_int_equal(e.cause, TWS_CAUSE_LIMIT);
    assert_int_equal(e.close_code, 1008);
    assert_non_null(strstr(e.text, ", the limit is 4000"));
    rig_release(&r);
    client_expect_close(&r.client, 1008, "too many bytes in 4 seconds");
    rig_close(&r);
}

/* What gathered while the handler was busy came in its own time: the peer kept to the rate. */
static void test_rate_of_a_busy_handler(void **state)
{
    static uint8_t payload[600];
    tws_message m;
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    assert_ok(tws_set_limit(r.conn, TWS_LIMIT_RATE, 2000));
    /* 9,728 bytes in 1.6 s: more than the burst of 8,000, less than that and the time. */
    for (int i = 0; i < 16; i++) {
        client_send(&r.client, CLIENT_FIN | CLIENT_BINARY, payload, sizeof payload);
        support_pause_ms(100);
    }
    for (int i = 0; i < 16; i++)
        assert_ok(tws_read_message(r.conn, &m));
    rig_close(&r);
}

/* ---- Sockets that are refused ---- */

static int ask(const char *address, char *answer, size_t size)
{
    return client_http(address, "GET / HTTP/1.1\r\nHost: x\r\n\r\n", answer, size);
}

static void test_max_handshakes(void **state)
{
    struct lines lines = lines_make();
    struct support_server s;
    struct client c;
    tws_server_options opt;
    char answer[512];
    int silent[3];

    (void)state;
    support_server_options(&opt, support_echo, NULL);
    opt.max_handshakes = 3;
    opt.log = keep_line;
    opt.log_arg = &lines;
    support_server_start(&s, &opt);
    client_open(&c,
                s.address); /* is past its handshake: does not count, as soon as its thread knows */
    WAIT_FOR(stats_of(s.server).handshaking == 0);
    for (int i = 0; i < 3; i++)
        silent[i] = client_dial(s.address);
    WAIT_FOR(stats_of(s.server).handshaking == 3);
    assert_int_equal(client_http(s.address, "", answer, sizeof answer), 503);
    assert_non_null(strstr(answer, "Retry-After: 1\r\n"));
    assert_non_null(strstr(answer, "too many handshakes at once"));
    assert_last(&lines, "too many handshakes at once: 3, the limit is 3");
    client_send_text(&c, "open ones go on");
    client_expect_text(&c, "open ones go on");
    assert_int_equal(stats_of(s.server).refused_handshakes, 1);
    assert_sample(s.server, "tws_connections_refused_total{reason=\"handshakes\"}", 1);
    close(silent[0]);
    WAIT_FOR(stats_of(s.server).handshaking == 2);
    assert_int_equal(ask(s.address, answer, sizeof answer), 426);
    close(silent[1]);
    close(silent[2]);
    client_close(&c);
    WAIT_FOR(stats_of(s.server).threads == 0);
    assert_int_equal(stats_of(s.server).handshaking, 0);
    tws_server_free(s.server);
}

static void test_address_rate(void **state)
{
    struct lines lines = lines_make();
    struct support_server s;
    tws_server_options opt;
    char answer[512];
    unsigned refused = 0;

    (void)state;
    support_server_options(&opt, support_echo, NULL);
    opt.max_address_rate = 1;
    opt.address_burst = 5;
    opt.log = keep_line;
    opt.log_arg = &lines;
    support_server_start(&s, &opt);
    for (int i = 0; i < 200; i++) {
        int status =
            client_http(s.address, "GET / HTTP/1.1\r\nHost: x\r\n\r\n", answer, sizeof answer);

        if (i < 5)
            assert_int_equal(status, 426);
        else if (status == 429 || status == -1) /* it did not wait for the request */
            refused++;
        if (status == 429)
            assert_non_null(strstr(answer, "Retry-After: 1\r\n"));
    }
    assert_in_range(refused, 1, 195);
    assert_int_equal(stats_of(s.server).refused_rate, refused);
    assert_sample(s.server, "tws_connections_refused_total{reason=\"address_rate\"}", refused);
    assert_last(&lines, "too many new connections from this address in a second");
    assert_int_equal(stats_of(s.server).accepted, 200);
    tws_server_free(s.server);
    /* Each was told of, or counted in a later line. */
    assert_int_equal(lines.count + lines.suppressed, refused);
    print_message("%u refused, %u lines\n", refused, lines.count);
}

/* ---- Giving memory back ---- */

static _Atomic unsigned trims;

/* In place of the C library's. */
int malloc_trim(size_t pad);
int malloc_trim(size_t pad)
{
    (void)pad;
    return (int)atomic_fetch_add(&trims, 1);
}

static void come_and_go(const struct support_server *s)
{
    enum { CROWD = 520 };
    static int fds[CROWD];
    uint64_t accepted = stats_of(s->server).accepted;

    for (int i = 0; i < CROWD; i++)
        fds[i] = client_dial(s->address);
    WAIT_FOR(stats_of(s->server).accepted == accepted + CROWD);
    for (int i = 0; i < CROWD; i++)
        close(fds[i]);
    WAIT_FOR(stats_of(s->server).threads == 0);
}

/* It stops all of the process: only where somebody asked for it, and not whenever peers like. */
static void test_memory_of_a_crowd(void **state)
{
    tws_server_options opt;

    (void)state;
    for (int wanted = 0; wanted < 2; wanted++) {
        struct support_server s;

        support_server_options(&opt, support_echo, NULL);
        opt.tls = support_tls_server(); /* whose memory it is for */
        opt.trim_memory = wanted;
        support_server_start(&s, &opt);
        come_and_go(&s);
        come_and_go(&s);
        tws_server_free(s.server);
        WAIT_FOR(atomic_load(&trims) == (unsigned)wanted);
    }
}

/* A program that was built when the options ended earlier: what is behind them is not its own. */
static void test_shorter_options(void **state)
{
    struct support_server s;
    tws_server_options opt;

    (void)state;
    support_server_options(&opt, support_echo, NULL);
    memset((char *)&opt + offsetof(tws_server_options, max_handshakes), 1,
           sizeof opt - offsetof(tws_server_options, max_handshakes));
    opt.max_handshakes = opt.max_address_rate = opt.address_burst = 1;
    opt.size = offsetof(tws_server_options, max_handshakes);
    support_server_start(&s, &opt);
    come_and_go(&s);
    assert_int_equal(stats_of(s.server).refused_rate, 0);
    assert_int_equal(stats_of(s.server).refused_handshakes, 0);
    tws_server_free(s.server);
    assert_int_equal(atomic_load(&trims), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_passed),
        cmocka_unit_test(test_set_limit),
        cmocka_unit_test(test_rate_of_a_busy_handler),
        cmocka_unit_test(test_max_handshakes),
        cmocka_unit_test(test_address_rate),
        cmocka_unit_test(test_memory_of_a_crowd),
        cmocka_unit_test(test_shorter_options),
    };

    return cmocka_run_group_tests_name("server_limits", tests, NULL, NULL);
}
