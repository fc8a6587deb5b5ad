/*
 * cluster_node: one node of a cluster, for the tests with brokers. Clients that come to /N join room
 * N % ROOMS. Reads commands from its input, a line each, and tells on its output what happens:
 *
 *     go       begins to publish RATE messages a second, to one room after the other
 *     stop     stops that; "published ROOM COUNT REFUSED" for each room, "stopped"
 *     look     "room ROOM HERE ELSEWHERE NODES" for each room, "counted NAME NUMBER"..., "looked"
 *     quit     ends in order, "ended"
 */
#include <tws/nats.h>
#include <tws/redis.h>
#include <tws/tws.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cluster_note.h"

#define ROOMS_MAX 1000

struct node {
    unsigned number, rooms, rate, size;
    tws_hub *hub;
    tws_cluster *cluster;
    _Atomic bool go;
    uint32_t published[ROOMS_MAX], refused[ROOMS_MAX];
};

static void name_of(char *out, size_t size, unsigned room)
{
    snprintf(out, size, "room %u", room); /* a blank is something to escape */
}

static void member(tws_conn *c, void *arg)
{
    struct node *n = arg;
    unsigned long number = strtoul(tws_request_path(tws_conn_request(c)) + 1, NULL, 10);
    tws_message m;
    char room[32];

    name_of(room, sizeof room, (unsigned)(number % n->rooms));
    if (tws_hub_join(n->hub, c, room) != TWS_OK)
        return;
    while (!tws_err_is_final(tws_read_message(c, &m))) {
    }
}

/* ---- What the cluster tells ---- */

static void on_gap(const tws_gap *gap, void *arg)
{
    static const char *const causes[] = {"?", "missed", "silent", "unsent"};

    (void)arg;
    printf("gap %s %s %llu %s\n", causes[gap->cause], gap->origin, (unsigned long long)gap->missed,
           gap->room ? gap->room : "(all)");
}

static void on_state(bool up, const char *text, void *arg)
{
    (void)arg;
    printf("state %s %s\n", up ? "up" : "down", text);
}

/* ---- Publishing ---- */

static int64_t now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static void publish_one(struct node *n, unsigned room)
{
    uint8_t data[4096] = {0};
    struct cluster_note note = {
        .node = n->number, .room = room, .number = n->published[room] + 1, .at = now_ns()};
    char name[32];

    name_of(name, sizeof name, room);
    memcpy(data, &note, sizeof note);
    n->published[room]++;
    n->refused[room] += tws_cluster_publish_message(n->cluster, name, TWS_BINARY, data, n->size,
                                                    NULL, NULL) != TWS_OK;
}

static void *publish(void *arg)
{
    struct node *n = arg;
    int64_t next = now_ns(), step = 1000000000 / (int64_t)n->rate;

    for (unsigned room = n->number; atomic_load(&n->go); room++) {
        int64_t left = next - now_ns();

        if (left > 0)
            tws_sleep(left / 1000000 + 1);
        publish_one(n, room % n->rooms);
        next += step;
    }
    return NULL;
}

/* ---- Commands ---- */

static void look(struct node *n)
{
    tws_cluster_stats s;
    tws_hub_stats h;

    for (unsigned room = 0; room < n->rooms; room++) {
        tws_presence p;
        char name[32];

        name_of(name, sizeof name, room);
        tws_cluster_presence(n->cluster, name, &p);
        printf("room %u %llu %llu %llu\n", room, (unsigned long long)p.here,
               (unsigned long long)p.elsewhere, (unsigned long long)p.nodes);
    }
    tws_cluster_get_stats(n->cluster, &s);
    tws_hub_get_stats(n->hub, &h);
#define COUNTED(name) printf("counted %s %llu\n", #name, (unsigned long long)s.name)
    COUNTED(up);
    COUNTED(ups);
    COUNTED(published);
    COUNTED(refused);
    COUNTED(unsent);
    COUNTED(received);
    COUNTED(echoes);
    COUNTED(stale);
    COUNTED(foreign);
    COUNTED(unwanted);
    COUNTED(queue_messages);
    COUNTED(subscriptions);
    COUNTED(broker_dropped);
    COUNTED(broker_errors);
    printf("counted hub_dropped %llu\n", (unsigned long long)(h.dropped + h.failed));
    puts("looked");
}

