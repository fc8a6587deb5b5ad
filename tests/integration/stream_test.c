/* A connection as a stream of bytes: borders of messages vanish, ends of both kinds do not. */
#include "support_pair.h"

#include <stdlib.h>

#define MUCH ((size_t)1 << 20)

/* Reads until nothing more comes. */
struct sink {
    struct job job;
    tws_conn *conn;
    size_t size; /* of each read */
    char *data;
    size_t len, ends, wanted_ends;
    tws_err err;
};

static void sink_main(void *arg)
{
    struct sink *s = arg;
    char buf[4096];
    size_t n;

    while (s->ends < s->wanted_ends &&
           (s->err = tws_stream_read(s->conn, buf, s->size, &n)) == TWS_OK) {
        if (n == 0)
            s->ends++;
        if (s->len + n > MUCH)
            break;
        memcpy(s->data + s->len, buf, n);
        s->len += n;
    }
}

static void sink_start(struct sink *s, struct couple *p, tws_conn *c, size_t size, size_t ends)
{
    *s = (struct sink){
        .conn = c, .size = size, .wanted_ends = ends, .data = support_alloc(MUCH + 4096)};
    job_start(&s->job, p, sink_main, s);
}

static void sink_expect(struct sink *s, const void *data, size_t len)
{
    job_join(&s->job);
    assert_ok(s->err);
    assert_int_equal(s->len, len);
    assert_memory_equal(s->data, data, len);
    free(s->data);
}

struct source {
    struct job job;
    tws_conn *conn;
    const char *data;
    size_t len, n;
    tws_err err, end;
};

static void source_main(void *arg)
{
    struct source *s = arg;

    s->err = tws_stream_write(s->conn, s->data, s->len, &s->n);
    s->end = tws_stream_end(s->conn);
}

static void open_with(struct couple *p, const tws_deflate_options *deflate)
{
    tws_pair_options opt;

    tws_pair_options_init(&opt);
    opt.deflate = deflate;
    couple_open(p, &opt);
}

/* Both directions at once, each to its own end, with reads of several sizes. */
static void both_ways(const tws_deflate_options *deflate, size_t size)
{
    char *data = support_alloc(MUCH);
    struct source up = {.len = MUCH, .data = data}, down = {.len = MUCH / 2, .data = data};
    struct sink at_server, at_client;
    struct couple p;

    support_fill(data, MUCH, 1);
    open_with(&p, deflate);
    up.conn = p.client;
    down.conn = p.server;
    job_start(&up.job, &p, source_main, &up);
    job_start(&down.job, &p, source_main, &down);
    sink_start(&at_server, &p, p.server, size, 1);
    sink_start(&at_client, &p, p.client, size, 1);
    sink_expect(&at_server, data, MUCH);
    sink_expect(&at_client, data, MUCH / 2);
    job_join(&up.job);
    job_join(&down.job);
    assert_ok(up.err);
    assert_ok(up.end);
    assert_ok(down.err);
    assert_int_equal(up.n, MUCH);
    couple_close(&p);
    free(data);
}

static void test_both_ways(void **state)
{
    tws_deflate_options deflate;

    (void)state;
    both_ways(NULL, 4096);
    both_ways(NULL, 1000);
    tws_deflate_options_init(&deflate);
    both_ways(&deflate, 4096);
}

/* One direction has ended, the other goes on; and begins again, if the peer likes. */
static void test_half_closed(void **state)
{
    tws_error e;
    struct sink s;
    struct couple p;

    (void)state;
    couple_open(&p, NULL);
    assert_ok(tws_stream_end(p.client));
    sink_start(&s, &p, p.server, 100, 1);
    sink_expect(&s, "", 0);
    tws_conn_error(p.server, &e);
    assert_int_equal(e.code, TWS_OK);
    assert_ok(tws_stream_write(p.server, "an answer", 9, NULL));
    assert_ok(tws_stream_end(p.server));
    sink_start(&s, &p, p.client, 100, 1);
    sink_expect(&s, "an answer", 9);
    assert_ok(tws_stream_write(p.client, "more", 4, NULL));
    assert_ok(tws_stream_end(p.client));
    sink_start(&s, &p, p.server, 3, 1);
    sink_expect(&s, "more", 4);
    couple_close(&p);
}

/* ---- Closing ---- */

