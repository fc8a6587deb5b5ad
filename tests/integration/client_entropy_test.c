/* Without entropy a client sends nothing that needs it: neither a handshake's key nor a mask. */
#include "support_dial.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static _Atomic bool none;

/* In the place of the C library's. */
ssize_t failing_getrandom(void *buf, size_t len, unsigned flags) __asm__("getrandom");

ssize_t failing_getrandom(void *buf, size_t len, unsigned flags)
{
    if (!atomic_load(&none))
        return syscall(SYS_getrandom, buf, len, flags);
    errno = ENOSYS;
    return -1;
}

/* The connection ends, and not a byte comes before. */
static void expect_end(int fd)
{
    char byte;

    assert_int_equal(recv(fd, &byte, 1, 0), 0);
    close(fd);
}

static void test_no_key(void **state)
{
    struct dialing d;

    (void)state;
    atomic_store(&none, true);
    dialing_start_fake(&d, &group_fake, "/", NULL);
    expect_end(fake_accept(&group_fake));
    dialing_join(&d, TWS_ERR_SYSTEM);
    assert_int_equal(d.error.sys_errno, ENOSYS);
    assert_null(d.conn);
    dialing_end(&d);
    atomic_store(&none, false);
}

static tws_err write_piecewise(tws_conn *c)
{
    tws_writer *w;
    tws_err err = tws_next_writer(c, TWS_TEXT, &w), last;

    if (err)
        return err;
    err = tws_writer_write(w, "piece", 5);
    last = tws_writer_close(w);
    return err ? err : last;
}

/* The next message that comes is this one; so nothing came before. */
static void expect_text(int fd, const char *text)
{
    static struct fake_frame f;

    assert_true(fake_read_frame(fd, &f));
    assert_int_equal(f.first, 0x81);
    assert_int_equal(f.len, strlen(text));
    assert_memory_equal(f.data, text, f.len);
}

/* Keys that are drawn one by one, at the beginning of a connection. */
static void test_no_mask(void **state)
{
    struct dialing d;
    int fd = dialing_open(&d, &group_fake, NULL);

    (void)state;
    atomic_store(&none, true);
    assert_int_equal(tws_write_text(d.conn, "one"), TWS_ERR_SYSTEM);
    assert_int_equal(write_piecewise(d.conn), TWS_ERR_SYSTEM);
    assert_int_not_equal(tws_ping(d.conn, "p", 1), TWS_OK);
    atomic_store(&none, false);
    assert_ok(tws_write_text(d.conn, "two"));
    expect_text(fd, "two");
    atomic_store(&none, true);
    assert_int_not_equal(tws_close(d.conn, 1000, NULL), TWS_OK);
    expect_end(fd);
    dialing_end(&d);
    atomic_store(&none, false);
}

/* And those that are drawn in advance: when they are used up there is no more. */
static void test_no_more_masks(void **state)
{
    struct dialing d;
    int fd = dialing_open(&d, &group_fake, NULL), left = 0;

    (void)state;
    for (int i = 0; i < 50; i++) {
        assert_ok(tws_write_text(d.conn, "early"));
        expect_text(fd, "early");
    }
    atomic_store(&none, true);
    for (; tws_write_text(d.conn, "late") == TWS_OK; left++) {
        assert_true(left < 1000);
        expect_text(fd, "late");
    }
    assert_true(left > 0);
    assert_int_equal(tws_write_text(d.conn, "late"), TWS_ERR_SYSTEM);
    tws_abort(d.conn);
    expect_end(fd);
    dialing_end(&d);
    atomic_store(&none, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_key),
        cmocka_unit_test(test_no_mask),
        cmocka_unit_test(test_no_more_masks),
    };

    return cmocka_run_group_tests_name("client_entropy", tests, group_fake_listen,
                                       group_fake_close);
}
