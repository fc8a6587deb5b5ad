/*
 * cluster: rooms that span processes. Start it twice, with one broker, on two addresses: what a
 * client sends to ws://ADDRESS/ROOM goes to everybody in ROOM, at whichever of the processes.
 *
 *     nats-server &
 *     cluster --nats nats://127.0.0.1:4222 --listen 127.0.0.1:9001 &
 *     cluster --nats nats://127.0.0.1:4222 --listen 127.0.0.1:9002
 *
 * When messages of another process are lost, because a broker restarts, the members are told how many:
 * what they do about it (ask a database, say) is the application's.
 *
 *     /ROOM      WebSocket
 *     /metrics   counters of server, hub and cluster in the Prometheus text format
 *     /healthz   200 while the broker is there, 503 without: for a load balancer
 */
#include <tws/nats.h>
#include <tws/redis.h>
#include <tws/tws.h>

#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SERVERS = 16, METRICS_BYTES = 48 * 1024, EXIT_USAGE = 2 };

static tws_hub *hub;
static tws_cluster *cluster;
static tws_server *server;

/* ---- Members: each on a thread of its own ---- */

static void serve(tws_conn *c, void *arg)
{
    (void)arg;
    tws_message m;
    const char *room = tws_request_path(tws_conn_request(c));
    if (tws_hub_join(hub, c, room) != TWS_OK) {
        return;
    }
    while (tws_read_message(c, &m) == TWS_OK) {
        /* TWS_ERR_QUEUE_FULL: the members here have it; those elsewhere will be told. */
        tws_cluster_publish_message(cluster, room, m.opcode, m.data, m.len, NULL, NULL);
    }
}

/* ---- What the cluster tells: on a thread of its own ---- */

static void on_gap(const tws_gap *gap, void *arg)
{
    (void)arg;
    char text[96];
    if (gap->cause == TWS_GAP_UNSENT) {
        return; /* the members here have what did not leave */
    }
    int len = gap->missed > 0 ? snprintf(text, sizeof text, "(%llu messages are missing)",
                                         (unsigned long long)gap->missed)
                              : snprintf(text, sizeof text, "(messages may be missing)");
    /* To those here only, and before what comes behind the gap. */
    tws_hub_publish_message(hub, gap->room, TWS_TEXT, text, (size_t)len, NULL, NULL);
}

static void on_state(bool up, const char *text, void *arg)
{
    (void)arg;
    printf("broker %s: %s\n", up ? "connected" : "away", text);
}

/* ---- HTTP ---- */

static void metrics_page(tws_reply *a)
{
    char *text = malloc(METRICS_BYTES);
    size_t len = 0;
    if (text != NULL) {
        len = tws_server_metrics(server, text, METRICS_BYTES);
    }
    if (len > 0 && len < METRICS_BYTES) {
        len += tws_hub_metrics(hub, text + len, METRICS_BYTES - len);
    }
    if (len > 0 && len < METRICS_BYTES) {
        len += tws_cluster_metrics(cluster, text + len, METRICS_BYTES - len);
    }
    if (len > 0 && len < METRICS_BYTES) {
        tws_reply_body(a, TWS_METRICS_TYPE, text, len);
    } else {
        tws_reply_status(a, 500);
    }
    free(text);
}

static bool on_page(const tws_request *r, tws_reply *a, void *arg)
{
    (void)arg;
    tws_cluster_stats s;
    if (strcmp(tws_request_path(r), "/metrics") == 0) {
        metrics_page(a);
        return true;
    }
    if (strcmp(tws_request_path(r), "/healthz") == 0) {
        tws_cluster_get_stats(cluster, &s);
        tws_reply_status(a, s.up ? 200 : 503);
        tws_reply_body(a, "text/plain", s.up ? "ok\n" : "no broker\n", s.up ? 3 : 10);
        return true;
    }
    return false; /* 426: this is for WebSocket */
}

/* ---- Start and end ---- */

static const char usage[] =
    "usage: cluster (--nats URL... | --redis HOST:PORT) [OPTION]...\n"
    "Passes on what a client sends to ws://ADDRESS/ROOM to everybody in ROOM, in all processes.\n"
    "\n"
    "  --nats URL          of a NATS server; may be repeated\n"
    "  --redis HOST:PORT   or a path: of a Redis server\n"
    "  --user NAME         for the broker\n"
    "  --password WORD     for the broker\n"
    "  --ca FILE           NATS: TLS, with these trusted certificates\n"
    "  --prefix NAME       of the subjects (default tws)\n"
    "  --listen HOST:PORT  listen here (default 127.0.0.1:9001)\n"
    "  --origin ORIGIN     allow pages of this origin too\n"
    "  --threads KIND      kernel (default) or light\n"
    "  --help              print this and exit\n";

