/*
 * server.c: the server of a soak. What is done on a connection follows from its path:
 *
 *   /echo, /queued, /stream   every message back: at once, through the queue, piece by piece
 *   /shot                     back too, but every sixth is answered by the end of the connection
 *   /room/NAME                to all in the room
 *   /flood/wait, /flood/drop  numbered messages without end to one who reads slowly
 *   /live                     a page: memory that lives, and all counters
 *
 * usage: soak_server KIND CERTIFICATE KEY [FAULT]. KIND is kernel or light; FAULT makes it misbehave, to see that
 * the soak notices: leak, hidden, descriptors, corrupt, lose or exit.
 */
#include "kit.h"

#include <tws/tws.h>

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SHOTS = 5, QUEUE_BYTES = 256 * 1024, WAIT_MS = 120000, FAULT_EVERY = 50, DRAIN_MS = 20000 };

static struct heap heap;
static tws_allocator memory;
static tws_hub *hub;
static const char *fault = "";
static void *volatile hidden;                /* volatile, or the compiler leaves the fault out */
static _Atomic uint64_t accepted, completed; /* queued writes, and their callbacks */
static _Atomic uint64_t echoes;

static bool has_fault(const char *name)
{
    return strcmp(fault, name) == 0;
}

/* Does what was asked for to every so-manieth message; false when it is to be lost. */
static bool misbehave(tws_message *m)
{
    if (fault[0] == '\0' || atomic_fetch_add(&echoes, 1) % FAULT_EVERY != FAULT_EVERY - 1) {
        return true;
    }
    if (has_fault("leak")) {
        void *lost = memory.alloc(200, memory.arg);
        (void)lost;
    } else if (has_fault("hidden")) {
        hidden = malloc(32 * 1024); /* the library's allocator does not see it */
    } else if (has_fault("descriptors")) {
        int lost = dup(STDOUT_FILENO);
        (void)lost;
    } else if (has_fault("corrupt") && m->len > 0) {
        m->data[m->len / 2] ^= 1;
        m->opcode = TWS_BINARY;
    } else if (has_fault("exit")) {
        _exit(0);
    }
    return !has_fault("lose");
}

/* ---- What is done on a connection ---- */

static void on_written(tws_conn *c, tws_err result, void *arg)
{
    (void)c;
    (void)result;
    (void)arg;
    atomic_fetch_add(&completed, 1);
}

static tws_err put(tws_conn *c, tws_opcode opcode, const void *data, size_t len)
{
    tws_err err = tws_write_async(c, opcode, data, len, on_written, NULL);
    if (err == TWS_OK) {
        atomic_fetch_add(&accepted, 1);
    }
    return err;
}

static void set_queue(tws_conn *c, tws_queue_policy policy)
{
    tws_queue_options q;
    tws_get_queue(c, &q);
    q.policy = policy;
    q.max_bytes = QUEUE_BYTES;
    q.wait = WAIT_MS;
    tws_set_queue(c, &q);
}

static void echo(tws_conn *c, bool queued)
{
    tws_message m;
    set_queue(c, TWS_QUEUE_WAIT);
    while (tws_read_message(c, &m) == TWS_OK) {
        if (!misbehave(&m)) {
            continue;
        }
        tws_err err = queued && m.len <= QUEUE_BYTES
                          ? put(c, m.opcode, m.data, m.len)
                          : tws_write_message(c, m.opcode, m.data, m.len);
        if (err != TWS_OK) {
            break;
        }
    }
}

/* A message read piece by piece; kept whole, as its sender reads nothing before it has sent all. */
struct pieces {
    char *data;
    size_t len, size;
};

enum { PIECE = 4096 };

static bool read_pieces(tws_conn *c, struct pieces *p, tws_opcode *opcode)
{
    size_t n = 0;
    p->len = 0;
    if (tws_next_reader(c, opcode) != TWS_OK) {
        return false;
    }
    do {
        if (p->size - p->len < PIECE) {
            size_t size = p->size * 2 + PIECE;
            char *data = memory.resize(p->data, size, memory.arg);
            if (data == NULL) {
                return false;
            }
            p->data = data;
            p->size = size;
        }
        if (tws_reader_read(c, p->data + p->len, PIECE, &n) != TWS_OK) {
            return false;
        }
        p->len += n;
    } while (n > 0);
    return true;
}

