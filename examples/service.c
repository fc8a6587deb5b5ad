/*
 * service: what a server needs around its handler before it goes into production. docs/guide.md walks
 * through it.
 *
 * What it does is small: who comes as ws://HOST/ROOM?name=NAME is in that room, and what one says all
 * others there hear. /healthz answers "ok", or 503 once it has been told to end.
 */
#include <tws/tws.h>

#include <getopt.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LIST = 8, NAME_SIZE = 33, DRAIN_MS = 10000, EXIT_USAGE = 2 };

static tws_hub *hub;
static atomic_bool leaving;

/* ---- Log: lines for the journal, which takes the level from the number in front ---- */

static void log_line(tws_log_level level, const char *text, void *arg)
{
    static const int syslog_levels[] = {7, 3, 4, 6, 7};
    (void)arg;
    if (level <= TWS_LOG_INFO) {
        fprintf(stderr, "<%d>%s\n", syslog_levels[level], text);
    }
}

/* ---- Who may come in: on the connection's thread, before it is answered ---- */

static bool let_in(const tws_request *r, tws_reply *a, void *arg)
{
    static const char text[] = "say who you are: ?name=NAME, at most 32 bytes\n";
    char name[NAME_SIZE];
    ptrdiff_t len = tws_request_param(r, "name", name, sizeof name);
    (void)arg;
    if (len < 1 || len >= NAME_SIZE || !tws_utf8_valid(name, (size_t)len)) {
        tws_reply_status(a, 401);
        tws_reply_body(a, "text/plain", text, sizeof text - 1);
        return false;
    }
    char *copy = strdup(name);
    if (copy == NULL || tws_reply_session_set(a, "name", copy, free) != TWS_OK) {
        free(copy);
        tws_reply_status(a, 503);
        return false;
    }
    return true;
}

static bool answer_page(const tws_request *r, tws_reply *a, void *arg)
{
    (void)arg;
    if (strcmp(tws_request_path(r), "/healthz") != 0) {
        return false; /* 426: this is a WebSocket server */
    }
    if (leaving) {
        tws_reply_status(a, 503); /* a proxy sends no more clients */
    }
    tws_reply_body(a, "text/plain", leaving ? "leaving\n" : "ok\n", leaving ? 8 : 3);
    return true;
}

/* ---- A connection: on a thread of its own ---- */

static void talk(tws_conn *c, void *arg)
{
    const char *room = tws_request_path(tws_conn_request(c));
    const char *name = tws_session_get(c, "name");
    tws_message m;
    (void)arg;
    tws_hub_join(hub, c, room);
    while (tws_read_message(c, &m) == TWS_OK) {
        char text[1024];
        int len = snprintf(text, sizeof text, "%s: %.*s", name, (int)m.len, m.data);
        if (m.opcode != TWS_TEXT || len >= (int)sizeof text) {
            tws_close(c, TWS_CLOSE_UNSUPPORTED_DATA, "short texts only");
            continue; /* the next read says that it is over */
        }
        tws_hub_publish_message(hub, room, TWS_TEXT, text, (size_t)len, c, NULL);
    }
    tws_error e;
    tws_conn_error(c, &e);
    if (!e.clean) { /* a peer that closes in order is no news */
        log_line(TWS_LOG_INFO, e.text, NULL);
    }
}

/* ---- Counters, on an address of their own that the public cannot reach ---- */

static bool metrics_page(const tws_request *r, tws_reply *a, void *arg)
{
    char text[36 * 1024];
    (void)r;
    size_t len = tws_server_metrics(arg, text, sizeof text);
    if (len < sizeof text) {
        len += tws_hub_metrics(hub, text + len, sizeof text - len);
    }
    tws_reply_body(a, TWS_METRICS_TYPE, text, len < sizeof text ? len : 0);
    return true;
}

static bool refuse(const tws_request *r, tws_reply *a, void *arg)
{
    (void)r, (void)a, (void)arg;
    return false;
}

static void never(tws_conn *c, void *arg)
{
    (void)c, (void)arg;
}

