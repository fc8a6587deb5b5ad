/* A WebSocket load generator. See options_help.h for what it does and SCHEMA.md for what it writes. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "clock.h"
#include "control.h"
#include "handshake.h"
#include "json.h"
#include "metrics.h"
#include "report.h"
#include "stream.h"
#include "worker.h"

enum { EXIT_OK, EXIT_FAILED, EXIT_USAGE };
enum { OTHER_DESCRIPTORS = 64 };

static int complain(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what, why);
    return -1;
}

/* The soft limit of descriptors is raised as far as it may; the hard one is the user's to change. */
static int raise_limit(const struct options *o)
{
    struct rlimit limit;
    rlim_t need = (rlim_t)o->connections + o->threads * 2 + OTHER_DESCRIPTORS;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return complain("getrlimit", strerror(errno));
    if (limit.rlim_cur >= need)
        return 0;
    if (limit.rlim_max < need) {
        fprintf(stderr,
                "%s: %u connections need %llu descriptors, the limit is %llu: raise it (ulimit -n) "
                "or ask for fewer\n",
                program_invocation_short_name, o->connections, (unsigned long long)need,
                (unsigned long long)limit.rlim_max);
        return -1;
    }
    limit.rlim_cur = limit.rlim_max;
    return setrlimit(RLIMIT_NOFILE, &limit) == 0 ? 0 : complain("setrlimit", strerror(errno));
}

static int make_bodies(struct run *r)
{
    const struct options *o = r->opt;
    const char *why = "";
    enum body_kind kind = o->binary ? BODY_BINARY : o->utf8 ? BODY_UTF8 : BODY_TEXT;
    int rc = o->file != NULL ? bodies_from_file(&r->bodies, o->file, !o->binary, &why)
                             : bodies_generate(&r->bodies, o->size, kind, &why);
    return rc == 0 ? 0 : complain(o->file != NULL ? o->file : "messages", why);
}

static int make_request(struct run *r, unsigned i) /* of URL i */
{
    struct request *q = &r->requests[i];
    q->text = handshake_request(r->opt, &r->opt->urls[i], &q->length, &q->key_at);
    if (q->text == NULL)
        return complain("request", "out of memory");
    if (q->length > HANDSHAKE_HEAD_MAX)
        return complain(r->opt->urls[i].text, "address and headers together are too long");
    return 0;
}

static int prepare(struct run *r)
{
    const struct options *o = r->opt;
    const char *why = "";
    bool tls = false;
    r->steady_start = r->end = UINT64_MAX;
    r->worker_count = o->threads;
    r->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    r->requests = calloc(o->url_count, sizeof *r->requests);
    if (r->wake < 0 || r->requests == NULL)
        return complain("start", strerror(errno));
    if (o->deflate)
        r->deflate_offer = handshake_deflate_params(o);
    for (unsigned i = 0; i < o->url_count; i++) {
        if (url_resolve(&o->urls[i], &why) != 0)
            return complain(o->urls[i].text, why);
        if (make_request(r, i) != 0)
            return -1;
        tls = tls || o->urls[i].tls;
    }
    if (tls && (r->tls = stream_context(o, &why)) == NULL)
        return complain("TLS", why);
    return make_bodies(r);
}

static int init_workers(struct run *r)
{
    const char *why = "";
    r->workers = calloc(r->worker_count, sizeof *r->workers);
    if (r->workers == NULL)
        return complain("threads", "out of memory");
    for (unsigned i = 0; i < r->worker_count; i++)
        if (worker_init(&r->workers[i], r, i, &why) != 0)
            return complain("threads", why);
    return 0;
}

static int start_workers(struct run *r)
{
    for (unsigned i = 0; i < r->worker_count; i++)
        if (worker_start(&r->workers[i]) != 0)
            return complain("threads", "cannot start one");
    return 0;
}

/* Threads that run when another could not be started. */
static void stop_workers(struct run *r)
{
    run_set_phase(r, PHASE_CLOSE);
    for (unsigned i = 0; i < r->worker_count; i++)
        if (r->workers[i].started)
            pthread_join(r->workers[i].thread, NULL);
}

