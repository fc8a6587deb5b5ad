/* Starting, stopping and draining a server. */
#include "server/server.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/sized.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Before an address that is without TLS. */
#define PLAIN "plain:"
/* In place of an address: connections come in other ways. */
#define NOWHERE "none"
/* Inherited sockets that one address may stand for. */
#define LISTENERS_MAX 64

void tws_server_options_init_sized(tws_server_options *opt, size_t size)
{
    tws_server_options o;

    memset(&o, 0, sizeof o);
    o.size = size;
    o.backlog = 4096;
    o.max_connections = 10000;
    o.max_handshakes = 4096;
    tws_upgrade_options_init(&o.upgrade);
    base_sized_give(opt, size, &o, sizeof o);
}

/* ---- Starting ---- */

static tws_err failed(tws_error *e, tws_err code, int sys_errno, const char *what)
{
    return base_fault(e, code, TWS_PHASE_LISTEN, sys_errno, what, NULL);
}

static const char *check(const tws_server_options *o)
{
    if (!o->on_connection && !o->events)
        return "neither on_connection nor events is set";
    if (o->on_connection && o->events)
        return "on_connection and events together";
    if (!o->listen || o->listen_count == 0)
        return "no address to listen on";
    for (size_t i = 0; i < o->listen_count; i++)
        if (!o->listen[i])
            return "an address is missing";
    if (o->upgrade.parsed)
        return "a server reads its requests itself";
    if (o->backlog < 1)
        return "backlog is below 1";
    if (o->threads != TWS_THREADS_KERNEL && o->threads != TWS_THREADS_LIGHT)
        return "threads is neither kernel nor light";
    if (o->carriers > TASK_CARRIERS_MAX)
        return "more than 1,024 carriers";
    if (o->stack_size > 0 && o->stack_size < TASK_STACK_MIN)
        return "stack_size is below 16,384";
    return NULL;
}

/* Notes the address of the listener that has just been opened. */
static tws_err add_listener(tws_server *s, bool plain, tws_error *e)
{
    char text[256];
    struct net_listener *l = &s->listeners[s->listener_count];
    char **address = &s->addresses[s->listener_count];

    l->plain = plain || !s->cfg->opt.tls;
    s->listener_count++;
    if (net_local_text(l->fd, text, sizeof text) == 0)
        return failed(e, TWS_ERR_SYSTEM, errno, NULL); /* nobody could be told the port */
    *address = base_strdup(server_allocator(s), text);
    return *address ? TWS_OK : failed(e, TWS_ERR_MEMORY, 0, NULL);
}

static tws_err address_failed(tws_error *e, const char *address, const char *why, int error)
{
    char text[192];

    if (why)
        snprintf(text, sizeof text, "%s: %s", address, why);
    return failed(e, TWS_ERR_ADDRESS, error, why ? text : address);
}

/* Whether a listener has that descriptor already. */
static bool is_listened_on(const tws_server *s, int fd)
{
    for (size_t i = 0; i < s->listener_count; i++)
        if (s->listeners[i].fd == fd)
            return true;
    return false;
}

/* The sockets that one address stands for, all of which exist already. */
static tws_err open_inherited(tws_server *s, const char *address, const char *whole, int count,
                              tws_error *e)
{
    bool plain = address != whole;
    int fds[LISTENERS_MAX];
    const char *why = NULL;
    tws_err err = TWS_OK;

    net_inherited(address, fds, count, &why);
    for (int i = 0; i < count && !err; i++) {
        int r = is_listened_on(s, fds[i]) ? -EBUSY : 0;

        if (r < 0)
            why = "listed twice";
        else
            r = net_listen_inherited(&s->listeners[s->listener_count], fds[i], &why);
        err = r < 0 ? address_failed(e, whole, why, -r) : add_listener(s, plain, e);
    }
    return err;
}

static const char *without_plain(const char *address)
{
    return address + (strncmp(address, PLAIN, sizeof PLAIN - 1) == 0 ? sizeof PLAIN - 1 : 0);
}

