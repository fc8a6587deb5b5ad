/* The page of metrics, in the Prometheus text format 0.0.4. */
#ifndef EXPORTER_METRICS_H
#define EXPORTER_METRICS_H

#include "proc.h"
#include "target.h"
#include "text.h"

#define METRICS_TYPE "text/plain; version=0.0.4; charset=utf-8"

struct metrics {
    struct targets targets;
    struct proc_options options;
    uint64_t scrapes;
};

/* Reads every process now and writes the page. Returns 0, or -ENOMEM. */
int metrics_write(struct metrics *m, struct text *out);

#endif
