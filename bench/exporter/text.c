#include "text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_CAP = 4096 };

static bool reserve(struct text *t, size_t more)
{
    size_t need = t->len + more + 1;
    if (t->failed || need <= t->cap) {
        return !t->failed;
    }
    size_t cap = t->cap == 0 ? FIRST_CAP : t->cap;
    while (cap < need) {
        cap *= 2;
    }
    char *data = realloc(t->data, cap);
    if (data == NULL) {
        t->failed = true;
        return false;
    }
    t->data = data;
    t->cap = cap;
    return true;
}

static void add_bytes(struct text *t, const char *s, size_t len)
{
    if (reserve(t, len)) {
        memcpy(t->data + t->len, s, len);
        t->len += len;
        t->data[t->len] = '\0';
    }
}

void text_add(struct text *t, const char *s)
{
    add_bytes(t, s, strlen(s));
}

void text_addf(struct text *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    if (n < 0) {
        t->failed = true;
    } else if (reserve(t, (size_t)n)) {
        vsnprintf(t->data + t->len, (size_t)n + 1, format, again);
        t->len += (size_t)n;
    }
    va_end(again);
    va_end(args);
}

void text_label(struct text *t, const char *name, const char *value)
{
    text_add(t, name);
    text_add(t, "=\"");
    for (const char *p = value; *p != '\0'; p++) {
        if (*p == '\\' || *p == '"') {
            add_bytes(t, "\\", 1);
            add_bytes(t, p, 1);
        } else if (*p == '\n') {
            text_add(t, "\\n");
        } else {
            add_bytes(t, p, 1);
        }
    }
    text_add(t, "\"");
}

bool text_copy(char *to, size_t size, const char *from)
{
    size_t len = strlen(from);
    if (len >= size) {
        return false;
    }
    memcpy(to, from, len + 1);
    return true;
}

bool text_printable(const char *s)
{
    for (; *s != '\0'; s++) {
        if (*s < ' ' || *s > '~') {
            return false;
        }
    }
    return true;
}

void text_clear(struct text *t)
{
    t->len = 0;
    t->failed = false;
    if (t->data != NULL) {
        t->data[0] = '\0';
    }
}

void text_free(struct text *t)
{
    free(t->data);
    *t = (struct text){.data = NULL};
}
