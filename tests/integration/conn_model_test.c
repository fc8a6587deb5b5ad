/*
 * Long random sequences of calls on one connection against a model: what each may return, which bytes
 * it has to show, what the peer has to get and in which order. Nothing in it waits: time runs out at
 * every byte. Then the same with a second thread that writes, changes modes and closes.
 */
#include "support_model.h"

#include <stdlib.h>

#define STEPS 600
#define SLOW 100 /* steps in which the peer takes nothing, every other time */
#define RUNS 10  /* of each kind */

static uint64_t total_steps;

/* ---- All of it ---- */

/* Inside a read: reading is refused, all else goes on. */
static bool on_ping(tws_conn *c, const void *data, size_t len, void *arg)
{
    struct run *r = arg;
    tws_wait_item item = {.conn = c};
    tws_message m = r->shown;

    (void)data;
    (void)len;
    if (tws_read_message(c, &m) == TWS_OK || tws_wait_any(&item, 1, TWS_NOWAIT, NULL) == TWS_OK ||
        tws_message_take(c, &m) == TWS_OK || tws_stream_join(c, "x") == TWS_OK)
        model_wrong(&r->m, "a handler could read");
    model_write_some(r);
    return model_random(&r->m, 2);
}

/* At times the peer takes nothing for a while. */
static void drain(struct run *r)
{
    if (r->m.steps / SLOW % 2 == 0)
        model_drain(&r->m);
}

static void step(struct run *r)
{
    uint32_t what = model_random(&r->m, 100);

    r->m.steps++;
    if (what < 25)
        model_feed(&r->m);
    else if (what < 37)
        drain(r);
    else if (what < 65)
        model_read_some(r);
    else if (what < 70)
        model_wait_any(r);
    else if (what < 75)
        model_take(r);
    else if (what < 77)
        model_stream_join(r);
    else if (what < 79)
        model_set_limit(r);
    else if (what < 80)
        model_again(r, tws_set_compression(r->m.c, (tws_compression)model_random(&r->m, 3)));
    else
        model_write_some(r);
    model_look(r);
}

/* All that was sent comes, and then the close frame. */
static void read_to_the_end(struct run *r)
{
    static const uint8_t normal[] = {0x03, 0xe8};

    r->peer_closes = true;
    model_control(&r->m, CLIENT_CLOSE, normal, sizeof normal);
    for (long i = 0; i < 1000000 && !r->m.fault && !r->end; i++) {
        model_feed_rest(&r->m);
        model_drain(&r->m);
        model_read_some(r);
    }
    if (!r->m.fault && !r->end)
        model_wrong(&r->m, "not everything came");
    if (r->end == TWS_ERR_PEER_CLOSED && model_messages_in(r) != r->m.sent_count)
        model_wrong(&r->m, "messages before the close frame did not come");
}

static void finish(struct run *r)
{
    uint32_t how = model_random(&r->m, 4);

    if (!r->end && how == 0) {
        read_to_the_end(r);
    } else if (how == 1) {
        r->closing = true;
        tws_close_start(r->m.c, 1000, "over");
        for (int i = 0; i < 20; i++)
            step(r);
    } else if (how == 2) {
        model_feed(&r->m);
        model_read_whole(r);
        model_feed(&r->m);
        r->closing = true;
        tws_close(r->m.c, 1000, NULL);
        model_look(r);
        model_take(r);
    }
    r->closing = true;
    tws_abort(r->m.c);
    if (r->writer && tws_writer_close(r->writer) == TWS_OK)
        model_wrong(&r->m, "a writer was closed on a connection that is over");
    if (r->writer)
        r->open->lost = true;
    while (!r->m.ended && !r->m.fault)
        model_drain(&r->m);
    for (size_t i = 0; i < TAKEN; i++)
        tws_message_free(&r->taken[i]);
}

static void run_main(void *arg)
{
    struct run *r = arg;

    tws_set_timeout(r->m.c, TWS_TIMEOUT_READ, TWS_NOWAIT);
    tws_set_timeout(r->m.c, TWS_TIMEOUT_WRITE, TWS_NOWAIT);
    tws_set_ping_handler(r->m.c, on_ping, r);
    for (int i = 0; i < STEPS && !r->m.fault && !r->end && !r->closing; i++)
        step(r);
    finish(r);
}

static bool all_told(const struct run *r)
{
    for (size_t i = 0; i < r->m.written_count; i++)
        if (atomic_load(&r->m.written[i].told) != r->m.written[i].wants_told)
            return false;
    return true;
}

/* What was told to have left has come, and nothing else. */
static void compare_written(struct run *r)
{
    for (size_t i = 0; i < r->m.written_count; i++) {
        const struct model_message *one = &r->m.written[i];
        bool left = one->wants_told ? atomic_load(&one->result) == TWS_OK : !one->lost;

        if (left && !one->seen)
            model_wrong(&r->m, "what was written has not come");
        if (!left && one->seen)
            model_wrong(&r->m, "what was not written has come");
    }
}

static void run(uint64_t seed, bool server, int deflate, bool others)
{
    static struct run r;
    static struct beside b;

    memset(&r, 0, sizeof r);
    model_open(&r.m, seed, server, deflate);
    if (others)
        beside_start(&b, &r, seed);
    job_run(&r.m.pair, run_main, &r);
    if (others) {
        atomic_store(&b.stop, true);
        job_join(&b.job);
    }
    if (!r.m.fault) {
        WAIT_FOR(all_told(&r) && (!others || beside_told(&b)));
        compare_written(&r);
        if (others)
            beside_compare(&b, &r.m);
    }
    if (r.m.fault)
        fail_msg("seed %llu, %s, deflate %d, step %llu: %s", (unsigned long long)seed,
                 server ? "server" : "client", deflate, (unsigned long long)r.m.steps, r.m.fault);
    total_steps += r.m.steps + (others ? b.count : 0);
    model_close(&r.m);
}

static void runs(bool server, bool others)
{
    const char *first = getenv("TWS_MODEL_SEED"), *count = getenv("TWS_MODEL_RUNS");
    uint64_t seed = first ? strtoull(first, NULL, 10) : 1;
    uint64_t end = seed + (count ? strtoull(count, NULL, 10) : RUNS);

    for (; seed < end; seed++)
        for (int deflate = 0; deflate < 3; deflate++)
            run(seed, server, deflate, others);
}

static void test_server(void **state)
{
    (void)state;
    runs(true, false);
}

static void test_client(void **state)
{
    (void)state;
    runs(false, false);
}

static void test_beside_another_thread(void **state)
{
    (void)state;
    runs(true, true);
    runs(false, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_server),
        cmocka_unit_test(test_client),
        cmocka_unit_test(test_beside_another_thread),
    };
    int failed = cmocka_run_group_tests_name("conn_model", tests, NULL, NULL);

    if (getenv("TWS_MODEL_RUNS"))
        print_message("%llu steps\n", (unsigned long long)total_steps);
    return failed;
}
