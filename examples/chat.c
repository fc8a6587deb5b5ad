/*
 * chat: a chat with rooms, its page, an echo and the counters, all from one program.
 *
 *     /                          the page (chat.html, compiled in)
 *     /chat?room=ROOM&name=NAME  WebSocket: what is sent is said to the room, see chat_room.c;
 *                                &reads=POLICY pretends to read slowly, see chat_slow.h
 *     /echo                      WebSocket: every message comes back
 *     /metrics                   counters in the Prometheus text format
 *     /healthz                   "ok"
 */
#include "chat_room.h"
#include "chat_slow.h"

#include <tws/tws.h>

#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    MAX_LIST = 16, /* addresses, origins */
    DRAIN_MS = 5000,
    TEXTS_PER_SECOND = 10,
    CLOSE_NAME_TAKEN = 4001, /* codes from 4000 on are the application's own */
    EXIT_USAGE = 2
};

static const unsigned char page[] = {
#include "chat.html.inc"
};

/* ---- WebSocket: each function runs on its connection's own thread ---- */

static void echo(tws_conn *c)
{
    tws_message m;
    while (tws_read_message(c, &m) == TWS_OK) {
        if (tws_write_message(c, m.opcode, m.data, m.len) != TWS_OK) {
            break;
        }
    }
}

/*
 * Reads a parameter of 1 to ROOM_NAME_BYTES, without control characters or blanks around it. Names
 * become part of JSON texts, which could not be sent if they were not valid UTF-8.
 */
static bool read_name(const tws_request *r, const char *param, char *name)
{
    ptrdiff_t len = tws_request_param(r, param, name, ROOM_NAME_BYTES + 1);
    if (len < 1 || len > ROOM_NAME_BYTES || name[0] == ' ' || name[len - 1] == ' ') {
        return false;
    }
    for (ptrdiff_t i = 0; i < len; i++) {
        if ((unsigned char)name[i] < ' ' || name[i] == 0x7f) {
            return false;
        }
    }
    return tws_utf8_valid(name, (size_t)len);
}

/* The policy of a member that wants to be a slow reader. */
static bool wants_slow(const tws_request *r, tws_queue_policy *policy)
{
    char name[16];
    return tws_request_param(r, "reads", name, sizeof name) > 0 && slow_policy(name, policy);
}

/* Says what the member sends until it leaves or breaks a rule. */
static void talk(struct member *me, struct slow *slow)
{
    time_t second = 0;
    int texts = 0;
    tws_message m;
    for (;;) {
        tws_err err = tws_read_message(me->conn, &m);
        if ((err != TWS_OK && err != TWS_ERR_TIMEOUT) || (slow != NULL && !slow_look(slow))) {
            break;
        }
        if (err == TWS_ERR_TIMEOUT) {
            continue;
        }
        time_t now = time(NULL);
        texts = now == second ? texts + 1 : 1;
        second = now;
        if (m.opcode != TWS_TEXT) {
            tws_close(me->conn, TWS_CLOSE_UNSUPPORTED_DATA, "text only");
        } else if (texts > TEXTS_PER_SECOND) {
            tws_close(me->conn, TWS_CLOSE_POLICY_VIOLATION, "too many texts at once");
        } else if (m.len > 0) {
            room_say(me, m.data, m.len);
        }
    }
}

static void talk_slowly(struct member *me, tws_queue_policy policy)
{
    struct slow slow;
    if (slow_begin(&slow, me->conn, policy)) {
        talk(me, &slow);
    }
    slow_end(&slow);
}

static void chat(tws_conn *c)
{
    struct member me = {.conn = c};
    char room[ROOM_NAME_BYTES + 1];
    tws_queue_policy policy;
    const tws_request *r = tws_conn_request(c);
    if (!read_name(r, "name", me.name) || !read_name(r, "room", room)) {
        return; /* look_at_upgrade() has seen to it that this cannot be */
    }
    tws_set_limit(c, TWS_LIMIT_MESSAGE, ROOM_TEXT_BYTES);
    switch (room_join(&me, room)) {
    case JOIN_OK:
        if (wants_slow(r, &policy)) {
            talk_slowly(&me, policy);
        } else {
            talk(&me, NULL);
        }
        room_leave(&me);
        break;
    case JOIN_NAME_TAKEN:
        tws_close(c, CLOSE_NAME_TAKEN, "somebody in this room has that name");
        break;
    case JOIN_FULL:
        tws_close(c, TWS_CLOSE_TRY_AGAIN_LATER, "the room is full");
        break;
    case JOIN_BROKEN: /* the connection has ended */
        break;
    }
}

