/*
 * Messages of one connection handled at once: so many and no more, none lost, all over before
 * on_close.
 */
#include "support_counter.h"
#include "support_events.h"

#include <stdio.h>
#include <stdlib.h>

#include "event/event.h"

/* Counts the messages that come out of the handlers, in the order of being sent; waits at a gate. */
struct work {
    struct gate gate;
    uint32_t limit;
    _Atomic uint64_t finished;
    _Atomic bool too_many; /* more was read than may be handled, and one that waits */
    _Atomic int last;      /* number of the message that was handled last */
    _Atomic bool disorder;
};

static void handle(tws_conn *c, tws_message *m, struct diary *d)
{
    struct work *w = d->arg;
    tws_stats st;
    int n = atoi(m->data);

    if (atomic_exchange(&w->last, n) > n)
        atomic_store(&w->disorder, true);
    gate_wait(&w->gate);
    tws_conn_stats(c, &st);
    if (st.messages_in > atomic_load(&w->finished) + w->limit + 1)
        atomic_store(&w->too_many, true);
    tws_write_message(c, m->opcode, m->data, m->len);
    atomic_fetch_add(&w->finished, 1);
}

static void work_make(struct work *w, uint32_t limit)
{
    memset(w, 0, sizeof *w);
    gate_make(&w->gate);
    w->limit = limit;
}

static void send_numbers(struct client *c, int from, int count)
{
    char text[16];

    for (int i = from; i < from + count; i++) {
        snprintf(text, sizeof text, "%d", i);
        client_send_text(c, text);
    }
}

/* Each of them comes back once, in whatever order. */
static void expect_numbers(struct client *c, int count)
{
    bool *seen = calloc((size_t)count, sizeof *seen);

    for (int i = 0; i < count; i++) {
        struct client_frame f;
        char text[16] = "";
        int n;

        assert_true(client_next(c, &f));
        assert_in_range(f.len, 1, sizeof text - 1);
        memcpy(text, f.data, f.len);
        n = atoi(text);
        assert_in_range(n, 0, count - 1);
        assert_false(seen[n]);
        seen[n] = true;
    }
    free(seen);
}

/* ---- The limit ---- */

static void at_once(uint32_t limit)
{
    enum { MESSAGES = 60 };
    struct work w;
    struct stage st = {.diary = {.on_message = handle, .arg = &w}};

    work_make(&w, limit);
    stage_open(&st, limit, NULL);
    send_numbers(&st.client, 0, MESSAGES);
    WAIT_FOR(gate_inside(&w.gate) == (int)limit);
    gate_open(&w.gate);
    expect_numbers(&st.client, MESSAGES);
    assert_int_equal(atomic_load(&st.diary.messages), MESSAGES);
    assert_int_equal(atomic_load(&st.diary.most_running), limit);
    client_close(&st.client);
    stage_await_close(&st);
    stage_close(&st);
    assert_false(atomic_load(&w.too_many));
    gate_free(&w.gate);
}

static void test_limit(void **state)
{
    (void)state;
    at_once(1);
    at_once(2);
    at_once(7);
}

/* Large messages too, which have buffers to themselves, and are not mixed up. */
static void check_and_echo(tws_conn *c, tws_message *m, struct diary *d)
{
    if (m->len < 4 || !support_filled(m->data + 4, m->len - 4, (unsigned)m->len))
        atomic_store(&d->wrong, true);
    tws_write_message(c, m->opcode, m->data, 4);
}

static void test_sizes(void **state)
{
    static const size_t sizes[] = {4, 200, 3000, 20000, 100000, 5};
    struct stage st = {.diary = {.on_message = check_and_echo}};
    char *data = support_alloc(100000);

    (void)state;
    stage_open(&st, 3, NULL);
    for (int round = 0; round < 10; round++) {
        for (size_t i = 0; i < 6; i++) {
            memcpy(data, "name", 4);
            support_fill(data + 4, sizes[i] - 4, (unsigned)sizes[i]);
            client_send(&st.client, CLIENT_FIN | CLIENT_BINARY, data, sizes[i]);
        }
        for (size_t i = 0; i < 6; i++)
            client_expect(&st.client, CLIENT_FIN | CLIENT_BINARY, "name", 4);
    }
    client_close(&st.client);
    stage_await_close(&st);
    stage_close(&st);
    free(data);
}

/* ---- The end ---- */

static bool waits_for_handlers(tws_conn *c)
{
    struct event_run *r;
    bool waits = false;

    pthread_mutex_lock(&c->mu);
    r = c->run;
    if (r && r->parallel) {
        pthread_mutex_lock(&r->parallel->mu);
        waits = r->parallel->stop;
        pthread_mutex_unlock(&r->parallel->mu);
    }
    pthread_mutex_unlock(&c->mu);
    return waits;
}

/* on_close waits for every handler, also when the connection has long been cut. */
static void test_close_is_last(void **state)
{
    struct work w;
    struct stage st = {.diary = {.on_message = handle, .arg = &w}};
    tws_conn *c;

    (void)state;
    work_make(&w, 4);
    stage_open(&st, 4, NULL);
    send_numbers(&st.client, 0, 3);
    WAIT_FOR(gate_inside(&w.gate) == 3);
    c = atomic_load(&st.diary.conn);
    tws_abort(c);
    WAIT_FOR(waits_for_handlers(c));
    assert_err(tws_events_wait(c, TWS_NOWAIT), TWS_ERR_TIMEOUT);
    assert_err(tws_events_wait(c, -2), TWS_ERR_ARGUMENT);
    assert_int_equal(atomic_load(&st.diary.closed), 0);
    gate_open(&w.gate);
    stage_await_close(&st);
    stage_close(&st);
    gate_free(&w.gate);
}

