/*
 * Events: in order, each connection's on_close exactly once and last, however it ends.
 */
#include "support_events.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- What comes when ---- */

static void test_order(void **state)
{
    struct stage st = {.diary = {.opened = 0}};

    (void)state;
    stage_open(&st, 0, NULL);
    WAIT_FOR(atomic_load(&st.diary.opened) == 1);
    client_send_text(&st.client, "one");
    client_expect_text(&st.client, "one");
    client_send(&st.client, CLIENT_FIN | CLIENT_PING, "hey", 3);
    client_expect(&st.client, CLIENT_FIN | CLIENT_PONG, "hey", 3);
    client_send(&st.client, CLIENT_FIN | CLIENT_PONG, "ho", 2);
    client_send_text(&st.client, "two");
    client_expect_text(&st.client, "two");
    assert_int_equal(atomic_load(&st.diary.pings), 1);
    assert_int_equal(atomic_load(&st.diary.pongs), 1);
    assert_int_equal(atomic_load(&st.diary.messages), 2);
    assert_int_equal(atomic_load(&st.diary.closed), 0);
    client_send_close(&st.client, 4001, "bye");
    client_expect_close(&st.client, 4001, NULL);
    client_expect_eof(&st.client);
    client_close(&st.client);
    stage_await_close(&st);
    assert_int_equal(st.diary.error.code, TWS_ERR_PEER_CLOSED);
    assert_int_equal(st.diary.error.close_code, 4001);
    assert_string_equal(st.diary.error.reason, "bye");
    assert_true(st.diary.error.clean);
    stage_close(&st);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
