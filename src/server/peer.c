/* One accepted socket and its thread, from the handshake to the end. */
#include "server/server.h"

#include "base/clock.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

/* Fewer connections leave too little memory behind to look for it. */
#define CROWD_MIN 512
/* So often at most: peers can come and go as they like, and all of the process waits meanwhile. */
#define TRIM_NS (60 * BASE_NS_PER_S)

/* What the thread needs to begin; written into the block that becomes its connection. */
struct peer_job {
    tws_server *server;
    int fd;
    bool plain;
    union net_peer address;
};

/* ---- The list ---- */

static void cut_handshake_locked(struct server_peer *p)
{
    p->cut = true;
    if (p->fd >= 0)
        shutdown(p->fd, SHUT_RDWR);
}

void server_peer_link(struct server_peer *p)
{
    tws_server *s = p->server;

    pthread_mutex_lock(&s->mu);
    p->next = s->peers;
    if (s->peers)
        s->peers->prev = p;
    s->peers = p;
    if (s->draining)
        cut_handshake_locked(p);
    pthread_mutex_unlock(&s->mu);
}

static void unlink_peer(struct server_peer *p)
{
    tws_server *s = p->server;

    if (p->prev)
        p->prev->next = p->next;
    else
        s->peers = p->next;
    if (p->next)
        p->next->prev = p->prev;
}

/* ---- Counting ---- */

static const uint16_t close_codes[SERVER_CLOSE_CODES - 1] = {1000, 1001, 1002, 1003, 1005, 1006,
                                                             1007, 1008, 1009, 1010, 1011, 1012,
                                                             1013, 1014, 3000, 4000, 1015};

static size_t close_index(uint16_t code)
{
    if (code >= 3000 && code < 4000)
        code = 3000;
    else if (code >= 4000)
        code = 4000;
    for (size_t i = 0; i < SERVER_CLOSE_CODES - 1; i++)
        if (close_codes[i] == code)
            return i;
    return SERVER_CLOSE_CODES - 1;
}

uint16_t server_close_code(size_t index)
{
    return index < SERVER_CLOSE_CODES - 1 ? close_codes[index] : 0;
}

void server_add_stats(tws_stats *sum, const tws_stats *one)
{
    sum->messages_in += one->messages_in;
    sum->messages_out += one->messages_out;
    sum->bytes_in += one->bytes_in;
    sum->bytes_out += one->bytes_out;
    sum->wire_in += one->wire_in;
    sum->wire_out += one->wire_out;
    sum->pings_in += one->pings_in;
    sum->pings_out += one->pings_out;
    sum->pongs_in += one->pongs_in;
    sum->pongs_out += one->pongs_out;
    sum->fragments_in += one->fragments_in;
    sum->timeouts += one->timeouts;
    sum->joined += one->joined;
    sum->compressed_messages_in += one->compressed_messages_in;
    sum->compressed_messages_out += one->compressed_messages_out;
    sum->compressed_in += one->compressed_in;
    sum->compressed_out += one->compressed_out;
    sum->original_in += one->original_in;
    sum->original_out += one->original_out;
    sum->queue_bytes += one->queue_bytes;
    sum->queue_messages += one->queue_messages;
    sum->queue_accepted += one->queue_accepted;
    sum->queue_dropped_oldest += one->queue_dropped_oldest;
    sum->queue_dropped_newest += one->queue_dropped_newest;
    sum->queue_wait_timeouts += one->queue_wait_timeouts;
    sum->queue_overflows += one->queue_overflows;
    sum->writers_started += one->writers_started;
}

void server_add_ended(tws_stats *sum, tws_stats one)
{
    /* A thread may have the last ones still in hand; they would wait in the sum for ever. */
    one.queue_bytes = one.queue_messages = 0;
    server_add_stats(sum, &one);
}

static void log_passed(struct server_peer *p, const tws_error *e)
{
    char address[64];

    if (e->cause != TWS_CAUSE_LIMIT || !p->server->log.fn)
        return;
    tws_conn_peer_address(p->conn, address, sizeof address);
    base_log_limited(&p->server->log, &p->server->log_passed, TWS_LOG_WARNING,
                     "connection %llu of %s: %s", (unsigned long long)tws_conn_id(p->conn), address,
                     e->text);
}

