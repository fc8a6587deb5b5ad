/* text.h: copying strings into a caller's buffer, counted as snprintf() counts. */
#ifndef BASE_TEXT_H
#define BASE_TEXT_H

#include <stddef.h>

/* Copies len bytes and a zero as far as they fit; returns len. */
size_t base_text_copy(char *buf, size_t size, const char *text, size_t len);

/* What a peer chose may hold anything: control characters become question marks, so that it stays one
 * line and no terminal takes it for orders. */
void base_text_clean(char *text);

#endif
