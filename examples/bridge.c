/*
 * bridge: one program for each connection. The lines that it prints become messages, messages become
 * lines of its standard input, and what it writes to standard error goes to the log.
 *
 *     bridge wc -l            a program that knows nothing of WebSocket
 *     bridge --binary cat     messages as they are, without line ends
 *
 * Two threads for each connection, as is natural: one reads messages, the other the program.
 * bridge_program.c starts and ends programs.
 */
#include "bridge_program.h"

#include <tws/tws.h>

#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    LOG_LINE = 1024, /* longer ones come in pieces */
    VARIABLES = 5,
    VARIABLE_SIZE = 2048,
    EXIT_USAGE = 2
};

static struct {
    char **command;
    bool binary;
    size_t max_line;
    int patience; /* ms that a program may take to read its input, and to end */
} settings = {.max_line = 65536, .patience = 5000};

static tws_server *server;

struct session {
    tws_conn *conn;
    struct program program;
    pthread_t output;
    char *line; /* what the program has printed and is no message yet */
    size_t line_len;
    char log[LOG_LINE];
    size_t log_len;
};

static void say(const struct session *s, const char *form, ...)
    __attribute__((format(printf, 2, 3)));
static void say(const struct session *s, const char *form, ...)
{
    char text[LOG_LINE + 64];
    va_list args;
    va_start(args, form);
    vsnprintf(text, sizeof text, form, args);
    va_end(args);
    fprintf(stderr, "bridge: [%llu] %s\n", (unsigned long long)tws_conn_id(s->conn), text);
}

/* ---- From the program: a thread of its own ---- */

/* False: the connection takes no more; what the program still prints is read and dropped. */
static bool send_line(struct session *s, const char *line, size_t len)
{
    tws_err err = tws_write_message(s->conn, settings.binary ? TWS_BINARY : TWS_TEXT, line, len);
    if (err == TWS_ERR_TEXT) {
        say(s, "a line was dropped: %s", tws_err_text(err));
    } else if (err == TWS_ERR_TIMEOUT) {
        tws_close_start(s->conn, TWS_CLOSE_TRY_AGAIN_LATER, "you read too slowly");
    }
    return err == TWS_OK || err == TWS_ERR_TEXT;
}

/* Sends what is there of whole lines. */
static void send_lines(struct session *s)
{
    char *begin = s->line, *end;
    while ((end = memchr(begin, '\n', s->line_len)) != NULL) {
        size_t len = (size_t)(end - begin);
        send_line(s, begin, len > 0 && end[-1] == '\r' ? len - 1 : len);
        s->line_len -= len + 1;
        begin = end + 1;
    }
    memmove(s->line, begin, s->line_len);
    if (s->line_len == settings.max_line) {
        tws_close_start(s->conn, TWS_CLOSE_INTERNAL_ERROR, "the program printed too long a line");
        s->line_len = 0;
    }
}

/* Reads once. False: there is no more now (and errno is EAGAIN), or at all. */
static bool read_output(struct session *s)
{
    ssize_t n = read(s->program.out, s->line + s->line_len, settings.max_line - s->line_len);
    if (n <= 0) {
        errno = n == 0 ? 0 : errno;
        return false;
    }
    if (settings.binary) {
        send_line(s, s->line, (size_t)n);
    } else {
        s->line_len += (size_t)n;
        send_lines(s);
    }
    return true;
}

static bool read_errors(struct session *s)
{
    ssize_t n = read(s->program.err, s->log + s->log_len, LOG_LINE - s->log_len);
    if (n <= 0) {
        errno = n == 0 ? 0 : errno;
        return false;
    }
    s->log_len += (size_t)n;
    char *begin = s->log, *end;
    while ((end = memchr(begin, '\n', s->log_len)) != NULL) {
        say(s, "%.*s", (int)(end - begin), begin);
        s->log_len -= (size_t)(end - begin) + 1;
        begin = end + 1;
    }
    memmove(s->log, begin, s->log_len);
    if (s->log_len == LOG_LINE) {
        say(s, "%.*s", LOG_LINE, s->log);
        s->log_len = 0;
    }
    return true;
}

