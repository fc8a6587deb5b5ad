/* What goes wrong only when two threads meet: a close under a handler that still looks at its
 * message, a writer given up while others wait; and times that no clock can hold. */
#include "support.h"

#include <stdio.h>
#include <stdlib.h>

static void *close_it(void *conn)
{
    return (void *)(intptr_t)tws_close(conn, 1000, NULL);
}

/* The closing thread reads on, for the peer's close frame; the message read last stays as it is. */
static void leaves_message(size_t len, bool fragmented, bool take)
{
    uint8_t *sent = support_alloc(len + 1), *later = support_alloc(9000);
    pthread_t closer;
    void *result;
    tws_message m;
    struct rig r;

    rig_open(&r, NULL);
    support_fill(sent, len, 1);
    support_fill(later, 9000, 2);
    if (fragmented) {
        client_send(&r.client, CLIENT_TEXT, sent, len / 2);
        client_send(&r.client, CLIENT_FIN | CLIENT_CONT, sent + len / 2, len - len / 2);
    } else {
        client_send(&r.client, CLIENT_FIN | CLIENT_TEXT, sent, len);
    }
    client_send(&r.client, CLIENT_FIN | CLIENT_TEXT, later, 100); /* may stand right behind it */
    assert_ok(tws_read_message(r.conn, &m));
    support_thread(&closer, close_it, r.conn);
    client_expect_close(&r.client, 1000, NULL);
    for (int i = 0; i < 20; i++)
        client_send(&r.client, CLIENT_FIN | CLIENT_TEXT, later, i % 2 ? 9000 : 100);
    client_send_close(&r.client, 1000, NULL);
    client_expect_eof(&r.client);
    client_close(&r.client);
    pthread_join(closer, &result);
    assert_err((tws_err)(intptr_t)result, TWS_OK);

    assert_int_equal(m.len, len);
    assert_memory_equal(m.data, sent, len);
    assert_int_equal(m.data[len], 0);
    if (take) {
        assert_ok(tws_message_take(r.conn, &m));
        assert_memory_equal(m.data, sent, len);
        tws_message_free(&m);
    }
    assert_err(tws_read_message(r.conn, &m), TWS_ERR_CLOSED);
    rig_close(&r);
    free(sent);
    free(later);
}

static void test_close_leaves_message(void **state)
{
    static const size_t sizes[] = {0, 1, 20, 3000, 9000, 40000};

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int how = 0; how < 4; how++)
            leaves_message(sizes[i], how & 1, how & 2);
}

/* Who waits behind an open writer must not get between its fragments and the close frame. */
static void test_writer_given_up(void **state)
{
    static const char zeros[40000];

    (void)state;
    for (int round = 0; round < 40; round++) {
        struct writer_thread others[4];
        struct client_frame f;
        tws_writer *w;
        struct rig r;
        bool closed = false;

        rig_open(&r, NULL);
        assert_ok(tws_next_writer(r.conn, TWS_TEXT, &w));
        assert_ok(tws_writer_write(w, zeros, sizeof zeros));
        for (int i = 0; i < 4; i++)
            writer_thread_start(&others[i], r.conn, "between", 7);
        support_pause_ms(round % 4);
        assert_err(tws_writer_write(w, "\xff", 1), TWS_ERR_TEXT);
        assert_err(tws_writer_close(w), TWS_ERR_TEXT);
        for (int i = 0; i < 4; i++)
            assert_err(writer_thread_join(&others[i]), TWS_ERR_CLOSED);
        for (int i = 0; !closed && client_next(&r.client, &f); i++) {
            closed = f.opcode == CLIENT_CLOSE;
            assert_true(closed || f.opcode == (i == 0 ? CLIENT_TEXT : CLIENT_CONT));
            assert_true(closed || !f.fin);
        }
        assert_true(closed);
        client_send_close(&r.client, 1011, NULL);
        rig_close(&r);
    }
}

/* The longest time there is means no end, not the past. */
static void test_longest_times(void **state)
{
    struct reader rd;
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    for (int which = TWS_TIMEOUT_READ; which <= TWS_TIMEOUT_PING; which++)
        assert_ok(tws_set_timeout(r.conn, (tws_timeout)which, INT64_MAX));
    reader_start(&rd, r.conn);
    reader_await(&rd);
    client_send(&r.client, CLIENT_FIN | CLIENT_PING, "?", 1);
    client_expect(&r.client, CLIENT_FIN | CLIENT_PONG, "?", 1);
    client_send_text(&r.client, "still there");
    WAIT_FOR(atomic_load(&rd.messages) == 1);
    client_send_close(&r.client, 1000, NULL);
    client_expect_close(&r.client, 1000, NULL);
    assert_err(reader_join(&rd), TWS_ERR_PEER_CLOSED);
    client_close(&r.client);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_close_leaves_message),
        cmocka_unit_test(test_writer_given_up),
        cmocka_unit_test(test_longest_times),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
