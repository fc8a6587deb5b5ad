/* sized.h: structs that begin with their size, or whose size the caller names: programs and library
 * may know shorter and longer forms of them. */
#ifndef BASE_SIZED_H
#define BASE_SIZED_H

#include <stddef.h>
#include <string.h>

/* Into a caller's struct of `size` bytes; what the library does not know there becomes 0. */
static inline void base_sized_give(void *out, size_t size, const void *own, size_t own_size)
{
    memset(out, 0, size);
    memcpy(out, own, size < own_size ? size : own_size);
}

/* From a caller's struct of `size` bytes; what the caller does not know keeps its default. */
static inline void base_sized_take(void *own, size_t own_size, const void *in, size_t size)
{
    memcpy(own, in, size < own_size ? size : own_size);
}

#endif