static tws_err open_listeners(tws_server *s, const tws_server_options *o, tws_error *e)
{
    const tws_allocator *a = server_allocator(s);
    const char *why = NULL;
    size_t total = 0;
    tws_err err = TWS_OK;

    for (size_t i = 0; i < o->listen_count; i++) {
        int n = net_inherited(without_plain(o->listen[i]), NULL, 0, &why);

        if (n < 0)
            return address_failed(e, o->listen[i], why, -n);
        if (n > LISTENERS_MAX)
            return address_failed(e, o->listen[i], "too many sockets", E2BIG);
        total += n > 0 ? (size_t)n : 1;
    }
    s->listeners = base_calloc(a, total * sizeof *s->listeners);
    s->addresses = base_calloc(a, total * sizeof *s->addresses);
    if (!s->listeners || !s->addresses)
        return failed(e, TWS_ERR_MEMORY, 0, NULL);
    for (size_t i = 0; i < o->listen_count && !err; i++) {
        const char *address = without_plain(o->listen[i]);
        int n = net_inherited(address, NULL, 0, &why);
        int r;

        if (strcmp(address, NOWHERE) == 0)
            continue;
        if (n > 0) {
            err = open_inherited(s, address, o->listen[i], n, e);
            continue;
        }
        r = net_listen(&s->listeners[s->listener_count], address, o->backlog, o->reuse_port);
        why = r == -EINVAL ? "not HOST:PORT with a number, [IPV6]:PORT, unix:PATH or fd:N" : NULL;
        err = r < 0 ? address_failed(e, o->listen[i], why, -r)
                    : add_listener(s, address != o->listen[i], e);
    }
    return err;
}

static void kick(void *conn)
{
    conn_kick(conn);
}

static void watch_main(void *server)
{
    tws_server *s = server;

    hold_board_run(s->cfg->env->hold, kick);
}

static void log_stuck(void *server, uint64_t label, tws_ms ms)
{
    tws_server *s = server;

    base_logf(
        &s->log, TWS_LOG_WARNING,
        "the handler of connection %llu has kept its carrier for %d ms; the others were moved",
        (unsigned long long)label, (int)ms);
}

/* Inherited sockets are the server's once nothing can fail any more. */
static tws_err start_accepting(tws_server *s, tws_error *e)
{
    int r;

    for (size_t i = 0; i < s->listener_count; i++)
        net_listener_own(&s->listeners[i], true);
    r = task_service_start(&s->acceptor, "tws-accept", true, server_accept_main, s);
    if (r < 0) {
        for (size_t i = 0; i < s->listener_count; i++)
            net_listener_own(&s->listeners[i], false);
        return failed(e, TWS_ERR_SYSTEM, -r, "thread");
    }
    s->acceptor_runs = true;
    return TWS_OK;
}

static tws_err start_threads(tws_server *s, tws_error *e)
{
    struct task_options t = {.kind = s->opt.threads == TWS_THREADS_LIGHT ? TASK_LIGHT : TASK_KERNEL,
                             .stack_size = s->opt.stack_size,
                             .spread = !s->opt.no_spread,
                             .no_pause = s->opt.no_pause,
                             .carriers = s->opt.carriers,
                             .paint = s->opt.measure_stacks,
                             .on_stuck = log_stuck,
                             .on_stuck_arg = s,
                             .name = "tws-conn",
                             .allocator = server_allocator(s)};
    int r = task_runtime_new(&s->runtime, &t);

    if (r == -ENOMEM)
        return failed(e, TWS_ERR_MEMORY, 0, NULL);
    if (r < 0)
        return failed(e, TWS_ERR_SYSTEM, -r, "threads");
    conn_env_serve(s->cfg->env, s->runtime);
    if (s->opt.upgrade.conn.join_replies) {
        s->cfg->env->hold = hold_board_new(server_allocator(s));
        if (!s->cfg->env->hold)
            return failed(e, TWS_ERR_MEMORY, 0, NULL);
        r = task_service_start(&s->watcher, "tws-watch", true, watch_main, s);
        if (r < 0)
            return failed(e, TWS_ERR_SYSTEM, -r, "thread");
        s->watcher_runs = true;
    }
    if ((s->opt.max_per_address > 0 && !address_table_init(&s->per_address, server_allocator(s))) ||
        (s->opt.max_address_rate > 0 && !rate_table_init(&s->rates, server_allocator(s))) ||
        !server_accept_prepare(s))
        return failed(e, TWS_ERR_MEMORY, 0, NULL);
    s->accept_spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return start_accepting(s, e);
}

