/* tws_reconnect(): dial, run, close, wait a random while, again. */
#include "client/reconnect.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/random.h"
#include "base/sized.h"
#include "client/dial.h"
#include "event/event.h"

#include <string.h>

void tws_reconnect_options_init_sized(tws_reconnect_options *opt, size_t size)
{
    tws_reconnect_options o;

    memset(&o, 0, sizeof o);
    o.size = size;
    o.min_delay = 500;
    o.max_delay = 30000;
    o.stable_after = 10000;
    base_sized_give(opt, size, &o, sizeof o);
}

tws_ms reconnect_delay(const tws_reconnect_options *o, uint32_t n, uint64_t random)
{
    tws_ms most = o->min_delay;

    for (; n > 1 && most < o->max_delay; n--)
        most = most > o->max_delay / 2 ? o->max_delay : most * 2;
    return (tws_ms)(random % ((uint64_t)most + 1));
}

/* ---- Options ---- */

struct reconnect {
    tws_reconnect_options o;
    const char *url;
    tws_dial_options dial;
    tws_connection_fn run; /* NULL: events */
    void *arg;
    tws_events events;
    struct task_cancel *cancel; /* NULL: nobody can */
    tws_error *error;
    uint32_t unstable; /* attempts in a row that failed or whose connection did not last */
    uint32_t failures; /* dials in a row that failed */
};

static tws_err fail(struct reconnect *r, tws_err code, const char *why)
{
    return base_fault(r->error, code, TWS_PHASE_NONE, 0, why, NULL);
}

static tws_err cancelled(struct reconnect *r)
{
    return fail(r, TWS_ERR_CANCELLED, "by tws_cancel_now()");
}

/* Who handles each connection. What is wrong; NULL: nothing. */
static const char *take_handlers(struct reconnect *r)
{
    const tws_events *events = r->dial.events;

    r->dial.events = NULL; /* they run here, not on threads of the dials */
    if (r->dial.group)
        return "a group cannot be named: all happens on the calling thread";
    if (!r->run == !events)
        return "neither run nor events, or both";
    return events ? event_take(&r->events, events) : NULL;
}

static tws_err take_options(struct reconnect *r, const tws_dial_options *dial,
                            const tws_reconnect_options *opt)
{
    tws_reconnect_options *o = &r->o;
    const char *what;

    tws_reconnect_options_init(o);
    if (!dial_options_take(&r->dial, dial) ||
        (opt && opt->size < sizeof opt->size + sizeof opt->min_delay))
        return fail(r, TWS_ERR_ARGUMENT, "options were not initialised");
    if (opt)
        base_sized_take(o, sizeof *o, opt, opt->size);
    r->cancel = r->dial.cancel ? &r->dial.cancel->task : NULL;
    what = take_handlers(r);
    if (!r->url)
        what = "url is NULL";
    if (what)
        return fail(r, TWS_ERR_ARGUMENT, what);
    if (r->dial.fd >= 0)
        return fail(r, TWS_ERR_ARGUMENT, "a descriptor cannot be dialled again");
    if (o->max_delay == TWS_NO_LIMIT)
        o->max_delay = INT64_MAX / BASE_NS_PER_S;
    if (o->stable_after > INT64_MAX / BASE_NS_PER_S)
        o->stable_after = INT64_MAX / BASE_NS_PER_S;
    if (o->min_delay < 1 || o->max_delay < o->min_delay || o->stable_after < 0)
        return fail(r, TWS_ERR_ARGUMENT,
                    "min_delay is below 1, above max_delay, or stable_after is negative");
    if (o->max_delay > INT64_MAX / BASE_NS_PER_S)
        o->max_delay = INT64_MAX / BASE_NS_PER_S;
    return TWS_OK;
}

/* ---- One round ---- */

/* With the cancel's lock held: only begins to close, which never waits. */
static void go_away(void *conn)
{
    tws_close_start(conn, TWS_CLOSE_GOING_AWAY, NULL);
}

static void count(uint32_t *n)
{
    if (*n < UINT32_MAX)
        ++*n;
}

static void serve(struct reconnect *r, tws_conn *c)
{
    int64_t began = base_clock_ns();
    struct task_cancel_link link;

    if (task_cancel_join(&link, r->cancel, go_away, c)) {
        if (r->run)
            r->run(c, r->arg);
        else if (event_claim(c))
            event_run(c, &r->events, r->dial.events_arg);
        task_cancel_leave(&link);
        conn_finish(c, TWS_CLOSE_NORMAL);
    } else {
        conn_finish(c, TWS_CLOSE_GOING_AWAY);
    }
    tws_conn_error(c, r->error);
    tws_conn_unref(c);
    r->failures = 0;
    if (base_clock_ns() - began >= r->o.stable_after * BASE_NS_PER_MS)
        r->unstable = 0;
    else
        count(&r->unstable);
}

/* Failures that come again whenever it is tried. */
static bool is_hopeless(tws_err err)
{
    return err == TWS_ERR_ARGUMENT || err == TWS_ERR_ADDRESS || err == TWS_ERR_CERTIFICATE ||
           err == TWS_ERR_UNSUPPORTED || err == TWS_ERR_CANCELLED;
}

static void wake(void *park)
{
    task_unpark(park);
}

/* The random wait begins when the server wants to be asked again: others have been told the same. */
static tws_ms pause_length(const struct reconnect *r, uint32_t retry_after)
{
    tws_ms asked = (tws_ms)retry_after * 1000;
    uint64_t random = 0;

    if (!base_random(&random, sizeof random))
        random = (uint64_t)base_clock_ns();
    if (asked > r->o.max_delay)
        asked = r->o.max_delay;
    return asked + reconnect_delay(&r->o, r->unstable, random);
}

/* False: cancelled. */
static bool wait_a_while(struct reconnect *r, uint32_t retry_after)
{
    struct task_cancel_link link;
    struct task_park park;
    tws_ms ms = pause_length(r, retry_after);

    if (r->o.on_pause)
        r->o.on_pause(r->error, r->failures, ms, r->o.pause_arg);
    task_park_init(&park);
    if (!task_cancel_join(&link, r->cancel, wake, &park))
        return false;
    task_park(&park, base_clock_ns() + ms * BASE_NS_PER_MS);
    task_cancel_leave(&link);
    return !task_cancel_is_set(r->cancel);
}

static tws_err loop(struct reconnect *r)
{
    uint32_t retry_after;
    tws_conn *c;
    tws_err err;

    do {
        err = dial_run(&c, r->url, &r->dial, NULL, r->error, &retry_after);
        if (is_hopeless(err))
            return err;
        if (err == TWS_OK) {
            serve(r, c);
            continue;
        }
        count(&r->unstable);
        count(&r->failures);
        if (r->failures == r->o.max_attempts)
            return err;
    } while (!task_cancel_is_set(r->cancel) && wait_a_while(r, retry_after));
    return cancelled(r);
}

tws_err tws_reconnect(const char *url, const tws_dial_options *dial,
                      const tws_reconnect_options *opt, tws_connection_fn run, void *arg,
                      tws_error *error)
{
    tws_error local = {.code = TWS_OK};
    struct reconnect r = {.url = url, .run = run, .arg = arg, .error = error ? error : &local};
    tws_err err;

    err = take_options(&r, dial, opt);
    return err ? err : loop(&r);
}