/* A connection has ended: its counters go into the sums in the same moment as it leaves the list. */
static void count_ended(struct server_peer *p)
{
    tws_server *s = p->server;
    enum conn_passed passed;
    size_t error;
    tws_error e;
    tws_stats stats;

    tws_conn_error(p->conn, &e);
    passed = conn_passed(p->conn);
    log_passed(p, &e);
    pthread_mutex_lock(&s->mu);
    tws_conn_stats(p->conn, &stats);
    server_add_ended(&s->totals.ended, stats);
    if (e.code != TWS_ERR_HANDED_OVER) /* else it lives on */
        s->totals.closed[close_index(e.close_code)]++;
    s->totals.passed[passed]++;
    error = (size_t)-e.code;
    if (error < SERVER_ERRORS && e.code != TWS_ERR_CLOSED && e.code != TWS_ERR_PEER_CLOSED)
        s->totals.errors[error]++;
    /* Its time is the drain's, so that it may be over a moment before the drain cuts it. */
    if (s->draining && e.code == TWS_ERR_CLOSE_TIMEOUT)
        s->was_cut = true;
    s->open--;
    unlink_peer(p);
    pthread_mutex_unlock(&s->mu);
}

static void count_not_upgraded(struct server_peer *p, enum upgrade_end end, const tws_error *e)
{
    tws_server *s = p->server;

    if (end != UPGRADE_PAGE && end != UPGRADE_CUT)
        base_log_limited(&s->log, &s->log_failed, TWS_LOG_DEBUG, "%s", e->text);
    pthread_mutex_lock(&s->mu);
    if (end == UPGRADE_PAGE)
        s->totals.pages++;
    s->totals.ends[end]++;
    if (e->phase == TWS_PHASE_TLS)
        s->totals.tls_failed++;
    s->handshaking--;
    unlink_peer(p);
    pthread_mutex_unlock(&s->mu);
}

/* ---- The thread ---- */

/* The descriptor's number may be somebody else's in a moment: nobody may shut it down any more. */
static void forget_fd(void *peer)
{
    struct server_peer *p = peer;

    pthread_mutex_lock(&p->server->mu);
    p->fd = -1;
    pthread_mutex_unlock(&p->server->mu);
}

static bool was_cut(void *peer)
{
    struct server_peer *p = peer;
    bool cut;

    pthread_mutex_lock(&p->server->mu);
    cut = p->cut;
    pthread_mutex_unlock(&p->server->mu);
    return cut;
}

static void count_tls(void *peer, int version, bool resumed)
{
    struct server_peer *p = peer;
    struct server_totals *t = &p->server->totals;

    pthread_mutex_lock(&p->server->mu);
    if (version == TWS_TLS_1_3)
        t->tls_1_3++;
    else
        t->tls_1_2++;
    if (resumed)
        t->tls_resumed++;
    pthread_mutex_unlock(&p->server->mu);
}

/* Apart, so that the handshake's stack frames are gone before the handler's begin. */
__attribute__((noinline)) static bool peer_upgrade(struct server_peer *p, void *block,
                                                   const struct peer_job *job)
{
    tws_server *s = p->server;
    struct upgrade_input in = {.runtime = s->runtime,
                               .fd = p->fd,
                               .peer = job->address,
                               .block = block,
                               .plain = job->plain,
                               .secured = count_tls,
                               .secured_arg = p,
                               .closing = forget_fd,
                               .closing_arg = p,
                               .was_cut = was_cut,
                               .was_cut_arg = p};
    tws_error error;
    tws_conn *c;
    enum upgrade_end end = upgrade_run(s->cfg, &in, &c, &error);

    if (end)
        count_not_upgraded(p, end, &error);
    else
        server_peer_opened(p, c);
    return !end;
}

void server_peer_opened(struct server_peer *p, tws_conn *c)
{
    tws_server *s = p->server;

    pthread_mutex_lock(&s->mu);
    p->conn = c;
    p->stage = PEER_OPEN;
    s->handshaking--;
    s->open++;
    s->totals.upgraded++;
    if (s->cutting)
        tws_abort(c);
    else if (s->draining)
        tws_close_start(c, TWS_CLOSE_GOING_AWAY, NULL);
    pthread_mutex_unlock(&s->mu);
}

