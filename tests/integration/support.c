#include "support.h"

#include "support_tls.h"

#include "conn/conn.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* ---- Time ---- */

int64_t support_now_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

void support_pause_ms(int ms)
{
    struct timespec ts = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};

    nanosleep(&ts, NULL);
}

/* ---- What is left behind ---- */

static unsigned count_entries(const char *path)
{
    DIR *dir = opendir(path);
    unsigned n = 0;

    if (!dir)
        fail_msg("cannot read %s", path);
    for (const struct dirent *e = readdir(dir); e; e = readdir(dir))
        n += e->d_name[0] != '.';
    closedir(dir);
    return n;
}

static void *nothing(void *arg)
{
    return arg;
}

struct support_census support_census(void)
{
    static bool begun;

    if (!begun) { /* with the first thread ThreadSanitizer makes one of its own */
        pthread_t t;

        support_thread(&t, nothing, NULL);
        pthread_join(t, NULL);
        begun = true;
    }
    return (struct support_census){.threads = count_entries("/proc/self/task"),
                                   .descriptors = count_entries("/proc/self/fd")};
}

void support_assert_census(struct support_census before)
{
    int64_t end = support_now_ms() + SUPPORT_HANG_MS;
    struct support_census now = support_census();

    while (now.threads > before.threads || now.descriptors > before.descriptors) {
        if (support_now_ms() > end)
            fail_msg("%u threads instead of %u, %u descriptors instead of %u", now.threads,
                     before.threads, now.descriptors, before.descriptors);
        support_pause_ms(1);
        now = support_census();
    }
}

/* ---- Servers ---- */

bool support_light(void)
{
    const char *kind = getenv("TWS_TEST_THREADS");
    bool light = kind && strcmp(kind, "light") == 0;

    if (kind && !light && strcmp(kind, "kernel") != 0)
        fail_msg("TWS_TEST_THREADS=%s: there is no such kind of thread", kind);
    return light;
}

void support_server_options(tws_server_options *opt, tws_connection_fn fn, void *arg)
{
    static const char *const any_port[] = {"127.0.0.1:0"};

    tws_server_options_init(opt);
    if (support_light())
        opt->threads = TWS_THREADS_LIGHT;
    if (support_tls_wanted())
        opt->tls = support_tls_server();
    opt->listen = any_port;
    opt->listen_count = 1;
    opt->on_connection = fn;
    opt->arg = arg;
}

const char *support_unix_address(const char *name)
{
    static char address[64];

    snprintf(address, sizeof address, "unix:@tws-test-%s-%d", name, (int)getpid());
    return address;
}

void support_server_start(struct support_server *s, const tws_server_options *opt)
{
    tws_error e;

    memset(s, 0, sizeof *s);
    if (tws_server_start(&s->server, opt, &e) != TWS_OK)
        fail_msg("%s", e.text);
    assert_in_range(tws_server_address(s->server, 0, s->address, sizeof s->address), 1,
                    sizeof s->address - 1);
}

void support_handoff_server(struct support_server *s, tws_connection_fn fn, bool handoff)
{
    tws_server_options opt;

    support_server_options(&opt, fn, NULL);
    opt.upgrade.conn.handoff = handoff;
    support_server_start(s, &opt);
}

