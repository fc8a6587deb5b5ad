/* A room's slots and its queue of publishers, without connections behind them. */
#include "integration/support.h"

#include <stdlib.h>

#include "base/clock.h"
#include "conn/conn.h"
#include "hub/room.h"
#include "unit/rng.h"

/* ---- Slots ---- */

enum { CROWD = 1000 };

struct guest {
    tws_conn *conn; /* nothing but a count of references */
    size_t slot;
    bool in;
    unsigned seen;
};

static tws_conn *stand_in(void)
{
    tws_conn *c = calloc(1, sizeof *c);

    assert_non_null(c);
    atomic_init(&c->refs, 1);
    return c;
}

static struct guest *crowd(void)
{
    struct guest *g = calloc(CROWD, sizeof *g);

    assert_non_null(g);
    for (int i = 0; i < CROWD; i++)
        g[i].conn = stand_in();
    return g;
}

static void crowd_free(struct guest *g)
{
    for (int i = 0; i < CROWD; i++) {
        assert_int_equal(atomic_load(&g[i].conn->refs), 1);
        free(g[i].conn);
    }
    free(g);
}

static void look(struct hub_room *r, struct guest *g)
{
    struct room_slot slots[ROOM_CHUNK];
    size_t n, total = 0;

    for (int i = 0; i < CROWD; i++)
        g[i].seen = 0;
    for (size_t at = 0; room_copy(r, at, ROOM_REF, slots, &n); at++) {
        for (size_t i = 0; i < n; i++) {
            for (int k = 0; k < CROWD; k++)
                g[k].seen += g[k].conn == slots[i].conn;
            atomic_fetch_sub(&slots[i].conn->refs, 1);
        }
        total += n;
    }
    assert_int_equal(total, room_members(r));
    for (int i = 0; i < CROWD; i++)
        assert_int_equal(g[i].seen, g[i].in);
}

static void test_slots(void **state)
{
    struct hub_room *r = room_new(NULL, "lobby and more", 5);
    struct guest *g = crowd();
    struct rng rng = {7};
    size_t in = 0;

    (void)state;
    assert_non_null(r);
    assert_string_equal(r->name, "lobby");
    for (int step = 0; step < 20 * CROWD; step++) {
        struct guest *one = &g[rng_below(&rng, CROWD)];
        bool fill = step / (4 * CROWD) % 2 == 0;

        if (one->in && (!fill || rng_below(&rng, 4) == 0)) {
            room_exit(r, one->slot);
            one->in = false;
            in--;
        } else if (!one->in && (fill || rng_below(&rng, 4) == 0)) {
            assert_true(room_enter(r, one->conn, &one->slot));
            one->in = true;
            in++;
        }
        assert_int_equal(room_members(r), in);
        if (step % CROWD == 0)
            look(r, g);
    }
    for (int i = 0; i < CROWD; i++)
        if (g[i].in)
            room_exit(r, g[i].slot);
    assert_true(r->chunk_count <= 2); /* a room that emptied needs no more than a small one */
    room_free(r);
    crowd_free(g);
}

/* A small room is small: no whole chunk for a few members. */
static void test_first_chunk(void **state)
{
    struct hub_room *r = room_new(NULL, "", 0);
    struct guest *g = crowd();

    (void)state;
    for (size_t i = 0; i < 2 * ROOM_CHUNK + 1; i++) {
        uint32_t cap = 4;

        assert_true(room_enter(r, g[i].conn, &g[i].slot));
        g[i].in = true;
        assert_int_equal(g[i].slot, i);
        while (cap < i + 1 && cap < ROOM_CHUNK)
            cap *= 2;
        assert_int_equal(r->chunks[0]->cap, cap);
        assert_int_equal(r->chunk_count, i / ROOM_CHUNK + 1);
    }
    look(r, g);
    room_exit(r, 3);
    room_exit(r, 70);
    g[3].in = g[70].in = false;
    assert_true(room_enter(r, g[500].conn, &g[500].slot));
    assert_int_equal(g[500].slot, 3); /* the lowest free one */
    g[500].in = true;
    look(r, g);
    room_free(r);
    crowd_free(g);
}

