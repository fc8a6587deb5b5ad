/*
 * Joins, leaves, closes, publishes, visits and drains all at once, for ThreadSanitizer; and every
 * completion of every publish comes once, whatever ends a connection in the middle of it (B126: nothing
 * is sent to a connection that has ended, nor to another that has taken its place).
 */
#include "party.h"

#include <stdlib.h>

#include "unit/rng.h"

/* Races are what the rounds are for: all of them where they are watched for. */
#if defined(__SANITIZE_THREAD__)
#define ROUNDS 1000
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define ROUNDS 1000
#endif
#endif
#ifndef ROUNDS
#define ROUNDS 200
#endif

/* ---- Completions ---- */

/* One publish, or one queued write. */
struct receipt {
    uint64_t expected;
    _Atomic uint64_t came, ok, wrong;
};

static void completed(tws_conn *c, tws_err result, void *arg)
{
    struct receipt *r = arg;

    (void)c;
    if (result == TWS_OK)
        atomic_fetch_add(&r->ok, 1);
    else if (!tws_err_is_final(result) && result != TWS_ERR_DROPPED)
        atomic_fetch_add(&r->wrong, 1);
    atomic_fetch_add(&r->came, 1);
}

static bool all_came(struct receipt *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (atomic_load(&list[i].came) < list[i].expected)
            return false;
    return true;
}

static void check_receipts(struct receipt *list, size_t count)
{
    WAIT_FOR(all_came(list, count));
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(atomic_load(&list[i].came), list[i].expected);
        assert_int_equal(atomic_load(&list[i].wrong), 0);
    }
}

static tws_err publish_with_receipt(tws_hub *h, const char *room, size_t len, struct receipt *r)
{
    static const char zeros[8192];
    tws_publish_options how;
    tws_publish_result result;
    tws_prepared *m;
    tws_err err = tws_prepared_new(&m, TWS_BINARY, zeros, len);

    if (err)
        return err;
    tws_publish_options_init(&how);
    how.done = completed;
    how.done_arg = r;
    err = tws_hub_publish(h, room, m, &how, &result);
    r->expected = result.sent + result.queued;
    tws_prepared_unref(m);
    return err;
}

/* ---- Everything at once ---- */

enum { CROWD = 40, ACTORS = 6, RECEIPTS = 400 };

struct scene {
    struct party p;
    _Atomic bool stop;
    _Atomic unsigned wrong;
};

struct actor {
    pthread_t thread;
    struct scene *scene;
    struct rng rng;
    struct receipt receipts[RECEIPTS];
    size_t published;
};

static const char *any_room(struct actor *a, bool or_all)
{
    static const char *const rooms[] = {"a", "b", "", NULL};

    return rooms[rng_below(&a->rng, or_all ? 4 : 3)];
}

static void *publishes(void *arg)
{
    struct actor *a = arg;

    while (!atomic_load(&a->scene->stop) && a->published < RECEIPTS) {
        struct receipt *r = &a->receipts[a->published++];
        size_t len = 8 + rng_below(&a->rng, 8000);

        if (publish_with_receipt(a->scene->p.hub, any_room(a, true), len, r))
            atomic_fetch_add(&a->scene->wrong, 1);
    }
    return NULL;
}

static void *moves(void *arg)
{
    struct actor *a = arg;
    tws_hub *h = a->scene->p.hub;

    while (!atomic_load(&a->scene->stop)) {
        tws_conn *c = a->scene->p.conns[rng_below(&a->rng, CROWD)];
        size_t what = rng_below(&a->rng, 8);
        tws_err err = TWS_OK;

        if (what < 4)
            err = tws_hub_join(h, c, any_room(a, false));
        else if (what < 7)
            err = tws_hub_leave(h, c, any_room(a, false));
        else
            tws_hub_leave_all(h, c);
        if (err && err != TWS_ERR_STATE && !tws_err_is_final(err))
            atomic_fetch_add(&a->scene->wrong, 1);
    }
    return NULL;
}

static bool count_member(tws_conn *c, void *arg)
{
    *(size_t *)arg += tws_conn_id(c) > 0;
    return true;
}

static bool count_room(const char *room, size_t members, void *arg)
{
    *(size_t *)arg += members > 0 && room[0] != 'x';
    return true;
}

static void *visits(void *arg)
{
    struct actor *a = arg;
    tws_hub *h = a->scene->p.hub;

    while (!atomic_load(&a->scene->stop)) {
        size_t members = 0, rooms = 0;
        tws_hub_stats st;

        if (tws_hub_each(h, any_room(a, true), count_member, &members) != members ||
            members > CROWD || tws_hub_rooms(h, count_room, &rooms) != rooms || rooms > 3 ||
            tws_hub_count(h, any_room(a, true)) > CROWD)
            atomic_fetch_add(&a->scene->wrong, 1);
        tws_hub_get_stats(h, &st);
        if (st.members > CROWD || st.joined > 3 * CROWD || st.rooms > 3)
            atomic_fetch_add(&a->scene->wrong, 1);
    }
    return NULL;
}

/* Ends one connection after the other, in whatever way. */
static void *ends(void *arg)
{
    struct actor *a = arg;
    struct party *p = &a->scene->p;

    for (size_t i = 0; i < CROWD - 5; i++) {
        switch (i % 4) {
        case 0:
            crowd_leave(p->crowd, i, true);
            break;
        case 1:
            tws_abort(p->conns[i]);
            break;
        case 2:
            tws_close_start(p->conns[i], 1000, "enough");
            break;
        default:
            crowd_leave(p->crowd, i, false);
        }
        tws_sleep((tws_ms)rng_below(&a->rng, 3));
    }
    return NULL;
}

