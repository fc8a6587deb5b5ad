/*
 * echo: sends every message back, on every path.
 *
 * The smallest useful server: echo() below is all that a connection needs. The rest reads options,
 * waits for a signal, and ends in order. `echo --help` lists the options.
 */
#include "echo_broadcast.h"
#include "echo_health.h"
#include "echo_usage.h"

#include <tws/tws.h>

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_ADDRESSES = 16,
    ADDRESS_SIZE = 320, /* "unix:" and the longest path, or a long host name and a port */
    DRAIN_MS = 5000,
    MAX_MS = 24 * 60 * 60 * 1000,
    EXIT_USAGE = 2
};

struct settings {
    tws_server_options server;
    char address[MAX_ADDRESSES][ADDRESS_SIZE];
    const char *listen[MAX_ADDRESSES];
    const char *broadcast; /* path, or NULL */
    const char *metrics;   /* address of the counters' page, or NULL */
    tws_deflate_options deflate;
    tws_tls_certificate certificate;
    tws_events events; /* with --style events */
    bool by_events;
    tws_ms lame_duck;
    bool queued; /* replies go through the connection's queue */
};

/* A reply that does not wait for the peer, which may be lost under a policy that drops. */
static tws_err reply_queued(tws_conn *c, const tws_message *m)
{
    tws_err err = tws_write_async(c, m->opcode, m->data, m->len, NULL, NULL);
    if (err == TWS_ERR_MESSAGE_SIZE) { /* larger than the queue */
        err = tws_write_message(c, m->opcode, m->data, m->len);
    }
    return err == TWS_ERR_QUEUE_FULL ? TWS_OK : err;
}

static tws_err reply(const struct settings *s, tws_conn *c, const tws_message *m)
{
    return s->queued ? reply_queued(c, m) : tws_write_message(c, m->opcode, m->data, m->len);
}

/* Runs once for each connection, on a thread of its own: it may simply wait. */
static void echo(tws_conn *c, void *arg)
{
    tws_message m;
    if (broadcast_wanted(c)) {
        broadcast(c);
        return;
    }
    while (tws_read_message(c, &m) == TWS_OK) {
        if (reply(arg, c, &m) != TWS_OK) {
            break;
        }
    }
}

/* The same by handlers. */
static void echo_open(tws_conn *c, void *arg)
{
    (void)arg;
    if (broadcast_wanted(c)) {
        broadcast(c); /* a handler may read on, here to the end */
    }
}

static void echo_message(tws_conn *c, tws_message *m, void *arg)
{
    if (reply(arg, c, m) != TWS_OK) {
        tws_close_start(c, TWS_CLOSE_NORMAL, NULL);
    }
}

/* ---- Counters, served by a second server so that the first can echo on every path ---- */

static bool metrics_page(const tws_request *r, tws_reply *a, void *arg)
{
    if (strcmp(tws_request_path(r), "/metrics") != 0) {
        return tws_reply_status(a, 404) == TWS_OK;
    }
    char text[32 * 1024];
    size_t len = tws_server_metrics(arg, text, sizeof text);
    if (len < sizeof text && broadcast_hub() != NULL) {
        len += tws_hub_metrics(broadcast_hub(), text + len, sizeof text - len);
    }
    if (len >= sizeof text) {
        return tws_reply_status(a, 500) == TWS_OK;
    }
    return tws_reply_body(a, TWS_METRICS_TYPE, text, len) == TWS_OK;
}

static bool refuse_upgrade(const tws_request *r, tws_reply *a, void *arg)
{
    (void)r;
    (void)arg;
    tws_reply_status(a, 404);
    return false;
}

static void never_called(tws_conn *c, void *arg)
{
    (void)c;
    (void)arg;
}

static void log_line(tws_log_level level, const char *text, void *arg)
{
    (void)arg;
    if (level <= TWS_LOG_WARNING) {
        fprintf(stderr, "echo: %s\n", text);
    }
}

/* ---- Options ---- */

static void bad_option(const char *option, const char *value, const char *why)
{
    fprintf(stderr, "echo: --%s %s: %s\nTry 'echo --help'.\n", option, value, why);
    exit(EXIT_USAGE);
}

static uint64_t number(const char *option, const char *text, uint64_t max)
{
    char *end;
    errno = 0;
    unsigned long long n = strtoull(text, &end, 10);
    if (!isdigit((unsigned char)text[0]) || *end != '\0') {
        bad_option(option, text, "not a number");
    }
    if (errno != 0 || n > max) {
        bad_option(option, text, "too large");
    }
    return n;
}

