/*
 * tunnel: TCP over WebSocket. One end runs where the TCP service is, the other where its clients are:
 *
 *     tunnel --serve 127.0.0.1:9005 127.0.0.1:22         WebSocket in, TCP out
 *     tunnel --enter 127.0.0.1:2222 ws://127.0.0.1:9005/  TCP in, WebSocket out
 *
 * Each TCP connection is one WebSocket connection, used as a stream of bytes (tws/stream.h). Ends of one
 * direction and failures are passed on. tunnel_relay.c does the work.
 */
#include "tunnel_relay.h"

#include <errno.h>
#include <getopt.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum { DRAIN_MS = 5000, EXIT_USAGE = 2 };

static struct {
    const char *to; /* HOST:PORT or URL */
    tws_group *group;
    tws_hub *open;      /* entry: its connections are in the room "" */
    tws_cancel *cancel; /* entry: ends dials in progress */
    tws_threads threads;
} tunnel;

static tws_conn_options conn_options(tws_conn_options o)
{
    o.write_timeout = 60000; /* a TCP peer that does not read for so long loses its tunnel */
    o.max_message = 1 << 20; /* a piece of the stream, not all of it */
    return o;
}

/* ---- Where the service is: WebSocket in, TCP out ---- */

struct target {
    int fd;
};

static void connect_target(void *arg)
{
    struct target *t = arg;
    t->fd = tcp_connect(tunnel.to);
}

static void serve(tws_conn *c, void *arg)
{
    struct target t = {.fd = -EAGAIN};
    (void)arg;
    tws_blocking(connect_target, &t); /* the lookup and connect() would block a light thread */
    if (t.fd < 0) {
        fprintf(stderr, "tunnel: %s: %s\n", tunnel.to, strerror(-t.fd));
        tws_close(c, TWS_CLOSE_BAD_GATEWAY, "the service cannot be reached");
    } else {
        relay(c, t.fd, tunnel.group);
    }
}

static int run_server(const char *listen, int signals)
{
    tws_server *server;
    tws_server_options opt;
    tws_error e;
    tws_server_options_init(&opt);
    opt.listen = &listen;
    opt.listen_count = 1;
    opt.on_connection = serve;
    opt.threads = tunnel.threads;
    opt.upgrade.conn = conn_options(opt.upgrade.conn);
    if (tws_server_start(&server, &opt, &e) != TWS_OK) {
        fprintf(stderr, "tunnel: %s\n", e.text);
        return EXIT_FAILURE;
    }
    char address[128];
    tws_server_address(server, 0, address, sizeof address);
    printf("listening on %s\n", address);
    struct pollfd wait = {.fd = signals, .events = POLLIN};
    while (poll(&wait, 1, -1) < 0) {
    }
    tws_server_drain(server, DRAIN_MS);
    tws_server_free(server);
    return EXIT_SUCCESS;
}

/* ---- Where the clients are: TCP in, WebSocket out ---- */

static void enter(void *arg)
{
    struct target *t = arg;
    tws_conn *c;
    tws_error e;
    tws_dial_options dial;
    tws_dial_options_init(&dial);
    dial.cancel = tunnel.cancel;
    dial.conn = conn_options(dial.conn);
    if (tws_dial(&c, tunnel.to, &dial, NULL, &e) == TWS_OK) {
        tws_hub_join(tunnel.open, c, "");
        if (tws_cancel_is_set(tunnel.cancel)) {
            tws_abort(c);
        }
        relay(c, t->fd, tunnel.group);
        tws_conn_unref(c);
    } else {
        fprintf(stderr, "tunnel: %s\n", e.text);
        close(t->fd);
    }
    free(t);
}

static void accept_one(int listener)
{
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    struct target *t = fd >= 0 ? malloc(sizeof *t) : NULL;
    if (t != NULL) {
        t->fd = fd;
        if (tws_group_spawn(tunnel.group, enter, t) == TWS_OK) {
            return;
        }
        free(t);
    }
    if (fd >= 0) {
        close(fd);
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) {
        fprintf(stderr, "tunnel: %s\n", strerror(errno));
        tws_sleep(100); /* the client waits in the backlog */
    }
}

