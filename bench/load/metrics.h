#ifndef LOAD_METRICS_H
#define LOAD_METRICS_H

#include "ticker.h"

struct metrics;

/* Listens and serves from a thread of its own. NULL with *why set. `address` is HOST:PORT. */
struct metrics *metrics_start(const char *address, const struct run *r, struct ticker *t,
                              const char **why);
void metrics_stop(struct metrics *m);

/* The page; free() it. NULL when memory ran out. */
char *metrics_text(const struct run *r, struct ticker *t, size_t *length);

#endif
