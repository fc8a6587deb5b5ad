/* Close codes of error records, and payloads of close frames. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include <tws/error.h>

static bool is_close(tws_err code, uint16_t close_code, bool clean)
{
    tws_error e = {.code = code, .close_code = close_code, .clean = clean};

    return tws_is_close_error(&e, TWS_CODES(TWS_CLOSE_NORMAL, TWS_CLOSE_ABNORMAL, 4000));
}

static bool is_unexpected(tws_err code, uint16_t close_code)
{
    tws_error e = {.code = code, .close_code = close_code};

    return tws_is_unexpected_close(&e, TWS_CODES(TWS_CLOSE_NORMAL, TWS_CLOSE_GOING_AWAY));
}

static void test_close_error(void **state)
{
    tws_error e = {.code = TWS_ERR_PEER_CLOSED, .close_code = 1000};

    (void)state;
    assert_true(is_close(TWS_ERR_PEER_CLOSED, 1000, true));
    assert_true(is_close(TWS_ERR_PEER_CLOSED, 4000, false));
    assert_false(is_close(TWS_ERR_PEER_CLOSED, 1001, true));
    assert_true(is_close(TWS_ERR_EOF, 1006, false));
    assert_true(is_close(TWS_ERR_TRUNCATED, 1006, false));
    assert_true(is_close(TWS_ERR_CLOSED, 1000, true)); /* the peer has answered */
    assert_false(is_close(TWS_ERR_CLOSED, 1000, false));
    assert_false(is_close(TWS_ERR_NETWORK, 1006, false));
    assert_false(is_close(TWS_ERR_PROTOCOL, 1000, false));
    assert_false(is_close(TWS_OK, 1000, false));
    assert_false(tws_is_close_error(&e, NULL, 0));
}

static void test_unexpected(void **state)
{
    tws_error e = {.code = TWS_ERR_PEER_CLOSED, .close_code = 1000};

    (void)state;
    assert_false(is_unexpected(TWS_ERR_PEER_CLOSED, 1000));
    assert_false(is_unexpected(TWS_ERR_PEER_CLOSED, 1001));
    assert_true(is_unexpected(TWS_ERR_PEER_CLOSED, 1005));
    assert_true(is_unexpected(TWS_ERR_PEER_CLOSED, 4000));
    assert_true(is_unexpected(TWS_ERR_EOF, 1006));
    assert_false(is_unexpected(TWS_ERR_CLOSED, 4000)); /* our own doing */
    assert_false(is_unexpected(TWS_ERR_NETWORK, 1006));
    assert_false(is_unexpected(TWS_OK, 0));
    assert_true(tws_is_unexpected_close(&e, NULL, 0));
}

static void test_format(void **state)
{
    char reason[125];
    unsigned char buf[125];
    size_t len = 9;

    (void)state;
    assert_int_equal(tws_format_close(buf, sizeof buf, 1000, NULL, &len), TWS_OK);
    assert_int_equal(len, 2);
    assert_memory_equal(buf, "\x03\xe8", 2);
    assert_int_equal(tws_format_close(buf, sizeof buf, 4999, "why", &len), TWS_OK);
    assert_int_equal(len, 5);
    assert_memory_equal(buf, "\x13\x87why", 5);
    assert_int_equal(tws_format_close(buf, 0, 1005, "dropped", &len), TWS_OK);
    assert_int_equal(len, 0);
    assert_int_equal(tws_format_close(NULL, 0, 0, NULL, &len), TWS_OK);
    memset(reason, 'x', sizeof reason);
    reason[123] = 0;
    assert_int_equal(tws_format_close(buf, sizeof buf, 1000, reason, &len), TWS_OK);
    assert_int_equal(len, 125);
    assert_int_equal(tws_format_close(buf, 124, 1000, reason, &len), TWS_ERR_CONTROL_SIZE);
    assert_int_equal(len, 0);
    reason[123] = 'x';
    reason[124] = 0;
    assert_int_equal(tws_format_close(buf, sizeof buf, 1000, reason, &len), TWS_ERR_CONTROL_SIZE);
    assert_int_equal(tws_format_close(buf, sizeof buf, 1000, "\xff", &len), TWS_ERR_TEXT);
    assert_int_equal(tws_format_close(buf, sizeof buf, 1006, NULL, &len), TWS_ERR_CLOSE_CODE);
    assert_int_equal(tws_format_close(buf, sizeof buf, 2999, NULL, &len), TWS_ERR_CLOSE_CODE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_close_error),
        cmocka_unit_test(test_unexpected),
        cmocka_unit_test(test_format),
    };

    return cmocka_run_group_tests_name("conn_close_code", tests, NULL, NULL);
}
