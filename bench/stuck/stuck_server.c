/*
 * A server for one question: what do the other connections notice of a handler that does not come
 * back? Echoes at every path but /spin, where each message costs two seconds of computing, and
 * /sleep, where it costs two seconds of sleep, neither of them through tws_blocking().
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <tws/tws.h>

static tws_server *server; /* set before the signal handlers are */

static void stop(int signal_number)
{
    (void)signal_number;
    tws_server_stop(server);
}

static void spin_two_seconds(void)
{
    time_t end = time(NULL) + 2;
    volatile unsigned long n = 0;

    while (time(NULL) < end)
        n++;
}

static void sleep_two_seconds(void)
{
    struct timespec two = {.tv_sec = 2};

    nanosleep(&two, NULL);
}

static void handler(tws_conn *c, void *arg)
{
    const char *path = tws_request_path(tws_conn_request(c));
    tws_message m;

    (void)arg;
    while (tws_read_message(c, &m) == TWS_OK) {
        if (strcmp(path, "/spin") == 0)
            spin_two_seconds();
        else if (strcmp(path, "/sleep") == 0)
            sleep_two_seconds();
        if (tws_write_message(c, m.opcode, m.data, m.len) != TWS_OK)
            break;
    }
}

int main(int argc, char **argv)
{
    const char *listen[] = {argc > 1 ? argv[1] : "127.0.0.1:9001"};
    tws_server_options opt;
    tws_server_stats stats;
    tws_error error;
    char address[64];

    tws_server_options_init(&opt);
    opt.listen = listen;
    opt.listen_count = 1;
    opt.on_connection = handler;
    opt.threads =
        argc > 2 && strcmp(argv[2], "kernel") == 0 ? TWS_THREADS_KERNEL : TWS_THREADS_LIGHT;
    opt.upgrade.any_origin = true;
    if (tws_server_start(&server, &opt, &error) != TWS_OK) {
        fprintf(stderr, "stuck_server: %s\n", error.text);
        return EXIT_FAILURE;
    }
    signal(SIGTERM, stop);
    signal(SIGINT, stop);
    tws_server_address(server, 0, address, sizeof address);
    printf("listening on %s\n", address);
    fflush(stdout);
    tws_server_wait(server);
    tws_server_get_stats(server, &stats);
    printf("handovers %llu\n", (unsigned long long)stats.handovers);
    tws_server_drain(server, 5000);
    tws_server_free(server);
    return EXIT_SUCCESS;
}