static void add_address(struct settings *s, const char *option, const char *prefix,
                        const char *value)
{
    size_t i = s->server.listen_count;
    if (i == MAX_ADDRESSES) {
        bad_option(option, value, "too many addresses");
    }
    int n = snprintf(s->address[i], ADDRESS_SIZE, "%s%s", prefix, value);
    if (n < 0 || n >= ADDRESS_SIZE) {
        bad_option(option, value, "too long");
    }
    s->listen[i] = s->address[i];
    s->server.listen_count = i + 1;
}

static void set_deflate_number(tws_deflate_options *deflate, const char *name, const char *value)
{
    if (strcmp(name, "level") == 0) {
        deflate->level = (int)number(name, value, 9);
    } else if (strcmp(name, "memory") == 0) {
        deflate->memory_level = (int)number(name, value, 9);
    } else if (strcmp(name, "server-window") == 0) {
        deflate->server_max_window_bits = (int)number(name, value, 15);
    } else if (strcmp(name, "client-window") == 0) {
        deflate->client_max_window_bits = (int)number(name, value, 15);
    } else if (strcmp(name, "threshold") == 0) {
        deflate->threshold = (uint32_t)number(name, value, UINT32_MAX);
    } else if (strcmp(name, "ratio") == 0) {
        deflate->max_ratio = (uint32_t)number(name, value, UINT32_MAX);
    } else {
        bad_option("deflate", name, "no such parameter");
    }
}

/* "takeover,level=6": parameters of compression, or NULL for the defaults. */
static void set_deflate(struct settings *s, char *params)
{
    tws_deflate_options *deflate = &s->deflate;
    tws_deflate_options_init(deflate);
    s->server.upgrade.deflate = deflate;
    char *rest = NULL;
    for (char *p = params ? strtok_r(params, ",", &rest) : NULL; p;
         p = strtok_r(NULL, ",", &rest)) {
        char *value = strchr(p, '=');
        if (value != NULL) {
            *value++ = '\0';
            set_deflate_number(deflate, p, value);
            continue;
        }
        bool both = strcmp(p, "takeover") == 0;
        if (!both && strcmp(p, "server-takeover") != 0 && strcmp(p, "client-takeover") != 0) {
            bad_option("deflate", p, "no such parameter");
        }
        if (both || p[0] == 's') {
            deflate->server_no_context_takeover = false;
        }
        if (both || p[0] == 'c') {
            deflate->client_no_context_takeover = false;
        }
    }
}

