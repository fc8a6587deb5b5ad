/* Connections that the peer closes: every code, what handler and record say, and how it is answered. */
#include "support.h"

#include <string.h>

struct farewell {
    unsigned calls, code;
    char reason[TWS_REASON_MAX + 1];
};

static void on_close(tws_conn *c, uint16_t code, const char *reason, void *arg)
{
    struct farewell *f = arg;

    (void)c;
    f->calls++;
    f->code = code;
    strcpy(f->reason, reason);
}

/* The reason comes as it is; the line for a person stays one line, without orders to a terminal. */
static void test_reason_with_control_characters(void **state)
{
    tws_message m;
    tws_error e;
    struct rig r;

    (void)state;
    rig_open(&r, NULL);
    client_send_close(&r.client, 4000, "a\n\x1b[2Jb\x7f");
    assert_err(tws_read_message(r.conn, &m), TWS_ERR_PEER_CLOSED);
    tws_conn_error(r.conn, &e);
    assert_string_equal(e.reason, "a\n\x1b[2Jb\x7f");
    assert_non_null(strstr(e.text, "a??[2Jb?"));
    rig_close(&r);
}

/* Every code that may be sent: handler and record see it, it is answered alike, the end is clean. */
static void test_closed_by_peer(void **state)
{
    static const unsigned codes[] = {0,    1000, 1001, 1002, 1003, 1007, 1008, 1009,
                                     1010, 1011, 1012, 1013, 1014, 3000, 4000, 4999};

    (void)state;
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        const char *reason = i % 2 ? "because \xe2\x82\xac" : "";
        unsigned seen = codes[i] ? codes[i] : 1005;
        struct farewell f = {0};
        tws_message m;
        tws_error e;
        struct rig r;

        rig_open(&r, NULL);
        tws_set_close_handler(r.conn, on_close, &f);
        client_send_close(&r.client, codes[i], reason);
        assert_err(tws_read_message(r.conn, &m), TWS_ERR_PEER_CLOSED);
        client_expect_close(&r.client, codes[i], codes[i] ? reason : "");
        assert_int_equal(f.calls, 1);
        assert_int_equal(f.code, seen);
        assert_string_equal(f.reason, codes[i] ? reason : "");
        tws_conn_error(r.conn, &e); /* the close frames have gone both ways already */
        assert_int_equal(e.code, TWS_ERR_PEER_CLOSED);
        assert_int_equal(e.phase, TWS_PHASE_READ);
        assert_int_equal(e.cause, TWS_CAUSE_PEER);
        assert_int_equal(e.close_code, seen);
        assert_string_equal(e.reason, codes[i] ? reason : "");
        assert_true(e.clean);
        assert_non_null(strstr(e.text, tws_err_text(TWS_ERR_PEER_CLOSED)));
        assert_err(tws_write_text(r.conn, "x"), TWS_ERR_PEER_CLOSED);
        assert_err(tws_close_start(r.conn, 1000, NULL), TWS_ERR_PEER_CLOSED);
        rig_release(&r);
        client_expect_eof(&r.client);
        client_close(&r.client);
        assert_err(tws_close(r.conn, 1000, NULL), TWS_ERR_PEER_CLOSED);
        assert_int_equal(f.calls, 1);
        rig_close(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_closed_by_peer),
        cmocka_unit_test(test_reason_with_control_characters),
    };

    return cmocka_run_group_tests_name("conn_peer_close", tests, NULL, NULL);
}
