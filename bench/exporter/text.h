/* A text that grows. After an allocation has failed it stays as it was, and text_failed() says
 * so. */
#ifndef EXPORTER_TEXT_H
#define EXPORTER_TEXT_H

#include <stdbool.h>
#include <stddef.h>

struct text {
    char *data; /* always ends in a zero byte when not NULL */
    size_t len;
    size_t cap;
    bool failed;
};

void text_add(struct text *t, const char *s);
void text_addf(struct text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Adds ` name="value"` without the blank, escaped as the Prometheus text format wants a label. */
void text_label(struct text *t, const char *name, const char *value);

static inline bool text_failed(const struct text *t)
{
    return t->failed;
}

/* Copies FROM into TO, which has SIZE bytes. Returns false, and changes nothing, when it does not
 * fit. */
bool text_copy(char *to, size_t size, const char *from);

/* Whether there is nothing but printable ASCII in S. */
bool text_printable(const char *s);

/* Empties it and keeps the memory. */
void text_clear(struct text *t);
void text_free(struct text *t);

#endif
