/*
 * The board of held replies: who is kicked, when, and how the watcher sleeps and wakes.
 */
#include "integration/support.h"

#include "base/clock.h"
#include "conn/hold.h"

struct owner {
    struct hold_slot *slot;
    _Atomic unsigned kicks;
};

static void kick(void *arg)
{
    struct owner *o = arg;

    atomic_fetch_add(&o->kicks, 1);
    hold_end(o->slot);
}

static void *watch(void *board)
{
    hold_board_run(board, kick);
    return NULL;
}

/* More owners than one segment takes; each that holds is kicked, again and again, and no other. */
static void test_board(void **state)
{
    enum { OWNERS = 600 };
    struct hold_board *b = hold_board_new(NULL);
    static struct owner owners[OWNERS];
    struct hold_slot *first;
    pthread_t watcher;

    (void)state;
    assert_non_null(b);
    support_thread(&watcher, watch, b);
    for (int i = 0; i < OWNERS; i++) {
        owners[i].slot = hold_slot_get(b, &owners[i]);
        assert_non_null(owners[i].slot);
        for (int k = 0; k < i; k += 97)
            assert_ptr_not_equal(owners[i].slot, owners[k].slot);
    }
    for (unsigned round = 1; round <= 3; round++) {
        for (int i = 0; i < OWNERS; i += 5)
            hold_begin(b, owners[i].slot);
        for (int i = 0; i < OWNERS; i += 5)
            WAIT_FOR(atomic_load(&owners[i].kicks) == round);
        support_pause_ms(round == 2 ? 400 : 0); /* the watcher falls asleep */
    }
    for (int i = 0; i < OWNERS; i++)
        assert_int_equal(atomic_load(&owners[i].kicks), i % 5 ? 0 : 3);

    first = owners[0].slot;
    hold_begin(b, first);
    hold_slot_put(b, first); /* gone: the watcher does not touch its owner any more */
    for (int i = 1; i < OWNERS; i++)
        hold_slot_put(b, owners[i].slot);
    assert_non_null(hold_slot_get(b, &owners[1])); /* places are used again */
    assert_in_range(atomic_load(&owners[0].kicks), 3, 4);
    hold_board_stop(b);
    pthread_join(watcher, NULL);
    hold_board_free(b);
}

/* What ended by itself in time is not kicked. */
static void test_ended_in_time(void **state)
{
    struct hold_board *b = hold_board_new(NULL);
    struct owner quick = {.slot = NULL}, slow = {.slot = NULL};
    pthread_t watcher;

    (void)state;
    quick.slot = hold_slot_get(b, &quick);
    slow.slot = hold_slot_get(b, &slow);
    hold_begin(b, quick.slot);
    hold_begin(b, slow.slot);
    hold_end(quick.slot); /* before the watcher has looked even once */
    support_thread(&watcher, watch, b);
    WAIT_FOR(atomic_load(&slow.kicks) == 1);
    assert_int_equal(atomic_load(&quick.kicks), 0);
    hold_board_stop(b);
    pthread_join(watcher, NULL);
    hold_slot_put(b, quick.slot);
    hold_slot_put(b, slow.slot);
    hold_board_free(b);
    hold_board_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_board),
        cmocka_unit_test(test_ended_in_time),
    };

    return cmocka_run_group_tests_name("conn_hold", tests, NULL, NULL);
}
