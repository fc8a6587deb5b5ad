#include "base/log.h"

#include "base/clock.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

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

/* Whether one more may pass. */
static bool gate_open(struct base_log_gate *gate)
{
    int64_t now = base_clock_coarse_ns();
    int64_t began = atomic_load(&gate->second);

    if ((began == 0 || now - began >= BASE_NS_PER_S) &&
        atomic_compare_exchange_strong(&gate->second, &began, now))
        atomic_store(&gate->lines, 0);
    if (atomic_fetch_add(&gate->lines, 1) < BASE_LOG_BURST)
        return true;
    atomic_fetch_add(&gate->held, 1);
    atomic_fetch_add(&gate->total, 1);
    return false;
}

void base_log_limited(const struct base_log *log, struct base_log_gate *gate, tws_log_level level,
                      const char *format, ...)
{
    char line[512];
    uint64_t held;
    size_t len;
    va_list args;

    if (!log->fn || !gate_open(gate))
        return;
    va_start(args, format);
    vsnprintf(line, sizeof line - 40, format, args);
    va_end(args);
    held = atomic_exchange(&gate->held, 0);
    len = strlen(line);
    if (held > 0)
        snprintf(line + len, sizeof line - len, " (%llu more suppressed)",
                 (unsigned long long)held);
    log->fn(level, line, log->arg);
}

void base_log_gate_end(const struct base_log *log, struct base_log_gate *gate, tws_log_level level)
{
    uint64_t held = atomic_exchange(&gate->held, 0);

    if (held > 0)
        base_logf(log, level, "%llu more lines suppressed", (unsigned long long)held);
}
