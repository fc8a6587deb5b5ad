/* Who is in which room: joining, leaving, counting, limits, and leaving by itself. */
#include "party.h"

#include <stdio.h>
#include <stdlib.h>

#include "hub/hub.h"

static tws_hub_stats stats_of(tws_hub *h)
{
    tws_hub_stats st;

    tws_hub_get_stats(h, &st);
    return st;
}

/* ---- Names ---- */

struct names {
    char seen[16][600];
    size_t members[16], count, stop_at;
};

static bool note_name(const char *room, size_t members, void *arg)
{
    struct names *n = arg;

    snprintf(n->seen[n->count], sizeof n->seen[0], "%s", room);
    n->members[n->count++] = members;
    return n->count != n->stop_at;
}

static size_t members_of(const struct names *n, const char *room)
{
    for (size_t i = 0; i < n->count; i++)
        if (strcmp(n->seen[i], room) == 0)
            return n->members[i];
    return 0;
}

/* Any string is a room of its own, however like another it looks. */
static void test_names(void **state)
{
    static char long_name[512];
    const char *rooms[] = {"", " ", "a", "A", "a ", "ab", "a/b", "\xff\x01", "räume", long_name};
    enum { ROOMS = sizeof rooms / sizeof *rooms };
    struct names n = {.count = 0};
    struct party p;

    (void)state;
    memset(long_name, 'x', sizeof long_name - 1);
    party_open(&p, 2, NULL, NULL);
    assert_int_equal(tws_hub_rooms(p.hub, note_name, &n), 0);
    for (int i = 0; i < ROOMS; i++) {
        assert_int_equal(tws_hub_count(p.hub, rooms[i]), 0);
        assert_ok(tws_hub_join(p.hub, p.conns[0], rooms[i]));
        assert_int_equal(tws_hub_count(p.hub, rooms[i]), 1);
        assert_ok(tws_hub_join(p.hub, p.conns[0], rooms[i])); /* again: nothing changes */
        assert_int_equal(tws_hub_count(p.hub, rooms[i]), 1);
    }
    assert_ok(tws_hub_join(p.hub, p.conns[1], "a"));
    assert_int_equal(tws_hub_rooms(p.hub, note_name, &n), ROOMS);
    for (int i = 0; i < ROOMS; i++)
        assert_int_equal(members_of(&n, rooms[i]), strcmp(rooms[i], "a") == 0 ? 2 : 1);
    n = (struct names){.stop_at = 3};
    assert_int_equal(tws_hub_rooms(p.hub, note_name, &n), 3);
    assert_int_equal(tws_hub_count(p.hub, NULL), 2);
    assert_int_equal(stats_of(p.hub).rooms, ROOMS);
    assert_int_equal(stats_of(p.hub).members, 2);
    assert_int_equal(stats_of(p.hub).joined, ROOMS + 1);
    assert_ok(tws_hub_leave(p.hub, p.conns[0], ""));
    assert_err(tws_hub_leave(p.hub, p.conns[0], ""), TWS_ERR_STATE);
    assert_err(tws_hub_leave(p.hub, p.conns[1], "nobody is here"), TWS_ERR_STATE);
    assert_err(tws_hub_leave(p.hub, p.conns[1], "ab"), TWS_ERR_STATE);
    assert_int_equal(tws_hub_leave_all(p.hub, p.conns[0]), ROOMS - 1);
    assert_int_equal(tws_hub_leave_all(p.hub, p.conns[0]), 0);
    assert_int_equal(stats_of(p.hub).rooms, 1); /* an empty room is none */
    assert_int_equal(tws_hub_count(p.hub, NULL), 1);
    assert_ok(tws_hub_leave(p.hub, p.conns[1], "a"));
    assert_int_equal(stats_of(p.hub).rooms, 0);
    assert_int_equal(stats_of(p.hub).members, 0);
    party_close(&p);
}

