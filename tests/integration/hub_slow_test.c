/*
 * Members that read nothing, or little, among others that read everything: each policy does to the
 * slow ones what its name says, and the others do not notice. A short form of bench/hub.
 */
#include "party.h"

#include <stdlib.h>

enum { MEMBERS = 60, MUTE = 6, SLOW = 6, MESSAGES = 250, LEN = 4000, QUEUE_BYTES = 100000 };

struct run {
    struct party p;
    tws_publish_result sum;
    uint64_t most_queued;
};

/* The first MUTE members read nothing, the next SLOW little. */
static void open_run(struct run *run, tws_queue_policy policy, tws_writer_mode writer)
{
    tws_server_options opt;

    memset(run, 0, sizeof *run);
    party_options(&opt, &run->p);
    opt.upgrade.conn.queue.policy = policy;
    opt.upgrade.conn.queue.writer = writer;
    opt.upgrade.conn.queue.max_bytes = QUEUE_BYTES;
    opt.upgrade.conn.close_timeout = 1000;
    party_open(&run->p, MEMBERS, &opt, NULL);
    party_join_all(&run->p, "room");
    for (size_t i = 0; i < MUTE + SLOW; i++)
        crowd_pace(run->p.crowd, i, i < MUTE ? 0 : 10000);
}

/* Publishes as fast as the healthy ones read: all of them have each message before the next but
 * some, so that none of their queues is ever full. */
static void publish_all(struct run *run)
{
    struct party *p = &run->p;

    for (uint32_t i = 0; i < MESSAGES; i++) {
        tws_publish_result r;

        assert_ok(party_publish(p, "room", (struct party_note){0, i}, LEN, &r));
        run->sum.sent += r.sent;
        run->sum.queued += r.queued;
        run->sum.dropped += r.dropped;
        run->sum.failed += r.failed;
        assert_int_equal(r.skipped, 0);
        for (size_t k = 0; k < MEMBERS; k++) {
            tws_queue_stats st;

            tws_queue_get_stats(p->conns[k], &st);
            assert_true(st.bytes <= QUEUE_BYTES);
            if (k >= MUTE + SLOW)
                WAIT_FOR(atomic_load(&p->logs[k].count) + 10 > i);
        }
    }
    for (size_t k = MUTE + SLOW; k < MEMBERS; k++) {
        WAIT_FOR(atomic_load(&p->logs[k].count) == MESSAGES);
        assert_true(party_complete(p, k, 1, MESSAGES));
    }
}

static tws_queue_stats queue_of(const struct run *run, size_t member)
{
    tws_queue_stats st;

    tws_queue_get_stats(run->p.conns[member], &st);
    return st;
}

/* Only slow peers have a writer, and only as long as they are slow. */
static void check_writers(const struct run *run, bool mute_have_one)
{
    for (size_t i = 0; i < MUTE; i++)
        assert_int_equal(queue_of(run, i).writer_running, mute_have_one);
    for (size_t i = MUTE + SLOW; i < MEMBERS; i++)
        WAIT_FOR(!queue_of(run, i).writer_running);
}

/* In order, each at most once. */
static void check_rising(const struct run *run, size_t member)
{
    const struct party_log *l = &run->p.logs[member];

    assert_false(l->torn);
    for (size_t i = 1; i < atomic_load(&l->count); i++)
        assert_true(l->notes[i].number > l->notes[i - 1].number);
}

static bool numbers_are(const struct run *run, size_t member, uint32_t first, uint32_t from,
                        uint32_t to)
{
    const struct party_log *l = &run->p.logs[member];

    for (uint32_t n = from; n < to; n++)
        if (l->notes[first + n - from].number != n)
            return false;
    return true;
}

static void let_all_read(struct run *run)
{
    for (size_t i = 0; i < MUTE + SLOW; i++)
        crowd_pace(run->p.crowd, i, CROWD_ALL);
}

/* The default: who does not keep up is closed with 1013, and the reason says why. */
static void test_close(void **state)
{
    struct run run;

    (void)state;
    open_run(&run, TWS_QUEUE_CLOSE, TWS_WRITER_DEMAND);
    publish_all(&run);
    assert_true(run.sum.failed >= MUTE);
    assert_int_equal(run.sum.dropped, 0);
    let_all_read(&run);
    for (size_t i = 0; i < MUTE; i++) {
        tws_error e;

        assert_int_equal(queue_of(&run, i).overflows, 1);
        assert_int_equal(queue_of(&run, i).bytes, 0);
        WAIT_FOR((tws_conn_error(run.p.conns[i], &e), e.code == TWS_ERR_OVERFLOW));
        assert_int_equal(e.close_code, 1013);
        WAIT_FOR(crowd_look(run.p.crowd, i).end != CROWD_OPEN);
        check_rising(&run, i);
        assert_true(numbers_are(&run, i, 0, 0, (uint32_t)run.p.logs[i].count));
    }
    WAIT_FOR(tws_hub_count(run.p.hub, "room") <= MEMBERS - MUTE);
    check_writers(&run, false);
    party_close(&run.p);
}

