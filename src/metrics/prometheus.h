/* prometheus.h: the Prometheus text format, version 0.0.4, into a bounded buffer. */
#ifndef METRICS_PROMETHEUS_H
#define METRICS_PROMETHEUS_H

#include <stddef.h>
#include <stdint.h>

struct prometheus {
    char *buf;
    size_t size, len; /* len counts all of the text, also what did not fit */
};

/* HELP and TYPE, once per family and before its samples. */
void prometheus_family(struct prometheus *p, const char *name, const char *type, const char *help);
/* A sample; label NULL: none. */
void prometheus_count(struct prometheus *p, const char *name, const char *label, const char *value,
                      uint64_t n);
void prometheus_real(struct prometheus *p, const char *name, double n);
/* Family and its only sample. */
void prometheus_counter(struct prometheus *p, const char *name, const char *help, uint64_t n);
void prometheus_gauge(struct prometheus *p, const char *name, const char *help, uint64_t n);

#endif
