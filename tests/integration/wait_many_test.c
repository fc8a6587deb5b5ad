/* Waiting on the connections' own kind of thread: many at once, and what happens to them meanwhile. */
#include "support_pair.h"

#include "conn/conn.h"

#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#define MANY 300

struct crowd_of {
    struct couple p; /* its group; its own pair is one more */
    tws_conn *server[MANY], *client[MANY];
    tws_wait_item items[MANY + 1];
    int pipe[2];
    unsigned got[MANY];
    tws_err err;
    tws_ms ms;
    size_t ready;
    unsigned rounds;
};

static struct crowd_of *crowd_open(size_t count)
{
    struct crowd_of *w = support_alloc(sizeof *w);
    tws_pair_options opt;

    memset(w, 0, sizeof *w);
    couple_open(&w->p, NULL);
    tws_pair_options_init(&opt);
    opt.group = w->p.group;
    for (size_t i = 0; i < count; i++) {
        assert_ok(tws_pair(&w->server[i], &w->client[i], &opt));
        w->items[i].conn = w->server[i];
    }
    assert_int_equal(pipe(w->pipe), 0);
    w->items[MANY] = (tws_wait_item){.fd = w->pipe[0], .events = POLLIN};
    return w;
}

static void crowd_close(struct crowd_of *w)
{
    for (size_t i = 0; i < MANY; i++) {
        tws_conn_unref(w->server[i]);
        tws_conn_unref(w->client[i]);
    }
    close(w->pipe[0]);
    close(w->pipe[1]);
    couple_close(&w->p);
    free(w);
}

/* Reads whatever is ready, until the pipe says that there will be no more. */
static void serve_all(void *arg)
{
    struct crowd_of *w = arg;
    tws_message m;

    while (!w->items[MANY].ready) {
        w->err = tws_wait_any(w->items, MANY + 1, 0, &w->ready);
        if (w->err)
            return;
        w->rounds++;
        for (size_t i = 0; i < MANY; i++) {
            if (!w->items[i].ready)
                continue;
            w->err = tws_read_message_within(w->items[i].conn, &m, TWS_NOWAIT);
            if (!w->err)
                w->got[i] += (unsigned)m.len;
            else if (tws_err_is_final(w->err))
                w->items[i] = (tws_wait_item){.conn = NULL}; /* harmless */
            else if (w->err != TWS_ERR_TIMEOUT)
                return;
        }
    }
    w->err = TWS_OK;
}

static void test_many(void **state)
{
    struct crowd_of *w = crowd_open(MANY);
    struct job j;

    (void)state;
    job_start(&j, &w->p, serve_all, w);
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < MANY; i += (size_t)round + 1)
            assert_ok(tws_write_text(w->client[i], "12345"));
        for (size_t i = 0; i < MANY; i += 17)
            assert_ok(tws_ping(w->client[i], "p", 1));
    }
    for (size_t i = 0; i < 10; i++)
        tws_abort(w->client[i]);
    assert_int_equal(write(w->pipe[1], "x", 1), 1);
    job_join(&j);
    assert_ok(w->err);
    /* What had come when the pipe was seen has been read. */
    for (size_t i = 0; i < MANY; i++)
        assert_in_range(w->got[i], 5, 15);
    crowd_close(w);
}

static void wait_once(void *arg)
{
    struct crowd_of *w = arg;

    w->err = tws_wait_any(w->items, MANY + 1, w->ms, &w->ready);
}

/* ---- Ends ---- */

static void test_closed_by_other_thread(void **state)
{
    (void)state;
    for (int how = 0; how < 3; how++) {
        struct crowd_of *w = crowd_open(3);
        struct job j;

        job_start(&j, &w->p, wait_once, w);
        WAIT_FOR(support_watched(w->server[2]));
        if (how == 0)
            assert_ok(tws_close_start(w->server[1], 1000, NULL));
        else
            tws_abort(how == 1 ? w->server[1] : w->client[1]);
        job_join(&j);
        assert_ok(w->err);
        assert_int_equal(w->ready, 1);
        assert_true(w->items[1].ready);
        assert_false(support_watched(w->server[0]) || support_watched(w->server[2]));
        crowd_close(w);
    }
}

static void test_limits(void **state)
{
    struct crowd_of *w = crowd_open(3);

    (void)state;
    w->ms = TWS_NOWAIT;
    job_run(&w->p, wait_once, w);
    assert_err(w->err, TWS_ERR_TIMEOUT);
    w->ms = 30;
    job_run(&w->p, wait_once, w);
    assert_err(w->err, TWS_ERR_TIMEOUT);
    assert_int_equal(w->ready, 0);
    /* The pipe twice, for different events, and a connection twice. */
    w->items[3] = (tws_wait_item){.fd = w->pipe[0], .events = POLLPRI};
    w->items[4] = w->items[0];
    job_run(&w->p, wait_once, w);
    assert_err(w->err, TWS_ERR_TIMEOUT);
    w->ms = 0;
    struct job j;
    job_start(&j, &w->p, wait_once, w);
    WAIT_FOR(support_watched(w->server[2]));
    assert_int_equal(write(w->pipe[1], "x", 1), 1);
    job_join(&j);
    assert_ok(w->err);
    assert_int_equal(w->ready, 1);
    assert_true(w->items[MANY].ready);
    crowd_close(w);
}

/* ---- Wakes are not lost ---- */

struct race {
    struct crowd_of *w;
    unsigned sent;
};

static void send_main(void *arg)
{
    struct race *r = arg;

    for (unsigned i = 0; i < 2000; i++) {
        if (tws_write_text(r->w->client[i % 4], "x"))
            break;
        r->sent++;
        if (i % 64 == 0)
            tws_sleep(1);
    }
}

static void test_no_wake_is_lost(void **state)
{
    struct crowd_of *w = crowd_open(4);
    struct race r = {.w = w};
    struct job serving, sending;
    unsigned got = 0;

    (void)state;
    job_start(&serving, &w->p, serve_all, w);
    job_start(&sending, &w->p, send_main, &r);
    job_join(&sending);
    for (int i = 0; i < 4; i++) /* the last of each connection */
        assert_ok(tws_close_start(w->client[i], 1000, NULL));
    WAIT_FOR(conn_state(w->server[0]) != CONN_OPEN && conn_state(w->server[1]) != CONN_OPEN &&
             conn_state(w->server[2]) != CONN_OPEN && conn_state(w->server[3]) != CONN_OPEN);
    assert_int_equal(write(w->pipe[1], "x", 1), 1);
    job_join(&serving);
    assert_ok(w->err);
    for (int i = 0; i < 4; i++)
        got += w->got[i];
    assert_int_equal(r.sent, 2000);
    assert_int_equal(got, 2000);
    crowd_close(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_closed_by_other_thread),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_no_wake_is_lost),
    };

    return cmocka_run_group_tests_name("wait_many", tests, NULL, NULL);
}
