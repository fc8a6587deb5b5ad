/*
 * subscriber: stays connected to a server that publishes (examples/ticker.c), and prints what comes.
 *
 * tws_reconnect() dials, runs follow() on the connection, and begins anew when that ends, after a
 * pause that grows with the failures. What a server knows of a client ends with the connection, so
 * follow() subscribes anew each time.
 */
#include <tws/tws.h>

#include <getopt.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXIT_USAGE = 2 };

static struct {
    char **names;
    unsigned long count; /* end after so many messages; 0: never */
    tws_cancel *cancel;
} settings;

/* Runs once for each connection. Returns when it has ended, or to have it closed. */
static void follow(tws_conn *c, void *arg)
{
    unsigned long *received = arg;
    char text[256];
    tws_message m;
    tws_conn_peer_address(c, text, sizeof text);
    fprintf(stderr, "subscriber: connected to %s\n", text);
    for (char **name = settings.names; *name != NULL; name++) {
        snprintf(text, sizeof text, "subscribe %s", *name);
        if (tws_write_text(c, text) != TWS_OK) {
            break;
        }
    }
    while (tws_read_message(c, &m) == TWS_OK) {
        printf("%s\n", m.data);
        if (++*received == settings.count) {
            tws_cancel_now(settings.cancel); /* ends tws_reconnect(), which closes the connection */
        }
    }
}

/* Why there is no connection, and for how long. */
static void tell(const tws_error *e, uint32_t failures, tws_ms pause, void *arg)
{
    (void)failures;
    (void)arg;
    fprintf(stderr, "subscriber: %s; again in %.1f s\n", e->text, (double)pause / 1000);
}

/* Ctrl-C: a signal handler may not cancel, a thread that waits for the signal may. */
static void *await_signal(void *arg)
{
    int number;
    sigwait(arg, &number);
    tws_cancel_now(settings.cancel);
    return NULL;
}

static const char usage[] =
    "usage: subscriber [OPTION]... URL NAME...\n"
    "Sends \"subscribe NAME\" for each NAME and prints the messages that come, a line each.\n"
    "Connects again, and subscribes again, whenever the connection is lost.\n"
    "\n"
    "  --count N      end after so many messages\n"
    "  --attempts N   give up after so many failures in a row (default: never)\n"
    "  --silence MS   a server that has been silent so long is asked, and given up when it is\n"
    "                 silent for as long again (default 10000)\n"
    "  --pause MS     longest pause before another attempt (default 30000)\n"
    "  --help         print this and exit\n";

static unsigned long number(const char *text)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    if (*end != '\0' || end == text || value == 0 || value > 1000000000) {
        fprintf(stderr, "subscriber: '%s' is not a number from 1 on\n", text);
        exit(EXIT_USAGE);
    }
    return value;
}

static void read_options(int argc, char **argv, tws_dial_options *dial,
                         tws_reconnect_options *again)
{
    static const struct option options[] = {
        {"count", required_argument, NULL, 'c'},   {"attempts", required_argument, NULL, 'a'},
        {"silence", required_argument, NULL, 's'}, {"pause", required_argument, NULL, 'p'},
        {"help", no_argument, NULL, 'h'},          {NULL, 0, NULL, 0},
    };
    int option;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option == 'c') {
            settings.count = number(optarg);
        } else if (option == 'a') {
            again->max_attempts = (uint32_t)number(optarg);
        } else if (option == 's') {
            dial->conn.ping_interval = dial->conn.ping_timeout = (tws_ms)number(optarg);
        } else if (option == 'p') {
            again->max_delay = (tws_ms)number(optarg);
            again->min_delay =
                again->max_delay < again->min_delay ? again->max_delay : again->min_delay;
        } else if (option == 'h') {
            fputs(usage, stdout);
            exit(EXIT_SUCCESS);
        } else {
            fputs(usage, stderr);
            exit(EXIT_USAGE);
        }
    }
    if (argc - optind < 2) {
        fprintf(stderr, "subscriber: a URL and names are needed\n%s", usage);
        exit(EXIT_USAGE);
    }
    settings.names = argv + optind + 1;
}

int main(int argc, char **argv)
{
    tws_dial_options dial;
    tws_reconnect_options again;
    tws_error e;
    unsigned long received = 0;
    tws_dial_options_init(&dial);
    tws_reconnect_options_init(&again);
    dial.conn.ping_interval = dial.conn.ping_timeout = 10000;
    again.on_pause = tell;
    read_options(argc, argv, &dial, &again);
    setvbuf(stdout, NULL, _IOLBF, 0);

    static sigset_t signals; /* blocked in every thread; await_signal() takes them */
    pthread_t waiter;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    dial.cancel = settings.cancel = tws_cancel_new();
    if (dial.cancel == NULL || pthread_create(&waiter, NULL, await_signal, &signals) != 0) {
        fputs("subscriber: no memory\n", stderr);
        return EXIT_FAILURE;
    }

    tws_err err = tws_reconnect(argv[optind], &dial, &again, follow, &received, &e);
    if (err != TWS_ERR_CANCELLED) { /* what another attempt would not mend, or too many attempts */
        fprintf(stderr, "subscriber: %s\n", e.text);
    }
    pthread_kill(waiter, SIGUSR1); /* it is over */
    pthread_join(waiter, NULL);
    tws_cancel_free(settings.cancel);
    return err == TWS_ERR_CANCELLED ? EXIT_SUCCESS : EXIT_FAILURE;
}