/* One that is being freed is not met any more. */
static void test_last_reference(void **state)
{
    struct hub_room *r = room_new(NULL, "", 0);
    struct room_slot slots[ROOM_CHUNK];
    tws_conn *a = stand_in(), *b = stand_in();
    size_t slot, n;

    (void)state;
    assert_true(room_enter(r, a, &slot) && room_enter(r, b, &slot));
    assert_int_equal(atomic_fetch_sub(&a->refs, 1), 1);
    assert_true(room_copy(r, 0, ROOM_REF, slots, &n));
    assert_int_equal(n, 1);
    assert_ptr_equal(slots[0].conn, b);
    assert_int_equal(atomic_load(&a->refs), 0);
    assert_int_equal(atomic_load(&b->refs), 2);
    assert_true(room_copy(r, 0, ROOM_KEEP, slots, &n)); /* a publisher meets it all the same */
    assert_int_equal(n, 2);
    assert_true(atomic_load(&a->refs) > 0);
    assert_int_equal((uint32_t)atomic_load(&a->refs), 0);
    assert_false(room_copy(r, 1, ROOM_REF, slots, &n));
    assert_int_equal(n, 0);
    room_free(r);
    free(a);
    free(b);
}

/* A join has a place between messages. */
static void test_since(void **state)
{
    struct hub_room *r = room_new(NULL, "", 0);
    struct room_publish first, second, *list[ROOM_BATCH];
    struct room_slot slots[ROOM_CHUNK];
    tws_conn *c = stand_in();
    size_t slot, n;

    (void)state;
    assert_true(room_line_up(r, &first));
    assert_true(room_enter(r, c, &slot));
    assert_int_equal(room_batch(r, list), 1);
    room_served(r, list, 1);
    assert_true(room_line_up(r, &second));
    assert_true(room_copy(r, 0, ROOM_REF, slots, &n));
    assert_int_equal(n, 1);
    assert_true(first.seq < slots[0].since && slots[0].since <= second.seq);
    assert_int_equal(room_batch(r, list), 1);
    room_served(r, list, 1);
    assert_true(room_mark(r) > second.seq);
    room_free(r);
    free(c);
}

/* ---- Turns ---- */

enum { PUBLISHERS = 12, ROUNDS = 300 };

struct contest {
    struct hub_room *room;
    uint64_t crowd; /* the first leader waits until so many are in the queue */
    _Atomic int leading, most, served, together, done;
    uint64_t last; /* the leader's */
    bool out_of_order;
};

static uint64_t lined_up(struct hub_room *r)
{
    uint64_t seq;

    pthread_mutex_lock(&r->mu);
    seq = r->seq;
    pthread_mutex_unlock(&r->mu);
    return seq;
}

static void publish_round(struct contest *t)
{
    struct room_publish p, *list[ROOM_BATCH];
    size_t n;

    memset(&p, 0, sizeof p);
    if (room_line_up(t->room, &p)) {
        int leaders = atomic_fetch_add(&t->leading, 1) + 1;

        if (leaders > atomic_load(&t->most))
            atomic_store(&t->most, leaders);
        while (lined_up(t->room) < t->crowd)
            task_sleep(base_clock_ns() + BASE_NS_PER_MS);
        n = room_batch(t->room, list);
        t->out_of_order = t->out_of_order || n == 0 || list[0] != &p;
        for (size_t i = 0; i < n; i++) {
            t->out_of_order = t->out_of_order || list[i]->seq != t->last + 1;
            t->last = list[i]->seq;
            list[i]->counts[OUT_SENT]++;
        }
        atomic_fetch_sub(&t->leading, 1);
        room_served(t->room, list, n);
    }
    /* Served once, by whomever. */
    atomic_fetch_add(&t->served, (int)p.counts[OUT_SENT]);
    atomic_fetch_add(&t->together, p.together);
}