static void test_arguments(void **state)
{
    tws_hub_options opt;
    tws_publish_options how;
    tws_prepared *m;
    struct party p;

    (void)state;
    tws_hub_options_init(&opt);
    opt.max_rooms = 2;
    opt.max_joined = 2;
    party_open(&p, 2, NULL, &opt);
    assert_err(tws_hub_join(p.hub, p.conns[0], NULL), TWS_ERR_ARGUMENT);
    assert_err(tws_hub_leave(p.hub, p.conns[0], NULL), TWS_ERR_ARGUMENT);
    assert_err(tws_hub_publish(p.hub, "a", NULL, NULL, NULL), TWS_ERR_ARGUMENT);
    assert_ok(tws_prepared_new(&m, TWS_TEXT, "m", 1));
    memset(&how, 0, sizeof how);
    assert_err(tws_hub_publish(p.hub, "a", m, &how, NULL), TWS_ERR_ARGUMENT); /* no size */
    tws_publish_options_init(&how);
    assert_ok(tws_hub_publish(p.hub, "a", m, &how, NULL));
    tws_prepared_unref(m);
    assert_err(tws_hub_publish_message(p.hub, "a", TWS_TEXT, "\xff", 1, NULL, NULL), TWS_ERR_TEXT);
    assert_err(tws_hub_publish_message(p.hub, "a", 7, "m", 1, NULL, NULL), TWS_ERR_ARGUMENT);
    assert_ok(tws_hub_join(p.hub, p.conns[0], "a"));
    assert_ok(tws_hub_join(p.hub, p.conns[0], "b"));
    assert_err(tws_hub_join(p.hub, p.conns[1], "c"), TWS_ERR_STATE); /* max_rooms */
    assert_err(tws_hub_join(p.hub, p.conns[0], "c"), TWS_ERR_STATE);
    assert_ok(tws_hub_join(p.hub, p.conns[1], "b"));
    assert_ok(tws_hub_leave(p.hub, p.conns[0], "a"));
    assert_ok(tws_hub_join(p.hub, p.conns[1], "c"));
    assert_err(tws_hub_join(p.hub, p.conns[1], "c2"), TWS_ERR_STATE);
    assert_int_equal(stats_of(p.hub).rooms, 2);
    party_close(&p);
    memset(&opt, 0, sizeof opt);
    assert_err(tws_hub_new(&p.hub, &opt), TWS_ERR_ARGUMENT);
    tws_hub_options_init(&opt);
    opt.workers = -2;
    assert_err(tws_hub_new(&p.hub, &opt), TWS_ERR_ARGUMENT);
    assert_null(p.hub);
    tws_hub_free(NULL);
}

static void test_max_joined(void **state)
{
    tws_hub_options opt;
    char room[32];
    struct party p;

    (void)state;
    tws_hub_options_init(&opt);
    assert_int_equal(opt.max_joined, 1024);
    opt.max_joined = 3;
    party_open(&p, 1, NULL, &opt);
    for (int i = 0; i < 5; i++) {
        snprintf(room, sizeof room, "room %d", i);
        assert_err(tws_hub_join(p.hub, p.conns[0], room), i < 3 ? TWS_OK : TWS_ERR_STATE);
    }
    assert_int_equal(stats_of(p.hub).rooms, 3); /* a join that failed leaves no room behind */
    assert_ok(tws_hub_leave(p.hub, p.conns[0], "room 1"));
    assert_ok(tws_hub_join(p.hub, p.conns[0], "room 4"));
    party_close(&p);
}

/* ---- Visiting ---- */

struct visit {
    struct party *p;
    unsigned seen[200];
    size_t count, stop_at;
    bool moves;
};

static bool visit_one(tws_conn *c, void *arg)
{
    struct visit *v = arg;

    for (size_t i = 0; i < v->p->count; i++)
        v->seen[i] += v->p->conns[i] == c;
    if (v->moves) { /* leaves and comes back, which must not bring it here again */
        tws_hub_leave(v->p->hub, c, "room");
        tws_hub_join(v->p->hub, c, "room");
        tws_hub_join(v->p->hub, c, "another");
    }
    return ++v->count != v->stop_at;
}

static void test_each(void **state)
{
    struct visit v;
    struct party p;

    (void)state;
    party_open(&p, 200, NULL, NULL);
    memset(&v, 0, sizeof v);
    v.p = &p;
    assert_int_equal(tws_hub_each(p.hub, "room", visit_one, &v), 0);
    for (size_t i = 0; i < p.count; i += 2)
        assert_ok(tws_hub_join(p.hub, p.conns[i], "room"));
    for (int moves = 0; moves <= 1; moves++) {
        memset(&v, 0, sizeof v);
        v.p = &p;
        v.moves = moves;
        assert_int_equal(tws_hub_each(p.hub, "room", visit_one, &v), 100);
        for (size_t i = 0; i < p.count; i++)
            assert_int_equal(v.seen[i], i % 2 == 0);
    }
    memset(&v, 0, sizeof v);
    v.p = &p;
    assert_int_equal(tws_hub_each(p.hub, NULL, visit_one, &v), 100); /* each once */
    assert_int_equal(v.count, 100);
    memset(&v, 0, sizeof v);
    v.p = &p;
    v.stop_at = 70;
    assert_int_equal(tws_hub_each(p.hub, "another", visit_one, &v), 70);
    party_close(&p);
}

/* ---- Ending ---- */

