#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

void base_logf(const struct base_log *log, tws_log_level level, const char *format, ...)
{
    char line[256];
    va_list args;

    if (!log->fn)
        return;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    log->fn(level, line, log->arg);
}
