/*
 * restart: a server that gives way to a new process of itself without dropping anybody.
 *
 * It numbers what each peer says. At SIGHUP it starts its program anew, which inherits the listening
 * socket and is handed one connection after the other, with the number each has come to.
 */
#include <tws/tws.h>

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PATIENCE_MS = 5000, EXIT_USAGE = 2 };

static const char *program;
static const char *threads = "kernel";

/* What is known about a connection, and goes with it. */
struct state {
    unsigned long count;
};

static void number(tws_conn *c, void *arg)
{
    struct state state = {0};
    tws_message m;
    size_t len;
    const void *handed = tws_handoff_data(c, &len);
    (void)arg;
    if (len == sizeof state) {
        memcpy(&state, handed, len);
    }
    tws_conn_set_user(c, &state);
    while (tws_read_message(c, &m) == TWS_OK) {
        char text[256];
        snprintf(text, sizeof text, "%lu %.*s", ++state.count, m.len < 200 ? (int)m.len : 200,
                 m.data);
        tws_write_text(c, text);
    }
}

/* ---- The old process ---- */

/* If it fails, because the peer is in the middle of a message, there is another time. */
static bool hand_over(tws_conn *c, void *h)
{
    const void *data = tws_conn_user(c);
    size_t len = sizeof(struct state);
    if (data == NULL) { /* its handler has not begun yet */
        data = tws_handoff_data(c, &len);
    }
    tws_handoff_send(h, c, data, len, PATIENCE_MS, NULL);
    return true;
}

/* The program anew, with the listening socket and one end of the way. */
static pid_t start_successor(int listener, int way)
{
    char listen_on[32], take[16];
    snprintf(listen_on, sizeof listen_on, "fd:%d", listener);
    snprintf(take, sizeof take, "%d", way);
    const char *const args[] = {program, "--listen",  listen_on, "--take",
                                take,    "--threads", threads,   NULL};
    pid_t pid = fork();
    if (pid == 0) {
        fcntl(listener, F_SETFD, 0);
        fcntl(way, F_SETFD, 0);
        execvp(program, (char **)(void *)args);
        _exit(127);
    }
    return pid;
}

/* True when there is a successor that has everything. */
static bool give_way(tws_server *server)
{
    int way[2], listener = tws_server_dup_listener(server, 0);
    tws_handoff *h = NULL;
    tws_server_stats stats;
    char up = 0;
    if (listener < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, way) < 0) {
        perror("restart");
        close(listener);
        return false;
    }
    pid_t pid = start_successor(listener, way[1]);
    close(way[1]);
    close(listener);
    /* It says when it is up. Until then nothing has changed here. */
    if (pid < 0 || read(way[0], &up, 1) != 1 || tws_handoff_new(&h, way[0]) != TWS_OK) {
        fprintf(stderr, "restart: the successor did not come up\n");
        close(way[0]);
        return false;
    }
    tws_server_stop(server); /* whoever connects from now on is the successor's */
    for (int tries = 0; tries < PATIENCE_MS / 10; tries++) {
        tws_server_each(server, hand_over, h);
        tws_server_get_stats(server, &stats);
        if (stats.open + stats.handshaking == 0) {
            break;
        }
        tws_sleep(10);
    }
    tws_server_drain(server, PATIENCE_MS); /* 1001 to those that did not go */
    tws_handoff_free(h);
    return true;
}

/* ---- The new one ---- */

/* Takes connections until the predecessor has no more. */
static void take_over(tws_server *server, int way)
{
    tws_handoff *h;
    tws_error error;
    tws_err err;
    int count = 0;
    if (write(way, "u", 1) != 1 || tws_handoff_new(&h, way) != TWS_OK) {
        return;
    }
    while ((err = tws_handoff_serve(h, server, 0, &error)) == TWS_OK || err == TWS_ERR_REFUSED) {
        count += err == TWS_OK;
    }
    if (err != TWS_ERR_EOF) {
        fprintf(stderr, "restart: %s\n", error.text);
    }
    tws_handoff_free(h);
    printf("took over %d connections\n", count);
}

static tws_server *start(const char *address)
{
    tws_server *server;
    tws_server_options opt;
    tws_error error;
    char text[128];
    tws_server_options_init(&opt);
    opt.listen = &address;
    opt.listen_count = 1;
    opt.on_connection = number;
    opt.threads = strcmp(threads, "light") == 0 ? TWS_THREADS_LIGHT : TWS_THREADS_KERNEL;
    opt.upgrade.conn.handoff = true; /* so that a read that waits does not hold it up */
    if (tws_server_start(&server, &opt, &error) != TWS_OK) {
        fprintf(stderr, "restart: %s\n", error.text);
        return NULL;
    }
    tws_server_address(server, 0, text, sizeof text);
    printf("process %d\nlistening on %s\n", (int)getpid(), text);
    return server;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"listen", required_argument, NULL, 'l'},
                                            {"threads", required_argument, NULL, 't'},
                                            {"take", required_argument, NULL, 'k'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    const char *address = "127.0.0.1:8080";
    int c, way = -1, signal_number = 0;
    sigset_t signals;
    program = argv[0];
    setvbuf(stdout, NULL, _IOLBF, 0);
    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (c == 'l') {
            address = optarg;
        } else if (c == 't' && (strcmp(optarg, "kernel") == 0 || strcmp(optarg, "light") == 0)) {
            threads = optarg;
        } else if (c == 'k') {
            way = (int)strtol(optarg, NULL, 10);
        } else {
            fprintf(c == 'h' ? stdout : stderr,
                    "usage: restart [--listen ADDRESS] [--threads kernel|light]\n"
                    "Numbers what each peer says. SIGHUP: a new process takes over.\n");
            return c == 'h' ? EXIT_SUCCESS : EXIT_USAGE;
        }
    }
    sigemptyset(&signals); /* taken by sigwait() below */
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGHUP);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    tws_server *server = start(address);
    if (server == NULL) {
        return EXIT_FAILURE;
    }
    if (way >= 0) {
        take_over(server, way);
    }
    do {
        sigwait(&signals, &signal_number);
    } while (signal_number == SIGHUP && !give_way(server));
    if (signal_number != SIGHUP) {
        tws_server_drain(server, PATIENCE_MS);
    }
    tws_server_free(server);
    return EXIT_SUCCESS;
}
