/* Queued writes over TLS, where what the socket takes ends inside records. */
#include "support_queue.h"

#include "conn/queue.h"
#include "pki.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

struct pair {
    struct support_server s;
    tws_tls *server_tls, *client_tls;
    tws_conn *client, *conn;
};

static _Atomic(tws_conn *) arrived;

static void read_to_end(tws_conn *c, void *arg)
{
    tws_message m;

    (void)arg;
    atomic_store(&arrived, tws_conn_ref(c));
    while (tws_read_message(c, &m) == TWS_OK) {
    }
}

static void pair_open(struct pair *p, const tws_queue_options *queue)
{
    struct pki_spec spec = {.name = "localhost", .alt = "DNS:localhost", .ca = true};
    tws_tls_certificate cert = {.cert_file = NULL};
    tws_tls_server_options to;
    tws_tls_client_options co;
    tws_server_options so;
    tws_dial_options dial;
    struct pki ca;
    char url[200];
    int small = 4096;

    pki_make(&ca, &spec);
    cert.cert_pem = ca.cert;
    cert.cert_pem_len = strlen(ca.cert);
    cert.key_pem = ca.key;
    cert.key_pem_len = strlen(ca.key);
    tws_tls_server_options_init(&to);
    to.certificates = &cert;
    to.certificate_count = 1;
    assert_ok(tws_tls_server_new(&p->server_tls, &to, NULL));
    tws_tls_client_options_init(&co);
    co.insecure_skip_verify = true;
    assert_ok(tws_tls_client_new(&p->client_tls, &co, NULL));
    pki_free(&ca);
    support_server_options(&so, read_to_end, NULL);
    so.tls = p->server_tls;
    so.upgrade.conn.queue = *queue;
    support_server_start(&p->s, &so);
    tws_dial_options_init(&dial);
    dial.tls = p->client_tls;
    snprintf(url, sizeof url, "wss://%s/", p->s.address);
    assert_ok(tws_dial(&p->client, url, &dial, NULL, NULL));
    WAIT_FOR(atomic_load(&arrived) != NULL);
    p->conn = atomic_exchange(&arrived, NULL);
    setsockopt(p->conn->stream.sock.fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
}

static void pair_close(struct pair *p)
{
    tws_conn_unref(p->client);
    tws_conn_unref(p->conn);
    tws_server_free(p->s.server);
    tws_tls_unref(p->server_tls);
    tws_tls_unref(p->client_tls);
}

/* Messages of all sizes, with pings between them. */
static void test_order(void **state)
{
    enum { COUNT = 600, LEN = 20000 };
    uint8_t *data = support_alloc(LEN);
    tws_queue_options opt;
    struct tally t;
    struct pair p;

    (void)state;
    tally_init(&t, COUNT);
    tws_queue_options_init(&opt);
    opt.max_bytes = 0;
    pair_open(&p, &opt);
    for (uint32_t i = 0; i < COUNT; i++) {
        size_t len = 4 + i * 7919 % (LEN - 4);

        numbered_fill(data, len, i);
        assert_ok(tws_write_async(p.conn, TWS_BINARY, data, len, tally_done, &t.tickets[i]));
        if (i % 10 == 0)
            assert_ok(tws_ping(p.client, "?", 1));
    }
    for (uint32_t i = 0; i < COUNT; i++) {
        tws_message m;

        assert_ok(tws_read_message(p.client, &m));
        assert_int_equal(m.len, 4 + i * 7919 % (LEN - 4));
        assert_int_equal(numbered_check((const uint8_t *)m.data, m.len), i);
    }
    tally_assert_once(&t, COUNT);
    assert_int_equal(atomic_load(&t.results_ok), COUNT);
    assert_int_equal(atomic_load(&t.out_of_order), 0);
    pair_close(&p);
    tally_free(&t);
    free(data);
}

/* What is dropped leaves no trace, also where its first byte could have been in a record. */
static void test_drop_oldest(void **state)
{
    enum { COUNT = 3000, LEN = 16000, KEPT = 50000 };
    uint8_t *data = support_alloc(LEN);
    tws_queue_options opt;
    tws_message m;
    struct pair p;
    uint32_t last = 0;

    (void)state;
    tws_queue_options_init(&opt);
    opt.max_bytes = KEPT;
    opt.policy = TWS_QUEUE_DROP_OLDEST;
    pair_open(&p, &opt);
    for (uint32_t i = 0; i < COUNT; i++) {
        size_t len = i == COUNT - 1 ? 4 : 5 + i * 104729 % (LEN - 5);

        numbered_fill(data, len, i);
        assert_ok(tws_write_async(p.conn, TWS_BINARY, data, len, NULL, NULL));
    }
    do {
        uint32_t number;

        assert_ok(tws_read_message(p.client, &m));
        number = numbered_check((const uint8_t *)m.data, m.len);
        assert_true(number >= last);
        last = number;
    } while (last < COUNT - 1);
    assert_true(queue_stats(p.conn).dropped_oldest > 0);
    pair_close(&p);
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_drop_oldest),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
