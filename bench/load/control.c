#include "control.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "clock.h"
#include "worker.h"

/* Schedules begin so long after the decision, when every thread has seen it. */
#define LOAD_DELAY (20 * NS_PER_MS)
#define DRAIN_STEP (5 * NS_PER_MS)

enum reason { REASON_TIME, REASON_DONE, REASON_SIGNAL };
typedef bool condition(const struct control *k);

static void say_phase(struct control *k, enum phase p)
{
    if (k->events == NULL)
        return;
    fprintf(k->events, "{\"phase\":\"%s\",\"unix\":%.6f}\n", phase_name(p), clock_wall());
    fflush(k->events);
}

void control_event_end(struct control *k)
{
    if (k->events == NULL)
        return;
    fprintf(k->events, "{\"phase\":\"end\",\"unix\":%.6f,\"status\":\"%s\"}\n", clock_wall(),
            result_status(k->result));
    fflush(k->events);
}

__attribute__((format(printf, 2, 3))) static void fail(struct control *k, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(k->result->message, sizeof k->result->message, format, args);
    va_end(args);
    k->result->status = STATUS_FAILED;
}

static bool got_signal(struct control *k)
{
    struct signalfd_siginfo info;
    if (read(k->signals, &info, sizeof info) != (ssize_t)sizeof info)
        return false;
    if (k->result->status == STATUS_OK) {
        k->result->status = STATUS_INTERRUPTED;
        snprintf(k->result->message, sizeof k->result->message, "stopped by %s",
                 info.ssi_signo == SIGINT ? "SIGINT" : "SIGTERM");
    }
    return true;
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Waits until `deadline` or until `done` holds, which is looked at every `step` and when a thread calls. */
static enum reason wait_for(struct control *k, uint64_t deadline, condition *done, uint64_t step)
{
    while (1) {
        uint64_t now = clock_ns();
        if (done != NULL && done(k))
            return REASON_DONE;
        if (now >= deadline)
            return REASON_TIME;
        if (k->ticker != NULL && now >= k->next_tick) {
            ticker_tick(k->ticker);
            k->next_tick += NS_PER_S;
            continue;
        }
        uint64_t until = earlier(deadline, now + step);
        if (k->ticker != NULL)
            until = earlier(until, k->next_tick);
        struct timespec ts = {(time_t)((until - now) / NS_PER_S), (long)((until - now) % NS_PER_S)};
        struct pollfd set[2] = {{.fd = k->run->wake, .events = POLLIN},
                                {.fd = k->signals, .events = POLLIN}};
        eventfd_t ignored;
        if (ppoll(set, 2, &ts, NULL) <= 0)
            continue;
        if (set[0].revents != 0)
            eventfd_read(k->run->wake, &ignored);
        if (set[1].revents != 0 && got_signal(k))
            return REASON_SIGNAL;
    }
}

static bool settled(const struct control *k)
{
    return atomic_load(&k->run->settled) == k->run->opt->connections;
}

static bool all_gone(const struct control *k)
{
    return atomic_load(&k->run->open) == 0;
}

static bool drained(const struct control *k)
{
    return all_gone(k) || run_drained(k->run);
}

struct error_text {
    char *at;
    size_t room;
};

static void add_error(void *arg, const char *kind, uint64_t n)
{
    struct error_text *t = arg;
    int len = snprintf(t->at, t->room, " %s %" PRIu64, kind, n);
    if (len > 0 && (size_t)len < t->room) {
        t->at += len;
        t->room -= (size_t)len;
    }
}

/* "refused 10 reset 2": why nothing is open (any more). */
static void describe_errors(struct control *k, char *text, size_t room)
{
    struct error_text t = {text, room};
    text[0] = '\0';
    run_stats(k->run, &k->result->final.stats);
    stats_errors(&k->result->final.stats, add_error, &t);
}

static void fail_with_errors(struct control *k, const char *what)
{
    char errors[160];
    describe_errors(k, errors, sizeof errors);
    fail(k, "%s:%s", what, errors[0] != '\0' ? errors : " no error was reported");
}

static void set_phase(struct control *k, enum phase p)
{
    run_set_phase(k->run, p);
    say_phase(k, p);
}

/* Nothing is scheduled from now on. */
static void stop_schedule(struct control *k)
{
    uint64_t now = clock_ns();
    if (k->run->end > now)
        k->run->end = now;
}

/* True when the load can begin. */
static bool connect_phase(struct control *k)
{
    struct run *r = k->run;
    say_phase(k, PHASE_CONNECT);
    if (r->opt->early)
        sample_take(&k->result->load, r);
    enum reason reason = wait_for(k, UINT64_MAX, settled, NS_PER_S);
    if (reason == REASON_SIGNAL)
        return false;
    if (all_gone(k)) {
        struct stats *s = &k->result->final.stats;
        run_stats(r, s);
        fail_with_errors(k, counter_get(&s->opened) == 0 ? "no connection could be opened"
                                                         : "every connection was lost");
        return false;
    }
    return true;
}

/* True when the phase ran to its end. */
static bool load_phase(struct control *k, uint64_t until)
{
    switch (wait_for(k, until, all_gone, NS_PER_S)) {
    case REASON_TIME:
        return true;
    case REASON_DONE:
        fail_with_errors(k, "every connection was lost before the end");
        return false;
    case REASON_SIGNAL:
        break;
    }
    return false;
}

static void load_phases(struct control *k)
{
    struct run *r = k->run;
    const struct options *o = r->opt;
    uint64_t now = clock_ns();
    r->load_start = now + (o->connect_only ? 0 : LOAD_DELAY);
    r->steady_start = r->load_start + (uint64_t)(o->warmup * 1e9);
    r->end = r->steady_start + (uint64_t)(o->duration * 1e9);
    if (k->result->load.at == 0)
        sample_take(&k->result->load, r);
    run_set_phase(r, PHASE_WARMUP);
    if (o->warmup > 0)
        say_phase(k, PHASE_WARMUP);
    if (load_phase(k, r->steady_start)) {
        sample_take(&k->result->steady, r);
        set_phase(k, PHASE_STEADY);
        load_phase(k, r->end);
    }
    sample_take(&k->result->stop, r);
    stop_schedule(k);
}

static void drain_phase(struct control *k)
{
    if (k->run->opt->connect_only || all_gone(k))
        return;
    set_phase(k, PHASE_DRAIN);
    uint64_t until = clock_ns() + (uint64_t)(k->run->opt->drain * 1e9);
    if (wait_for(k, until, drained, DRAIN_STEP) == REASON_DONE && all_gone(k))
        fail_with_errors(k, "every connection was lost before the last replies");
}

void control_run(struct control *k)
{
    struct run *r = k->run;
    struct result *res = k->result;
    k->next_tick = clock_ns() + NS_PER_S;
    if (connect_phase(k)) {
        load_phases(k);
        drain_phase(k);
    } else {
        stop_schedule(k);
    }
    set_phase(k, PHASE_CLOSE);
    for (unsigned i = 0; i < r->worker_count; i++)
        pthread_join(r->workers[i].thread, NULL);
    sample_take(&res->final, r);
    res->ended = res->final.at;
    res->end_unix = res->final.unix_time;
    if (k->ticker != NULL)
        ticker_finish(k->ticker);
}
