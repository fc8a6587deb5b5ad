/* A server's counters: added up from its connections when somebody asks, and as text. */
#include <tws/metrics.h>

#include "base/sized.h"
#include "conn/deflate.h"
#include "metrics/prometheus.h"
#include "server/server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* ---- Adding up ---- */

static void put_sums(tws_server_stats *out, const tws_stats *sum)
{
    out->messages_in = sum->messages_in;
    out->messages_out = sum->messages_out;
    out->bytes_in = sum->bytes_in;
    out->bytes_out = sum->bytes_out;
    out->wire_in = sum->wire_in;
    out->wire_out = sum->wire_out;
    out->pings_in = sum->pings_in;
    out->pings_out = sum->pings_out;
    out->pongs_in = sum->pongs_in;
    out->pongs_out = sum->pongs_out;
    out->timeouts = sum->timeouts;
    out->joined = sum->joined;
    out->compressed_messages_in = sum->compressed_messages_in;
    out->compressed_messages_out = sum->compressed_messages_out;
    out->compressed_in = sum->compressed_in;
    out->compressed_out = sum->compressed_out;
    out->original_in = sum->original_in;
    out->original_out = sum->original_out;
    out->writers_started = sum->writers_started;
    out->queue_bytes = sum->queue_bytes;
    out->queue_messages = sum->queue_messages;
    out->queue_accepted = sum->queue_accepted;
    out->queue_dropped_oldest = sum->queue_dropped_oldest;
    out->queue_dropped_newest = sum->queue_dropped_newest;
    out->queue_wait_timeouts = sum->queue_wait_timeouts;
    out->queue_overflows = sum->queue_overflows;
}

static void put_threads(tws_server *s, tws_server_stats *out)
{
    uint64_t all = task_runtime_count(s->runtime);
    uint64_t tellers = atomic_load(&s->cfg->env->tellers);

    out->writers = atomic_load(&s->cfg->env->writers);
    out->threads = all > out->writers + tellers ? all - out->writers - tellers : 0;
}

static void put_limits(tws_server *s, tws_server_stats *out, const struct server_totals *t)
{
    out->refused_handshakes = t->refused_handshakes;
    out->refused_rate = t->refused_rate;
    out->limit_message = t->passed[CONN_PASSED_MESSAGE];
    out->limit_ratio = t->passed[CONN_PASSED_RATIO];
    out->limit_fragments = t->passed[CONN_PASSED_FRAGMENTS];
    out->limit_fragment_rate = t->passed[CONN_PASSED_FRAGMENT_RATE];
    out->limit_control_rate = t->passed[CONN_PASSED_CONTROL_RATE];
    out->limit_rate = t->passed[CONN_PASSED_RATE];
    out->limit_min_rate = t->passed[CONN_PASSED_MIN_RATE];
    out->limit_tls_updates = t->passed[CONN_PASSED_TLS_UPDATES];
    out->limit_queue = t->passed[CONN_PASSED_QUEUE];
    out->log_suppressed = atomic_load(&s->log_refused.total) + atomic_load(&s->log_passed.total) +
                          atomic_load(&s->log_failed.total);
}

/* Ended connections and open ones in the same moment, so that no counter ever goes back. */
static void collect(tws_server *s, tws_server_stats *out, struct server_totals *totals)
{
    struct task_stats tasks;
    tws_stats sum;

    memset(out, 0, sizeof *out);
    pthread_mutex_lock(&s->mu);
    *totals = s->totals;
    sum = totals->ended;
    out->open = s->open;
    out->handshaking = s->handshaking;
    for (const struct server_peer *p = s->peers; p; p = p->next) {
        tws_stats one;

        if (!p->conn)
            continue;
        tws_conn_stats(p->conn, &one);
        server_add_stats(&sum, &one);
    }
    pthread_mutex_unlock(&s->mu);
    put_sums(out, &sum);
    out->accepted = totals->accepted;
    out->upgraded = totals->upgraded;
    out->refused_full = totals->refused_full;
    out->refused_address = totals->refused_address;
    out->refused_descriptors = totals->refused_descriptors;
    out->refused_threads = totals->refused_threads;
    out->pages = totals->pages;
    out->tls_handshakes = totals->tls_1_2 + totals->tls_1_3;
    out->tls_resumed = totals->tls_resumed;
    out->tls_failed = totals->tls_failed;
    put_limits(s, out, totals);
    put_threads(s, out);
    task_runtime_stats(s->runtime, &tasks);
    out->carriers = tasks.carriers;
    out->handovers = tasks.handovers;
    out->helpers = tasks.helpers;
    out->deepest_stack = tasks.deepest_stack;
    out->buffers_lent = base_pool_lent(&s->cfg->env->buffers);
    out->compressors = conn_deflate_streams(s->cfg->env);
}

void tws_server_stats_sized(tws_server *s, tws_server_stats *out, size_t size)
{
    struct server_totals totals;
    tws_server_stats stats;

    collect(s, &stats, &totals);
    base_sized_give(out, size, &stats, sizeof stats);
}