static void *relay_output(void *arg)
{
    struct session *s = arg;
    struct pollfd fds[] = {{.fd = s->program.out, .events = POLLIN},
                           {.fd = s->program.err, .events = POLLIN},
                           {.fd = s->program.exited, .events = POLLIN}};
    while (fds[2].revents == 0) {
        if (poll(fds, 3, -1) < 0) {
            continue; /* EINTR */
        }
        if (fds[0].revents != 0 && !read_output(s) && errno != EAGAIN) {
            fds[0].fd = -1; /* closed, and the program goes on */
        }
        if (fds[1].revents != 0 && !read_errors(s) && errno != EAGAIN) {
            fds[1].fd = -1;
        }
    }
    program_sweep(&s->program);
    while (read_output(s)) { /* what it printed last */
    }
    while (read_errors(s)) {
    }
    if (s->line_len > 0) {
        send_line(s, s->line, s->line_len); /* without a line end */
    }
    if (s->log_len > 0) {
        say(s, "%.*s", (int)s->log_len, s->log);
    }
    char how[128];
    bool good = program_result(&s->program, how, sizeof how);
    say(s, "%s", how);
    tws_close_start(s->conn, good ? TWS_CLOSE_NORMAL : TWS_CLOSE_INTERNAL_ERROR, how);
    return NULL;
}

/* ---- To the program: the connection's own thread ---- */

static void relay_input(struct session *s)
{
    tws_message m;
    while (tws_read_message(s->conn, &m) == TWS_OK) {
        if (m.opcode == TWS_BINARY && !settings.binary) {
            tws_close(s->conn, TWS_CLOSE_UNSUPPORTED_DATA, "text only");
        } else if (!program_write(&s->program, m.data, m.len, settings.patience) ||
                   (!settings.binary && !program_write(&s->program, "\n", 1, settings.patience))) {
            if (errno == ETIMEDOUT) {
                tws_close(s->conn, TWS_CLOSE_TRY_AGAIN_LATER, "the program does not read");
            } else {
                break; /* it has closed its input; the messages that it still prints go out */
            }
        }
    }
    while (tws_read_message(s->conn, &m) == TWS_OK) { /* somebody must read, to the end */
    }
}

/* What programs behind a web server expect, as in CGI; of the request only what is named here. */
static void describe(const tws_request *r, char (*text)[VARIABLE_SIZE], char **variables, size_t n)
{
    char peer[64];
    const char *origin = tws_request_header(r, "Origin");
    tws_request_peer_address(r, peer, sizeof peer);
    snprintf(text[0], VARIABLE_SIZE, "REMOTE_ADDR=%s", peer);
    snprintf(text[1], VARIABLE_SIZE, "PATH_INFO=%s", tws_request_path(r));
    snprintf(text[2], VARIABLE_SIZE, "QUERY_STRING=%s", tws_request_query(r));
    snprintf(text[3], VARIABLE_SIZE, "HTTP_ORIGIN=%s", origin != NULL ? origin : "");
    snprintf(text[4], VARIABLE_SIZE, "GATEWAY_INTERFACE=websocket");
    for (size_t i = 0; i < VARIABLES; i++) {
        variables[n + i] = text[i];
    }
    variables[n + VARIABLES] = NULL;
}

static int start_program(struct session *s)
{
    size_t n = 0;
    while (environ[n] != NULL) {
        n++;
    }
    char(*text)[VARIABLE_SIZE] = calloc(VARIABLES, sizeof *text);
    char **variables = calloc(n + VARIABLES + 1, sizeof *variables);
    int error = ENOMEM;
    if (text != NULL && variables != NULL) {
        memcpy(variables, environ, n * sizeof *variables);
        describe(tws_conn_request(s->conn), text, variables, n);
        error = program_start(&s->program, settings.command, variables);
    }
    free(text);
    free(variables);
    return error;
}

/* A light thread must not wait in these itself. */
static void join_output(void *arg)
{
    struct session *s = arg;
    pthread_join(s->output, NULL);
}

static void bridge(tws_conn *c, void *arg)
{
    (void)arg;
    struct session *s = calloc(1, sizeof *s);
    if (s == NULL || (s->line = malloc(settings.max_line)) == NULL) {
        tws_close(c, TWS_CLOSE_TRY_AGAIN_LATER, "no memory");
        free(s);
        return;
    }
    s->conn = c;
    int error = start_program(s);
    if (error == 0) {
        if (pthread_create(&s->output, NULL, relay_output, s) == 0) {
            relay_input(s);
            program_end(&s->program, settings.patience);
            tws_blocking(join_output, s);
        } else {
            tws_close_start(c, TWS_CLOSE_TRY_AGAIN_LATER, "no thread");
            program_end(&s->program, 0);
        }
        program_forget(&s->program);
    } else {
        say(s, "%s: %s", settings.command[0], strerror(error));
        tws_close(c, TWS_CLOSE_INTERNAL_ERROR, "the program cannot be started");
    }
    free(s->line);
    free(s);
}