static tws_server *start_metrics(const char *address, tws_server *of, tws_error *e)
{
    tws_server *metrics;
    tws_server_options opt;
    tws_server_options_init(&opt);
    opt.listen = &address;
    opt.listen_count = 1;
    opt.on_connection = never;
    opt.max_connections = 16;
    opt.upgrade.on_upgrade = refuse;
    opt.upgrade.on_page = metrics_page;
    opt.upgrade.hook_arg = of;
    return tws_server_start(&metrics, &opt, e) == TWS_OK ? metrics : NULL;
}

/* ---- Settings ---- */

static void set_limits(tws_server_options *opt)
{
    opt->max_connections = 20000; /* more get 503 */
    opt->max_per_address = 200;   /* many people may share one address */
    opt->max_address_rate = 50;   /* new ones a second; more get 429 */
    opt->upgrade.conn.max_message = 1000;
    opt->upgrade.conn.max_rate = 16 * 1024; /* bytes a second */
}

static void set_times(tws_server_options *opt)
{
    opt->upgrade.handshake_timeout = 5000;
    opt->upgrade.conn.ping_interval = 20000; /* below the 60 s of most proxies */
    opt->upgrade.conn.ping_timeout = 10000;
    opt->upgrade.conn.idle_timeout = 30 * 60 * 1000; /* says nothing for half an hour: 1001 */
}

static void set_queue(tws_server_options *opt)
{
    opt->upgrade.conn.queue.max_bytes = 256 * 1024;
    opt->upgrade.conn.queue.max_messages = 500;
    opt->upgrade.conn.queue.policy = TWS_QUEUE_CLOSE; /* one who is behind by more: 1013 */
}

struct settings {
    const char *listen[MAX_LIST], *origins[MAX_LIST];
    size_t listen_count, origin_count;
    const char *metrics;
    tws_tls_certificate certificate;
    tws_threads threads;
    tws_ms lame_duck;
};

static const char usage[] =
    "usage: service [OPTION]...\n"
    "Rooms at ws://HOST/ROOM?name=NAME.\n"
    "\n"
    "  --listen ADDRESS    HOST:PORT, unix:PATH, systemd: ...; may be repeated (default\n"
    "                      127.0.0.1:9007)\n"
    "  --origin ORIGIN     allow pages of this origin too; may be repeated\n"
    "  --cert FILE         speak TLS with this certificate and its chain, PEM\n"
    "  --key FILE          the certificate's key (default: in the same file)\n"
    "  --metrics ADDRESS   counters at http://ADDRESS/\n"
    "  --threads KIND      kernel (default) or light\n"
    "  --lame-duck MS      told to end, answer 503 at /healthz for so long before (default 0)\n"
    "  --help              print this and exit\n"
    "\n"
    "SIGHUP reads the certificate again; SIGTERM and SIGINT close all connections and end it.\n";

static bool read_option(struct settings *s, int option, const char *value)
{
    char *end;

    switch (option) {
    case 'l':
        s->listen[s->listen_count++ % MAX_LIST] = value;
        return s->listen_count <= MAX_LIST;
    case 'o':
        s->origins[s->origin_count++ % MAX_LIST] = value;
        return s->origin_count <= MAX_LIST;
    case 'c':
        s->certificate.cert_file = value;
        return true;
    case 'k':
        s->certificate.key_file = value;
        return true;
    case 'm':
        s->metrics = value;
        return true;
    case 't':
        s->threads = strcmp(value, "light") == 0 ? TWS_THREADS_LIGHT : TWS_THREADS_KERNEL;
        return s->threads == TWS_THREADS_LIGHT || strcmp(value, "kernel") == 0;
    case 'd':
        s->lame_duck = (tws_ms)strtol(value, &end, 10);
        return end != value && *end == 0 && s->lame_duck >= 0;
    case 'h':
        fputs(usage, stdout);
        exit(EXIT_SUCCESS);
    default:
        return false;
    }
}

