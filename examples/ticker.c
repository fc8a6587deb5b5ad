/*
 * ticker: prices that change all the time, to everybody who asked for them.
 *
 * A client sends "subscribe NAME" or "unsubscribe NAME" and gets "NAME PRICE NUMBER": at once the last
 * price, then each new one. NUMBER counts the prices of a name, so that a gap can be seen.
 *
 * A room of a hub is one name. Who reads too slowly misses old prices, not the newest: the queue of
 * a member holds a few and drops the oldest (TWS_QUEUE_DROP_OLDEST). Nobody waits for anybody.
 */
#include <tws/tws.h>

#include <getopt.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NAMES = 64, PRICE_SIZE = 96, EXIT_USAGE = 2 };

struct price {
    const char *name;
    double value;
    unsigned long number;
};

static struct {
    struct price prices[MAX_NAMES]; /* mu, but for the names */
    size_t count;
    tws_mutex *mu;
    tws_hub *hub;
    tws_ms interval;
    tws_channel *over; /* closed when the program ends: a sleep that can be cut short */
} ticker = {.interval = 1000};

static tws_server *server;

/* The text of a price, taken under the lock: what is sent then is no longer the ticker's. */
static size_t write_price_locked(const struct price *p, char text[PRICE_SIZE])
{
    int len = snprintf(text, PRICE_SIZE, "%.40s %.4f %lu", p->name, p->value, p->number);
    return (size_t)len;
}

static struct price *find(const char *name)
{
    for (size_t i = 0; i < ticker.count; i++) {
        if (strcmp(ticker.prices[i].name, name) == 0) {
            return &ticker.prices[i];
        }
    }
    return NULL;
}

/* ---- What changes ---- */

static void *tick(void *arg)
{
    unsigned seed = 1;
    void *none;
    (void)arg;
    while (tws_channel_receive(ticker.over, &none, ticker.interval) == TWS_ERR_TIMEOUT) {
        for (size_t i = 0; i < ticker.count; i++) {
            struct price *p = &ticker.prices[i];
            char text[PRICE_SIZE];
            tws_mutex_lock(ticker.mu, TWS_NO_LIMIT);
            p->value *= 1 + (rand_r(&seed) % 201 - 100) / 1e5;
            p->number++;
            size_t len = write_price_locked(p, text);
            tws_mutex_unlock(ticker.mu);
            tws_hub_publish_message(ticker.hub, p->name, TWS_TEXT, text, len, NULL, NULL);
        }
    }
    return NULL;
}

/* ---- Who wants to know: each on a thread of its own ---- */

/*
 * Joins first and then sends the last price, so that none is missed between the two. It goes into
 * the queue, as those of the room do; the client may see the same number twice.
 */
static bool subscribe(tws_conn *c, const struct price *p)
{
    char text[PRICE_SIZE];
    tws_err err = tws_hub_join(ticker.hub, c, p->name);
    if (err == TWS_OK) {
        tws_mutex_lock(ticker.mu, TWS_NO_LIMIT);
        size_t len = write_price_locked(p, text);
        tws_mutex_unlock(ticker.mu);
        err = tws_write_async(c, TWS_TEXT, text, len, NULL, NULL);
    }
    return err == TWS_OK;
}

static void serve(tws_conn *c, void *arg)
{
    (void)arg;
    tws_message m;
    while (tws_read_message(c, &m) == TWS_OK) {
        char *name = strchr(m.data, ' ');
        const struct price *p = name != NULL ? find(name + 1) : NULL;
        bool good = p != NULL;
        if (good && strncmp(m.data, "subscribe ", 10) == 0) {
            good = subscribe(c, p);
        } else if (good && strncmp(m.data, "unsubscribe ", 12) == 0) {
            tws_hub_leave(ticker.hub, c, p->name);
        } else {
            good = false;
        }
        if (!good) {
            tws_close(c, TWS_CLOSE_POLICY_VIOLATION, "subscribe NAME or unsubscribe NAME");
        }
    }
}

/* ---- Start and end ---- */