static bool write_pieces(tws_conn *c, const struct pieces *p, tws_opcode opcode)
{
    tws_writer *w;
    tws_err err = TWS_OK;
    if (tws_next_writer(c, opcode, &w) != TWS_OK) {
        return false;
    }
    for (size_t at = 0; at < p->len && err == TWS_OK; at += PIECE) {
        err = tws_writer_write(w, p->data + at, p->len - at < PIECE ? p->len - at : PIECE);
    }
    return tws_writer_close(w) == TWS_OK && err == TWS_OK;
}

static void stream(tws_conn *c)
{
    struct pieces p = {NULL, 0, 0};
    tws_opcode opcode;
    while (read_pieces(c, &p, &opcode) && write_pieces(c, &p, opcode)) {
    }
    memory.release(p.data, memory.arg);
}

static void shot(tws_conn *c)
{
    tws_message m;
    for (int i = 0; i < SHOTS; i++) {
        if (tws_read_message(c, &m) != TWS_OK ||
            tws_write_message(c, m.opcode, m.data, m.len) != TWS_OK) {
            return;
        }
    }
    if (tws_read_message(c, &m) == TWS_OK) {
        if (tws_conn_id(c) % 3 == 0) {
            tws_abort(c);
        } else {
            tws_close(c, TWS_CLOSE_SERVICE_RESTART, "wieder da in Kürze");
        }
    }
}

static void room(tws_conn *c, const char *name)
{
    tws_message m;
    if (tws_hub_join(hub, c, name) != TWS_OK) {
        return;
    }
    while (tws_read_message(c, &m) == TWS_OK) {
        tws_hub_publish_message(hub, name, m.opcode, m.data, m.len, NULL, NULL);
    }
}

static void flood(tws_conn *c, bool wait)
{
    uint8_t *buf = malloc(NUMBERED_MAX);
    set_queue(c, wait ? TWS_QUEUE_WAIT : TWS_QUEUE_DROP_OLDEST);
    tws_set_timeout(c, TWS_TIMEOUT_READ, TWS_NOWAIT);
    for (uint64_t number = 0; buf != NULL; number++) {
        tws_message m;
        numbered_fill(buf, number);
        if (put(c, TWS_BINARY, buf, numbered_size(number)) != TWS_OK ||
            tws_read_message(c, &m) != TWS_ERR_TIMEOUT) {
            break;
        }
        if (!wait) {
            tws_sleep(10);
        }
    }
    free(buf);
}

static void serve(tws_conn *c, void *arg)
{
    const char *path = tws_request_path(tws_conn_request(c));
    (void)arg;
    if (strncmp(path, "/room/", 6) == 0) {
        room(c, path);
    } else if (strncmp(path, "/flood/", 7) == 0) {
        flood(c, strcmp(path, "/flood/wait") == 0);
    } else if (strcmp(path, "/shot") == 0) {
        shot(c);
    } else if (strcmp(path, "/stream") == 0) {
        stream(c);
    } else {
        echo(c, strcmp(path, "/queued") == 0);
    }
}

/* ---- The page ---- */

enum { PAGE_SIZE = 48 * 1024 };

static bool page(const tws_request *r, tws_reply *a, void *arg)
{
    tws_server *server = *(tws_server **)arg;
    if (strcmp(tws_request_path(r), "/live") != 0) {
        return false;
    }
    char *text = malloc(PAGE_SIZE);
    if (text == NULL) {
        return false;
    }
    size_t used = malloc_settle();
    int n = snprintf(text, PAGE_SIZE,
                     "live_blocks %lld\nlive_bytes %lld\nmalloc_used %zu\nunfinished_writes %lld\n",
                     (long long)heap.blocks, (long long)heap.bytes, used,
                     (long long)(accepted - completed));
    size_t len = (size_t)n;
    len += tws_server_metrics(server, text + len, PAGE_SIZE - len);
    if (len < PAGE_SIZE) {
        len += tws_hub_metrics(hub, text + len, PAGE_SIZE - len);
    }
    bool ok = len < PAGE_SIZE && tws_reply_body(a, TWS_METRICS_TYPE, text, len) == TWS_OK;
    free(text);
    return ok;
}