static void closed(uint16_t code, tws_err wanted, size_t ends)
{
    struct drain d;
    struct sink s;
    struct couple p;

    couple_open(&p, NULL);
    assert_ok(tws_stream_write(p.client, "abc", 3, NULL));
    drain_start(&d, &p, p.client);
    assert_ok(tws_close_start(p.client, code, NULL));
    sink_start(&s, &p, p.server, 2, ends); /* the same for ever */
    job_join(&s.job);
    assert_err(s.err, wanted);
    assert_int_equal(s.ends, wanted ? 0 : ends);
    assert_int_equal(s.len, 3);
    drain_join(&d);
    free(s.data);
    couple_close(&p);
}

static void test_closed(void **state)
{
    (void)state;
    closed(1000, TWS_OK, 3);
    closed(1001, TWS_OK, 3);
    closed(0, TWS_OK, 3);
    closed(1011, TWS_ERR_PEER_CLOSED, 3);
    closed(4000, TWS_ERR_PEER_CLOSED, 3);
}

/* In the middle of a message no code makes a good end of it. */
static void test_closed_inside_a_message(void **state)
{
    char buf[10];
    size_t n;
    tws_error e;
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    client_send(&r.client, CLIENT_BINARY, "abc", 3);
    client_send_close(&r.client, 1000, "");
    assert_ok(tws_stream_read(r.conn, buf, sizeof buf, &n));
    assert_int_equal(n, 3);
    for (int i = 0; i < 3; i++)
        assert_err(tws_stream_read(r.conn, buf, sizeof buf, &n), TWS_ERR_PEER_CLOSED);
    tws_conn_error(r.conn, &e);
    assert_int_equal(e.close_code, 1000);
    assert_non_null(strstr(e.text, "in the middle of a message"));
    rig_close(&r);
}

static void test_cut(void **state)
{
    struct sink s;
    struct couple p;
    size_t n = 1;

    (void)state;
    couple_open(&p, NULL);
    tws_abort(p.client);
    sink_start(&s, &p, p.server, 100, 1);
    job_join(&s.job);
    assert_true(tws_err_is_final(s.err));
    assert_true(tws_err_is_final(tws_stream_write(p.client, "x", 1, &n)));
    assert_int_equal(n, 0);
    assert_true(tws_err_is_final(tws_stream_end(p.client)));
    assert_ok(tws_stream_write(p.client, NULL, 0, &n)); /* nothing is looked at */
    free(s.data);
    couple_close(&p);
}

/* ---- Messages of others ---- */

static void send_some(tws_conn *c)
{
    tws_writer *w;

    assert_ok(tws_write_text(c, "one"));
    assert_ok(tws_write_message(c, TWS_BINARY, NULL, 0));
    assert_ok(tws_next_writer(c, TWS_TEXT, &w));
    assert_ok(tws_writer_write(w, "tw", 2));
    assert_ok(tws_writer_write(w, "o", 1));
    assert_ok(tws_writer_close(w));
    assert_ok(tws_next_writer(c, TWS_TEXT, &w));
    assert_ok(tws_writer_close(w));
    assert_ok(tws_close_start(c, 1000, NULL));
}

static void joined(const char *terminator, size_t size, const char *wanted, size_t ends)
{
    struct sink s;
    struct couple p;

    couple_open(&p, NULL);
    assert_ok(tws_stream_join(p.server, terminator));
    send_some(p.client);
    sink_start(&s, &p, p.server, size, ends);
    sink_expect(&s, wanted, strlen(wanted));
    couple_close(&p);
}

static void test_joined(void **state)
{
    (void)state;
    for (size_t size = 1; size <= 8; size += 7) {
        joined("\n", size, "one\n\ntwo\n\n", 1);
        joined("<end>", size, "one<end><end>two<end><end>", 1);
        joined("", size, "onetwo", 1);
        joined(NULL, size, "onetwo", 3);
    }
}

