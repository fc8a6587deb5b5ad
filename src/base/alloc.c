#include "base/alloc.h"

#include <features.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

void *base_alloc(const tws_allocator *a, size_t size)
{
    return a ? a->alloc(size, a->arg) : malloc(size);
}

void *base_calloc(const tws_allocator *a, size_t size)
{
    void *block = base_alloc(a, size);

    if (block)
        memset(block, 0, size);
    return block;
}

void *base_resize(const tws_allocator *a, void *block, size_t size)
{
    if (!block)
        return base_alloc(a, size);
    return a ? a->resize(block, size, a->arg) : realloc(block, size);
}

void base_free(const tws_allocator *a, void *block)
{
    if (!block)
        return;
    if (a)
        a->release(block, a->arg);
    else
        free(block);
}

char *base_strdup(const tws_allocator *a, const char *text)
{
    size_t size = strlen(text) + 1;
    char *copy = base_alloc(a, size);

    if (copy)
        memcpy(copy, text, size);
    return copy;
}

void *base_map(const tws_allocator *a, size_t size)
{
    void *block;

    if (a)
        return a->alloc(size, a->arg);
    block = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return block == MAP_FAILED ? NULL : block;
}

void base_unmap(const tws_allocator *a, void *block, size_t size)
{
    if (!block)
        return;
    if (a)
        a->release(block, a->arg);
    else
        munmap(block, size);
}

void base_trim(void *unused)
{
    (void)unused;
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}
