/* log.h: lines for the caller's log hook. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <tws/types.h>

#include <stdatomic.h>

struct base_log {
    tws_log_fn fn; /* NULL: lines go nowhere */
    void *arg;
};

/* Lines of one kind: so many in a second are told, the others counted. Zero is one without any yet. */
#define BASE_LOG_BURST 10
struct base_log_gate {
    _Atomic int64_t second; /* when the burst under way began, ns */
    _Atomic uint32_t lines; /* of it */
    _Atomic uint64_t held;  /* not told yet that they were suppressed */
    _Atomic uint64_t total; /* suppressed since the beginning */
};

/* A line through a gate. The first line after some were suppressed says how many. */
void base_log_limited(const struct base_log *log, struct base_log_gate *gate, tws_log_level level,
                      const char *format, ...) __attribute__((format(printf, 4, 5)));
/* Tells how many were suppressed that no line has told of. */
void base_log_gate_end(const struct base_log *log, struct base_log_gate *gate, tws_log_level level);

void base_logf(const struct base_log *log, tws_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