/* The peer goes away while the reader waits for a free handler. */
static void test_end_while_full(void **state)
{
    struct work w;
    struct stage st = {.diary = {.on_message = handle, .arg = &w}};

    (void)state;
    work_make(&w, 2);
    stage_open(&st, 2, NULL);
    send_numbers(&st.client, 0, 10);
    WAIT_FOR(gate_inside(&w.gate) == 2);
    client_close(&st.client);
    gate_open(&w.gate);
    stage_await_close(&st);
    stage_close(&st);
    assert_true(atomic_load(&st.diary.messages) >= 2);
    gate_free(&w.gate);
}

/* ---- A handler's own calls ---- */

static void try_from_inside(tws_conn *c, tws_message *m, struct diary *d)
{
    tws_server **server = d->arg;

    if (tws_server_drain(*server, TWS_NOWAIT) != TWS_ERR_STATE ||
        tws_events_wait(c, TWS_NO_LIMIT) != TWS_ERR_STATE ||
        tws_run(c, &(tws_events){.size = sizeof(tws_events)}, NULL) != TWS_ERR_STATE)
        atomic_store(&d->wrong, true);
    tws_write_message(c, m->opcode, m->data, m->len);
}

static void test_from_inside(void **state)
{
    (void)state;
    for (uint32_t parallel = 1; parallel <= 2; parallel++) {
        struct stage st = {.diary = {.on_message = try_from_inside}};

        st.diary.arg = &st.s.server;
        stage_open(&st, parallel, NULL);
        client_send_text(&st.client, "x");
        client_expect_text(&st.client, "x");
        client_close(&st.client);
        stage_close(&st);
    }
}

/* Nobody reads but the thread that reads, also not while it waits for a free handler with a message in its hands:
 * that message would change under it. */
static void try_to_read(tws_conn *c, tws_message *m, struct diary *d)
{
    tws_wait_item item = {.conn = c};
    tws_message other;
    tws_opcode opcode;
    tws_stats st;

    do
        tws_conn_stats(c, &st);
    while (st.messages_in < 3);
    if (tws_read_message_within(c, &other, TWS_NOWAIT) != TWS_ERR_BUSY ||
        tws_next_reader(c, &opcode) != TWS_ERR_BUSY ||
        tws_wait_any(&item, 1, TWS_NOWAIT, NULL) != TWS_ERR_BUSY)
        atomic_store(&d->wrong, true);
    tws_write_message(c, m->opcode, m->data, m->len);
}

static void test_reading_from_inside(void **state)
{
    struct stage st = {.diary = {.on_message = try_to_read}};

    (void)state;
    stage_open(&st, 2, NULL);
    send_numbers(&st.client, 0, 10);
    expect_numbers(&st.client, 10);
    client_close(&st.client);
    stage_await_close(&st);
    stage_close(&st);
}

/* ---- No memory ---- */

/* Then messages are handled in order on the thread that reads; none is lost. */
static void test_no_memory(void **state)
{
    enum { MESSAGES = 30 };
    struct counter k;
    tws_allocator a = counter_allocator(&k);
    struct work w;
    struct stage st = {.diary = {.on_message = handle, .arg = &w}};
    tws_server_options opt;

    (void)state;
    work_make(&w, 4);
    gate_open(&w.gate);
    support_server_options(&opt, NULL, NULL);
    opt.upgrade.allocator = &a;
    stage_open(&st, 4, &opt);
    WAIT_FOR(atomic_load(&st.diary.opened) == 1);
    atomic_store(&k.fail_count, 1000000);
    atomic_store(&k.fail_from, atomic_load(&k.calls) + 1);
    send_numbers(&st.client, 0, MESSAGES);
    expect_numbers(&st.client, MESSAGES);
    assert_int_equal(atomic_load(&st.diary.most_running), 1);
    assert_false(atomic_load(&w.disorder));
    atomic_store(&k.fail_count, 0);
    send_numbers(&st.client, 0, MESSAGES);
    expect_numbers(&st.client, MESSAGES);
    client_close(&st.client);
    stage_await_close(&st);
    stage_close(&st);
    assert_int_equal(atomic_load(&k.live), 0);
    gate_free(&w.gate);
}

/* ---- All together ---- */

/* Connections that come, send and go without a word, handled by few and by many. */
static void test_churn(void **state)
{
    struct work w;
    struct gate *gate = &w.gate;

    (void)state;
    for (int i = 0; i < 30; i++) {
        struct stage st = {.diary = {.on_message = handle, .arg = &w}};
        uint32_t limit = 1 + (uint32_t)i % 5;

        work_make(&w, limit);
        gate_open(gate);
        stage_open(&st, limit, NULL);
        send_numbers(&st.client, 0, 20);
        if (i % 3 == 0)
            expect_numbers(&st.client, 20);
        if (i % 3 == 1)
            client_reset(&st.client);
        else
            client_close(&st.client);
        stage_await_close(&st);
        stage_close(&st);
        gate_free(gate);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_limit),         cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_close_is_last), cmocka_unit_test(test_end_while_full),
        cmocka_unit_test(test_from_inside),   cmocka_unit_test(test_reading_from_inside),
        cmocka_unit_test(test_no_memory),     cmocka_unit_test(test_churn),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
