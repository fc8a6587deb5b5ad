#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "json.h"
#include "worker.h"

void json_string(FILE *f, const char *s)
{
    const unsigned char *p = (const unsigned char *)s;
    fputc('"', f);
    while (*p != '\0') {
        size_t n = *p < 0x80 ? 1 : *p >= 0xf0 ? 4 : *p >= 0xe0 ? 3 : 2;
        if (strnlen((const char *)p, n) < n || !utf8_valid(p, n)) {
            fputs("\\ufffd", f);
            p++;
            continue;
        }
        if (*p == '"' || *p == '\\')
            fprintf(f, "\\%c", *p);
        else if (*p < 0x20)
            fprintf(f, "\\u%04x", *p);
        else
            fwrite(p, 1, n, f);
        p += n;
    }
    fputc('"', f);
}

/* Objects are written by hand: `sep` is "" before the first member and ", " after it. */
struct out {
    FILE *f;
    const char *sep;
};

static void key(struct out *o, const char *name)
{
    fputs(o->sep, o->f);
    json_string(o->f, name);
    fputs(": ", o->f);
    o->sep = ", ";
}

static void open_object(struct out *o, const char *name, char bracket)
{
    fputs(o->sep, o->f);
    fputs("\n  ", o->f);
    json_string(o->f, name);
    fprintf(o->f, ": %c", bracket);
    o->sep = "";
}

static void close_object(struct out *o, char bracket)
{
    fputc(bracket, o->f);
    o->sep = ", ";
}

static void put_text(struct out *o, const char *name, const char *value)
{
    key(o, name);
    if (value != NULL)
        json_string(o->f, value);
    else
        fputs("null", o->f);
}

static void put_int(struct out *o, const char *name, uint64_t value)
{
    key(o, name);
    fprintf(o->f, "%" PRIu64, value);
}

static void put_double(struct out *o, const char *name, double value)
{
    key(o, name);
    fprintf(o->f, "%.6f", value);
}

static void put_maybe(struct out *o, const char *name, double value, bool known)
{
    if (known)
        put_double(o, name, value);
    else
        put_text(o, name, NULL);
}

static void put_bool(struct out *o, const char *name, bool value)
{
    key(o, name);
    fputs(value ? "true" : "false", o->f);
}

static void put_config(struct out *o, const struct result *r)
{
    const struct options *opt = r->run->opt;
    open_object(o, "config", '{');
    put_text(o, "mode", result_mode(r));
    put_text(o, "loop", opt->rate > 0 ? "open" : "closed");
    key(o, "urls");
    bool tls = false;
    for (unsigned i = 0; i < opt->url_count; i++) {
        fputs(i == 0 ? "[" : ", ", o->f);
        json_string(o->f, opt->urls[i].text);
        tls = tls || opt->urls[i].tls;
    }
    fputc(']', o->f);
    put_int(o, "connections", opt->connections);
    put_int(o, "threads", r->run->worker_count);
    put_double(o, "connect_rate", opt->connect_rate);
    put_double(o, "rate", opt->rate);
    put_int(o, "pipeline", opt->pipeline);
    put_int(o, "burst", opt->burst);
    put_int(o, "max_inflight", opt->max_inflight);
    put_double(o, "duration_s", opt->duration);
    put_double(o, "warmup_s", opt->warmup);
    put_int(o, "size", r->run->bodies.size);
    put_text(o, "file", opt->file);
    put_text(o, "type", opt->binary ? "binary" : "text");
    put_bool(o, "tls", tls);
    put_text(o, "deflate", r->run->deflate_offer);
    put_bool(o, "verify", opt->verify);
    put_text(o, "matching", result_matching(r));
    put_int(o, "senders", opt->broadcast ? opt->senders : 0);
    put_int(o, "muted", opt->muted);
    close_object(o, '}');
}

static void put_connections(struct out *o, const struct result *r)
{
    const struct stats *s = &r->final.stats;
    unsigned asked = r->run->opt->connections;
    uint64_t open = counter_get(&s->opened);
    double seconds = result_open_time(r);
    open_object(o, "connections", '{');
    put_int(o, "asked", asked);
    put_int(o, "open", open);
    put_int(o, "failed", asked - open);
    put_int(o, "lost", counter_get(&s->lost));
    put_int(o, "muted_closed", counter_get(&s->muted_closed));
    put_maybe(o, "all_open_s", seconds, open == asked);
    put_double(o, "handshakes_per_s", seconds > 0 ? (double)open / seconds : 0);
    put_int(o, "deflate", counter_get(&s->deflated));
    close_object(o, '}');
}