static void peer_handle(struct server_peer *p)
{
    const tws_server_options *o = &p->server->opt;

    if (!o->events)
        o->on_connection(p->conn, o->arg);
    else if (event_claim(p->conn))
        event_run(p->conn, o->events, o->arg);
}

__attribute__((noinline)) static void peer_finish(struct server_peer *p)
{
    tws_server *s = p->server;
    tws_conn *c = p->conn;

    pthread_mutex_lock(&s->mu);
    p->stage = PEER_FINISHING;
    pthread_mutex_unlock(&s->mu);
    task_patient(true); /* the peer may flood to the end */
    conn_finish(c, TWS_CLOSE_NORMAL);
    count_ended(p);
}

/*
 * When a crowd has left, malloc still has what OpenSSL held for it, scattered over arenas: 60 KiB a
 * connection, which it would keep for ever. True once for each time that three quarters have gone.
 */
static bool crowd_left_locked(tws_server *s)
{
    int64_t now;

    if (!s->opt.trim_memory || s->crowd < CROWD_MIN || s->connections > s->crowd / 4)
        return false;
    now = base_clock_coarse_ns();
    if (s->trimmed_at != 0 && now - s->trimmed_at < TRIM_NS)
        return false;
    s->trimmed_at = now;
    s->crowd = s->connections;
    return true;
}

void server_forget_socket(tws_server *s, const union net_peer *address)
{
    struct net_peer_key key;
    bool trim;

    pthread_mutex_lock(&s->mu);
    s->connections--;
    trim = crowd_left_locked(s);
    if (s->opt.max_per_address > 0 && net_peer_key(address, &key))
        address_table_remove(&s->per_address, &key);
    pthread_mutex_unlock(&s->mu);
    if (trim)
        task_background(s->runtime, base_trim, NULL);
}

void server_peer_run(struct server_peer *p)
{
    task_set_label(tws_conn_id(p->conn));
    if (net_stream_is_tls(&p->conn->stream) && p->server->opt.threads == TWS_THREADS_KERNEL)
        net_tls_thread_trim();
    task_trim_stack();
    peer_handle(p);
    peer_finish(p);
    tws_conn_unref(p->conn);
}

static void peer_main(void *block)
{
    struct peer_job job = *(struct peer_job *)block;
    tws_server *s = job.server;
    struct server_peer p = {.server = s, .fd = job.fd};

    server_peer_link(&p);
    task_patient(true);
    if (peer_upgrade(&p, block, &job)) {
        task_patient(false);
        server_peer_run(&p);
    }
    server_forget_socket(s, &job.address);
}

int server_peer_spawn(tws_server *s, int fd, const union net_peer *peer, bool plain)
{
    struct peer_job *job = base_pool_get(&s->cfg->env->blocks);
    int r;

    if (!job)
        return -ENOMEM;
    job->server = s;
    job->fd = fd;
    job->plain = plain;
    job->address = *peer;
    r = task_spawn(s->runtime, peer_main, job);
    if (r < 0)
        base_pool_put(&s->cfg->env->blocks, job);
    return r;
}

/* ---- Ending all ---- */

void server_peers_close_locked(tws_server *s, tws_ms close_timeout)
{
    for (struct server_peer *p = s->peers; p; p = p->next) {
        if (p->stage == PEER_HANDSHAKE) {
            cut_handshake_locked(p);
        } else {
            tws_set_timeout(p->conn, TWS_TIMEOUT_CLOSE, close_timeout);
            tws_close_start(p->conn, TWS_CLOSE_GOING_AWAY, NULL);
        }
    }
}

void server_peers_cut_locked(tws_server *s)
{
    for (struct server_peer *p = s->peers; p; p = p->next) {
        if (p->stage == PEER_HANDSHAKE) {
            cut_handshake_locked(p);
        } else {
            s->was_cut = s->was_cut || !conn_closed_clean(p->conn);
            tws_abort(p->conn);
        }
    }
}
