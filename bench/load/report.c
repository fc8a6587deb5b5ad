#include "report.h"

#include <inttypes.h>
#include <string.h>

static void print_quantiles_head(FILE *f)
{
    fprintf(f, "%-12s %10s %10s %10s %10s %10s %10s %10s\n", "", "p50", "p90", "p99", "p99.9",
            "p99.99", "max", "count");
}

/* A time in the unit that suits it, ten columns wide. */
static void print_time(FILE *f, uint64_t ns)
{
    double us = (double)ns / 1e3;
    if (us < 1e3)
        fprintf(f, " %7.1f us", us);
    else if (us < 1e6)
        fprintf(f, " %7.2f ms", us / 1e3);
    else
        fprintf(f, " %8.2f s", us / 1e6);
}

static void print_hist(FILE *f, const char *name, const struct hist *h)
{
    static const double quantiles[] = {0.5, 0.9, 0.99, 0.999, 0.9999, 1};
    uint64_t count = hist_count(h);
    if (count == 0)
        return;
    fprintf(f, "%-12s", name);
    for (size_t i = 0; i < sizeof quantiles / sizeof *quantiles; i++)
        print_time(f, hist_quantile(h, quantiles[i]));
    fprintf(f, " %10" PRIu64 "\n", count);
}

static void print_window(FILE *f, const char *name, const struct sample *from,
                         const struct sample *to)
{
    struct window w;
    if (!result_window(from, to, &w))
        return;
    double megabits = 8 / 1e6 / w.seconds;
    fprintf(f, "%-12s %10.1f %10.1f %12.0f %12.0f %9.2f s\n", name, (double)w.bytes_up * megabits,
            (double)w.bytes_down * megabits, (double)w.sent / w.seconds,
            (double)w.received / w.seconds, w.seconds);
}

static void print_error(void *arg, const char *kind, uint64_t n)
{
    fprintf(arg, "  %s %" PRIu64, kind, n);
}

static void print_load(FILE *f, const struct result *r)
{
    const struct options *o = r->run->opt;
    fprintf(f, "load         ");
    if (o->connect_only)
        fprintf(f, "connections only");
    else if (o->rate > 0)
        fprintf(f, "%g msg/s per %s, scheduled", o->rate, o->broadcast ? "sender" : "connection");
    else
        fprintf(f, "%u in flight, as fast as replies return", o->pipeline);
    if (!o->connect_only)
        fprintf(f, ", %zu B %s%s", r->run->bodies.size, o->binary ? "binary" : "text",
                o->deflate ? ", permessage-deflate offered" : "");
    if (o->broadcast)
        fprintf(f, "; broadcast, %u of %u send, %u read nothing", o->senders, o->connections,
                o->muted);
    fputc('\n', f);
    if (!o->verify && !o->connect_only)
        fprintf(f, "             replies were NOT compared with what was sent (--no-verify)\n");
}

static void print_connections(FILE *f, const struct result *r)
{
    const struct stats *s = &r->final.stats;
    uint64_t open = counter_get(&s->opened);
    double seconds = result_open_time(r);
    fprintf(f, "connections  asked %u, open %" PRIu64 ", failed %" PRIu64 ", lost %" PRIu64,
            r->run->opt->connections, open, r->run->opt->connections - open, counter_get(&s->lost));
    if (counter_get(&s->muted_closed) != 0)
        fprintf(f, ", muted and closed by the server %" PRIu64, counter_get(&s->muted_closed));
    if (open != 0)
        fprintf(f, "; last one open after %.3f s, %.0f handshakes/s", seconds,
                seconds > 0 ? (double)open / seconds : 0);
    if (r->run->opt->deflate)
        fprintf(f, "; deflate on %" PRIu64, counter_get(&s->deflated));
    fputc('\n', f);
}

static void print_messages(FILE *f, const struct result *r)
{
    const struct stats *s = &r->final.stats;
    fprintf(f, "messages     sent %" PRIu64 ", received %" PRIu64 ", lost %" PRIu64,
            counter_get(&s->sent), counter_get(&s->received), result_lost(r));
    if (r->run->opt->broadcast)
        fprintf(f, ", expected %" PRIu64, counter_get(&s->expected));
    if (counter_get(&s->in_flight) != 0)
        fprintf(f, ", still in flight %" PRIu64, counter_get(&s->in_flight));
    if (result_unsent(r) != 0)
        fprintf(f, ", scheduled but never sent %" PRIu64, result_unsent(r));
    fprintf(f, "\n\n%-12s %10s %10s %12s %12s %11s\n", "", "Mbps up", "Mbps down", "sent/s",
            "received/s", "window");
    print_window(f, "whole run", &r->load, &r->stop);
    print_window(f, "steady", &r->steady, &r->stop);
}

static void print_own(FILE *f, const struct result *r)
{
    struct window w;
    fprintf(f, "generator    %.2f s user, %.2f s system", (double)r->final.user_ns / 1e9,
            (double)r->final.system_ns / 1e9);
    if (result_window(&r->steady, &r->stop, &w))
        fprintf(f, "; %.0f %% of a core in the steady window", w.cpu_percent);
    fprintf(f, "\nbottleneck   %s%s\n",
            r->bottleneck ? "the generator itself: " : "not the generator",
            r->bottleneck ? r->bottleneck_reason : "");
}

void report_print(FILE *f, const struct result *r)
{
    const struct stats *s = &r->final.stats;
    fprintf(f, "\n");
    print_load(f, r);
    print_connections(f, r);
    if (!r->run->opt->connect_only)
        print_messages(f, r);
    fputc('\n', f);
    print_quantiles_head(f);
    print_hist(f, "latency", &s->latency[WHEN_STEADY]);
    print_hist(f, "connect", &s->connect);
    print_hist(f, "handshake", &s->handshake);
    print_hist(f, "own lag", &s->lag[WHEN_STEADY]);
    if (counter_get(&s->censored) != 0)
        fprintf(f,
                "%-12s %" PRIu64 " of the latencies are of messages never answered: they waited"
                " at least so long\n",
                "", counter_get(&s->censored));
    fprintf(f, "\nerrors      ");
    if (stats_error_total(s) == 0)
        fprintf(f, " none");
    else
        stats_errors(s, print_error, f);
    fputc('\n', f);
    print_own(f, r);
    fprintf(f, "status       %s%s%s\n", result_status(r), r->message[0] != '\0' ? ": " : "",
            r->message);
}
