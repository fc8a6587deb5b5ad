/*
 * Many connections over TLS at once, for ThreadSanitizer above all: each is read by its own thread and
 * written by three others, keys change all the time, and half the peers read slowly. Whatever arrives
 * must be whole and in order, both ways.
 *
 * A few seconds of some dozens here; `make tls-stress` runs 200 connections for a minute.
 */
#include "support.h"
#include "support_tls.h"

#include <stdio.h>
#include <stdlib.h>

#include <tws/client.h>

#define WRITERS 3
#define LARGEST 70000

struct load {
    struct support_server s;
    unsigned connections, ms;
    _Atomic bool stop;
    _Atomic uint64_t received, wrong, ended_badly, updates;
};

/* ---- Messages that tell when something is missing ---- */

struct head {
    uint32_t writer, number;
    uint32_t last; /* it is its writer's last */
};

static size_t message_len(uint32_t n)
{
    return sizeof(struct head) + (n % 40 == 39 ? LARGEST - 100 + n % 100 : n * 7919 % 2500);
}

static uint8_t message_byte(const struct head *h, size_t i)
{
    return (uint8_t)(i * 7 + h->number * 31 + h->writer);
}

static void message_fill(uint8_t *buf, const struct head *h, size_t len)
{
    memcpy(buf, h, sizeof *h);
    for (size_t i = sizeof *h; i < len; i++)
        buf[i] = message_byte(h, i);
}

/* Numbers of each writer that come next. Returns whether the message is the one. */
static bool message_right(const tws_message *m, uint32_t next[WRITERS], unsigned *last)
{
    struct head h;

    if (m->len < sizeof h)
        return false;
    memcpy(&h, m->data, sizeof h);
    if (h.writer >= WRITERS || h.number != next[h.writer]++ || m->len != message_len(h.number))
        return false;
    for (size_t i = sizeof h; i < m->len; i++)
        if ((uint8_t)m->data[i] != message_byte(&h, i))
            return false;
    *last += h.last;
    return true;
}

/* ---- Writing ---- */

struct writer {
    struct load *load;
    tws_conn *conn;
    uint32_t id;
    pthread_t thread;
};

static void update_keys(SSL *ssl, void *load)
{
    if (SSL_key_update(ssl, SSL_KEY_UPDATE_REQUESTED) == 1)
        atomic_fetch_add(&((struct load *)load)->updates, 1);
}

static void *writer_main(void *arg)
{
    struct writer *w = arg;
    struct head h = {.writer = w->id};
    uint8_t *buf = malloc(LARGEST + sizeof h);

    while (buf && !h.last) {
        size_t len = message_len(h.number);

        h.last = atomic_load(&w->load->stop);
        message_fill(buf, &h, len);
        if (tws_write_message(w->conn, TWS_BINARY, buf, len) != TWS_OK)
            break;
        if (h.number++ % 8 == 0)
            tws_conn_ssl_do(w->conn, update_keys, w->load);
    }
    free(buf);
    return NULL;
}

static void writers_start(struct writer w[], uint32_t count, struct load *l, tws_conn *c)
{
    for (uint32_t i = 0; i < count; i++) {
        w[i] = (struct writer){.load = l, .conn = c, .id = i};
        if (pthread_create(&w[i].thread, NULL, writer_main, &w[i]) != 0)
            abort();
    }
}

static void writers_join(struct writer w[], uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        pthread_join(w[i].thread, NULL);
}

/* ---- Both sides ---- */

/* The first few are told, so that a failure says what failed. */
static void note_end(struct load *l, const char *who, const tws_error *e)
{
    if (atomic_fetch_add(&l->ended_badly, 1) < 5)
        print_message("%s: %s: %s\n", who, tws_err_name(e->code), e->text);
}

static void note_conn(struct load *l, const char *who, tws_conn *c)
{
    tws_error e;

    tws_conn_error(c, &e);
    note_end(l, who, &e);
}