/* ---- Text ---- */

static void put_connections(struct prometheus *p, const tws_server_stats *s)
{
    static const char refused[] = "tws_connections_refused_total";

    prometheus_gauge(p, "tws_connections_open", "Connections after their handshake.", s->open);
    prometheus_gauge(p, "tws_handshakes_open", "Connections in their opening handshake.",
                     s->handshaking);
    prometheus_counter(p, "tws_connections_accepted_total", "Sockets accepted.", s->accepted);
    prometheus_counter(p, "tws_connections_upgraded_total",
                       "Handshakes that became WebSocket connections.", s->upgraded);
    prometheus_family(p, refused, "counter", "Sockets refused before their handshake.");
    prometheus_count(p, refused, "reason", "full", s->refused_full);
    prometheus_count(p, refused, "reason", "address", s->refused_address);
    prometheus_count(p, refused, "reason", "descriptors", s->refused_descriptors);
    prometheus_count(p, refused, "reason", "threads", s->refused_threads);
    prometheus_count(p, refused, "reason", "handshakes", s->refused_handshakes);
    prometheus_count(p, refused, "reason", "address_rate", s->refused_rate);
    prometheus_counter(p, "tws_pages_total", "Plain HTTP requests answered with a page.", s->pages);
}

static void put_passed(struct prometheus *p, const tws_server_stats *s)
{
    static const char passed[] = "tws_limits_passed_total";

    prometheus_family(
        p, passed, "counter",
        "Connections ended because their peer passed a limit, by the limit's option.");
    prometheus_count(p, passed, "limit", "max_message", s->limit_message);
    prometheus_count(p, passed, "limit", "max_ratio", s->limit_ratio);
    prometheus_count(p, passed, "limit", "max_fragments", s->limit_fragments);
    prometheus_count(p, passed, "limit", "max_fragment_rate", s->limit_fragment_rate);
    prometheus_count(p, passed, "limit", "max_control_rate", s->limit_control_rate);
    prometheus_count(p, passed, "limit", "max_rate", s->limit_rate);
    prometheus_count(p, passed, "limit", "min_rate", s->limit_min_rate);
    prometheus_count(p, passed, "limit", "max_tls_updates", s->limit_tls_updates);
    prometheus_count(p, passed, "limit", "queue", s->limit_queue);
    prometheus_counter(
        p, "tws_log_lines_suppressed_total",
        "Lines about refused, failed and ended connections that were too many to log.",
        s->log_suppressed);
}

static void put_tls(struct prometheus *p, const struct server_totals *t)
{
    static const char done[] = "tws_tls_handshakes_total";

    prometheus_family(p, done, "counter", "TLS handshakes that were completed.");
    prometheus_count(p, done, "version", "1.2", t->tls_1_2);
    prometheus_count(p, done, "version", "1.3", t->tls_1_3);
    prometheus_counter(p, "tws_tls_resumed_total", "TLS sessions that were resumed.",
                       t->tls_resumed);
    prometheus_counter(p, "tws_tls_handshakes_failed_total",
                       "TLS handshakes that failed or took too long.", t->tls_failed);
}

static void put_endings(struct prometheus *p, const struct server_totals *t)
{
    static const char failed[] = "tws_handshakes_failed_total";
    static const char closed[] = "tws_connections_closed_total";
    static const char errors[] = "tws_connection_errors_total";
    char code[16];

    prometheus_family(p, failed, "counter", "Opening handshakes that failed, by reason.");
    for (int end = UPGRADE_REQUIRED; end < UPGRADE_ENDS; end++)
        prometheus_count(p, failed, "reason", upgrade_end_name((enum upgrade_end)end),
                         t->ends[end]);
    prometheus_family(p, closed, "counter",
                      "Connections ended, by close code (3000 and 4000 stand for their ranges).");
    for (size_t i = 0; i < SERVER_CLOSE_CODES; i++) {
        snprintf(code, sizeof code, "%u", server_close_code(i));
        prometheus_count(p, closed, "code", server_close_code(i) ? code : "other", t->closed[i]);
    }
    prometheus_family(p, errors, "counter",
                      "Connections ended by an error, by its name; closes are not errors.");
    for (int e = -TWS_ERR_EOF; e < SERVER_ERRORS; e++) {
        const char *name = tws_err_name((tws_err)-e);

        if (strcmp(name, "TWS_ERR_UNKNOWN") != 0 && tws_err_is_final((tws_err)-e) &&
            (e < 40 || e == -TWS_ERR_TLS))
            prometheus_count(p, errors, "error", name, t->errors[e]);
    }
}