static const char usage[] =
    "usage: ticker [OPTION]... [NAME]...\n"
    "Sends prices that change to everybody who subscribes to them (default names: EUR GBP JPY).\n"
    "\n"
    "  --listen HOST:PORT  listen here (default 127.0.0.1:9003)\n"
    "  --origin ORIGIN     allow pages of this origin too\n"
    "  --interval MS       between two prices of one name (default 1000)\n"
    "  --threads KIND      kernel (default) or light\n"
    "  --help              print this and exit\n";

static void stop(int signal_number)
{
    (void)signal_number;
    tws_server_stop(server);
}

static void read_options(int argc, char **argv, tws_server_options *opt, const char **listen,
                         const char **origin)
{
    static const struct option options[] = {
        {"listen", required_argument, NULL, 'l'},   {"origin", required_argument, NULL, 'o'},
        {"interval", required_argument, NULL, 'i'}, {"threads", required_argument, NULL, 't'},
        {"help", no_argument, NULL, 'h'},           {NULL, 0, NULL, 0},
    };
    int option;
    bool good = true;
    while (good && (option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option == 'l') {
            *listen = optarg;
        } else if (option == 'o') {
            *origin = optarg;
            opt->upgrade.origin_count = 1;
        } else if (option == 'i') {
            ticker.interval = strtol(optarg, NULL, 10);
            good = ticker.interval > 0;
        } else if (option == 't') {
            opt->threads = strcmp(optarg, "light") == 0 ? TWS_THREADS_LIGHT : TWS_THREADS_KERNEL;
            good = opt->threads == TWS_THREADS_LIGHT || strcmp(optarg, "kernel") == 0;
        } else if (option == 'h') {
            fputs(usage, stdout);
            exit(EXIT_SUCCESS);
        } else {
            good = false;
        }
    }
    if (!good || argc - optind > MAX_NAMES) {
        fputs(usage, stderr);
        exit(EXIT_USAGE);
    }
}

static void name_prices(char *const *names)
{
    static char *const defaults[] = {"EUR", "GBP", "JPY", NULL};
    for (names = *names != NULL ? names : defaults; *names != NULL; names++) {
        ticker.prices[ticker.count++] = (struct price){.name = *names, .value = 100};
    }
}

int main(int argc, char **argv)
{
    const char *listen = "127.0.0.1:9003", *origin = NULL;
    tws_server_options opt;
    tws_server_options_init(&opt);
    opt.listen = &listen;
    opt.listen_count = 1;
    opt.on_connection = serve;
    opt.upgrade.origins = &origin;
    opt.upgrade.conn.max_message = 64;
    opt.upgrade.conn.queue.policy = TWS_QUEUE_DROP_OLDEST;
    opt.upgrade.conn.queue.max_messages = MAX_NAMES;
    read_options(argc, argv, &opt, &listen, &origin);
    name_prices(argv + optind);
    setvbuf(stdout, NULL, _IOLBF, 0);

    tws_error e = {.code = TWS_ERR_MEMORY, .text = "no memory"};
    pthread_t thread;
    ticker.mu = tws_mutex_new();
    ticker.over = tws_channel_new(1);
    if (ticker.mu == NULL || ticker.over == NULL || tws_hub_new(&ticker.hub, NULL) != TWS_OK ||
        tws_server_start(&server, &opt, &e) != TWS_OK) {
        fprintf(stderr, "ticker: %s\n", e.text);
        return EXIT_FAILURE;
    }
    bool ticking = pthread_create(&thread, NULL, tick, NULL) == 0;
    char address[128];
    tws_server_address(server, 0, address, sizeof address);
    printf("listening on %s\n", address);
    signal(SIGINT, stop);
    signal(SIGTERM, stop);
    tws_server_wait(server);
    tws_channel_close(ticker.over);
    if (ticking) {
        pthread_join(thread, NULL);
    }
    tws_server_drain(server, 5000);
    tws_server_free(server);
    tws_hub_free(ticker.hub);
    tws_channel_free(ticker.over);
    tws_mutex_free(ticker.mu);
    return ticking ? EXIT_SUCCESS : EXIT_FAILURE;
}
