#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "clock.h"
#include "metrics.h"

struct page {
    FILE *f;
    const struct options *opt;
};

static void put_escaped(FILE *f, const char *s)
{
    for (; *s != '\0'; s++) {
        if (*s == '\n')
            fputs("\\n", f);
        else if (*s == '"' || *s == '\\')
            fprintf(f, "\\%c", *s);
        else
            fputc(*s, f);
    }
}

static void family(struct page *p, const char *name, const char *type, const char *help)
{
    fprintf(p->f, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* Name and labels of one sample; key NULL = only the run's own labels. */
static void sample_name(struct page *p, const char *name, const char *key, const char *value)
{
    const char *sep = "{";
    fputs(name, p->f);
    for (unsigned i = 0; i < p->opt->label_count; i++) {
        fprintf(p->f, "%s%s=\"", sep, p->opt->labels[i].name);
        put_escaped(p->f, p->opt->labels[i].value);
        fputc('"', p->f);
        sep = ",";
    }
    if (key != NULL && value != NULL) {
        fprintf(p->f, "%s%s=\"", sep, key);
        put_escaped(p->f, value);
        fputc('"', p->f);
        sep = ",";
    }
    if (sep[0] == ',')
        fputc('}', p->f);
    fputc(' ', p->f);
}

static void put_count(struct page *p, const char *name, const char *key, const char *value,
                      uint64_t n)
{
    sample_name(p, name, key, value);
    fprintf(p->f, "%" PRIu64 "\n", n);
}

static void put_value(struct page *p, const char *name, const char *key, const char *value,
                      double v)
{
    sample_name(p, name, key, value);
    fprintf(p->f, "%.9g\n", v);
}

static void put_connections(struct page *p, const struct stats *s)
{
    static const char name[] = "bench_load_connections";
    family(p, name, "gauge", "Connections of the load generator by state.");
    put_count(p, name, "state", "connecting", counter_get(&s->connecting));
    put_count(p, name, "state", "open", counter_get(&s->open_now));
    put_count(p, name, "state", "failed", counter_get(&s->failed));
    put_count(p, name, "state", "lost", counter_get(&s->lost));
    family(p, "bench_load_connections_asked", "gauge", "Connections the run wants.");
    put_count(p, "bench_load_connections_asked", NULL, NULL, p->opt->connections);
}

static void put_counter(struct page *p, const char *name, const char *help, uint64_t n)
{
    family(p, name, "counter", help);
    put_count(p, name, NULL, NULL, n);
}

static void put_messages(struct page *p, const struct stats *s)
{
    uint64_t done = counter_get(&s->received) + counter_get(&s->written_off);
    uint64_t due = counter_get(&s->expected);
    put_counter(p, "bench_load_messages_sent_total", "Whole messages given to the socket.",
                counter_get(&s->sent));
    put_counter(p, "bench_load_messages_received_total", "Whole data messages received.",
                counter_get(&s->received));
    put_counter(p, "bench_load_sent_bytes_total", "WebSocket bytes sent, frame headers included.",
                counter_get(&s->bytes_up));
    put_counter(p, "bench_load_received_bytes_total",
                "WebSocket bytes received, frame headers included.", counter_get(&s->bytes_down));
    family(p, "bench_load_messages_outstanding", "gauge", "Replies still due.");
    put_count(p, "bench_load_messages_outstanding", NULL, NULL, due > done ? due - done : 0);
}

static void put_error(void *arg, const char *kind, uint64_t n)
{
    put_count(arg, "bench_load_errors_total", "kind", kind, n);
}

/* Upper bounds from 10 us to 50 s, six in each decade. */
static void put_histogram(struct page *p, const struct hist *h)
{
    static const uint64_t tenths[] = {10, 15, 20, 30, 50, 70};
    static const uint64_t last = 50 * NS_PER_S;
    char le[32];
    uint64_t seen = 0, total = hist_count(h);
    unsigned cell = 0;
    family(p, "bench_load_latency_seconds", "histogram",
           "Scheduled time of sending until the whole reply was read.");
    for (uint64_t decade = 10000; decade < last; decade *= 10) {
        for (size_t i = 0; i < sizeof tenths / sizeof *tenths; i++) {
            uint64_t bound = decade / 10 * tenths[i];
            if (bound > last)
                break;
            for (; cell < HIST_CELLS && hist_cell_start(cell + 1) - 1 <= bound; cell++)
                seen += counter_get(&h->cells[cell]);
            snprintf(le, sizeof le, "%.9g", (double)bound / 1e9);
            put_count(p, "bench_load_latency_seconds_bucket", "le", le,
                      seen < total ? seen : total);
        }
    }
    put_count(p, "bench_load_latency_seconds_bucket", "le", "+Inf", total);
    put_value(p, "bench_load_latency_seconds_sum", NULL, NULL, (double)counter_get(&h->sum) / 1e9);
    put_count(p, "bench_load_latency_seconds_count", NULL, NULL, total);
}

/* A summary over a window of one second, as the type intends; sum and count are of the whole run. */
static void put_tick(struct page *p, struct ticker *t, const struct hist *h)
{
    static const char name[] = "bench_load_latency_quantile_seconds";
    struct tick k;
    ticker_read(t, &k);
    family(p, name, "summary", "Latency quantiles over the last second.");
    for (int i = 0; i < TICK_QUANTILES && k.has_latency; i++)
        put_value(p, name, "quantile", tick_quantile_names[i], (double)k.latency_ns[i] / 1e9);
    put_value(p, "bench_load_latency_quantile_seconds_sum", NULL, NULL,
              (double)counter_get(&h->sum) / 1e9);
    put_count(p, "bench_load_latency_quantile_seconds_count", NULL, NULL, hist_count(h));
    family(p, "bench_load_schedule_lag_seconds", "gauge",
           "Worst delay by the generator itself in the last second.");
    put_value(p, "bench_load_schedule_lag_seconds", NULL, NULL, (double)k.lag_ns / 1e9);
}

static void put_process(struct page *p, const struct run *r)
{
    struct rusage u;
    static const char name[] = "bench_load_cpu_seconds_total";
    if (getrusage(RUSAGE_SELF, &u) == 0) {
        family(p, name, "counter", "CPU time of the generator itself.");
        put_value(p, name, "mode", "user",
                  (double)u.ru_utime.tv_sec + (double)u.ru_utime.tv_usec / 1e6);
        put_value(p, name, "mode", "system",
                  (double)u.ru_stime.tv_sec + (double)u.ru_stime.tv_usec / 1e6);
    }
    int now = atomic_load(&r->phase);
    family(p, "bench_load_phase", "gauge", "1 for the phase the run is in.");
    for (int i = 0; i < PHASE_COUNT; i++)
        put_count(p, "bench_load_phase", "phase", phase_name((enum phase)i), i == now);
    family(p, "bench_load_start_time_seconds", "gauge", "Start of the run, seconds since 1970.");
    put_value(p, "bench_load_start_time_seconds", NULL, NULL,
              clock_wall() - (double)(clock_ns() - r->t0) / 1e9);
}

char *metrics_text(const struct run *r, struct ticker *t, size_t *length)
{
    char *text = NULL;
    struct stats *s = calloc(1, sizeof *s);
    struct page p = {open_memstream(&text, length), r->opt};
    if (s == NULL || p.f == NULL)
        goto out;
    run_stats(r, s);
    put_connections(&p, s);
    put_messages(&p, s);
    family(&p, "bench_load_errors_total", "counter", "Errors by kind.");
    stats_errors(s, put_error, &p);
    hist_merge(&s->latency[0], &s->latency[1]);
    put_histogram(&p, &s->latency[0]);
    put_tick(&p, t, &s->latency[0]);
    put_process(&p, r);
out:
    if (p.f != NULL && fclose(p.f) != 0) {
        free(text);
        text = NULL;
    }
    free(s);
    return text;
}
