#include "metrics/prometheus.h"

#include "base/text.h"

#include <stdio.h>
#include <string.h>

static void put_bytes(struct prometheus *p, const char *text, size_t len)
{
    size_t room = p->len < p->size ? p->size - p->len : 0;

    p->len += base_text_copy(room ? p->buf + p->len : NULL, room, text, len);
}

static void put(struct prometheus *p, const char *text)
{
    put_bytes(p, text, strlen(text));
}

/* Text that may hold anything; `special` is what is written with a backslash. */
static void put_escaped(struct prometheus *p, const char *text, const char *special)
{
    while (*text) {
        size_t n = strcspn(text, special);

        put_bytes(p, text, n);
        text += n;
        if (*text) {
            char escape[2] = {'\\', *text == '\n' ? 'n' : *text};

            put_bytes(p, escape, sizeof escape);
            text++;
        }
    }
}

void prometheus_family(struct prometheus *p, const char *name, const char *type, const char *help)
{
    put(p, "# HELP ");
    put(p, name);
    put(p, " ");
    put_escaped(p, help, "\\\n");
    put(p, "\n# TYPE ");
    put(p, name);
    put(p, " ");
    put(p, type);
    put(p, "\n");
}

void prometheus_count(struct prometheus *p, const char *name, const char *label, const char *value,
                      uint64_t n)
{
    char number[32];

    put(p, name);
    if (label) {
        put(p, "{");
        put(p, label);
        put(p, "=\"");
        put_escaped(p, value, "\\\n\"");
        put(p, "\"}");
    }
    snprintf(number, sizeof number, " %llu\n", (unsigned long long)n);
    put(p, number);
}

void prometheus_real(struct prometheus *p, const char *name, double n)
{
    char number[352]; /* the largest double has 309 digits */

    snprintf(number, sizeof number, " %.6f\n", n);
    put(p, name);
    put(p, number);
}

void prometheus_counter(struct prometheus *p, const char *name, const char *help, uint64_t n)
{
    prometheus_family(p, name, "counter", help);
    prometheus_count(p, name, NULL, NULL, n);
}

void prometheus_gauge(struct prometheus *p, const char *name, const char *help, uint64_t n)
{
    prometheus_family(p, name, "gauge", help);
    prometheus_count(p, name, NULL, NULL, n);
}