tws_handoff *support_handoff_half(int *fd)
{
    tws_handoff *h;
    int pair[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    assert_ok(tws_handoff_new(&h, pair[0]));
    *fd = pair[1];
    return h;
}

tws_err support_ending(tws_conn *c)
{
    tws_error e;

    tws_conn_error(c, &e);
    return e.code;
}

void support_echo(tws_conn *c, void *arg)
{
    tws_message m;

    (void)arg;
    while (tws_read_message(c, &m) == TWS_OK)
        if (tws_write_message(c, m.opcode, m.data, m.len) != TWS_OK)
            break;
}

void support_echo_event(tws_conn *c, tws_message *m, void *arg)
{
    (void)arg;
    tws_write_message(c, m->opcode, m->data, m->len);
}

/* ---- Rig ---- */

struct rig_park {
    tws_mutex *mu; /* the library's own: waiting for them suits both kinds of thread */
    tws_cond *changed;
    tws_conn *arrived; /* mu */
    bool released;     /* mu */
};

static void rig_handler(tws_conn *c, void *arg)
{
    struct rig_park *p = arg;

    tws_mutex_lock(p->mu, 0);
    p->arrived = tws_conn_ref(c);
    tws_cond_broadcast(p->changed);
    while (!p->released)
        tws_cond_wait(p->changed, p->mu, 0);
    tws_mutex_unlock(p->mu);
}

void rig_options(tws_server_options *opt)
{
    support_server_options(opt, rig_handler, NULL);
}

void rig_open(struct rig *r, const tws_server_options *opt)
{
    rig_open_asking(r, opt, NULL);
}

void rig_open_asking(struct rig *r, const tws_server_options *opt, const char *headers)
{
    tws_server_options o;
    struct rig_park *p = support_alloc(sizeof *p);

    rig_options(&o);
    if (opt)
        o = *opt;
    o.arg = p;
    memset(r, 0, sizeof *r);
    memset(p, 0, sizeof *p);
    p->mu = tws_mutex_new();
    p->changed = tws_cond_new();
    assert_true(p->mu && p->changed);
    r->park = p;
    r->before = support_census();
    support_server_start(&r->s, &o);
    assert_int_equal(client_upgrade(&r->client, client_dial(r->s.address), headers), 101);
    tws_mutex_lock(p->mu, 0);
    while (!p->arrived)
        tws_cond_wait(p->changed, p->mu, 0);
    r->conn = p->arrived;
    tws_mutex_unlock(p->mu);
}

void rig_release(struct rig *r)
{
    tws_mutex_lock(r->park->mu, 0);
    r->park->released = true;
    tws_cond_broadcast(r->park->changed);
    tws_mutex_unlock(r->park->mu);
}

void rig_end(struct rig *r)
{
    rig_release(r);
    client_close(&r->client);
    tws_server_free(r->s.server);
    tws_conn_unref(r->conn);
    tws_cond_free(r->park->changed);
    tws_mutex_free(r->park->mu);
    free(r->park);
}

void rig_close(struct rig *r)
{
    rig_end(r);
    support_assert_census(r->before);
}

/* ---- Threads ---- */

void support_thread(pthread_t *t, void *(*fn)(void *), void *arg)
{
    assert_int_equal(pthread_create(t, NULL, fn, arg), 0);
}

static void *reader_main(void *arg)
{
    struct reader *rd = arg;
    tws_message m;

    for (;;) {
        rd->err = tws_read_message(rd->conn, &m);
        if (rd->err == TWS_ERR_TIMEOUT) {
            atomic_fetch_add(&rd->timeouts, 1);
            continue;
        }
        if (rd->err)
            break;
        atomic_fetch_add(&rd->messages, 1);
        atomic_fetch_add(&rd->bytes, m.len);
    }
    atomic_store(&rd->done, true);
    return NULL;
}

void reader_start(struct reader *rd, tws_conn *c)
{
    memset(rd, 0, sizeof *rd);
    rd->conn = c;
    support_thread(&rd->thread, reader_main, rd);
}

tws_err reader_join(struct reader *rd)
{
    WAIT_FOR(atomic_load(&rd->done));
    pthread_join(rd->thread, NULL);
    return rd->err;
}

void reader_await(struct reader *rd)
{
    WAIT_FOR(atomic_load(&rd->conn->reading) || atomic_load(&rd->done));
}

static void *writer_main(void *arg)
{
    struct writer_thread *w = arg;

    w->err = tws_write_message(w->conn, TWS_BINARY, w->data, w->len);
    atomic_store(&w->done, true);
    return NULL;
}

void writer_thread_start(struct writer_thread *w, tws_conn *c, const void *data, size_t len)
{
    memset(w, 0, sizeof *w);
    w->conn = c;
    w->data = data;
    w->len = len;
    support_thread(&w->thread, writer_main, w);
}

tws_err writer_thread_join(struct writer_thread *w)
{
    WAIT_FOR(atomic_load(&w->done));
    pthread_join(w->thread, NULL);
    return w->err;
}

static bool write_blocked(tws_conn *c)
{
    bool blocked;

    pthread_mutex_lock(&c->mu);
    blocked = c->write_blocked;
    pthread_mutex_unlock(&c->mu);
    return blocked;
}

void support_await_blocked_write(tws_conn *c)
{
    WAIT_FOR(write_blocked(c));
}

bool support_watched(tws_conn *c)
{
    bool yes;

    pthread_mutex_lock(&c->mu);
    yes = c->watches != NULL;
    pthread_mutex_unlock(&c->mu);
    return yes;
}

bool support_pumping(tws_conn *c)
{
    bool yes;

    pthread_mutex_lock(&c->mu);
    yes = c->pumping;
    pthread_mutex_unlock(&c->mu);
    return yes;
}

unsigned support_behind(tws_conn *c)
{
    return atomic_load(&c->reader_wanted);
}

/* ---- Bytes ---- */

static uint8_t pattern(size_t at, unsigned seed)
{
    size_t x = (at + seed) * 2654435761u;

    return (uint8_t)('a' + (x >> 13) % 26);
}

void support_fill(void *buf, size_t len, unsigned seed)
{
    uint8_t *p = buf;

    for (size_t i = 0; i < len; i++)
        p[i] = pattern(i, seed);
}

bool support_filled(const void *buf, size_t len, unsigned seed)
{
    const uint8_t *p = buf;

    for (size_t i = 0; i < len; i++)
        if (p[i] != pattern(i, seed))
            return false;
    return true;
}

void *support_alloc(size_t size)
{
    void *p = malloc(size > 0 ? size : 1);

    assert_non_null(p);
    return p;
}
