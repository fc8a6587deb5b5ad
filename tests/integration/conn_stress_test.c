/*
 * Close, abort and drain against blocked reads and blocked writes, a thousand rounds each under
 * ThreadSanitizer; then as many threads and descriptors must be there as before (B146, B131, B154
 * without TLS).
 */
#include "support.h"

#include "conn/conn.h"

#include <stdlib.h>
#include <sys/socket.h>

/* Races are what the rounds are for: all of them where they are watched for. */
#if defined(__SANITIZE_THREAD__)
#define ROUNDS 1000
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define ROUNDS 1000
#endif
#endif
#ifndef ROUNDS
#define ROUNDS 100
#endif
#define STUCK_LEN (8 << 20)

static uint8_t *stuck_data;

struct stress {
    struct support_server s;
    struct support_census before;
    _Atomic(tws_conn *) arrived;
    _Atomic bool writes; /* what the next handler does */
    _Atomic unsigned ended, wrong;
};

/* Blocks in one read or one write and notes how that ended. */
static void stress_handler(tws_conn *c, void *arg)
{
    struct stress *s = arg;
    tws_message m;
    tws_err err;

    bool writes = atomic_load(&s->writes);

    atomic_store(&s->arrived, tws_conn_ref(c));
    err =
        writes ? tws_write_message(c, TWS_BINARY, stuck_data, STUCK_LEN) : tws_read_message(c, &m);
    if (err != TWS_ERR_CLOSED)
        atomic_fetch_add(&s->wrong, 1);
    atomic_fetch_add(&s->ended, 1);
}

static void stress_start(struct stress *s)
{
    tws_server_options opt;

    support_server_options(&opt, stress_handler, s);
    opt.upgrade.conn.write_timeout = 0;
    support_server_start(&s->s, &opt);
}

/* A client whose receive buffer is small, so that little has to be sent until a write blocks. */
static void open_small(struct client *c, const char *address)
{
    int small = 4096;
    int fd = client_dial(address);

    assert_true(fd >= 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    assert_int_equal(client_upgrade(c, fd, NULL), 101);
}

/* A connection whose handler is blocked. */
static tws_conn *block_one(struct stress *s, struct client *client, bool writes)
{
    tws_conn *c;

    atomic_store(&s->writes, writes);
    open_small(client, s->s.address);
    WAIT_FOR((c = atomic_exchange(&s->arrived, NULL)) != NULL);
    if (writes)
        support_await_blocked_write(c);
    else
        WAIT_FOR(atomic_load(&c->reading));
    return c;
}

static void *close_main(void *arg)
{
    tws_close(arg, 1001, "stress");
    tws_conn_unref(arg);
    return NULL;
}

static void *abort_main(void *arg)
{
    tws_abort(arg);
    tws_conn_unref(arg);
    return NULL;
}

/* The peer's part in a closing handshake. */
static void answer_close(struct client *client)
{
    client_expect_close(client, 1001, NULL);
    client_send_close(client, 1001, NULL);
    client_expect_eof(client);
    client_close(client);
}

static void run_rounds(bool writes, bool abort)
{
    struct stress s = {.ended = 0};

    s.before = support_census();
    stress_start(&s);
    for (unsigned i = 1; i <= ROUNDS; i++) {
        struct client client;
        pthread_t closer, second;
        tws_conn *c = block_one(&s, &client, writes);
        bool twice = i % 4 == 0;
        bool cut = abort || i % 8 == 4;

        if (twice)
            support_thread(&second, cut ? abort_main : close_main, tws_conn_ref(c));
        support_thread(&closer, abort ? abort_main : close_main, c);
        if (!writes && !cut)
            answer_close(&client);
        WAIT_FOR(atomic_load(&s.ended) == i);
        client_close(&client);
        pthread_join(closer, NULL);
        if (twice)
            pthread_join(second, NULL);
    }
    assert_int_equal(atomic_load(&s.wrong), 0);
    tws_server_free(s.s.server);
    support_assert_census(s.before);
}

static void test_close_read(void **state)
{
    (void)state;
    run_rounds(false, false);
}

static void test_close_write(void **state)
{
    (void)state;
    run_rounds(true, false);
}

static void test_abort_read(void **state)
{
    (void)state;
    run_rounds(false, true);
}

static void test_abort_write(void **state)
{
    (void)state;
    run_rounds(true, true);
}

static void *drain_main(void *arg)
{
    tws_server *server = arg;

    return tws_server_drain(server, SUPPORT_HANG_MS) == TWS_OK ? arg : NULL;
}

/* Every round a server of its own, with a blocked read and a blocked write in it. */
static void test_drain(void **state)
{
    struct support_census before = support_census();

    (void)state;
    for (unsigned i = 0; i < ROUNDS; i++) {
        struct stress s = {.ended = 0};
        struct client reading, writing;
        void *drained;
        pthread_t t;

        stress_start(&s);
        tws_conn_unref(block_one(&s, &reading, false));
        tws_conn_unref(block_one(&s, &writing, true));
        if (i % 2) {
            support_thread(&t, drain_main, s.s.server);
            answer_close(&reading);
            pthread_join(t, &drained);
            assert_non_null(drained);
        }
        tws_server_free(s.s.server);
        assert_int_equal(atomic_load(&s.ended), 2);
        assert_int_equal(atomic_load(&s.wrong), 0);
        client_close(&reading);
        client_close(&writing);
    }
    support_assert_census(before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_close_read), cmocka_unit_test(test_close_write),
        cmocka_unit_test(test_abort_read), cmocka_unit_test(test_abort_write),
        cmocka_unit_test(test_drain),
    };
    int failed;

    stuck_data = calloc(1, STUCK_LEN);
    if (!stuck_data)
        return 1;
    failed = cmocka_run_group_tests_name("conn_stress", tests, NULL, NULL);
    free(stuck_data);
    return failed;
}