/* ---- Start and end ---- */

static const char usage[] =
    "usage: bridge [OPTION]... PROGRAM [ARGUMENT]...\n"
    "Runs a program for each WebSocket connection: lines that it prints become messages,\n"
    "messages become lines of its input. It sees REMOTE_ADDR, PATH_INFO and QUERY_STRING.\n"
    "\n"
    "  --listen HOST:PORT  listen here (default 127.0.0.1:9002)\n"
    "  --origin ORIGIN     allow pages of this origin too\n"
    "  --binary            pass bytes as they are, as binary messages\n"
    "  --max-programs N    connections at one time (default 100); more are answered with 503\n"
    "  --max-line BYTES    longest line or message, both ways (default 65536)\n"
    "  --patience MS       for a program that does not read, or does not end when its input\n"
    "                      does: then SIGTERM, and as long after SIGKILL (default 5000)\n"
    "  --threads KIND      kernel (default) or light\n"
    "  --help              print this and exit\n";

static void stop(int signal_number)
{
    (void)signal_number;
    tws_server_stop(server);
}

static unsigned long number(const char *text)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    if (*end != '\0' || end == text || value == 0 || value > 1000000000) {
        fprintf(stderr, "bridge: '%s' is not a number from 1 on\n", text);
        exit(EXIT_USAGE);
    }
    return value;
}

static void read_options(int argc, char **argv, tws_server_options *opt, const char **listen,
                         const char **origin)
{
    static const struct option options[] = {
        {"listen", required_argument, NULL, 'l'},
        {"origin", required_argument, NULL, 'o'},
        {"binary", no_argument, NULL, 'b'},
        {"max-programs", required_argument, NULL, 'n'},
        {"max-line", required_argument, NULL, 'm'},
        {"patience", required_argument, NULL, 'p'},
        {"threads", required_argument, NULL, 't'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    int option;
    while ((option = getopt_long(argc, argv, "+", options, NULL)) != -1) {
        switch (option) {
        case 'l':
            *listen = optarg;
            break;
        case 'o':
            *origin = optarg;
            opt->upgrade.origin_count = 1;
            break;
        case 'b':
            settings.binary = true;
            break;
        case 'n':
            opt->max_connections = (uint32_t)number(optarg);
            break;
        case 'm':
            settings.max_line = number(optarg);
            break;
        case 'p':
            settings.patience = (int)number(optarg);
            break;
        case 't':
            opt->threads = strcmp(optarg, "light") == 0 ? TWS_THREADS_LIGHT : TWS_THREADS_KERNEL;
            if (opt->threads == TWS_THREADS_KERNEL && strcmp(optarg, "kernel") != 0) {
                fprintf(stderr, "bridge: '%s' is not a kind of thread\n", optarg);
                exit(EXIT_USAGE);
            }
            break;
        case 'h':
            fputs(usage, stdout);
            exit(EXIT_SUCCESS);
        default:
            fputs(usage, stderr);
            exit(EXIT_USAGE);
        }
    }
    settings.command = argv + optind;
    if (optind == argc) {
        fprintf(stderr, "bridge: no program\n%s", usage);
        exit(EXIT_USAGE);
    }
}

int main(int argc, char **argv)
{
    const char *listen = "127.0.0.1:9002", *origin = NULL;
    tws_server_options opt;
    tws_server_options_init(&opt);
    opt.listen = &listen;
    opt.listen_count = 1;
    opt.max_connections = 100;
    opt.on_connection = bridge;
    opt.upgrade.origins = &origin;
    read_options(argc, argv, &opt, &listen, &origin);
    opt.upgrade.conn.max_message = settings.max_line;
    setvbuf(stdout, NULL, _IOLBF, 0);
    signal(SIGPIPE, SIG_IGN); /* a program may close its input */

    tws_error e;
    if (tws_server_start(&server, &opt, &e) != TWS_OK) {
        fprintf(stderr, "bridge: %s\n", e.text);
        return EXIT_FAILURE;
    }
    char address[128];
    tws_server_address(server, 0, address, sizeof address);
    printf("listening on %s\n", address);
    signal(SIGINT, stop);
    signal(SIGTERM, stop);
    tws_server_wait(server);
    tws_server_drain(server, settings.patience);
    tws_server_free(server);
    return EXIT_SUCCESS;
}