static void on_connection(tws_conn *c, void *arg)
{
    (void)arg;
    if (strcmp(tws_request_path(tws_conn_request(c)), "/echo") == 0) {
        echo(c);
    } else {
        chat(c);
    }
}

/* ---- HTTP ---- */

static void answer(tws_reply *a, int status, const char *text)
{
    tws_reply_status(a, status);
    tws_reply_body(a, "text/plain; charset=utf-8", text, strlen(text));
}

static bool look_at_upgrade(const tws_request *r, tws_reply *a, void *arg)
{
    (void)arg;
    char name[ROOM_NAME_BYTES + 1];
    const char *path = tws_request_path(r);
    if (strcmp(path, "/echo") == 0) {
        return true;
    }
    if (strcmp(path, "/chat") != 0) {
        answer(a, 404, "WebSocket is spoken at /chat and /echo\n");
        return false;
    }
    if (!read_name(r, "room", name) || !read_name(r, "name", name)) {
        answer(a, 400, "room and name are needed: 1 to 48 bytes of UTF-8, no control characters\n");
        return false;
    }
    return true;
}

static void metrics_page(tws_reply *a, tws_server *server)
{
    char text[32 * 1024];
    size_t len = tws_server_metrics(server, text, sizeof text);
    if (len < sizeof text) {
        len += tws_hub_metrics(rooms_hub(), text + len, sizeof text - len);
    }
    if (len < sizeof text) {
        tws_reply_body(a, TWS_METRICS_TYPE, text, len);
    } else {
        answer(a, 500, "the counters do not fit\n");
    }
}

static bool on_page(const tws_request *r, tws_reply *a, void *arg)
{
    tws_server **server = arg; /* main() has set it before the first page is asked for */
    const char *path = tws_request_path(r);
    if (strcmp(path, "/") == 0) {
        /* The page loads nothing from anywhere and talks to nobody but this server. */
        tws_reply_header(a, "Content-Security-Policy",
                         "default-src 'none'; style-src 'unsafe-inline'; script-src "
                         "'unsafe-inline'; img-src data:; connect-src 'self' ws: wss:; "
                         "base-uri 'none'; form-action 'none'; frame-ancestors 'none'");
        tws_reply_header(a, "X-Content-Type-Options", "nosniff");
        tws_reply_header(a, "Cache-Control", "no-cache");
        tws_reply_body(a, "text/html; charset=utf-8", page, sizeof page);
    } else if (strcmp(path, "/metrics") == 0) {
        metrics_page(a, *server);
    } else if (strcmp(path, "/healthz") == 0) {
        answer(a, 200, "ok\n");
    } else if (strcmp(path, "/chat") == 0 || strcmp(path, "/echo") == 0) {
        return false; /* 426: this is for WebSocket */
    } else {
        answer(a, 404, "There is nothing here; the chat is at /\n");
    }
    return true;
}

/* ---- Start and end ---- */

static const char usage[] =
    "usage: chat [OPTION]...\n"
    "A chat with rooms at /, an echo at /echo, counters at /metrics.\n"
    "\n"
    "  --listen HOST:PORT  listen here; may be repeated (default 127.0.0.1:8080)\n"
    "  --origin ORIGIN     allow pages of this origin too, as https://example.org; may be "
    "repeated\n"
    "  --threads KIND      kernel: a pthread per connection (default); light: a user-space thread\n"
    "  --carriers N        pthreads that run light threads (default: one per core)\n"
    "  --help              print this and exit\n"
    "\n"
    "SIGTERM and SIGINT (Ctrl-C) close all connections with 1001 and end the program.\n";

static bool read_threads(tws_server_options *opt, int option, const char *value)
{
    char *end;
    if (option == 'c') {
        opt->carriers = (uint32_t)strtoul(value, &end, 10);
        return *end == '\0' && opt->carriers > 0;
    }
    opt->threads = strcmp(value, "light") == 0 ? TWS_THREADS_LIGHT : TWS_THREADS_KERNEL;
    return opt->threads == TWS_THREADS_LIGHT || strcmp(value, "kernel") == 0;
}