struct wishes {
    const char *nats[MAX_SERVERS], *redis, *user, *password, *ca, *listen, *origin;
    size_t nats_count;
    tws_threads threads;
    tws_cluster_options cluster;
};

static bool read_option(struct wishes *w, int option)
{
    switch (option) {
    case 'n':
        if (w->nats_count < MAX_SERVERS) {
            w->nats[w->nats_count++] = optarg;
            return true;
        }
        return false;
    case 'r':
        w->redis = optarg;
        return true;
    case 'u':
        w->user = optarg;
        return true;
    case 'p':
        w->password = optarg;
        return true;
    case 'c':
        w->ca = optarg;
        return true;
    case 'x':
        w->cluster.prefix = optarg;
        return true;
    case 'l':
        w->listen = optarg;
        return true;
    case 'o':
        w->origin = optarg;
        return true;
    case 't':
        w->threads = strcmp(optarg, "light") == 0 ? TWS_THREADS_LIGHT : TWS_THREADS_KERNEL;
        return w->threads == TWS_THREADS_LIGHT || strcmp(optarg, "kernel") == 0;
    case 'h':
        fputs(usage, stdout);
        exit(EXIT_SUCCESS);
    default:
        return false;
    }
}

static void read_options(int argc, char **argv, struct wishes *w)
{
    static const struct option options[] = {
        {"nats", required_argument, NULL, 'n'},
        {"redis", required_argument, NULL, 'r'},
        {"user", required_argument, NULL, 'u'},
        {"password", required_argument, NULL, 'p'},
        {"ca", required_argument, NULL, 'c'},
        {"prefix", required_argument, NULL, 'x'},
        {"listen", required_argument, NULL, 'l'},
        {"origin", required_argument, NULL, 'o'},
        {"threads", required_argument, NULL, 't'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    int option;
    bool good = true;
    while (good && (option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        good = read_option(w, option);
    }
    if (!good || optind < argc || (w->nats_count > 0) == (w->redis != NULL)) {
        fputs(usage, stderr);
        exit(EXIT_USAGE);
    }
}

static tws_err open_broker(tws_broker *broker, const struct wishes *w, tws_error *error)
{
#ifdef WITH_nats
    if (w->nats_count > 0) {
        tws_nats_options nats;
        tws_nats_options_init(&nats);
        nats.urls = w->nats;
        nats.url_count = w->nats_count;
        nats.user = w->user;
        nats.password = w->password;
        nats.ca = w->ca;
        return tws_nats_open(broker, &nats, error);
    }
#endif
#ifdef WITH_redis
    if (w->redis != NULL) {
        tws_redis_options redis;
        tws_redis_options_init(&redis);
        redis.address = w->redis;
        redis.user = w->user;
        redis.password = w->password;
        return tws_redis_open(broker, &redis, error);
    }
#endif
    (void)w;
    (void)broker;
    snprintf(error->text, sizeof error->text, "built without this broker's library");
    return TWS_ERR_UNSUPPORTED;
}

static tws_err start(struct wishes *w, tws_error *error)
{
    tws_server_options opt;
    tws_broker broker;
    tws_err err = tws_hub_new(&hub, NULL);
    if (err == TWS_OK) {
        err = open_broker(&broker, w, error);
    }
    if (err == TWS_OK) {
        w->cluster.on_gap = on_gap;
        w->cluster.on_state = on_state;
        err = tws_cluster_new(&cluster, hub, &broker, &w->cluster, error);
    }
    tws_server_options_init(&opt);
    opt.listen = &w->listen;
    opt.listen_count = 1;
    opt.threads = w->threads;
    opt.on_connection = serve;
    opt.upgrade.origins = &w->origin;
    opt.upgrade.origin_count = w->origin != NULL;
    opt.upgrade.on_page = on_page;
    opt.upgrade.conn.max_message = 64 * 1024;
    if (err == TWS_OK) {
        err = tws_server_start(&server, &opt, error);
    }
    return err;
}

static void stop(int signal_number)
{
    (void)signal_number;
    tws_server_stop(server);
}

int main(int argc, char **argv)
{
    struct wishes w = {.listen = "127.0.0.1:9001"};
    tws_error error = {.text = "no memory"};
    tws_cluster_options_init(&w.cluster);
    read_options(argc, argv, &w);
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (start(&w, &error) != TWS_OK) {
        fprintf(stderr, "cluster: %s\n", error.text);
        tws_cluster_free(cluster);
        tws_hub_free(hub);
        return EXIT_FAILURE;
    }
    char address[128];
    tws_server_address(server, 0, address, sizeof address);
    printf("listening on %s\n", address);
    signal(SIGINT, stop);
    signal(SIGTERM, stop);
    tws_server_wait(server);
    tws_server_drain(server, 5000);
    tws_server_free(server);
    tws_cluster_free(cluster); /* after the server, whose handlers use it; before its hub */
    tws_hub_free(hub);
    return EXIT_SUCCESS;
}
