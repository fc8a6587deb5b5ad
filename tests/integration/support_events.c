#include "support_events.h"

/* ---- Gates ---- */

void gate_make(struct gate *g)
{
    memset(g, 0, sizeof *g);
    g->mu = tws_mutex_new();
    g->changed = tws_cond_new();
    assert_true(g->mu && g->changed);
}

void gate_wait(struct gate *g)
{
    tws_mutex_lock(g->mu, 0);
    g->inside++;
    while (!g->open)
        tws_cond_wait(g->changed, g->mu, 0);
    g->inside--;
    tws_mutex_unlock(g->mu);
}

void gate_open(struct gate *g)
{
    tws_mutex_lock(g->mu, 0);
    g->open = true;
    tws_cond_broadcast(g->changed);
    tws_mutex_unlock(g->mu);
}

int gate_inside(struct gate *g)
{
    int n;

    tws_mutex_lock(g->mu, 0);
    n = g->inside;
    tws_mutex_unlock(g->mu);
    return n;
}

void gate_free(struct gate *g)
{
    tws_cond_free(g->changed);
    tws_mutex_free(g->mu);
}

/* ---- The diary ---- */

static void note_order(struct diary *d)
{
    if (atomic_load(&d->opened) != 1 || atomic_load(&d->closed) != 0)
        atomic_store(&d->wrong, true);
}

static void on_open(tws_conn *c, void *arg)
{
    struct diary *d = arg;

    if (atomic_fetch_add(&d->opened, 1) != 0 || atomic_load(&d->closed) != 0)
        atomic_store(&d->wrong, true);
    atomic_store(&d->conn, tws_conn_ref(c));
    if (d->on_open)
        d->on_open(c, d);
}

static void on_message(tws_conn *c, tws_message *m, void *arg)
{
    struct diary *d = arg;
    int running = atomic_fetch_add(&d->running, 1) + 1;
    int most = atomic_load(&d->most_running);

    note_order(d);
    atomic_fetch_add(&d->messages, 1);
    while (running > most && !atomic_compare_exchange_weak(&d->most_running, &most, running)) {
    }
    if (d->on_message)
        d->on_message(c, m, d);
    else
        tws_write_message(c, m->opcode, m->data, m->len);
    note_order(d);
    atomic_fetch_sub(&d->running, 1);
}

static bool on_ping(tws_conn *c, const void *data, size_t len, void *arg)
{
    struct diary *d = arg;

    (void)c;
    (void)data;
    (void)len;
    note_order(d);
    atomic_fetch_add(&d->pings, 1);
    return true;
}

static void on_pong(tws_conn *c, const void *data, size_t len, void *arg)
{
    struct diary *d = arg;

    (void)c;
    (void)data;
    (void)len;
    note_order(d);
    atomic_fetch_add(&d->pongs, 1);
}

static void on_close(tws_conn *c, const tws_error *e, void *arg)
{
    struct diary *d = arg;
    tws_error now;

    tws_conn_error(c, &now);
    note_order(d);
    if (atomic_load(&d->running) != 0 || e->code == TWS_OK || now.code != e->code ||
        tws_write_text(c, "late") == TWS_OK)
        atomic_store(&d->wrong, true);
    d->error = *e;
    atomic_fetch_add(&d->closed, 1);
}

void diary_events(tws_events *ev, uint32_t parallel)
{
    tws_events_init(ev);
    ev->on_open = on_open;
    ev->on_message = on_message;
    ev->on_ping = on_ping;
    ev->on_pong = on_pong;
    ev->on_close = on_close;
    ev->parallel = parallel;
}

void diary_end(struct diary *d)
{
    tws_conn_unref(atomic_exchange(&d->conn, NULL));
}

/* ---- The stage ---- */

void stage_open(struct stage *st, uint32_t parallel, const tws_server_options *opt)
{
    tws_server_options o;
    tws_events ev;

    support_server_options(&o, NULL, NULL);
    if (opt)
        o = *opt;
    diary_events(&ev, parallel);
    o.on_connection = NULL;
    o.events = &ev;
    o.arg = &st->diary;
    st->before = support_census();
    support_server_start(&st->s, &o);
    memset(&ev, 0, sizeof ev); /* it has been copied */
    client_open(&st->client, st->s.address);
}

void stage_await_close(struct stage *st)
{
    WAIT_FOR(atomic_load(&st->diary.conn) != NULL);
    assert_ok(tws_events_wait(atomic_load(&st->diary.conn), SUPPORT_HANG_MS));
    assert_int_equal(atomic_load(&st->diary.closed), 1);
}

void stage_close(struct stage *st)
{
    client_close(&st->client);
    tws_server_free(st->s.server);
    assert_int_equal(atomic_load(&st->diary.opened), 1);
    assert_int_equal(atomic_load(&st->diary.closed), 1);
    assert_int_equal(atomic_load(&st->diary.running), 0);
    assert_false(atomic_load(&st->diary.wrong));
    diary_end(&st->diary);
    support_assert_census(st->before);
}