/* Everything but the threads' work is undone. */
static void server_release(tws_server *s)
{
    const tws_allocator *a = server_allocator(s);

    if (s->watcher_runs) {
        hold_board_stop(s->cfg->env->hold);
        task_service_join(&s->watcher);
    }
    if (s->cfg) {
        conn_env_serve(s->cfg->env, NULL);
        conn_tell_here(s->cfg->env); /* what there was no thread for */
    }
    task_runtime_free(s->runtime);
    for (size_t i = 0; i < s->listener_count; i++) {
        net_listener_close(&s->listeners[i]);
        base_free(a, s->addresses[i]);
    }
    base_free(a, s->listeners);
    base_free(a, s->addresses);
    base_free(a, s->accept_fds);
    address_table_free(&s->per_address);
    rate_table_free(&s->rates, a);
    if (s->accept_spare >= 0) /* the acceptor never ran */
        close(s->accept_spare);
    task_event_destroy(&s->stop);
    pthread_mutex_destroy(&s->mu);
    upgrade_config_free(s->cfg);
    base_free(a, s);
}

tws_err tws_server_start(tws_server **out, const tws_server_options *opt, tws_error *error)
{
    tws_server_options o;
    tws_events events;
    const char *what = "options were not initialised";
    tws_server *s;
    tws_err err;
    int r;

    *out = NULL;
    tws_server_options_init(&o);
    if (!opt || opt->size < sizeof opt->size + sizeof opt->listen)
        return failed(error, TWS_ERR_ARGUMENT, 0, what);
    base_sized_take(&o, sizeof o, opt, opt->size);
    what = check(&o);
    if (!what && o.events)
        what = event_take(&events, o.events);
    if (what)
        return failed(error, TWS_ERR_ARGUMENT, 0, what);
    if (!o.upgrade.hook_arg)
        o.upgrade.hook_arg = o.arg;
    if (o.tls)
        o.upgrade.tls = o.tls;

    s = base_calloc(o.upgrade.allocator, sizeof *s);
    if (!s)
        return failed(error, TWS_ERR_MEMORY, 0, NULL);
    s->opt = o;
    if (o.events) {
        s->events = events;
        s->opt.events = &s->events;
    }
    s->log = (struct base_log){.fn = o.log, .arg = o.log_arg};
    s->stop.fd = s->accept_spare = -1;
    pthread_mutex_init(&s->mu, NULL);
    err = upgrade_config_new(&s->cfg, &o.upgrade, o.threads == TWS_THREADS_LIGHT, &what);
    if (err) {
        failed(error, err, 0, what);
        goto fail;
    }
    r = task_event_init(&s->stop);
    err = r < 0 ? failed(error, TWS_ERR_SYSTEM, -r, "eventfd") : open_listeners(s, &o, error);
    if (err)
        goto fail;
    s->opt.listen = NULL; /* the caller's; ours are in addresses */
    *out = s;
    err = start_threads(s, error);
    if (!err)
        return TWS_OK;
fail:
    *out = NULL;
    server_release(s);
    return err;
}

size_t tws_server_address(const tws_server *s, size_t index, char *buf, size_t size)
{
    const char *text = index < s->listener_count ? s->addresses[index] : "";

    return base_text_copy(buf, size, text, strlen(text));
}

int tws_server_dup_listener(const tws_server *s, size_t index)
{
    return index < s->listener_count ? fcntl(s->listeners[index].fd, F_DUPFD_CLOEXEC, 0) : -1;
}

