/* An allocator that counts, and fails when told. */
#include "support_counter.h"

#include "support.h"

#include <stdlib.h>
#include <string.h>

static bool fails(struct counter *k)
{
    long n = atomic_fetch_add(&k->calls, 1);
    long from = atomic_load(&k->fail_from);

    return n >= from && n - from < atomic_load(&k->fail_count);
}

static void *counted_alloc(size_t size, void *arg)
{
    struct counter *k = arg;
    void *p = fails(k) ? NULL : malloc(size);

    if (p)
        atomic_fetch_add(&k->live, 1);
    return p;
}

static void *counted_resize(void *block, size_t size, void *arg)
{
    return fails(arg) ? NULL : realloc(block, size);
}

static void counted_release(void *block, void *arg)
{
    struct counter *k = arg;

    atomic_fetch_sub(&k->live, 1);
    free(block);
}

tws_allocator counter_allocator(struct counter *k)
{
    memset(k, 0, sizeof *k);
    return (tws_allocator){counted_alloc, counted_resize, counted_release, k};
}

/* One n; whether there were as many allocations. */
static bool fail_from(void (*prepare)(tws_server_options *opt),
                      bool (*converse)(const char *address), long n, long count)
{
    struct counter k;
    tws_allocator a = counter_allocator(&k);
    tws_server_options opt;
    bool reached = true;
    char address[64];
    tws_server *s;
    tws_error e;

    prepare(&opt);
    opt.upgrade.allocator = &a;
    atomic_store(&k.fail_from, n);
    atomic_store(&k.fail_count, count);
    if (tws_server_start(&s, &opt, &e) != TWS_OK) {
        assert_int_equal(e.code, TWS_ERR_MEMORY);
        assert_null(s);
    } else {
        tws_server_address(s, 0, address, sizeof address);
        converse(address);
        atomic_store(&k.fail_count, 0);
        assert_true(converse(address));
        reached = atomic_load(&k.calls) > n;
        tws_server_free(s);
    }
    assert_int_equal(atomic_load(&k.live), 0);
    return reached;
}

void counter_fail_everywhere(void (*prepare)(tws_server_options *opt),
                             bool (*converse)(const char *address), long count)
{
    struct support_census before = support_census();
    long n = 0;

    while (fail_from(prepare, converse, n, count)) {
        n++;
        assert_true(n < 500);
    }
    assert_true(n > 20); /* as many places there are at least */
    support_assert_census(before);
}
