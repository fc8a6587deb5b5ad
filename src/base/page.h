/* page.h: pages of memory, whose size is the kernel's choice: 4 KiB on x86-64, up to 64 KiB on AArch64. */
#ifndef BASE_PAGE_H
#define BASE_PAGE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

static inline size_t base_page_size(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

static inline size_t base_page_up(size_t n)
{
    size_t page = base_page_size();

    return (n + page - 1) & ~(page - 1);
}

/* Gives those pages back that lie wholly between the two addresses. */
static inline void base_page_give_back(uintptr_t low, uintptr_t high)
{
    uintptr_t first = base_page_up(low);
    uintptr_t end = high & ~(uintptr_t)(base_page_size() - 1);

    if (first < end)
        madvise((void *)first, end - first, MADV_DONTNEED);
}

#endif