/* ---- Start and end ---- */

static void say(tws_log_level level, const char *text, void *arg)
{
    (void)arg;
    if (level <= TWS_LOG_WARNING) {
        fprintf(stderr, "%s\n", text);
    }
}

static void set_options(tws_server_options *opt, tws_deflate_options *deflate, bool light)
{
    tws_server_options_init(opt);
    tws_deflate_options_init(deflate);
    /* The client's offer decides: some ask for no takeover. */
    deflate->server_no_context_takeover = deflate->client_no_context_takeover = false;
    opt->threads = light ? TWS_THREADS_LIGHT : TWS_THREADS_KERNEL;
    opt->on_connection = serve;
    opt->log = say;
    opt->upgrade.on_page = page;
    opt->upgrade.deflate = deflate;
    opt->upgrade.allocator = &memory;
    opt->upgrade.handshake_timeout = opt->upgrade.conn.write_timeout = WAIT_MS;
    opt->upgrade.conn.close_timeout = opt->upgrade.conn.ping_timeout = WAIT_MS;
}

static tws_server *start(const char *kind, const char *cert, const char *key, tws_server **place)
{
    static const char *const addresses[] = {"plain:127.0.0.1:0", "127.0.0.1:0"};
    tws_server_options opt;
    tws_deflate_options deflate;
    tws_error error;
    tws_tls_certificate certificate = {.cert_file = cert, .key_file = key};
    tws_tls_server_options tls;
    tws_tls_server_options_init(&tls);
    tls.certificates = &certificate;
    tls.certificate_count = 1;
    tls.allocator = &memory;
    set_options(&opt, &deflate, strcmp(kind, "light") == 0);
    opt.listen = addresses;
    opt.listen_count = 2;
    opt.upgrade.hook_arg = place;
    if (tws_tls_server_new(&opt.tls, &tls, &error) != TWS_OK ||
        tws_server_start(place, &opt, &error) != TWS_OK) {
        fprintf(stderr, "soak_server: %s\n", error.text);
        exit(2);
    }
    tws_tls_unref(opt.tls);
    return *place;
}

int main(int argc, char **argv)
{
    static tws_server *place;
    sigset_t signals;
    if (argc < 4) {
        fputs("usage: soak_server KIND CERTIFICATE KEY [FAULT]\n", stderr);
        return 2;
    }
    fault = argc > 4 ? argv[4] : "";
    memory = heap_allocator(&heap);
    setvbuf(stdout, NULL, _IOLBF, 0);
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    tws_hub_options hub_opt;
    tws_hub_options_init(&hub_opt);
    hub_opt.allocator = &memory;
    if (tws_hub_new(&hub, &hub_opt) != TWS_OK) {
        return 2;
    }
    tws_server *server = start(argv[1], argv[2], argv[3], &place);
    for (size_t i = 0; i < 2; i++) {
        char address[64];
        tws_server_address(server, i, address, sizeof address);
        printf("listening %s\n", address);
    }
    int number;
    sigwait(&signals, &number);
    tws_err drained = tws_server_drain(server, DRAIN_MS);
    tws_server_free(server);
    tws_hub_free(hub);
    bool clean = drained == TWS_OK && heap.blocks == 0 && accepted == completed;
    printf("ended: drain %s, %lld blocks and %lld bytes left, %lld writes not completed\n",
           tws_err_name(drained), (long long)heap.blocks, (long long)heap.bytes,
           (long long)(accepted - completed));
    return clean ? 0 : 1;
}