static void play(unsigned seed)
{
    static void *(*const parts[ACTORS])(void *) = {publishes, publishes, moves,
                                                   moves,     visits,    ends};
    struct scene *s = support_alloc(sizeof *s);
    struct actor *actors = support_alloc(ACTORS * sizeof *actors);
    tws_hub_options hub;

    memset(s, 0, sizeof *s);
    memset(actors, 0, ACTORS * sizeof *actors);
    tws_hub_options_init(&hub);
    hub.workers = (int)(seed % 3);
    hub.spread = 10;
    party_open(&s->p, CROWD, NULL, &hub);
    for (size_t i = 0; i < CROWD; i += 3)
        crowd_pace(s->p.crowd, i, i % 2 ? 0 : 100000);
    for (unsigned i = 0; i < ACTORS; i++) {
        actors[i].scene = s;
        actors[i].rng.state = seed * 100 + i + 1;
        support_thread(&actors[i].thread, parts[i], &actors[i]);
    }
    pthread_join(actors[ACTORS - 1].thread, NULL);
    tws_server_drain(s->p.s.server, 20); /* while they publish, join and leave */
    atomic_store(&s->stop, true);
    for (unsigned i = 0; i < ACTORS - 1; i++)
        pthread_join(actors[i].thread, NULL);
    assert_int_equal(atomic_load(&s->wrong), 0);
    for (unsigned i = 0; i < 2; i++)
        check_receipts(actors[i].receipts, actors[i].published);
    WAIT_FOR(tws_hub_count(s->p.hub, NULL) == 0);
    party_close(&s->p);
    free(actors);
    free(s);
}

static void test_everything_at_once(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= ROUNDS / 100; seed++)
        play(seed);
}

/* ---- Ended in the middle of a publish ---- */

struct round {
    struct party *p;
    size_t first, last; /* clients of this round */
    _Atomic bool stop;
    struct receipt receipts[60];
    size_t used;
    _Atomic unsigned published;
};

static void *publish_round(void *arg)
{
    struct round *r = arg;
    size_t most = sizeof r->receipts / sizeof *r->receipts;

    while (!atomic_load(&r->stop) && r->used + 2 <= most) {
        struct receipt *one = &r->receipts[r->used++];
        struct receipt *two = &r->receipts[r->used++];

        publish_with_receipt(r->p->hub, "room", 3000, one);
        two->expected =
            tws_write_async(r->p->conns[r->first], TWS_TEXT, "queued", 6, completed, two) == TWS_OK;
        atomic_fetch_add(&r->published, 1);
    }
    return NULL;
}

static void end_in_the_middle(struct round *r, size_t number)
{
    tws_conn *c = r->p->conns[r->first];

    WAIT_FOR(atomic_load(&r->published) >= number % 3);
    switch (number % 5) {
    case 0:
        tws_abort(c);
        break;
    case 1:
        tws_close_start(c, 1000, NULL);
        break;
    case 2:
        crowd_leave(r->p->crowd, r->first, true);
        break;
    case 3:
        crowd_leave(r->p->crowd, r->first, false);
        break;
    default:
        tws_close(c, 1001, "closed");
    }
}

/* Each round ends one of the members in another way, while messages go out and some wait. */
static void test_every_completion_once(void **state)
{
    enum { PER_PARTY = 100 };

    (void)state;
    for (int left = ROUNDS; left > 0; left -= PER_PARTY) {
        tws_server_options opt;
        struct party p;

        party_options(&opt, &p);
        opt.upgrade.conn.close_timeout = 50; /* for those that read nothing */
        party_open(&p, PER_PARTY + 1, &opt, NULL);
        assert_ok(tws_hub_join(p.hub, p.conns[PER_PARTY], "room"));
        for (size_t i = 0; i < PER_PARTY; i++) {
            struct round r = {.p = &p, .first = i};
            pthread_t publisher;

            if (i % 2)
                crowd_pace(p.crowd, i, 0);
            assert_ok(tws_hub_join(p.hub, p.conns[i], "room"));
            support_thread(&publisher, publish_round, &r);
            end_in_the_middle(&r, i);

            WAIT_FOR(tws_hub_count(p.hub, "room") == 1);
            atomic_store(&r.stop, true);
            pthread_join(publisher, NULL);
            check_receipts(r.receipts, r.used);
        }
        party_close(&p);
    }
}

/* The same with a drain, or with the end of the whole server. */
static void test_drain_in_the_middle(void **state)
{
    (void)state;
    for (int number = 0; number < ROUNDS / 20; number++) {
        struct party p;
        struct round r = {.p = &p};
        pthread_t publisher;

        party_open(&p, 6, NULL, NULL);
        party_join_all(&p, "room");
        for (size_t i = 0; i < 3; i++)
            crowd_pace(p.crowd, i, 0);
        support_thread(&publisher, publish_round, &r);
        WAIT_FOR(atomic_load(&r.published) >= (unsigned)number % 4);
        if (number % 2)
            tws_server_drain(p.s.server, number % 4 == 1 ? TWS_NOWAIT : 20);
        else
            party_end_server(&p);
        atomic_store(&r.stop, true);
        pthread_join(publisher, NULL);
        check_receipts(r.receipts, r.used);
        party_close(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_everything_at_once),
        cmocka_unit_test(test_every_completion_once),
        cmocka_unit_test(test_drain_in_the_middle),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