/* Reads until all of the peer's writers have written their last message, or the end. */
static tws_err read_all(struct load *l, tws_conn *c, unsigned writers, int pause_ms)
{
    uint32_t next[WRITERS] = {0};
    unsigned last = 0;
    tws_message m;
    tws_err err = TWS_OK;

    while (last < writers && (err = tws_read_message(c, &m)) == TWS_OK) {
        atomic_fetch_add(&l->received, 1);
        if (!message_right(&m, next, &last))
            atomic_fetch_add(&l->wrong, 1);
        if (pause_ms && !atomic_load(&l->stop))
            tws_sleep(pause_ms);
    }
    return err;
}

static void join_writers(void *arg)
{
    writers_join(arg, WRITERS);
}

static void serve(tws_conn *c, void *arg)
{
    struct load *l = arg;
    struct writer w[WRITERS];
    tws_message m;
    tws_err err;

    writers_start(w, WRITERS, l, c);
    err = read_all(l, c, 1, 0);
    while (!err)
        err = tws_read_message(c, &m); /* until the client, which has all, closes */
    tws_blocking(join_writers, w);
    if (err != TWS_ERR_PEER_CLOSED)
        note_conn(l, "server", c);
}

struct peer {
    struct load *load;
    tws_tls *tls;
    unsigned number;
    pthread_t thread;
};

static void *peer_main(void *arg)
{
    struct peer *p = arg;
    struct writer w[1];
    tws_dial_options o;
    tws_error e;
    char url[200];
    tws_conn *c;

    snprintf(url, sizeof url, "wss://%s/", p->load->s.address);
    tws_dial_options_init(&o);
    o.conn.max_tls_updates = 0;
    o.tls = p->tls;
    o.conn.write_timeout = o.conn.close_timeout = 0;
    o.timeout = 0;
    if (tws_dial(&c, url, &o, NULL, &e) != TWS_OK) {
        note_end(p->load, "dial", &e);
        return NULL;
    }
    writers_start(w, 1, p->load, c);
    if (read_all(p->load, c, WRITERS, p->number % 2 ? 3 : 0) != TWS_OK)
        note_conn(p->load, "client", c);
    writers_join(w, 1);
    if (tws_close(c, TWS_CLOSE_NORMAL, NULL) != TWS_OK)
        note_conn(p->load, "client's close", c);
    tws_conn_unref(c);
    return NULL;
}

static unsigned number_of(const char *name, unsigned otherwise)
{
    const char *text = getenv(name);

    return text ? (unsigned)strtoul(text, NULL, 10) : otherwise;
}

static void many_connections_whole_and_in_order(void **state)
{
    static struct load l;
    struct support_census before = support_census();
    tws_tls_client_options co;
    tws_server_options opt;
    struct peer *peers;
    tws_tls *tls;

    (void)state;
    l.connections = number_of("TWS_STRESS_CONNECTIONS", 24);
    l.ms = number_of("TWS_STRESS_MS", 1500);
    peers = support_alloc(l.connections * sizeof *peers);
    tws_tls_client_options_init(&co);
    co.ca_pem = support_tls_ca()->cert;
    co.ca_pem_len = strlen(co.ca_pem);
    assert_ok(tws_tls_client_new(&tls, &co, NULL));
    support_server_options(&opt, serve, &l);
    opt.upgrade.conn.max_tls_updates = 0;
    opt.tls = support_tls_server();
    opt.upgrade.conn.write_timeout = opt.upgrade.conn.close_timeout = 0;
    opt.upgrade.handshake_timeout = 0;
    support_server_start(&l.s, &opt);
    for (unsigned i = 0; i < l.connections; i++) {
        peers[i] = (struct peer){.load = &l, .tls = tls, .number = i};
        support_thread(&peers[i].thread, peer_main, &peers[i]);
    }
    support_pause_ms((int)l.ms);
    atomic_store(&l.stop, true);
    for (unsigned i = 0; i < l.connections; i++)
        pthread_join(peers[i].thread, NULL);
    tws_server_free(l.s.server);
    tws_tls_unref(tls);
    free(peers);
    print_message("%u connections, %llu messages, %llu key updates\n", l.connections,
                  (unsigned long long)l.received, (unsigned long long)l.updates);
    assert_int_equal(l.wrong, 0);
    assert_int_equal(l.ended_badly, 0);
    assert_in_range(l.received, l.connections * (WRITERS + 1), UINT64_MAX);
    assert_in_range(l.updates, 1, UINT64_MAX);
    support_assert_census(before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(many_connections_whole_and_in_order)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