static void put_messages(struct out *o, const struct result *r)
{
    const struct stats *s = &r->final.stats;
    open_object(o, "messages", '{');
    put_int(o, "scheduled", counter_get(&s->scheduled));
    put_int(o, "sent", counter_get(&s->sent));
    put_int(o, "unsent", result_unsent(r));
    put_int(o, "expected", counter_get(&s->expected));
    put_int(o, "received", counter_get(&s->received));
    put_int(o, "in_flight", counter_get(&s->in_flight));
    put_int(o, "lost", result_lost(r));
    close_object(o, '}');
}

static void put_window(struct out *o, const char *name, const struct sample *from,
                       const struct sample *to)
{
    struct window w;
    bool known = result_window(from, to, &w);
    double seconds = known ? w.seconds : 1;
    double megabits = 8 / 1e6 / seconds;
    open_object(o, name, '{');
    put_double(o, "window_s", w.seconds);
    put_maybe(o, "start_unix", w.start_unix, known);
    put_maybe(o, "end_unix", w.end_unix, known);
    put_maybe(o, "mbps_up", (double)w.bytes_up * megabits, known);
    put_maybe(o, "mbps_down", (double)w.bytes_down * megabits, known);
    put_maybe(o, "payload_mbps_up", (double)w.payload_up * megabits, known);
    put_maybe(o, "payload_mbps_down", (double)w.payload_down * megabits, known);
    put_int(o, "bytes_up", w.bytes_up);
    put_int(o, "bytes_down", w.bytes_down);
    put_int(o, "messages_sent", w.sent);
    put_int(o, "messages_received", w.received);
    put_maybe(o, "sent_per_s", (double)w.sent / seconds, known);
    put_maybe(o, "received_per_s", (double)w.received / seconds, known);
    close_object(o, '}');
}

static void put_hist(struct out *o, const char *name, const struct hist *h, int64_t censored)
{
    static const struct {
        const char *name;
        double q;
    } quantiles[] = {{"p50", 0.5},    {"p90", 0.9},      {"p99", 0.99},
                     {"p999", 0.999}, {"p9999", 0.9999}, {"max", 1}};
    uint64_t count = hist_count(h);
    open_object(o, name, '{');
    put_int(o, "count", count);
    put_maybe(o, "min", (double)hist_min(h) / 1e3, count != 0);
    put_maybe(o, "mean", hist_mean(h) / 1e3, count != 0);
    for (size_t i = 0; i < sizeof quantiles / sizeof *quantiles; i++)
        put_maybe(o, quantiles[i].name, (double)hist_quantile(h, quantiles[i].q) / 1e3, count != 0);
    if (censored >= 0)
        put_int(o, "censored", (uint64_t)censored);
    close_object(o, '}');
}

static void put_error(void *arg, const char *kind, uint64_t n)
{
    put_int(arg, kind, n);
}

static void put_threads(struct out *o, const char *name, const struct result *r,
                        double (*fn)(const struct result *, unsigned))
{
    key(o, name);
    for (unsigned i = 0; i < r->run->worker_count; i++) {
        double v = fn(r, i);
        fputs(i == 0 ? "[" : ", ", o->f);
        if (v >= 0)
            fprintf(o->f, "%.2f", v);
        else
            fputs("null", o->f);
    }
    fputc(']', o->f);
}

static void put_cpu(struct out *o, const struct result *r)
{
    struct window w;
    open_object(o, "cpu", '{');
    put_double(o, "user_s", (double)r->final.user_ns / 1e9);
    put_double(o, "system_s", (double)r->final.system_ns / 1e9);
    double elapsed = (double)(r->ended - r->run->t0) / 1e9;
    double percent = (double)(r->final.user_ns + r->final.system_ns) / 1e7 / elapsed;
    if (result_window(&r->steady, &r->stop, &w))
        percent = w.cpu_percent;
    put_double(o, "percent", percent);
    put_threads(o, "threads_percent", r, result_thread_percent);
    put_threads(o, "threads_wait_percent", r, result_thread_wait);
    close_object(o, '}');
}

