#include "guard.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define GUARD_ASAN 1
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define GUARD_ASAN 1
#endif

#ifdef GUARD_ASAN
#include <sanitizer/asan_interface.h>
#define poison(p, n) __asan_poison_memory_region((p), (n))
#define unpoison(p, n) __asan_unpoison_memory_region((p), (n))
#else
#define poison(p, n) ((void)(p), (void)(n))
#define unpoison(p, n) ((void)(p), (void)(n))
#endif

void guard_open(struct guard *g, size_t cap)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    g->area_len = (cap + page - 1) / page * page;
    if (g->area_len == 0)
        g->area_len = page;
    g->map_len = g->area_len + 2 * page;
    g->map = mmap(NULL, g->map_len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(g->map != MAP_FAILED);
    g->area = g->map + page;
    assert_int_equal(mprotect(g->area, g->area_len, PROT_READ | PROT_WRITE), 0);
    memset(g->area, 0xa5, g->area_len);
}

void guard_close(struct guard *g)
{
    unpoison(g->area, g->area_len);
    assert_int_equal(munmap(g->map, g->map_len), 0);
    memset(g, 0, sizeof(*g));
}

static uint8_t *place(struct guard *g, size_t at, const void *data, size_t len)
{
    uint8_t *p = g->area + at;

    unpoison(g->area, g->area_len);
    /* data may be an earlier placement of the same area: move first, then wipe the rest. */
    if (data && len)
        memmove(p, data, len);
    if (data) {
        memset(g->area, 0xa5, at);
        memset(p + len, 0xa5, g->area_len - at - len);
    }
    poison(g->area, at);
    poison(p + len, g->area_len - at - len);
    return p;
}

uint8_t *guard_tail(struct guard *g, const void *data, size_t len)
{
    assert_true(len <= g->area_len);
    return place(g, g->area_len - len, data, len);
}

uint8_t *guard_head(struct guard *g, const void *data, size_t len)
{
    assert_true(len <= g->area_len);
    return place(g, 0, data, len);
}