/* ---- Stopping ---- */

void tws_server_stop(tws_server *s)
{
    atomic_store(&s->stopping, true);
    task_event_set(&s->stop);
}

void tws_server_wait(tws_server *s)
{
    struct pollfd pfd = {.fd = s->stop.fd, .events = POLLIN};

    while (!atomic_load(&s->stopping))
        if (task_poll(&pfd, 1, TASK_FOREVER) < 0) /* no memory: look again now and then */
            task_sleep(base_clock_ns() + 100 * BASE_NS_PER_MS);
}

/* The first call to drain tells everybody. */
static void begin_drain_locked(tws_server *s, tws_ms ms)
{
    if (s->draining)
        return;
    s->draining = true;
    conn_env_quiet(s->cfg->env);
    server_peers_close_locked(s, ms > 0 ? ms : 0);
}

/* The other calls may return. */
static void end_drain(tws_server *s)
{
    pthread_mutex_lock(&s->mu);
    s->drained = true;
    task_queue_wake_all(&s->drain_done);
    pthread_mutex_unlock(&s->mu);
}

tws_err tws_server_drain(tws_server *s, tws_ms ms)
{
    int64_t deadline = task_deadline(ms);
    bool join, first;
    tws_err err;

    if (ms < TWS_NOWAIT)
        return TWS_ERR_ARGUMENT;
    if (task_runtime_here(s->runtime) || conn_tells_here(s->cfg->env))
        return TWS_ERR_STATE;
    pthread_mutex_lock(&s->mu);
    first = !s->draining;
    begin_drain_locked(s, ms);
    join = first && s->acceptor_runs;
    pthread_mutex_unlock(&s->mu);
    tws_server_stop(s);
    if (join)
        task_service_join(&s->acceptor);

    if (task_runtime_wait(s->runtime, deadline) < 0) {
        pthread_mutex_lock(&s->mu);
        s->cutting = true;
        server_peers_cut_locked(s);
        pthread_mutex_unlock(&s->mu);
        task_runtime_wait(s->runtime, TASK_FOREVER);
    }
    if (first) {
        base_log_gate_end(&s->log, &s->log_refused, TWS_LOG_WARNING);
        base_log_gate_end(&s->log, &s->log_passed, TWS_LOG_WARNING);
        base_log_gate_end(&s->log, &s->log_failed, TWS_LOG_DEBUG);
        end_drain(s);
    }
    pthread_mutex_lock(&s->mu);
    while (!s->drained)
        task_queue_wait(&s->drain_done, &s->mu, TASK_FOREVER);
    err = s->was_cut ? TWS_ERR_TIMEOUT : TWS_OK;
    pthread_mutex_unlock(&s->mu);
    return err;
}

void tws_server_free(tws_server *s)
{
    if (!s)
        return;
    tws_server_drain(s, TWS_NOWAIT);
    server_release(s);
}

/* ---- Visiting ---- */

static size_t collect_locked(tws_server *s, tws_conn **list, size_t max)
{
    size_t n = 0;

    for (struct server_peer *p = s->peers; p && n < max; p = p->next)
        if (p->stage == PEER_OPEN)
            list[n++] = tws_conn_ref(p->conn);
    return n;
}

size_t tws_server_each(tws_server *s, tws_each_fn fn, void *arg)
{
    const tws_allocator *a = server_allocator(s);
    tws_conn **list = NULL;
    size_t n = 0, visited = 0;
    uint32_t max;
    bool go_on = true;

    pthread_mutex_lock(&s->mu);
    max = s->open;
    if (max > 0)
        list = base_alloc(a, max * sizeof(*list));
    if (list)
        n = collect_locked(s, list, max);
    pthread_mutex_unlock(&s->mu);
    for (size_t i = 0; i < n; i++) {
        if (go_on) {
            visited++;
            go_on = fn(list[i], arg);
        }
        tws_conn_unref(list[i]);
    }
    base_free(a, list);
    return visited;
}
