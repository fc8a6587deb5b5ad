/* alloc.h: the allocator hook, and memory that is mapped straight from the system. */
#ifndef BASE_ALLOC_H
#define BASE_ALLOC_H

#include <tws/types.h>

/* All take NULL for the default: malloc, realloc, free. */
void *base_alloc(const tws_allocator *a, size_t size);
void *base_calloc(const tws_allocator *a, size_t size);
void *base_resize(const tws_allocator *a, void *block, size_t size);
void base_free(const tws_allocator *a, void *block);
char *base_strdup(const tws_allocator *a, const char *text);
/* Has malloc give back to the system what is free in its arenas, where it can. May take some
 * milliseconds for each 100 MiB. */
void base_trim(void *unused);

/*
 * Page-sized blocks. The default maps them, so that a thread that only receives never enters
 * malloc (which would give it an arena and a cache of its own), and so that what is given back
 * leaves the process. A caller's allocator is used instead where there is one.
 */
void *base_map(const tws_allocator *a, size_t size);
void base_unmap(const tws_allocator *a, void *block, size_t size);

#endif