static void read_options(struct settings *s, int argc, char **argv)
{
    static const struct option options[] = {{"listen", required_argument, NULL, 'l'},
                                            {"origin", required_argument, NULL, 'o'},
                                            {"cert", required_argument, NULL, 'c'},
                                            {"key", required_argument, NULL, 'k'},
                                            {"metrics", required_argument, NULL, 'm'},
                                            {"threads", required_argument, NULL, 't'},
                                            {"lame-duck", required_argument, NULL, 'd'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    bool good = true;
    int option;
    while (good && (option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        good = read_option(s, option, optarg);
    }
    if (!good || optind < argc) {
        fputs(usage, stderr);
        exit(EXIT_USAGE);
    }
    if (s->listen_count == 0) {
        s->listen[s->listen_count++] = "127.0.0.1:9007";
    }
}

/* ---- Start and end ---- */

static void fail(const tws_error *e)
{
    fprintf(stderr, "service: %s\n", e->text);
    exit(EXIT_FAILURE);
}

static tws_tls *read_certificate(const tws_tls_certificate *certificate)
{
    tws_tls *tls;
    tws_tls_server_options opt;
    tws_error e;
    tws_tls_server_options_init(&opt);
    opt.certificates = certificate;
    opt.certificate_count = 1;
    if (tws_tls_server_new(&tls, &opt, &e) != TWS_OK) {
        fail(&e);
    }
    return tls;
}

static tws_server *start(const struct settings *s, tws_tls *tls)
{
    tws_server *server;
    tws_server_options opt;
    tws_error e;
    tws_server_options_init(&opt);
    opt.listen = s->listen;
    opt.listen_count = s->listen_count;
    opt.on_connection = talk;
    opt.threads = s->threads;
    opt.tls = tls;
    opt.log = log_line;
    opt.upgrade.on_upgrade = let_in;
    opt.upgrade.on_page = answer_page;
    opt.upgrade.origins = s->origins;
    opt.upgrade.origin_count = s->origin_count;
    set_limits(&opt);
    set_times(&opt);
    set_queue(&opt);
    if (tws_server_start(&server, &opt, &e) != TWS_OK) {
        fail(&e);
    }
    return server;
}

static void say_where(const char *before, const tws_server *server)
{
    char address[128];
    for (size_t i = 0; tws_server_address(server, i, address, sizeof address) > 0; i++) {
        printf("%s%s\n", before, address);
    }
}

/* SIGHUP: new certificates for new connections. Returns at a signal that ends the program. */
static void await_end(const sigset_t *signals, tws_tls *tls)
{
    int number;
    tws_error e;
    while (sigwait(signals, &number) == 0 && number == SIGHUP) {
        if (tls != NULL && tws_tls_reload(tls, &e) != TWS_OK) {
            log_line(TWS_LOG_ERROR, e.text, NULL); /* and goes on with what it has */
        }
    }
}

int main(int argc, char **argv)
{
    static struct settings s;
    tws_error e = {.text = "no memory"};
    sigset_t signals;
    read_options(&s, argc, argv);
    setvbuf(stdout, NULL, _IOLBF, 0);

    sigemptyset(&signals); /* blocked before any thread is made: they wait for sigwait() */
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);

    if (tws_hub_new(&hub, NULL) != TWS_OK) {
        fail(&e);
    }
    tws_tls *tls = s.certificate.cert_file != NULL ? read_certificate(&s.certificate) : NULL;
    tws_server *server = start(&s, tls), *metrics = NULL;
    say_where("listening on ", server);
    if (s.metrics != NULL) {
        metrics = start_metrics(s.metrics, server, &e);
        if (metrics == NULL) {
            fail(&e);
        }
        say_where("metrics on ", metrics);
    }

    await_end(&signals, tls);
    pthread_sigmask(SIG_UNBLOCK, &signals, NULL); /* a second signal ends it at once */
    leaving = true;
    tws_sleep(s.lame_duck); /* proxies notice; who comes meanwhile is let in */
    tws_err err = tws_server_drain(server, DRAIN_MS);
    if (err != TWS_OK) {
        log_line(TWS_LOG_WARNING, "some connections had to be cut", NULL);
    }
    tws_server_free(metrics); /* before what its pages look at */
    tws_server_free(server);
    tws_tls_unref(tls);
    tws_hub_free(hub);
    return EXIT_SUCCESS;
}