static void obey(struct node *n)
{
    pthread_t thread;
    char line[64];

    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        if (strcmp(line, "go") == 0 && !atomic_exchange(&n->go, true)) {
            pthread_create(&thread, NULL, publish, n);
        } else if (strcmp(line, "stop") == 0) {
            if (atomic_exchange(&n->go, false))
                pthread_join(thread, NULL);
            for (unsigned room = 0; room < n->rooms; room++)
                printf("published %u %u %u\n", room, n->published[room], n->refused[room]);
            puts("stopped");
        } else if (strcmp(line, "look") == 0) {
            look(n);
        } else if (strcmp(line, "quit") == 0) {
            break;
        }
    }
    if (atomic_exchange(&n->go, false))
        pthread_join(thread, NULL);
}

/* ---- Beginning and end ---- */

struct wishes {
    const char *kind, *address, *user, *password, *token, *ca, *cert, *key, *host;
    unsigned beat;
};

static tws_err open_broker(tws_broker *b, const struct wishes *w, tws_error *error)
{
    tws_nats_options nats;
    tws_redis_options redis;

    if (strcmp(w->kind, "redis") == 0) {
        tws_redis_options_init(&redis);
        redis.address = w->address;
        redis.user = w->user;
        redis.password = w->password;
        return tws_redis_open(b, &redis, error);
    }
    tws_nats_options_init(&nats);
    nats.urls = &w->address;
    nats.url_count = 1;
    nats.user = w->user;
    nats.password = w->password;
    nats.token = w->token;
    nats.ca = w->ca;
    nats.cert = w->cert;
    nats.key = w->key;
    nats.host_name = w->host;
    return tws_nats_open(b, &nats, error);
}

static tws_err start(struct node *n, const struct wishes *w, tws_server **server, tws_error *error)
{
    tws_cluster_options cluster;
    tws_server_options opt;
    tws_broker broker;
    tws_err err = open_broker(&broker, w, error);

    if (err)
        return err;
    tws_hub_new(&n->hub, NULL);
    tws_cluster_options_init(&cluster);
    cluster.beat = w->beat;
    cluster.on_gap = on_gap;
    cluster.on_state = on_state;
    err = tws_cluster_new(&n->cluster, n->hub, &broker, &cluster, error);
    if (err)
        return err;
    tws_server_options_init(&opt);
    opt.listen = (const char *const[]){"127.0.0.1:0"};
    opt.listen_count = 1;
    opt.threads = TWS_THREADS_LIGHT;
    opt.on_connection = member;
    opt.arg = n;
    opt.upgrade.any_origin = true;
    opt.upgrade.conn.ping_interval = TWS_NO_LIMIT; /* its clients answer none */
    return tws_server_start(server, &opt, error);
}

static bool read_arguments(int argc, char **argv, struct node *n, struct wishes *w)
{
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *name = argv[i], *value = argv[i + 1];
        const struct {
            const char *name;
            const char **text;
            unsigned *number;
        } all[] = {{"--nats", &w->address, NULL},  {"--redis", &w->address, NULL},
                   {"--user", &w->user, NULL},     {"--password", &w->password, NULL},
                   {"--ca", &w->ca, NULL},         {"--cert", &w->cert, NULL},
                   {"--key", &w->key, NULL},       {"--token", &w->token, NULL},
                   {"--host", &w->host, NULL},     {"--beat", NULL, &w->beat},
                   {"--number", NULL, &n->number}, {"--rooms", NULL, &n->rooms},
                   {"--rate", NULL, &n->rate},     {"--size", NULL, &n->size}};
        size_t k = 0;

        while (k < sizeof all / sizeof *all && strcmp(all[k].name, name) != 0)
            k++;
        if (k == sizeof all / sizeof *all)
            return false;
        if (all[k].text)
            *all[k].text = value;
        else
            *all[k].number = (unsigned)strtoul(value, NULL, 10);
        if (k < 2)
            w->kind = name + 2;
    }
    return w->kind && n->rooms > 0 && n->rooms <= ROOMS_MAX && n->rate > 0 &&
           n->size >= sizeof(struct cluster_note) && n->size <= 4096;
}

int main(int argc, char **argv)
{
    static struct node n = {.rooms = 1, .rate = 10, .size = 100};
    struct wishes w = {.beat = 1000};
    char text[320];
    tws_server *server;
    tws_error error;

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!read_arguments(argc, argv, &n, &w)) {
        fputs("cluster_node: see its source for the arguments\n", stderr);
        return 2;
    }
    if (start(&n, &w, &server, &error) != TWS_OK) {
        printf("failed %s %s\n", tws_err_name(error.code), error.text);
        return 1;
    }
    tws_cluster_origin(n.cluster, text);
    printf("origin %s\n", text);
    tws_server_address(server, 0, text, sizeof text);
    printf("listening %s\n", text);
    obey(&n);
    tws_cluster_free(n.cluster);
    tws_server_drain(server, 2000);
    tws_server_free(server);
    tws_hub_free(n.hub);
    puts("ended");
    return 0;
}