static bool cut(tws_conn *c, void *arg)
{
    (void)arg;
    tws_close_start(c, TWS_CLOSE_GOING_AWAY, NULL);
    return true;
}

static int run_entry(const char *listen, int signals)
{
    int listener = tcp_listen(listen);
    if (listener < 0) {
        fprintf(stderr, "tunnel: %s: %s\n", listen, strerror(-listener));
        return EXIT_FAILURE;
    }
    struct sockaddr_storage at;
    socklen_t len = sizeof at;
    char host[64], port[16];
    getsockname(listener, (struct sockaddr *)&at, &len);
    getnameinfo((struct sockaddr *)&at, len, host, sizeof host, port, sizeof port,
                NI_NUMERICHOST | NI_NUMERICSERV);
    printf("listening on %s:%s\n", host, port);
    struct pollfd fds[] = {{.fd = signals, .events = POLLIN}, {.fd = listener, .events = POLLIN}};
    while (fds[0].revents == 0) {
        if (poll(fds, 2, -1) > 0 && fds[1].revents != 0) {
            accept_one(listener);
        }
    }
    close(listener);
    tws_cancel_now(tunnel.cancel);
    tws_hub_each(tunnel.open, "", cut, NULL);
    return tws_group_wait(tunnel.group, DRAIN_MS) == TWS_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* ---- Start and end ---- */

static const char usage[] =
    "usage: tunnel --serve HOST:PORT [OPTION] HOST:PORT\n"
    "       tunnel --enter HOST:PORT [OPTION] URL\n"
    "Carries TCP connections over WebSocket.\n"
    "\n"
    "  --serve HOST:PORT  accept WebSocket here, and connect to the TCP service at HOST:PORT\n"
    "  --enter HOST:PORT  accept TCP here, and dial the other end at URL\n"
    "  --threads KIND     kernel (default) or light\n"
    "  --help             print this and exit\n"
    "\n"
    "Whoever can reach the serving end can reach the service: let it listen on an address that\n"
    "only those may use, or behind a proxy that asks who they are.\n";

static void read_options(int argc, char **argv, const char **serve_at, const char **enter_at)
{
    static const struct option options[] = {{"serve", required_argument, NULL, 's'},
                                            {"enter", required_argument, NULL, 'e'},
                                            {"threads", required_argument, NULL, 't'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    int option;
    bool good = true;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option == 's') {
            *serve_at = optarg;
        } else if (option == 'e') {
            *enter_at = optarg;
        } else if (option == 't' && strcmp(optarg, "light") == 0) {
            tunnel.threads = TWS_THREADS_LIGHT;
        } else if (option == 'h') {
            fputs(usage, stdout);
            exit(EXIT_SUCCESS);
        } else if (option != 't' || strcmp(optarg, "kernel") != 0) {
            good = false;
        }
    }
    if (!good || optind + 1 != argc || (*serve_at != NULL) == (*enter_at != NULL)) {
        fputs(usage, stderr);
        exit(EXIT_USAGE);
    }
    tunnel.to = argv[optind];
}

int main(int argc, char **argv)
{
    const char *serve_at = NULL, *enter_at = NULL;
    read_options(argc, argv, &serve_at, &enter_at);
    setvbuf(stdout, NULL, _IOLBF, 0);

    sigset_t set; /* blocked in every thread; they come through a descriptor */
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    int signals = signalfd(-1, &set, SFD_CLOEXEC);

    tws_group_options group;
    tws_group_options_init(&group);
    group.threads = tunnel.threads;
    tunnel.cancel = tws_cancel_new();
    if (signals < 0 || tunnel.cancel == NULL || tws_hub_new(&tunnel.open, NULL) != TWS_OK ||
        tws_group_new(&tunnel.group, &group) != TWS_OK) {
        fputs("tunnel: no memory\n", stderr);
        return EXIT_FAILURE;
    }
    int status = serve_at != NULL ? run_server(serve_at, signals) : run_entry(enter_at, signals);
    tws_group_free(tunnel.group);
    tws_hub_free(tunnel.open);
    tws_cancel_free(tunnel.cancel);
    close(signals);
    return status;
}
