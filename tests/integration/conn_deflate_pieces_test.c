/*
 * A compressed message means the same whether it is read whole or a byte at a time: where it ends does
 * not depend on where output had to wait.
 */
#include "support.h"
#include "support_deflate.h"

#include <stdlib.h>

static tws_err read_bytewise(tws_conn *c, char *out, size_t room, size_t *len)
{
    tws_opcode opcode;
    tws_err err = tws_next_reader(c, &opcode);
    size_t n = 1;

    for (*len = 0; !err && n > 0 && *len < room; *len += n)
        err = tws_reader_read(c, out + *len, 1, &n);
    return err;
}

/* RFC 7692 7.2.3.3 to 7.2.3.5: an end between two blocks, and final blocks. */
static void test_ends(void **state)
{
    static const struct {
        const char *wire;
        size_t len;
    } cases[] = {
        {"\x00\x05\x00\xfa\xffHello", 10},             /* nothing was cut */
        {"\x00\x05\x00\xfa\xffHello\x00", 11},         /* the end of an empty block was */
        {"\xf3\x48\xcd\xc9\xc9\x07\x00", 7},           /* a final block */
        {"\xf2\x48\xcd\xc9\xc9\x07\x00", 7},           /* RFC 7692 7.2.3.1 */
        {"\xf2\x48\xcd\xc9\xc9\x07\0\0\0\xff\xff", 11} /* with its end */
    };
    char out[16];
    size_t len;
    struct rig r;

    (void)state;
    rig_open_deflate(&r, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        client_send(&r.client, CLIENT_FIN | CLIENT_TEXT | CLIENT_RSV1, cases[i].wire, cases[i].len);
        assert_ok(read_bytewise(r.conn, out, sizeof out, &len));
        assert_int_equal(len, 5);
        assert_memory_equal(out, "Hello", 5);
    }
    rig_close(&r);
}

/* With the cut-off bytes behind it this ends inside a block, though it passes the end of one. */
static void test_broken_end(void **state)
{
    static const char wire[] = "\xca\xcb\xcb\x3f\xcb\x80\x00\x03";
    char out[256];
    size_t len;
    tws_message m;

    (void)state;
    for (int whole = 0; whole < 2; whole++) {
        struct rig r;

        rig_open_deflate(&r, NULL);
        client_send(&r.client, CLIENT_FIN | CLIENT_BINARY | CLIENT_RSV1, wire, sizeof wire);
        assert_int_equal(whole ? tws_read_message(r.conn, &m)
                               : read_bytewise(r.conn, out, sizeof out, &len),
                         TWS_ERR_DEFLATE);
        rig_close(&r);
    }
}

/* The largest limit there is, from the beginning or raised in the middle, is one like others. */
static void test_largest_limit(void **state)
{
    static const size_t lengths[] = {5, 16384, 100000};
    char *data = support_alloc(100000);
    struct peer_deflate p;
    tws_message m;
    struct rig r;

    (void)state;
    rig_open_deflate(&r, NULL);
    peer_deflate_init(&p, 6, 15, false);
    memset(data, 'x', 100000);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        assert_ok(tws_set_limit(r.conn, TWS_LIMIT_MESSAGE, UINT64_MAX));
        client_send_deflated(&r.client, &p, CLIENT_BINARY, data, lengths[i], 1);
        assert_ok(tws_read_message_within(r.conn, &m, SUPPORT_HANG_MS));
        assert_int_equal(m.len, lengths[i]);
        assert_memory_equal(m.data, data, m.len);
    }
    peer_deflate_end(&p);
    rig_close(&r);
    free(data);
}

static void test_limit_raised(void **state)
{
    enum { LEN = 300000 };
    uint8_t *packed = support_alloc(LEN * 2);
    char *data = support_alloc(LEN);
    struct peer_deflate p;
    tws_message m;
    tws_stats st;
    struct rig r;
    size_t n;

    (void)state;
    rig_open_deflate(&r, NULL);
    peer_deflate_init(&p, 6, 15, false);
    support_fill(data, LEN, 1);
    n = peer_deflate(&p, packed, data, LEN);
    client_send(&r.client, CLIENT_BINARY | CLIENT_RSV1, packed, n / 4);
    do {
        assert_err(tws_read_message_within(r.conn, &m, TWS_NOWAIT), TWS_ERR_TIMEOUT);
        tws_conn_stats(r.conn, &st);
    } while (st.wire_in < n / 4);
    assert_ok(tws_set_limit(r.conn, TWS_LIMIT_MESSAGE, UINT64_MAX));
    client_send(&r.client, CLIENT_FIN | CLIENT_CONT, packed + n / 4, n - n / 4);
    assert_ok(tws_read_message_within(r.conn, &m, SUPPORT_HANG_MS));
    assert_int_equal(m.len, LEN);
    assert_memory_equal(m.data, data, LEN);
    peer_deflate_end(&p);
    rig_close(&r);
    free(packed);
    free(data);
}

/* What the last piece had no room for is there, though all that has come of the frame is used up. */
static void test_wait_between_pieces(void **state)
{
    uint8_t packed[1024], frame[1024 + CLIENT_HEAD_MAX];
    struct peer_deflate p;
    tws_wait_item item = {0};
    char zeros[20000] = {0}, out[64];
    tws_opcode opcode;
    struct rig r;
    size_t n, len;

    (void)state;
    rig_open_deflate(&r, NULL);
    item.conn = r.conn;
    peer_deflate_init(&p, 6, 15, false);
    n = peer_deflate(&p, packed, zeros, sizeof zeros);
    len = client_frame(frame, CLIENT_FIN | CLIENT_BINARY | CLIENT_RSV1, packed, n);
    assert_true(client_send_bytes(r.client.fd, frame, len - 1));
    assert_ok(tws_next_reader(r.conn, &opcode));
    for (int i = 0; i < 2; i++) {
        assert_ok(tws_wait_any(&item, 1, SUPPORT_HANG_MS, NULL));
        assert_ok(tws_reader_read(r.conn, out, sizeof out, &n));
        assert_int_equal(n, sizeof out);
    }
    peer_deflate_end(&p);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_broken_end),
        cmocka_unit_test(test_largest_limit),
        cmocka_unit_test(test_limit_raised),
        cmocka_unit_test(test_wait_between_pieces),
    };

    return cmocka_run_group_tests_name("conn_deflate_pieces", tests, NULL, NULL);
}
