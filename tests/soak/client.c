/*
 * client.c: the client of a soak: a mixed load on one server, half of it on kernel threads, half on light ones. Every
 * message is looked at. Anything unexpected is one line that begins with FAIL.
 *
 * usage: soak_client PLAIN_ADDRESS TLS_ADDRESS CA_FILE SHARE. SHARE of the load in percent. SIGTERM ends it: what is
 * under way is brought to its end.
 */
#include "client.h"

#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct client client;
static int share = 100;

bool stopping(void)
{
    return tws_cancel_is_set(client.stop);
}

bool pause_for(struct actor *a, tws_ms ms)
{
    tws_ms left = ms * 100 / share;
    left = left / 2 + (tws_ms)dice_below(&a->dice, (uint64_t)left / 2 + 1);
    while (left > 0 && !stopping()) {
        tws_ms step = left < 500 ? left : 500;
        tws_sleep(step);
        left -= step;
    }
    return !stopping();
}

void fail(struct actor *a, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    printf("FAIL %s %u: %s\n", a->role->name, a->number, text);
    a->failed = true;
    atomic_fetch_add(&client.failures, 1);
}

void set_way(struct actor *a, tws_dial_options *opt, tws_deflate_options *deflate, const char *path,
             char *url, size_t size)
{
    unsigned way = a->number + a->dials++;
    bool tls = way % 2 != 0;
    enum deflate_kind kind = (enum deflate_kind)(way / 2 % DEFLATE_KINDS);
    tws_dial_options_init(opt);
    opt->allocator = &client.memory;
    opt->tls = client.tls;
    opt->timeout = opt->conn.read_timeout = opt->conn.write_timeout = PATIENCE_MS;
    opt->conn.close_timeout = opt->conn.ping_timeout = PATIENCE_MS;
    tws_deflate_options_init(deflate);
    deflate->server_no_context_takeover = deflate->client_no_context_takeover =
        kind != DEFLATE_TAKEOVER;
    opt->deflate = kind != DEFLATE_NONE ? deflate : NULL;
    snprintf(url, size, "%s://%s%s", tls ? "wss" : "ws", client.address[tls], path);
}

tws_conn *dial(struct actor *a, const char *path)
{
    tws_dial_options opt;
    tws_deflate_options deflate;
    tws_error error;
    tws_conn *c;
    char url[128];
    set_way(a, &opt, &deflate, path, url, sizeof url);
    if (tws_dial(&c, url, &opt, NULL, &error) != TWS_OK) {
        fail(a, "dialling %s: %s", url, error.text);
        return NULL;
    }
    atomic_fetch_add(&client.connections, 1);
    return c;
}

void hang_up(struct actor *a, tws_conn *c)
{
    tws_err err = tws_close(c, TWS_CLOSE_NORMAL, "genug für heute");
    if (err != TWS_OK && !a->failed) {
        tws_error error;
        tws_conn_error(c, &error);
        fail(a, "closing: %s: %s", tws_err_name(err), error.text);
    }
    tws_conn_unref(c);
}

/* ---- Echoes ---- */

struct sent {
    tws_opcode opcode;
    size_t len;
    const uint8_t *data;
};

static bool send_one(struct actor *a, tws_conn *c, struct sent *s, size_t size)
{
    s->opcode = dice_below(&a->dice, 2) != 0 ? TWS_TEXT : TWS_BINARY;
    s->len = size;
    s->data = pool_cut(&client.pool, &a->dice, s->opcode, &s->len);
    return tws_write_message(c, s->opcode, s->data, s->len) == TWS_OK;
}

static bool read_one(struct actor *a, tws_conn *c, const struct sent *s)
{
    tws_message m;
    tws_err err = tws_read_message(c, &m);
    if (err == TWS_ERR_TIMEOUT) {
        fail(a, "no echo of %zu bytes in %d s: lost", s->len, PATIENCE_MS / 1000);
    }
    if (err != TWS_OK) {
        return false;
    }
    if (m.opcode != s->opcode || m.len != s->len || memcmp(m.data, s->data, m.len) != 0) {
        fail(a, "an echo of %zu bytes came back as %zu bytes, not the same", s->len, m.len);
        return false;
    }
    atomic_fetch_add(&client.messages, 1);
    atomic_fetch_add(&client.bytes, m.len);
    return true;
}