static void put_urls(struct out *o, const struct result *r)
{
    const struct run *run = r->run;
    open_object(o, "urls", '[');
    for (unsigned i = 0; i < run->opt->url_count; i++) {
        uint64_t sum[5] = {0};
        for (unsigned k = 0; k < run->worker_count; k++) {
            const struct url_stats *u = &run->workers[k].url_stats[i];
            sum[0] += counter_get(&u->open);
            sum[1] += counter_get(&u->failed);
            sum[2] += counter_get(&u->lost);
            sum[3] += counter_get(&u->sent);
            sum[4] += counter_get(&u->received);
        }
        fputs(i == 0 ? "{" : ", {", o->f);
        o->sep = "";
        put_text(o, "url", run->opt->urls[i].text);
        put_int(o, "open", sum[0]);
        put_int(o, "failed", sum[1]);
        put_int(o, "lost", sum[2]);
        put_int(o, "sent", sum[3]);
        put_int(o, "received", sum[4]);
        fputc('}', o->f);
    }
    close_object(o, ']');
}

static void put_head(struct out *o, const struct result *r)
{
    const struct options *opt = r->run->opt;
    put_int(o, "schema", 1);
    put_text(o, "tool", LOAD_VERSION);
    put_text(o, "status", result_status(r));
    put_text(o, "message", r->message[0] != '\0' ? r->message : NULL);
    put_double(o, "start_unix", r->start_unix);
    put_double(o, "end_unix", r->end_unix);
    put_double(o, "elapsed_s", (double)(r->ended - r->run->t0) / 1e9);
    open_object(o, "command", '[');
    for (int i = 0; i < r->argc; i++) {
        fputs(o->sep, o->f);
        json_string(o->f, r->argv[i]);
        o->sep = ", ";
    }
    close_object(o, ']');
    open_object(o, "labels", '{');
    for (unsigned i = 0; i < opt->label_count; i++)
        put_text(o, opt->labels[i].name, opt->labels[i].value);
    close_object(o, '}');
}

static void put_result(FILE *f, const struct result *r)
{
    struct out o = {f, ""};
    const struct stats *s = &r->final.stats;
    fputc('{', f);
    put_head(&o, r);
    put_config(&o, r);
    put_connections(&o, r);
    put_messages(&o, r);
    put_window(&o, "whole", &r->load, &r->stop);
    put_window(&o, "steady", &r->steady, &r->stop);
    put_hist(&o, "latency_us", &s->latency[WHEN_STEADY], (int64_t)counter_get(&s->censored));
    put_hist(&o, "connect_us", &s->connect, -1);
    put_hist(&o, "handshake_us", &s->handshake, -1);
    put_hist(&o, "lag_us", &s->lag[WHEN_STEADY], -1);
    open_object(&o, "errors", '{');
    stats_errors(s, put_error, &o);
    close_object(&o, '}');
    put_cpu(&o, r);
    put_bool(&o, "bottleneck", r->bottleneck);
    put_text(&o, "bottleneck_reason", r->bottleneck ? r->bottleneck_reason : NULL);
    open_object(&o, "machine", '{');
    put_int(&o, "cores", options_cores());
    close_object(&o, '}');
    put_urls(&o, r);
    fputs("\n}\n", f);
}

int json_open(struct json_file *j, const char *path)
{
    *j = (struct json_file){.path = path};
    if (path == NULL)
        return 0;
    if (strcmp(path, "-") == 0) {
        j->file = stdout;
        return 0;
    }
    /* A device or a pipe is written to, never replaced. */
    struct stat st;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
        j->file = fopen(path, "w");
        return j->file != NULL ? 0 : -1;
    }
    if (asprintf(&j->temporary, "%s.part", path) < 0) {
        j->temporary = NULL;
        return -1;
    }
    j->file = fopen(j->temporary, "w");
    return j->file != NULL ? 0 : -1;
}

int json_write(struct json_file *j, const struct result *r)
{
    if (j->file == NULL)
        return 0;
    put_result(j->file, r);
    int failed = fflush(j->file) != 0 || ferror(j->file);
    if (j->file == stdout)
        return failed ? -1 : 0;
    failed = fclose(j->file) != 0 || failed;
    j->file = NULL;
    if (failed || (j->temporary != NULL && rename(j->temporary, j->path) != 0))
        return -1;
    free(j->temporary);
    j->temporary = NULL;
    return 0;
}

void json_discard(struct json_file *j)
{
    int saved = errno;
    if (j->file != NULL && j->file != stdout)
        fclose(j->file);
    if (j->temporary != NULL)
        unlink(j->temporary);
    free(j->temporary);
    *j = (struct json_file){.path = NULL};
    errno = saved;
}
