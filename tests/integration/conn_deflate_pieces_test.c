/*
 * A compressed message means the same whether it is read whole or a byte at a time: where it ends does
 * not depend on where output had to wait.
 */
#include "support.h"
#include "support_deflate.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_broken_end),
    };

    return cmocka_run_group_tests_name("conn_deflate_pieces", tests, NULL, NULL);
}