static void test_join_changes(void **state)
{
    char longest[257];
    char buf[16];
    size_t n;
    tws_message m;
    struct couple p;

    (void)state;
    couple_open(&p, NULL);
    memset(longest, 'x', sizeof longest);
    longest[256] = 0;
    assert_err(tws_stream_join(p.server, longest), TWS_ERR_ARGUMENT);
    longest[255] = 0;
    assert_ok(tws_stream_join(p.server, longest));
    assert_ok(tws_stream_join(p.server, "\r\n"));
    for (int i = 0; i < 3; i++)
        assert_ok(tws_write_text(p.client, "a line"));
    assert_ok(tws_stream_read(p.server, buf, sizeof buf, &n));
    assert_int_equal(n, 6);
    assert_ok(tws_stream_read(p.server, buf, 1, &n));
    assert_memory_equal(buf, "\r", 1);
    assert_ok(tws_stream_join(p.server, NULL)); /* also of the message that was read last */
    assert_ok(tws_stream_read(p.server, buf, 3, &n));
    assert_memory_equal(buf, "a l", 3);
    assert_ok(tws_read_message(p.server, &m)); /* reading in other ways goes on with the next */
    assert_string_equal(m.data, "a line");
    assert_err(tws_stream_read(p.server, buf, 0, &n), TWS_ERR_ARGUMENT);
    tws_set_timeout(p.server, TWS_TIMEOUT_READ, 20);
    assert_err(tws_stream_read(p.server, buf, sizeof buf, &n), TWS_ERR_TIMEOUT);
    couple_close(&p);
}

/* What a whole read has shown outlasts the change; what is left of a terminator can be waited for, and
 * does not come behind a message that was read in another way. */
static void test_join_beside_messages(void **state)
{
    tws_wait_item item = {0};
    tws_message m;
    struct couple p;
    char buf[16];
    size_t n;

    (void)state;
    couple_open(&p, NULL);
    for (int i = 0; i < 4; i++)
        assert_ok(tws_write_text(p.client, "a line"));
    assert_ok(tws_read_message(p.server, &m));
    assert_ok(tws_stream_join(p.server, "\r\n"));
    assert_string_equal(m.data, "a line");
    assert_ok(tws_stream_read(p.server, buf, sizeof buf, &n));
    assert_ok(tws_stream_read(p.server, buf, 1, &n));
    assert_memory_equal(buf, "\r", 1);
    assert_ok(tws_read_message(p.server, &m));
    assert_string_equal(m.data, "a line");
    assert_ok(tws_stream_read(p.server, buf, sizeof buf, &n));
    assert_int_equal(n, 6);
    assert_memory_equal(buf, "a line", 6);
    assert_ok(tws_stream_read(p.server, buf, 1, &n));
    item.conn = p.server;
    assert_ok(tws_wait_any(&item, 1, TWS_NOWAIT, NULL));
    assert_ok(tws_stream_read(p.server, buf, 8, &n));
    assert_int_equal(n, 1);
    assert_memory_equal(buf, "\n", 1);
    assert_err(tws_wait_any(&item, 1, TWS_NOWAIT, NULL), TWS_ERR_TIMEOUT);
    couple_close(&p);
}

/* What did not leave in time is told, so that the caller can go on from there. */
static void test_partial_write(void **state)
{
    char *data = support_alloc(MUCH);
    struct writer_thread w;
    struct sink s;
    struct couple p;
    size_t n = 0;

    (void)state;
    support_fill(data, MUCH, 5);
    couple_open(&p, NULL);
    writer_thread_start(&w, p.client, data, MUCH / 2);
    support_await_blocked_write(p.client);
    tws_set_timeout(p.client, TWS_TIMEOUT_WRITE, 20);
    assert_err(tws_stream_write(p.client, data + MUCH / 2, MUCH / 2, &n), TWS_ERR_TIMEOUT);
    assert_int_equal(n, 0);
    tws_set_timeout(p.client, TWS_TIMEOUT_WRITE, 0);
    sink_start(&s, &p, p.server, 4096, 1);
    assert_ok(writer_thread_join(&w));
    assert_ok(tws_stream_write(p.client, data + MUCH / 2, MUCH / 2, &n));
    assert_int_equal(n, MUCH / 2);
    assert_ok(tws_stream_end(p.client));
    sink_expect(&s, data, MUCH);
    couple_close(&p);
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_both_ways),     cmocka_unit_test(test_half_closed),
        cmocka_unit_test(test_closed),        cmocka_unit_test(test_closed_inside_a_message),
        cmocka_unit_test(test_cut),           cmocka_unit_test(test_joined),
        cmocka_unit_test(test_join_changes),  cmocka_unit_test(test_join_beside_messages),
        cmocka_unit_test(test_partial_write),
    };

    return cmocka_run_group_tests_name("stream", tests, NULL, NULL);
}