static void publisher(void *arg)
{
    struct contest *t = arg;

    for (int i = 0; i < ROUNDS; i++)
        publish_round(t);
    atomic_fetch_add(&t->done, 1);
}

static void *publisher_thread(void *arg)
{
    publisher(arg);
    return NULL;
}

static void check_contest(struct contest *t, int publishers)
{
    assert_int_equal(atomic_load(&t->served), publishers * ROUNDS);
    assert_int_equal(t->last, publishers * ROUNDS);
    assert_int_equal(atomic_load(&t->most), 1);
    assert_false(t->out_of_order);
    assert_true(atomic_load(&t->together) >= publishers);
    assert_null(t->room->head);
    assert_false(t->room->led);
    room_free(t->room);
}

static void test_turns(void **state)
{
    struct contest t = {.room = room_new(NULL, "", 0), .crowd = PUBLISHERS};
    pthread_t threads[PUBLISHERS];

    (void)state;
    for (int i = 0; i < PUBLISHERS; i++)
        support_thread(&threads[i], publisher_thread, &t);
    for (int i = 0; i < PUBLISHERS; i++)
        pthread_join(threads[i], NULL);
    check_contest(&t, PUBLISHERS);
}

static struct task_runtime *light_runtime(uint32_t carriers)
{
    struct task_options opt = {
        .kind = TASK_LIGHT, .stack_size = 64 * 1024, .carriers = carriers, .name = "hub-test"};
    struct task_runtime *rt = NULL;

    assert_int_equal(task_runtime_new(&rt, &opt), 0);
    return rt;
}

/* Light threads and pthreads in one queue. */
static void test_turns_mixed(void **state)
{
    struct contest t = {.room = room_new(NULL, "", 0), .crowd = 2 * PUBLISHERS};
    struct task_runtime *rt = light_runtime(2);
    pthread_t threads[PUBLISHERS];

    (void)state;
    for (int i = 0; i < PUBLISHERS; i++) {
        assert_int_equal(task_spawn(rt, publisher, &t), 0);
        support_thread(&threads[i], publisher_thread, &t);
    }
    WAIT_FOR(atomic_load(&t.done) == 2 * PUBLISHERS);
    for (int i = 0; i < PUBLISHERS; i++)
        pthread_join(threads[i], NULL);
    task_runtime_free(rt);
    check_contest(&t, 2 * PUBLISHERS);
}

/* ---- Yielding ---- */

static _Atomic bool came;
static _Atomic int yields;

static void comes(void *arg)
{
    (void)arg;
    atomic_store(&came, true);
}

static void yields_until(void *arg)
{
    struct task_runtime *rt = arg;

    task_spawn(rt, comes, NULL);
    while (!atomic_load(&came)) {
        atomic_fetch_add(&yields, 1);
        task_yield();
    }
}

/* The others of the carrier run at once, without another driver for it. */
static void test_yield(void **state)
{
    struct task_runtime *rt = light_runtime(1);
    struct task_stats stats;

    (void)state;
    task_yield(); /* elsewhere it does nothing */
    assert_int_equal(task_spawn(rt, yields_until, rt), 0);
    assert_int_equal(task_runtime_wait(rt, TASK_FOREVER), 0);
    task_runtime_stats(rt, &stats);
    assert_int_equal(stats.handovers, 0);
    assert_in_range(atomic_load(&yields), 1, 3);
    task_runtime_free(rt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slots),          cmocka_unit_test(test_first_chunk),
        cmocka_unit_test(test_last_reference), cmocka_unit_test(test_since),
        cmocka_unit_test(test_turns),          cmocka_unit_test(test_turns_mixed),
        cmocka_unit_test(test_yield),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
