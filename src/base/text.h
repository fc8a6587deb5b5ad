/* text.h: copying strings into a caller's buffer, counted as snprintf() counts. */
#ifndef BASE_TEXT_H
#define BASE_TEXT_H

#include <stddef.h>

/* Copies len bytes and a zero as far as they fit; returns len. */
size_t base_text_copy(char *buf, size_t size, const char *text, size_t len);

#endif