static int open_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    /* A peer that is gone and a file that may not grow are errors of a call, not the end of us. */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    return signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

/* Everything between a checked command line and the finished measurement. */
static int measure(struct result *res, struct json_file *json, FILE *events)
{
    struct run *r = res->run;
    const struct options *o = r->opt;
    struct ticker ticker;
    struct metrics *metrics = NULL;
    const char *why = "";
    int rc = -1;
    struct control k = {.run = r, .result = res, .events = events, .signals = open_signals()};
    if (ticker_init(&ticker, r, o->progress && !o->quiet) != 0 || k.signals < 0) {
        complain("start", strerror(errno));
        goto out;
    }
    if (o->progress || o->metrics != NULL)
        k.ticker = &ticker;
    r->t0 = clock_ns();
    if (init_workers(r) != 0)
        goto out;
    if (o->metrics != NULL && (metrics = metrics_start(o->metrics, r, &ticker, &why)) == NULL) {
        fprintf(stderr, "%s: --metrics %s: %s\n", program_invocation_short_name, o->metrics, why);
        goto out;
    }
    res->start_unix = clock_wall();
    if (start_workers(r) != 0) {
        stop_workers(r);
        goto out;
    }
    control_run(&k);
    result_judge(res);
    if (o->strict && res->status == STATUS_OK && stats_error_total(&res->final.stats) != 0) {
        res->status = STATUS_FAILED;
        snprintf(res->message, sizeof res->message, "there were errors (--strict)");
    }
    rc = 0;
    if (json_write(json, res) != 0) {
        fprintf(stderr, "%s: --json %s: %s\n", program_invocation_short_name, o->json,
                strerror(errno));
        rc = -1;
    }
    control_event_end(&k);
out:
    metrics_stop(metrics);
    ticker_clear(&ticker);
    if (k.signals >= 0)
        close(k.signals);
    return rc;
}

static void clear(struct run *r, struct options *o)
{
    for (unsigned i = 0; r->workers != NULL && i < r->worker_count; i++)
        worker_clear(&r->workers[i]);
    free(r->workers);
    for (unsigned i = 0; r->requests != NULL && i < o->url_count; i++)
        free(r->requests[i].text);
    free(r->requests);
    bodies_clear(&r->bodies);
    SSL_CTX_free(r->tls);
    if (r->wake >= 0)
        close(r->wake);
    options_clear(o);
}

static int run(struct options *o, struct result *res)
{
    struct json_file json = {.path = NULL};
    FILE *events = NULL;
    int rc = -1;
    if (json_open(&json, o->json) != 0) {
        fprintf(stderr, "%s: --json %s: %s\n", program_invocation_short_name, o->json,
                strerror(errno));
        goto out;
    }
    if (o->events != NULL && (events = fopen(o->events, "w")) == NULL) {
        fprintf(stderr, "%s: --events %s: %s\n", program_invocation_short_name, o->events,
                strerror(errno));
        goto out;
    }
    if (raise_limit(o) != 0 || prepare(res->run) != 0)
        goto out;
    rc = measure(res, &json, events);
    if (res->ended != 0 && (o->json == NULL || strcmp(o->json, "-") != 0))
        report_print(stdout, res);
    if (fflush(stdout) != 0)
        rc = complain("stdout", strerror(errno));
    if (res->status == STATUS_FAILED)
        rc = complain("failed", res->message);
out:
    json_discard(&json);
    if (events != NULL)
        fclose(events);
    return rc == 0 ? EXIT_OK : EXIT_FAILED;
}

int main(int argc, char **argv)
{
    /* Kept out of the stack: the samples hold histograms. */
    static struct run r = {.wake = -1};
    static struct result res;
    static struct options o;
    int status = EXIT_USAGE;
    switch (options_parse(&o, argc, argv)) {
    case OPTIONS_DONE:
        status = EXIT_OK;
        break;
    case OPTIONS_BAD:
        break;
    case OPTIONS_RUN:
        r.opt = &o;
        res.run = &r;
        res.argc = argc;
        res.argv = argv;
        status = run(&o, &res);
        break;
    }
    clear(&r, &o);
    return status;
}
