/*
 * Input buffers that end (or begin) at an inaccessible page, so that one byte read or written too
 * far kills the test at once, with and without a sanitizer.
 *
 *     struct guard g;
 *     guard_open(&g, 4096);
 *     for (size_t n = 0; n <= len; n++)
 *         parse(guard_tail(&g, script, n), n);
 *     guard_close(&g);
 */
#ifndef TESTS_UNIT_GUARD_H
#define TESTS_UNIT_GUARD_H

#include <stddef.h>
#include <stdint.h>

struct guard {
    uint8_t *map;   /* inaccessible page, area, inaccessible page */
    size_t map_len; /* all three */
    uint8_t *area;
    size_t area_len; /* whole pages, at least the capacity asked for */
};

/* Makes an area for at least cap bytes. Fails the running test when memory is refused. */
void guard_open(struct guard *g, size_t cap);
void guard_close(struct guard *g);

/*
 * Copies len bytes to the end of the area, right before the inaccessible page, and returns where
 * they are. The rest of the area is filled with a pattern and, under AddressSanitizer, poisoned.
 * data may be NULL: the bytes are then left as they are. A pointer from an earlier call is dead.
 */
uint8_t *guard_tail(struct guard *g, const void *data, size_t len);

/* The same at the beginning of the area, right after the first inaccessible page. */
uint8_t *guard_head(struct guard *g, const void *data, size_t len);

#endif
