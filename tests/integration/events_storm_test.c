/*
 * Many connections whose messages are handled at once, closed and aborted from everywhere at any
 * moment: by handlers, by peers, by a thread that goes through all of them. Each ends once, after its
 * handlers, and nothing is left. For ThreadSanitizer above all.
 */
#include "support.h"

#include <stdio.h>
#include <stdlib.h>

enum { CALLERS = 6, CALLS = 25, MESSAGES = 40, PARALLEL = 4 };

struct storm {
    struct support_server s;
    _Atomic unsigned opened, closed, handled;
    _Atomic bool wrong; /* a handler ran before on_open or beside on_close */
    _Atomic unsigned callers_left;
};

/* ---- The server ---- */

static void on_open(tws_conn *c, void *arg)
{
    struct storm *st = arg;

    atomic_fetch_add(&st->opened, 1);
    tws_conn_set_user(c, calloc(1, sizeof(_Atomic int)));
}

static void on_message(tws_conn *c, tws_message *m, void *arg)
{
    struct storm *st = arg;
    _Atomic int *running = tws_conn_user(c);
    unsigned n = atomic_fetch_add(&st->handled, 1);

    if (!running) {
        atomic_store(&st->wrong, true);
        return;
    }
    atomic_fetch_add(running, 1);
    if (n % 97 == 0)
        tws_close(c, TWS_CLOSE_NORMAL, "enough");
    else if (n % 101 == 0)
        tws_abort(c);
    else
        tws_write_message(c, m->opcode, m->data, m->len);
    atomic_fetch_sub(running, 1);
}

static void on_close(tws_conn *c, const tws_error *e, void *arg)
{
    struct storm *st = arg;
    _Atomic int *running = tws_conn_user(c);

    if (!running || atomic_load(running) != 0 || e->code == TWS_OK)
        atomic_store(&st->wrong, true);
    tws_conn_set_user(c, NULL);
    free(running);
    atomic_fetch_add(&st->closed, 1);
}

static bool close_some(tws_conn *c, void *arg)
{
    (void)arg;
    if (tws_conn_id(c) % 5 == 0)
        tws_close_start(c, TWS_CLOSE_GOING_AWAY, NULL);
    else if (tws_conn_id(c) % 7 == 0)
        tws_abort(c);
    return true;
}

static void *sweep(void *arg)
{
    struct storm *st = arg;

    while (atomic_load(&st->callers_left) > 0) {
        tws_server_each(st->s.server, close_some, NULL);
        support_pause_ms(5);
    }
    return NULL;
}

/* ---- The clients ---- */

static void talk(tws_conn *c, unsigned n)
{
    tws_message m;

    for (int i = 0; i < MESSAGES; i++)
        if (tws_write_text(c, "some words to be handled beside others") != TWS_OK)
            break;
    for (int i = 0; i < MESSAGES && tws_read_message(c, &m) == TWS_OK; i++)
        if (n % 3 == 0 && i == 10)
            tws_abort(c);
    if (n % 3 == 1)
        tws_close(c, TWS_CLOSE_NORMAL, NULL);
    tws_conn_unref(c);
}

static void *call(void *arg)
{
    struct storm *st = arg;
    char url[200];
    tws_conn *c;

    snprintf(url, sizeof url, "ws://%s/", st->s.address);
    for (unsigned n = 0; n < CALLS; n++)
        if (tws_dial(&c, url, NULL, NULL, NULL) == TWS_OK)
            talk(c, n);
        else /* the sweep has cut it in its handshake at the latest */
            support_pause_ms(1);
    atomic_fetch_sub(&st->callers_left, 1);
    return NULL;
}

/* ---- Tests ---- */

static void test_storm(void **state)
{
    struct support_census before = support_census();
    struct storm st = {.callers_left = CALLERS};
    pthread_t callers[CALLERS], sweeper;
    tws_server_options opt;
    tws_events ev;

    (void)state;
    tws_events_init(&ev);
    ev.on_open = on_open;
    ev.on_message = on_message;
    ev.on_close = on_close;
    ev.parallel = PARALLEL;
    support_server_options(&opt, NULL, &st);
    opt.events = &ev;
    support_server_start(&st.s, &opt);
    for (int i = 0; i < CALLERS; i++)
        assert_int_equal(pthread_create(&callers[i], NULL, call, &st), 0);
    assert_int_equal(pthread_create(&sweeper, NULL, sweep, &st), 0);
    for (int i = 0; i < CALLERS; i++)
        pthread_join(callers[i], NULL);
    pthread_join(sweeper, NULL);
    tws_server_free(st.s.server);
    assert_false(atomic_load(&st.wrong));
    assert_in_range(atomic_load(&st.opened), CALLERS * CALLS / 2, CALLERS * CALLS);
    assert_int_equal(atomic_load(&st.opened), atomic_load(&st.closed));
    support_assert_census(before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_storm),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
