/*
 * Memory of compression: through the caller's allocator only, none per message in steady state, and
 * no harm done when there is none.
 */
#include "support.h"
#include "support_counter.h"
#include "support_deflate.h"

#include <stdlib.h>

static void compress(tws_server_options *opt, tws_deflate_options *d, int bits)
{
    tws_deflate_options_init(d);
    d->server_no_context_takeover = d->client_no_context_takeover = bits == 0;
    d->server_max_window_bits = d->client_max_window_bits = bits;
    support_server_options(opt, support_echo, NULL);
    opt->upgrade.deflate = d;
}

/* Sends a message and gets it back. False when the connection has ended. */
static bool talk(struct client *c, struct peer_deflate *p, const void *data, size_t len,
                 size_t frames)
{
    static uint8_t packed[70000], wire[70000];
    size_t n = peer_deflate(p, packed, data, len), size = 0;
    struct client_frame f = {.fin = false};

    for (size_t i = 0, done = 0; i < frames; i++) {
        size_t part = i + 1 == frames ? n - done : n / frames;

        size += client_frame(wire + size,
                             (i == 0 ? CLIENT_TEXT | CLIENT_RSV1 : CLIENT_CONT) |
                                 (i + 1 == frames ? CLIENT_FIN : 0u),
                             packed + done, part);
        done += part;
    }
    if (!client_send_bytes(c->fd, wire, size))
        return false;
    do
        if (client_try_next(c, &f) != 1 || f.opcode >= CLIENT_CLOSE)
            return false;
    while (!f.fin);
    return true;
}

static void test_steady_state(void **state)
{
    static const int bits[] = {0, 12, 15};
    static char text[3000];

    (void)state;
    support_fill(text, sizeof text, 1);
    for (size_t i = 0; i < 3; i++) {
        struct support_server s;
        struct peer_deflate p;
        tws_deflate_options d;
        tws_server_options opt;
        struct counter k;
        tws_allocator a = counter_allocator(&k);
        struct client c;
        long before;

        compress(&opt, &d, bits[i]);
        opt.upgrade.allocator = &a;
        support_server_start(&s, &opt);
        assert_int_equal(client_upgrade(&c, client_dial(s.address), DEFLATE_OFFER), 101);
        peer_deflate_init(&p, 6, bits[i] ? bits[i] : 15, bits[i] > 0);
        for (int n = 0; n < 30; n++)
            assert_true(talk(&c, &p, text, sizeof text, 1 + (size_t)n % 2));
        before = atomic_load(&k.calls);
        for (int n = 0; n < 300; n++)
            assert_true(talk(&c, &p, text, sizeof text - (size_t)n, 1 + (size_t)n % 2));
        assert_int_equal(atomic_load(&k.calls) - before, 0);
        peer_deflate_end(&p);
        client_close(&c);
        tws_server_free(s.server);
        assert_int_equal(atomic_load(&k.live), 0);
    }
}

/* Whole messages, large ones, streamed ones. */
static void busy_handler(tws_conn *c, void *arg)
{
    tws_message m;
    tws_writer *w;

    (void)arg;
    while (tws_read_message(c, &m) == TWS_OK) {
        if (m.len < 50000) {
            if (tws_write_message(c, m.opcode, m.data, m.len) != TWS_OK)
                break;
        } else if (tws_next_writer(c, m.opcode, &w) == TWS_OK) {
            tws_writer_write(w, m.data, m.len);
            if (tws_writer_close(w) != TWS_OK)
                tws_close_start(c, TWS_CLOSE_INTERNAL_ERROR, NULL);
        } else {
            tws_close_start(c, TWS_CLOSE_INTERNAL_ERROR, NULL);
        }
    }
}

/* A conversation as far as it gets. Whether nothing went wrong. */
static bool converse(const char *address)
{
    static char text[60000];
    struct peer_deflate p;
    struct client c;
    bool ok = client_upgrade(&c, client_dial(address), DEFLATE_OFFER) == 101;

    for (size_t i = 0; i < sizeof text; i++) /* does not compress to much less */
        text[i] = (char)(' ' + (i * i * 2654435761u >> 13) % 90);
    peer_deflate_init(&p, 6, 12, true);
    if (ok && strstr(c.head, "permessage-deflate"))
        ok = talk(&c, &p, text, 100, 1) && talk(&c, &p, text, 40000, 2) &&
             talk(&c, &p, text, sizeof text, 1) && talk(&c, &p, text + 9, 1000, 1);
    else
        ok = false;
    peer_deflate_end(&p);
    client_close(&c);
    return ok;
}

static void prepare_busy(tws_server_options *opt)
{
    static tws_deflate_options d;

    compress(opt, &d, 12);
    opt->on_connection = busy_handler;
}

static void test_one_failure(void **state)
{
    (void)state;
    counter_fail_everywhere(prepare_busy, converse, 1);
}

static void test_failures_from_there_on(void **state)
{
    (void)state;
    counter_fail_everywhere(prepare_busy, converse, 1000000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steady_state),
        cmocka_unit_test(test_one_failure),
        cmocka_unit_test(test_failures_from_there_on),
    };

    return cmocka_run_group_tests_name("conn_deflate_memory", tests, NULL, NULL);
}