/* What is new is not taken: the oldest stay, and come when the peer reads. */
static void test_drop_newest(void **state)
{
    struct run run;

    (void)state;
    open_run(&run, TWS_QUEUE_DROP_NEWEST, TWS_WRITER_DEMAND);
    publish_all(&run);
    assert_true(run.sum.dropped > 0);
    assert_int_equal(run.sum.failed, 0);
    check_writers(&run, true);
    let_all_read(&run);
    assert_ok(tws_queue_wait(run.p.conns[0], SUPPORT_HANG_MS));
    assert_ok(party_publish(&run.p, "room", (struct party_note){1, MESSAGES}, LEN, NULL));
    for (size_t i = 0; i < MUTE; i++) {
        tws_queue_stats st = queue_of(&run, i);
        size_t had = (size_t)st.accepted;

        if (i == 0)
            assert_int_equal(st.dropped_newest, MESSAGES + 1 - st.accepted);
        WAIT_FOR(atomic_load(&run.p.logs[i].count) == had);
        check_rising(&run, i);
        /* None is missing before the queue was full; later the socket may have taken some more. */
        assert_true(numbers_are(&run, i, 0, 0, QUEUE_BYTES / LEN));
    }
    party_close(&run.p);
}

/* What is old makes room: the newest come when the peer reads. */
static void test_drop_oldest(void **state)
{
    struct run run;

    (void)state;
    open_run(&run, TWS_QUEUE_DROP_OLDEST, TWS_WRITER_DEMAND);
    publish_all(&run);
    assert_int_equal(run.sum.dropped + run.sum.failed, 0);
    assert_int_equal(run.sum.sent + run.sum.queued, MEMBERS * MESSAGES);
    check_writers(&run, true);
    let_all_read(&run);
    for (size_t i = 0; i < MUTE; i++) {
        tws_queue_stats st = queue_of(&run, i);
        uint32_t kept = QUEUE_BYTES / LEN - 1; /* one may be on its way, half sent */

        assert_true(st.dropped_oldest > 0);
        assert_ok(tws_queue_wait(run.p.conns[i], SUPPORT_HANG_MS));
        WAIT_FOR(atomic_load(&run.p.logs[i].count) == MESSAGES - st.dropped_oldest);
        check_rising(&run, i);
        assert_true(
            numbers_are(&run, i, (uint32_t)run.p.logs[i].count - kept, MESSAGES - kept, MESSAGES));
    }
    party_close(&run.p);
}

/* A publisher does not wait, whatever the policy: it drops. */
static void test_wait(void **state)
{
    struct run run;

    (void)state;
    open_run(&run, TWS_QUEUE_WAIT, TWS_WRITER_DEMAND);
    for (size_t i = 0; i < MEMBERS; i++) {
        tws_queue_options opt;

        tws_get_queue(run.p.conns[i], &opt);
        opt.wait = 0; /* for ever */
        assert_ok(tws_set_queue(run.p.conns[i], &opt));
    }
    publish_all(&run);
    assert_true(run.sum.dropped > 0);
    assert_int_equal(run.sum.failed, 0);
    for (size_t i = 0; i < MUTE; i++)
        assert_true(queue_of(&run, i).wait_timeouts > 0);
    check_writers(&run, true);
    party_close(&run.p);
}

/* Without a writer each message is tried once. */
static void test_no_writer(void **state)
{
    struct run run;

    (void)state;
    open_run(&run, TWS_QUEUE_CLOSE, TWS_WRITER_NONE);
    for (uint32_t i = 0; i < MESSAGES; i++) {
        tws_publish_result r;

        assert_ok(party_publish(&run.p, "room", (struct party_note){0, i}, LEN, &r));
        run.sum.dropped += r.dropped;
        assert_int_equal(r.failed, 0);
    }
    assert_true(run.sum.dropped > 0);
    let_all_read(&run);
    for (size_t i = 0; i < MEMBERS; i++) {
        WAIT_FOR(queue_of(&run, i).messages == 0);
        WAIT_FOR(atomic_load(&run.p.logs[i].count) == queue_of(&run, i).sent);
        check_rising(&run, i);
    }
    party_close(&run.p);
}

/* With resident ones everybody has one, and everything arrives. */
static void test_resident(void **state)
{
    struct run run;

    (void)state;
    open_run(&run, TWS_QUEUE_DROP_OLDEST, TWS_WRITER_RESIDENT);
    publish_all(&run);
    for (size_t i = 0; i < MEMBERS; i++)
        assert_true(queue_of(&run, i).writer_running);
    party_close(&run.p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_close),       cmocka_unit_test(test_drop_newest),
        cmocka_unit_test(test_drop_oldest), cmocka_unit_test(test_wait),
        cmocka_unit_test(test_no_writer),   cmocka_unit_test(test_resident),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