static void put_traffic(struct prometheus *p, const tws_server_stats *s)
{
    static const struct {
        const char *name, *help;
        size_t in, out;
    } families[] = {
        {"tws_messages_total", "Data messages.", offsetof(tws_server_stats, messages_in),
         offsetof(tws_server_stats, messages_out)},
        {"tws_payload_bytes_total", "Payload bytes of data messages.",
         offsetof(tws_server_stats, bytes_in), offsetof(tws_server_stats, bytes_out)},
        {"tws_wire_bytes_total", "All bytes after the handshakes.",
         offsetof(tws_server_stats, wire_in), offsetof(tws_server_stats, wire_out)},
        {"tws_compressed_messages_total", "Data messages that were compressed.",
         offsetof(tws_server_stats, compressed_messages_in),
         offsetof(tws_server_stats, compressed_messages_out)},
        {"tws_compressed_bytes_total", "Their payload bytes on the wire.",
         offsetof(tws_server_stats, compressed_in), offsetof(tws_server_stats, compressed_out)},
        {"tws_compressed_original_bytes_total", "Their payload bytes uncompressed.",
         offsetof(tws_server_stats, original_in), offsetof(tws_server_stats, original_out)},
        {"tws_pings_total", "Ping frames.", offsetof(tws_server_stats, pings_in),
         offsetof(tws_server_stats, pings_out)},
        {"tws_pongs_total", "Pong frames.", offsetof(tws_server_stats, pongs_in),
         offsetof(tws_server_stats, pongs_out)},
    };

    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        const char *base = (const char *)s;
        uint64_t in, out;

        memcpy(&in, base + families[i].in, sizeof in);
        memcpy(&out, base + families[i].out, sizeof out);
        prometheus_family(p, families[i].name, "counter", families[i].help);
        prometheus_count(p, families[i].name, "direction", "in", in);
        prometheus_count(p, families[i].name, "direction", "out", out);
    }
    prometheus_counter(p, "tws_timeouts_total", "Reads and writes that timed out.", s->timeouts);
    prometheus_counter(p, "tws_replies_joined_total", "Replies sent together with another.",
                       s->joined);
}

static void put_queues(struct prometheus *p, const tws_server_stats *s)
{
    static const char dropped[] = "tws_queue_dropped_total";

    prometheus_gauge(p, "tws_queue_bytes", "Bytes that wait for slow peers.", s->queue_bytes);
    prometheus_gauge(p, "tws_queue_messages", "Messages that wait for slow peers.",
                     s->queue_messages);
    prometheus_gauge(p, "tws_queue_writers", "Threads that send what is queued.", s->writers);
    prometheus_counter(p, "tws_queue_writers_started_total", "Such threads made.",
                       s->writers_started);
    prometheus_counter(p, "tws_queue_accepted_total", "Messages that queued writes took.",
                       s->queue_accepted);
    prometheus_family(p, dropped, "counter",
                      "What the policies did at full queues: messages dropped or refused; for the "
                      "policy close, connections.");
    prometheus_count(p, dropped, "policy", "oldest", s->queue_dropped_oldest);
    prometheus_count(p, dropped, "policy", "newest", s->queue_dropped_newest);
    prometheus_count(p, dropped, "policy", "wait", s->queue_wait_timeouts);
    prometheus_count(p, dropped, "policy", "close", s->queue_overflows);
}

/* Resident pages of this process; 0 when it cannot be told. */
static uint64_t resident_pages(void)
{
    char text[128] = "";
    FILE *file = fopen("/proc/self/statm", "re");
    char *resident;

    if (!file)
        return 0;
    if (!fgets(text, sizeof text, file))
        text[0] = 0;
    fclose(file);
    resident = strchr(text, ' '); /* behind the total size */
    return resident ? strtoull(resident, NULL, 10) : 0;
}

static void put_process(struct prometheus *p, const tws_server_stats *s)
{
    struct rusage use;
    double seconds;

    prometheus_gauge(p, "tws_threads", "Connection threads.", s->threads);
    prometheus_gauge(p, "tws_carriers", "Threads that run light threads.", s->carriers);
    prometheus_gauge(p, "tws_helpers", "Threads that run blocking functions.", s->helpers);
    prometheus_counter(p, "tws_handovers_total",
                       "Carriers taken from a handler that kept them too long.", s->handovers);
    prometheus_gauge(p, "tws_buffers_lent", "Shared buffers in use.", s->buffers_lent);
    prometheus_gauge(p, "tws_compressors", "Compressors and decompressors.", s->compressors);
    getrusage(RUSAGE_SELF, &use);
    seconds = (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
              (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e6;
    prometheus_family(p, "process_cpu_seconds_total", "counter",
                      "Processor time of this process, user and system.");
    prometheus_real(p, "process_cpu_seconds_total", seconds);
    prometheus_gauge(p, "process_resident_memory_bytes", "Resident memory of this process.",
                     resident_pages() * (uint64_t)sysconf(_SC_PAGESIZE));
}

size_t tws_server_metrics(tws_server *s, char *buf, size_t size)
{
    struct prometheus p = {.buf = buf, .size = size};
    struct server_totals totals;
    tws_server_stats stats;

    if (size > 0)
        buf[0] = 0;
    collect(s, &stats, &totals);
    put_connections(&p, &stats);
    put_endings(&p, &totals);
    put_passed(&p, &stats);
    put_tls(&p, &totals);
    put_traffic(&p, &stats);
    put_queues(&p, &stats);
    put_process(&p, &stats);
    return p.len;
}
