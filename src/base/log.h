/* log.h: lines for the caller's log hook. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <tws/types.h>

struct base_log {
    tws_log_fn fn; /* NULL: lines go nowhere */
    void *arg;
};

void base_logf(const struct base_log *log, tws_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
