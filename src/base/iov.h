/* iov.h: pieces of which a part has been sent. */
#ifndef BASE_IOV_H
#define BASE_IOV_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

/* Takes n sent bytes off the front of the pieces. */
static inline void base_iov_advance(struct iovec **iov, int *count, size_t n)
{
    while (*count > 0 && n >= (*iov)->iov_len) {
        n -= (*iov)->iov_len;
        (*iov)++;
        (*count)--;
    }
    if (n > 0) {
        (*iov)->iov_base = (uint8_t *)(*iov)->iov_base + n;
        (*iov)->iov_len -= n;
    }
}

#endif