static const struct option options[] = {
    {"listen", required_argument, NULL, 'l'},
    {"unix", required_argument, NULL, 'u'},
    {"max-message", required_argument, NULL, 'm'},
    {"max-connections", required_argument, NULL, 'c'},
    {"max-per-address", required_argument, NULL, 'a'},
    {"style", required_argument, NULL, 'y'},
    {"parallel", required_argument, NULL, 'n'},
    {"threads", required_argument, NULL, 't'},
    {"carriers", required_argument, NULL, 'k'},
    {"no-pause", no_argument, NULL, 'z'},
    {"reuse-port", no_argument, NULL, 'e'},
    {"stack", required_argument, NULL, 's'},
    {"min-rate", required_argument, NULL, 'r'},
    {"control-rate", required_argument, NULL, 'R'},
    {"max-rate", required_argument, NULL, 'x'},
    {"max-fragments", required_argument, NULL, 'f'},
    {"fragment-rate", required_argument, NULL, 'F'},
    {"tls-updates", required_argument, NULL, 'U'},
    {"receive-buffer", required_argument, NULL, 'V'},
    {"send-buffer", required_argument, NULL, 'E'},
    {"max-handshakes", required_argument, NULL, 'S'},
    {"address-rate", required_argument, NULL, 'A'},
    {"address-burst", required_argument, NULL, 'O'},
    {"trim-memory", no_argument, NULL, 'Y'},
    {"log", no_argument, NULL, 'L'},
    {"no-join", no_argument, NULL, 'j'},
    {"deflate", optional_argument, NULL, 'd'},
    {"tls-cert", required_argument, NULL, 'T'},
    {"tls-key", required_argument, NULL, 'K'},
    {"tls", required_argument, NULL, 'B'},
    {"broadcast", required_argument, NULL, 'b'},
    {"writer", required_argument, NULL, 'W'},
    {"queue-bytes", required_argument, NULL, 'Q'},
    {"queue-messages", required_argument, NULL, 'q'},
    {"queue-policy", required_argument, NULL, 'o'},
    {"queue-wait", required_argument, NULL, 'g'},
    {"metrics", required_argument, NULL, 'M'},
    {"handshake-timeout", required_argument, NULL, 'H'},
    {"ping", required_argument, NULL, 'p'},
    {"ping-timeout", required_argument, NULL, 'P'},
    {"idle", required_argument, NULL, 'i'},
    {"write-timeout", required_argument, NULL, 'w'},
    {"close-timeout", required_argument, NULL, 'C'},
    {"lame-duck", required_argument, NULL, 'D'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

/* Which of these words the value is. */
static int word(const char *option, const char *value, const char *const *words)
{
    for (int i = 0; words[i] != NULL; i++) {
        if (strcmp(value, words[i]) == 0) {
            return i;
        }
    }
    bad_option(option, value, "no such word");
    return 0;
}

/* The timeout that an option sets, or NULL. */
static tws_ms *timeout_of(struct settings *s, int option)
{
    tws_upgrade_options *upgrade = &s->server.upgrade;
    switch (option) {
    case 'H':
        return &upgrade->handshake_timeout;
    case 'p':
        return &upgrade->conn.ping_interval;
    case 'P':
        return &upgrade->conn.ping_timeout;
    case 'i':
        return &upgrade->conn.idle_timeout;
    case 'w':
        return &upgrade->conn.write_timeout;
    case 'C':
        return &upgrade->conn.close_timeout;
    case 'D':
        return &s->lame_duck;
    case 'g':
        return &upgrade->conn.queue.wait;
    default:
        return NULL;
    }
}

/* The number that an option sets, or NULL. */
static uint32_t *number_of(struct settings *s, int option)
{
    switch (option) {
    case 'c':
        return &s->server.max_connections;
    case 'a':
        return &s->server.max_per_address;
    case 'n':
        return &s->events.parallel;
    case 'R':
        return &s->server.upgrade.conn.max_control_rate;
    case 'r':
        return &s->server.upgrade.conn.min_rate;
    case 'f':
        return &s->server.upgrade.conn.max_fragments;
    case 'F':
        return &s->server.upgrade.conn.max_fragment_rate;
    case 'U':
        return &s->server.upgrade.conn.max_tls_updates;
    case 'V':
        return &s->server.upgrade.conn.receive_buffer;
    case 'E':
        return &s->server.upgrade.conn.send_buffer;
    case 'S':
        return &s->server.max_handshakes;
    case 'A':
        return &s->server.max_address_rate;
    case 'O':
        return &s->server.address_burst;
    default:
        return NULL;
    }
}

/* The text that an option sets, or NULL. */
static const char **text_of(struct settings *s, int option)
{
    switch (option) {
    case 'T':
        return &s->certificate.cert_file;
    case 'K':
        return &s->certificate.key_file;
    case 'b':
        return &s->broadcast;
    case 'M':
        return &s->metrics;
    default:
        return NULL;
    }
}

static void set_queue(struct settings *s, int option, const char *name, const char *value)
{
    static const char *const modes[] = {"demand", "none", "resident", NULL};
    static const char *const policies[] = {"close", "wait", "drop-newest", "drop-oldest", NULL};
    tws_queue_options *queue = &s->server.upgrade.conn.queue;
    switch (option) {
    case 'W':
        queue->writer = (tws_writer_mode)word(name, value, modes);
        s->queued = true;
        break;
    case 'o':
        queue->policy = (tws_queue_policy)word(name, value, policies);
        break;
    case 'Q':
        queue->max_bytes = number(name, value, INT64_MAX);
        break;
    default:
        queue->max_messages = (uint32_t)number(name, value, UINT32_MAX);
    }
}

static void set_kind(struct settings *s, int option, const char *name, const char *value)
{
    static const char *const kinds[] = {"kernel", "light", NULL};
    static const char *const styles[] = {"loop", "events", NULL};
    if (option == 't') {
        s->server.threads = (tws_threads)word(name, value, kinds);
    } else {
        s->by_events = word(name, value, styles) == 1;
    }
}

static void set_flag(struct settings *s, int option)
{
    switch (option) {
    case 'L':
        s->server.log = log_line;
        break;
    case 'z':
        s->server.no_pause = true;
        break;
    case 'Y':
        s->server.trim_memory = true;
        break;
    case 'e':
        s->server.reuse_port = true;
        break;
    default:
        s->server.upgrade.conn.join_replies = false;
    }
}

static void set_option(struct settings *s, int option, const char *name, char *value)
{
    tws_ms *timeout = timeout_of(s, option);
    if (timeout != NULL) {
        *timeout = (tws_ms)number(name, value, MAX_MS);
        return;
    }
    uint32_t *count = number_of(s, option);
    if (count != NULL) {
        *count = (uint32_t)number(name, value, UINT32_MAX);
        return;
    }
    const char **text = text_of(s, option);
    if (text != NULL) {
        *text = value;
        return;
    }
    if (strchr("WoQq", option) != NULL) {
        set_queue(s, option, name, value);
        return;
    }
    if (strchr("ty", option) != NULL) {
        set_kind(s, option, name, value);
        return;
    }
    if (strchr("LzejY", option) != NULL) {
        set_flag(s, option);
        return;
    }
    switch (option) {
    case 'l':
    case 'u':
        add_address(s, name, option == 'u' ? "unix:" : "", value);
        break;
    case 'm':
        s->server.upgrade.conn.max_message = number(name, value, INT64_MAX);
        break;
    case 'x':
        s->server.upgrade.conn.max_rate = number(name, value, INT64_MAX);
        break;
    case 'k':
        s->server.carriers = (uint32_t)number(name, value, 1024);
        break;
    case 's':
        s->server.stack_size = (size_t)number(name, value, SIZE_MAX);
        break;
    case 'd':
        set_deflate(s, value);
        break;
    case 'h':
        fputs(usage, stdout);
        fputs(usage_times, stdout);
        exit(EXIT_SUCCESS);
    default: /* getopt_long() has said what is wrong */
        fputs("Try 'echo --help'.\n", stderr);
        exit(EXIT_USAGE);
    }
}

static void read_options(struct settings *s, int argc, char **argv)
{
    tws_server_options_init(&s->server);
    tws_events_init(&s->events);
    s->events.on_open = echo_open;
    s->events.on_message = echo_message;
    s->server.listen = s->listen;
    s->server.arg = s;
    s->server.upgrade.any_origin = true;
    s->server.upgrade.on_page = health_page;
    int option;
    int index = 0;
    while ((option = getopt_long(argc, argv, "", options, &index)) != -1) {
        if (option == 'B') { /* the one option with two words */
            s->certificate.cert_file = optarg;
            if (optind == argc) {
                bad_option("tls", optarg, "the key is missing");
            }
            s->certificate.key_file = argv[optind++];
        } else {
            set_option(s, option, options[index].name, optarg);
        }
    }
    if (optind < argc) {
        fprintf(stderr, "echo: unexpected argument '%s'\nTry 'echo --help'.\n", argv[optind]);
        exit(EXIT_USAGE);
    }
    if (s->by_events) {
        s->server.events = &s->events;
    } else {
        s->server.on_connection = echo;
    }
    if (s->server.listen_count == 0) {
        add_address(s, "listen", "", "127.0.0.1:9001");
    }
}

/* ---- TLS ---- */

/* The server takes a reference; ours is given back when it runs. */
static tws_tls *read_certificate(const tws_tls_certificate *certificate)
{
    if (certificate->cert_file == NULL) {
        return NULL;
    }
    tws_tls_server_options opt;
    tws_tls_server_options_init(&opt);
    opt.certificates = certificate;
    opt.certificate_count = 1;
    tws_tls *tls = NULL;
    tws_error error;
    if (tws_tls_server_new(&tls, &opt, &error) != TWS_OK) {
        fprintf(stderr, "echo: %s\n", error.text);
        exit(EXIT_USAGE);
    }
    return tls;
}

/* ---- Start and end ---- */

static tws_server *start(const tws_server_options *opt, const char *before, const char *after)
{
    tws_server *server = NULL;
    tws_error error;
    if (tws_server_start(&server, opt, &error) != TWS_OK) {
        fprintf(stderr, "echo: %s\n", error.text);
        exit(error.code == TWS_ERR_ARGUMENT ? EXIT_USAGE : EXIT_FAILURE);
    }
    char address[ADDRESS_SIZE];
    for (size_t i = 0; tws_server_address(server, i, address, sizeof address) > 0; i++) {
        printf("%s%s%s\n", before, address, after);
    }
    return server;
}

int main(int argc, char **argv)
{
    static struct settings s;
    read_options(&s, argc, argv);
    setvbuf(stdout, NULL, _IOLBF, 0);

    /* Blocked before any thread is made, so that the signals wait for sigwait() below. */
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);

    if (s.broadcast != NULL && !broadcast_open(s.broadcast)) {
        fputs("echo: no memory\n", stderr);
        return EXIT_FAILURE;
    }
    s.server.tls = read_certificate(&s.certificate);
    tws_server *server = start(&s.server, "listening on ", "");
    tws_tls_unref(s.server.tls);
    tws_server *metrics = NULL;
    if (s.metrics != NULL) {
        tws_server_options m;
        tws_server_options_init(&m);
        m.listen = &s.metrics;
        m.listen_count = 1;
        m.max_connections = 16;
        m.on_connection = never_called;
        m.upgrade.on_upgrade = refuse_upgrade;
        m.upgrade.on_page = metrics_page;
        m.arg = server;
        metrics = start(&m, "metrics on http://", "/metrics");
    }

    int signal_number;
    sigwait(&signals, &signal_number);
    pthread_sigmask(SIG_UNBLOCK, &signals, NULL); /* a second Ctrl-C ends the program at once */
    health_leave(s.lame_duck);
    tws_server_drain(server, DRAIN_MS);
    tws_server_free(metrics);
    tws_server_free(server);
    broadcast_close();
    return EXIT_SUCCESS;
}
