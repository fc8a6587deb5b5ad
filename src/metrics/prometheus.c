#include "metrics/prometheus.h"

#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void put(struct prometheus *p, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void put(struct prometheus *p, const char *format, ...)
{
    char line[512];
    size_t room = p->len < p->size ? p->size - p->len : 0;
    va_list args;
    int n;

    va_start(args, format);
    n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (n > 0)
        p->len += base_text_copy(room ? p->buf + p->len : NULL, room, line, strlen(line));
}

void prometheus_family(struct prometheus *p, const char *name, const char *type, const char *help)
{
    put(p, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

void prometheus_count(struct prometheus *p, const char *name, const char *label, const char *value,
                      uint64_t n)
{
    if (label)
        put(p, "%s{%s=\"%s\"} %llu\n", name, label, value, (unsigned long long)n);
    else
        put(p, "%s %llu\n", name, (unsigned long long)n);
}

void prometheus_real(struct prometheus *p, const char *name, double n)
{
    put(p, "%s %.6f\n", name, n);
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
