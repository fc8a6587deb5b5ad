/* random.h: unpredictable bytes from the kernel. */
#ifndef BASE_RANDOM_H
#define BASE_RANDOM_H

#include <stdbool.h>
#include <stddef.h>

/* Fills buf; false when the kernel has no entropy to give (errno says why). */
bool base_random(void *buf, size_t len);

#endif