static void read_options(int argc, char **argv, const char **listen, const char **origins,
                         tws_server_options *opt)
{
    static const struct option options[] = {
        {"listen", required_argument, NULL, 'l'},  {"origin", required_argument, NULL, 'o'},
        {"threads", required_argument, NULL, 't'}, {"carriers", required_argument, NULL, 'c'},
        {"help", no_argument, NULL, 'h'},          {NULL, 0, NULL, 0},
    };
    size_t listens = 0, allowed = 0;
    int option;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option == 'l' && listens < MAX_LIST) {
            listen[listens++] = optarg;
        } else if (option == 'o' && allowed < MAX_LIST) {
            origins[allowed++] = optarg;
        } else if (option == 'h') {
            fputs(usage, stdout);
            exit(EXIT_SUCCESS);
        } else if (option == 't' || option == 'c') {
            if (!read_threads(opt, option, optarg)) {
                fprintf(stderr, "chat: '%s' is not a kind or number of threads\n", optarg);
                exit(EXIT_USAGE);
            }
        } else {
            fputs(option == '?' ? usage : "chat: too many addresses or origins\n", stderr);
            exit(EXIT_USAGE);
        }
    }
    if (optind < argc) {
        fprintf(stderr, "chat: unexpected argument '%s'\n%s", argv[optind], usage);
        exit(EXIT_USAGE);
    }
}

static size_t count(const char *const *list)
{
    size_t n = 0;
    while (n < MAX_LIST && list[n] != NULL) {
        n++;
    }
    return n;
}

static void say_what_to_try(const tws_server *server)
{
    char at[320];
    for (size_t i = 0; tws_server_address(server, i, at, sizeof at) > 0; i++) {
        printf("listening on %s\n", at);
    }
    tws_server_address(server, 0, at, sizeof at);
    printf("\n  chat      http://%s/    (open it in two tabs)\n", at);
    printf("  echo      python3 -m websockets ws://%s/echo    (or any other client)\n", at);
    printf("  counters  http://%s/metrics\n\nCtrl-C ends it.\n", at);
}

int main(int argc, char **argv)
{
    const char *listen[MAX_LIST] = {"127.0.0.1:8080"};
    const char *origins[MAX_LIST] = {NULL};
    tws_server_options opt;
    tws_server_options_init(&opt);
    read_options(argc, argv, listen, origins, &opt);
    setvbuf(stdout, NULL, _IOLBF, 0);

    /* Blocked before any thread is made, so that the signals wait for sigwait() below. */
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);

    tws_server *server;
    opt.listen = listen;
    opt.listen_count = count(listen);
    opt.on_connection = on_connection;
    opt.arg = &server;
    opt.max_connections = 1000;
    opt.upgrade.origins = origins;
    opt.upgrade.origin_count = count(origins);
    opt.upgrade.on_upgrade = look_at_upgrade;
    opt.upgrade.on_page = on_page;
    opt.upgrade.conn.queue.max_bytes = 128 * 1024; /* a member behind by more is closed: 1013 */
    opt.upgrade.conn.ping_interval = 10000;        /* a phone that went away is noticed soon */
    opt.upgrade.conn.ping_timeout = 10000;

    tws_error error;
    if (!rooms_open()) {
        fputs("chat: no memory\n", stderr);
        return EXIT_FAILURE;
    }
    if (tws_server_start(&server, &opt, &error) != TWS_OK) {
        fprintf(stderr, "chat: %s\n", error.text);
        fputs("Another address: chat --listen HOST:PORT, or make demo PORT=8081\n", stderr);
        return EXIT_FAILURE;
    }
    say_what_to_try(server);

    int signal_number;
    sigwait(&signals, &signal_number);
    pthread_sigmask(SIG_UNBLOCK, &signals, NULL); /* a second Ctrl-C ends the program at once */
    puts("\nclosing all connections");
    tws_server_drain(server, DRAIN_MS);
    tws_server_free(server);
    rooms_close();
    return EXIT_SUCCESS;
}