/* Whatever ends a connection takes it out, of all rooms and all hubs, and rooms end with it. */
static void test_leaves_by_itself(void **state)
{
    struct party p;
    tws_hub *second;

    (void)state;
    party_open(&p, 6, NULL, NULL);
    assert_ok(tws_hub_new(&second, NULL));
    party_join_all(&p, "room");
    for (size_t i = 0; i < p.count; i++) {
        assert_ok(tws_hub_join(p.hub, p.conns[i], "all"));
        assert_ok(tws_hub_join(second, p.conns[i], "room"));
    }
    crowd_leave(p.crowd, 0, false);
    WAIT_FOR(tws_hub_count(p.hub, "room") == 5 && tws_hub_count(second, NULL) == 5);
    crowd_leave(p.crowd, 1, true);
    WAIT_FOR(tws_hub_count(p.hub, "room") == 4 && tws_hub_count(second, NULL) == 4);
    tws_abort(p.conns[2]);
    WAIT_FOR(tws_hub_count(p.hub, "room") == 3 && tws_hub_count(second, NULL) == 3);
    tws_close(p.conns[3], 1000, NULL);
    WAIT_FOR(tws_hub_count(p.hub, "room") == 2 && tws_hub_count(second, NULL) == 2);
    assert_int_equal(tws_hub_count(p.hub, "all"), 2);
    assert_err(tws_hub_leave(p.hub, p.conns[2], "room"), TWS_ERR_STATE);
    for (int i = 0; i < 4; i++)
        assert_true(tws_err_is_final(tws_hub_join(p.hub, p.conns[i], "room")));
    assert_int_equal(tws_hub_count(p.hub, "room"), 2);
    tws_server_drain(p.s.server, 5000);
    WAIT_FOR(stats_of(p.hub).members == 0 && stats_of(second).members == 0);
    assert_int_equal(stats_of(p.hub).rooms, 0);
    assert_int_equal(stats_of(p.hub).joined, 0);
    tws_hub_free(second);
    party_close(&p);
}

/* ---- Memory ---- */

static _Atomic int blocks, allowance;

static void *counted_alloc(size_t size, void *arg)
{
    void *block;

    (void)arg;
    if (atomic_fetch_sub(&allowance, 1) <= 0)
        return NULL;
    block = malloc(size);
    atomic_fetch_add(&blocks, 1);
    return block;
}
static void *counted_resize(void *block, size_t size, void *arg)
{
    if (!block)
        return counted_alloc(size, arg);
    return atomic_fetch_sub(&allowance, 1) <= 0 ? NULL : realloc(block, size);
}
static void counted_release(void *block, void *arg)
{
    (void)arg;
    if (block)
        atomic_fetch_sub(&blocks, 1);
    free(block);
}
static const tws_allocator counted = {counted_alloc, counted_resize, counted_release, NULL};

/* Whichever allocation fails: the call says so, nothing changes, nothing is lost. */
static void test_no_memory(void **state)
{
    tws_hub_options opt;
    struct party p;
    tws_hub *h = NULL;
    int needed = 0;

    (void)state;
    party_open(&p, 70, NULL, NULL);
    tws_hub_options_init(&opt);
    opt.allocator = &counted;
    for (tws_err err = TWS_ERR_MEMORY; err; needed++) {
        atomic_store(&allowance, needed);
        err = tws_hub_new(&h, &opt);
        assert_true(!err || err == TWS_ERR_MEMORY);
        assert_true(!err || atomic_load(&blocks) == 0);
    }
    assert_true(needed > 3);
    for (size_t i = 0; i < p.count; i++) {
        tws_err err = TWS_ERR_MEMORY;

        for (int n = 0; err; n++) {
            int before = atomic_load(&blocks);

            atomic_store(&allowance, n);
            err = tws_hub_join(h, p.conns[i], "room");
            assert_true(!err || err == TWS_ERR_MEMORY);
            assert_int_equal(tws_hub_count(h, "room"), i + !err);
            assert_int_equal(tws_hub_count(h, NULL), i + !err);
            /* An array that had grown already may stay so. */
            assert_true(!err || atomic_load(&blocks) - before <= 2);
        }
    }
    assert_int_equal(tws_hub_rooms(h, note_name, NULL), 0); /* no memory for the list */
    atomic_store(&allowance, 1000);
    assert_int_equal(tws_hub_rooms(h, note_name, &(struct names){.count = 0}), 1);
    tws_hub_free(h);
    assert_int_equal(atomic_load(&blocks), 0);
    party_close(&p);
}

/* Members and rooms that have gone leave no memory behind. */
static void test_memory_goes_back(void **state)
{
    tws_hub_options opt;
    struct party p;
    char room[32];
    int before;

    (void)state;
    tws_hub_options_init(&opt);
    opt.allocator = &counted;
    opt.max_joined = 0;
    atomic_store(&allowance, INT32_MAX);
    party_open(&p, 70, NULL, &opt);
    before = atomic_load(&blocks);
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < p.count; i++) {
            for (int k = 0; k < 100; k++) {
                snprintf(room, sizeof room, "%zu", i * (size_t)k % 300);
                assert_ok(tws_hub_join(p.hub, p.conns[i], room));
            }
        }
        assert_true(atomic_load(&blocks) > before + 1000);
        for (size_t i = 0; i < p.count; i++)
            assert_true(tws_hub_leave_all(p.hub, p.conns[i]) > 0);
        /* The list of all members keeps its first chunk. */
        assert_true(atomic_load(&blocks) <= before + 3);
    }
    party_close(&p);
    assert_int_equal(atomic_load(&blocks), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_max_joined),
        cmocka_unit_test(test_each),
        cmocka_unit_test(test_leaves_by_itself),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_memory_goes_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