bool round_trip(struct actor *a, tws_conn *c, size_t size)
{
    struct sent s;
    return send_one(a, c, &s, size) && read_one(a, c, &s);
}

enum { BURST_MAX = 8 };

bool burst(struct actor *a, tws_conn *c, unsigned count)
{
    struct sent s[BURST_MAX];
    for (unsigned i = 0; i < count; i++) {
        if (!send_one(a, c, &s[i], dice_size(&a->dice, 1024))) {
            return false;
        }
    }
    for (unsigned i = 0; i < count; i++) {
        if (!read_one(a, c, &s[i])) {
            return false;
        }
    }
    return true;
}

/* ---- Start and end ---- */

enum { KINDS = 2 };

static void act(void *arg)
{
    struct actor *a = arg;
    while (!stopping() && !a->failed) {
        a->role->run(a);
    }
    free(a);
}

static bool spawn_all(tws_group *groups[KINDS])
{
    unsigned number = 0;
    for (const struct role *r = roles; r->name != NULL; r++) {
        for (unsigned i = 0; i < r->count; i++, number++) {
            struct actor *a = calloc(1, sizeof *a);
            if (a == NULL) {
                return false;
            }
            a->role = r;
            a->number = number;
            a->dice.state = number * UINT64_C(7919);
            if (tws_group_spawn(groups[i % KINDS], act, a) != TWS_OK) {
                free(a);
                return false;
            }
        }
    }
    return true;
}

static bool open_groups(tws_group *groups[KINDS])
{
    for (int i = 0; i < KINDS; i++) {
        tws_group_options opt;
        tws_group_options_init(&opt);
        opt.threads = i != 0 ? TWS_THREADS_LIGHT : TWS_THREADS_KERNEL;
        opt.allocator = &client.memory;
        if (tws_group_new(&groups[i], &opt) != TWS_OK) {
            return false;
        }
    }
    return true;
}

static void report(void)
{
    printf("counts: messages %llu, bytes %llu, connections %llu, cuts %llu, live_blocks %lld, "
           "live_bytes %lld, malloc_used %zu\n",
           (unsigned long long)client.messages, (unsigned long long)client.bytes,
           (unsigned long long)client.connections, (unsigned long long)client.cuts,
           (long long)client.heap.blocks, (long long)client.heap.bytes, malloc_settle());
}

static void wait_for_signal(const sigset_t *signals)
{
    const struct timespec interval = {REPORT_S, 0};
    while (sigtimedwait(signals, NULL, &interval) < 0) {
        report();
    }
}

static bool prepare(char **argv)
{
    tws_tls_client_options tls;
    tws_error error;
    client.address[0] = argv[1];
    client.address[1] = argv[2];
    client.memory = heap_allocator(&client.heap);
    client.stop = tws_cancel_new();
    tws_tls_client_options_init(&tls);
    tls.ca_file = argv[3];
    tls.allocator = &client.memory;
    if (tws_tls_client_new(&client.tls, &tls, &error) != TWS_OK) {
        fprintf(stderr, "soak_client: %s\n", error.text);
        return false;
    }
    return client.stop != NULL && pool_make(&client.pool, BIG_MAX + BIG_MAX / 8);
}

int main(int argc, char **argv)
{
    tws_group *groups[KINDS];
    sigset_t signals;
    if (argc != 5 || (share = (int)strtol(argv[4], NULL, 10)) <= 0) {
        fputs("usage: soak_client PLAIN_ADDRESS TLS_ADDRESS CA_FILE SHARE\n", stderr);
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    if (!prepare(argv) || !open_groups(groups) || !spawn_all(groups)) {
        return 2;
    }
    wait_for_signal(&signals);
    tws_cancel_now(client.stop);
    for (int i = 0; i < KINDS; i++) {
        tws_group_free(groups[i]);
    }
    tws_tls_unref(client.tls);
    pool_drop(&client.pool);
    report();
    if (client.heap.blocks != 0) {
        printf("FAIL client: %lld blocks left\n", (long long)client.heap.blocks);
        return 1;
    }
    return client.failures == 0 ? 0 : 1;
}
