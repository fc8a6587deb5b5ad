/*
 * microhttpd: WebSocket inside an HTTP server that is there already, GNU libmicrohttpd.
 *
 * / is a page of that server's; /ws is judged by this library, answered by libmicrohttpd, and then handed
 * over by its upgrade mechanism, with what it has read already. With --cert and --key libmicrohttpd
 * speaks TLS and hands over a socket to itself.
 */
#include <tws/tws.h>

#include <microhttpd.h>

#include <arpa/inet.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { MAX_HEADERS = 100, MAX_FILE = 65536, DRAIN_MS = 5000, EXIT_USAGE = 2 };

static tws_server *server; /* listens nowhere, and runs the handlers */
static bool tls;
static char *cert_text, *key_text; /* libmicrohttpd goes on reading them */

/* Goes with a connection. libmicrohttpd wants to be told when it has ended. */
struct link {
    struct MHD_UpgradeResponseHandle *urh;
};

/* Goes with a request. */
struct request {
    char *target; /* as it was sent */
    tws_verdict *verdict;
    struct link *link;
};

static void echo(tws_conn *c, void *arg)
{
    struct link *link = tws_conn_user(c);
    tws_message m;
    (void)arg;
    while (tws_read_message(c, &m) == TWS_OK) {
        tws_write_message(c, m.opcode, m.data, m.len);
    }
    tws_close(c, TWS_CLOSE_NORMAL, NULL); /* the whole closing handshake, before the socket goes */
    MHD_upgrade_action(link->urh, MHD_UPGRADE_ACTION_CLOSE);
    free(link);
}

/* ---- A request ---- */

static void *begin(void *arg, const char *target, struct MHD_Connection *connection)
{
    struct request *r = calloc(1, sizeof *r);
    (void)arg, (void)connection;
    if (r != NULL) {
        r->target = strdup(target);
    }
    return r;
}

static void finish(void *arg, struct MHD_Connection *connection, void **request,
                   enum MHD_RequestTerminationCode how)
{
    struct request *r = *request;
    (void)arg, (void)connection, (void)how;
    if (r != NULL) {
        tws_verdict_free(r->verdict); /* the client left before the answer */
        free(r->link);
        free(r->target);
        free(r);
    }
}

struct headers {
    tws_header at[MAX_HEADERS + 1]; /* one more than is allowed, so that too many are noticed */
    size_t count;
};

static enum MHD_Result collect(void *arg, enum MHD_ValueKind kind, const char *name,
                               const char *value)
{
    struct headers *headers = arg;
    (void)kind;
    if (headers->count == MAX_HEADERS + 1) {
        return MHD_NO;
    }
    headers->at[headers->count++] = (tws_header){name, value ? value : ""};
    return MHD_YES;
}

/* libmicrohttpd has sent the 101. Its own descriptor stays open until the link says otherwise. */
static void hand_over(void *arg, struct MHD_Connection *connection, void *request,
                      const char *extra, size_t extra_len, MHD_socket socket,
                      struct MHD_UpgradeResponseHandle *urh)
{
    struct request *r = request;
    struct link *link = r->link;
    tws_verdict *verdict = r->verdict;
    tws_error error;
    (void)arg, (void)connection;
    link->urh = urh;
    r->verdict = NULL;
    r->link = NULL;
    int fd = fcntl(socket, F_DUPFD_CLOEXEC, 0);
    if (tws_verdict_serve(server, verdict, fd, extra, extra_len, &error) != TWS_OK) {
        fprintf(stderr, "microhttpd: %s\n", error.text);
        MHD_upgrade_action(urh, MHD_UPGRADE_ACTION_CLOSE);
        free(link);
    }
}

/* All but what libmicrohttpd writes itself. */
static void copy_headers(struct MHD_Response *response, const tws_verdict *verdict)
{
    const char *name, *value;
    for (size_t i = 0; tws_verdict_header_at(verdict, i, &name, &value); i++) {
        if (strcasecmp(name, "Connection") != 0 && strcasecmp(name, "Content-Length") != 0) {
            MHD_add_response_header(response, name, value);
        }
    }
}

static enum MHD_Result upgrade(struct MHD_Connection *connection, struct request *r,
                               const tws_parsed_request *parsed)
{
    struct MHD_Response *response;
    tws_upgrade_options opt;
    tws_error error;
    size_t len;
    tws_upgrade_options_init(&opt);
    r->link = calloc(1, sizeof *r->link);
    opt.conn.user = r->link;
    opt.server_name = "";
    tws_upgrade_judge(&r->verdict, parsed, &opt, &error);
    if (r->link == NULL || r->verdict == NULL) {
        return MHD_NO; /* no memory: libmicrohttpd closes the connection */
    }
    const void *body = tws_verdict_body(r->verdict, &len);
    int status = tws_verdict_status(r->verdict);
    if (status == MHD_HTTP_SWITCHING_PROTOCOLS) {
        response = MHD_create_response_for_upgrade(hand_over, NULL);
    } else {
        response = MHD_create_response_from_buffer(len, (void *)body, MHD_RESPMEM_MUST_COPY);
        MHD_add_response_header(response, "Connection", "close");
    }
    copy_headers(response, r->verdict);
    enum MHD_Result result = MHD_queue_response(connection, (unsigned)status, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result answer(void *arg, struct MHD_Connection *connection, const char *path,
                              const char *method, const char *version, const char *data,
                              size_t *data_len, void **request)
{
    static const char page[] = "An HTTP server; WebSocket is at /ws.\n";
    struct headers headers = {.count = 0};
    const union MHD_ConnectionInfo *peer =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    struct request *r = *request;
    tws_parsed_request parsed;
    (void)arg, (void)data, (void)data_len;
    if (r == NULL || r->target == NULL) {
        return MHD_NO;
    }
    if (strcmp(path, "/ws") == 0) {
        MHD_get_connection_values(connection, MHD_HEADER_KIND, collect, &headers);
        tws_parsed_request_init(&parsed);
        parsed.method = method;
        parsed.target = r->target;
        parsed.version = version;
        parsed.headers = headers.at;
        parsed.header_count = headers.count;
        parsed.secure = tls;
        if (peer != NULL) { /* its addresses are those of IPv4 and IPv6 */
            parsed.peer = peer->client_addr;
            parsed.peer_len = peer->client_addr->sa_family == AF_INET ? sizeof(struct sockaddr_in)
                                                                      : sizeof(struct sockaddr_in6);
        }
        return upgrade(connection, r, &parsed);
    }
    struct MHD_Response *response =
        MHD_create_response_from_buffer(sizeof page - 1, (void *)page, MHD_RESPMEM_PERSISTENT);
    enum MHD_Result result = MHD_queue_response(connection, MHD_HTTP_OK, response);
    MHD_destroy_response(response);
    return result;
}

/* ---- The rest ---- */

static char *read_file(const char *path)
{
    char *text = calloc(1, MAX_FILE);
    FILE *f = fopen(path, "r");
    if (f == NULL || text == NULL || fread(text, 1, MAX_FILE - 1, f) == 0) {
        perror(path);
        exit(EXIT_FAILURE);
    }
    fclose(f);
    return text;
}

static struct MHD_Daemon *start_http(unsigned port, const char *cert, const char *key)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    unsigned flags = MHD_ALLOW_UPGRADE | MHD_USE_AUTO_INTERNAL_THREAD;
    struct MHD_OptionItem with_tls[] = {{MHD_OPTION_HTTPS_MEM_CERT, 0, NULL},
                                        {MHD_OPTION_HTTPS_MEM_KEY, 0, NULL},
                                        {MHD_OPTION_END, 0, NULL}};
    struct MHD_OptionItem plain[] = {{MHD_OPTION_END, 0, NULL}};
    tls = cert != NULL;
    if (tls) {
        with_tls[0].ptr_value = cert_text = read_file(cert);
        with_tls[1].ptr_value = key_text = read_file(key);
        flags |= MHD_USE_TLS;
    }
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return MHD_start_daemon(flags, (uint16_t)port, NULL, NULL, answer, NULL, MHD_OPTION_SOCK_ADDR,
                            (struct sockaddr *)&address, MHD_OPTION_URI_LOG_CALLBACK, begin, NULL,
                            MHD_OPTION_NOTIFY_COMPLETED, finish, NULL, MHD_OPTION_ARRAY,
                            tls ? with_tls : plain, MHD_OPTION_END);
}

static bool start_server(tws_threads threads)
{
    static const char *const nowhere[] = {"none"};
    tws_server_options opt;
    tws_server_options_init(&opt);
    opt.listen = nowhere;
    opt.listen_count = 1;
    opt.on_connection = echo;
    opt.threads = threads;
    return tws_server_start(&server, &opt, NULL) == TWS_OK;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"port", required_argument, NULL, 'p'}, {"threads", required_argument, NULL, 't'},
        {"cert", required_argument, NULL, 'c'}, {"key", required_argument, NULL, 'k'},
        {"help", no_argument, NULL, 'h'},       {NULL, 0, NULL, 0}};
    const char *cert = NULL, *key = NULL;
    tws_threads threads = TWS_THREADS_KERNEL;
    unsigned port = 8080;
    int c, signal_number;
    sigset_t signals;
    setvbuf(stdout, NULL, _IOLBF, 0);
    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (c == 'p') {
            port = (unsigned)strtoul(optarg, NULL, 10);
        } else if (c == 't') {
            threads = strcmp(optarg, "light") == 0 ? TWS_THREADS_LIGHT : TWS_THREADS_KERNEL;
        } else if (c == 'c') {
            cert = optarg;
        } else if (c == 'k') {
            key = optarg;
        } else {
            fprintf(
                c == 'h' ? stdout : stderr,
                "usage: microhttpd [--port N] [--threads kernel|light] [--cert FILE --key FILE]\n");
            return c == 'h' ? EXIT_SUCCESS : EXIT_USAGE;
        }
    }
    if ((cert == NULL) != (key == NULL) || port > 65535) {
        fprintf(stderr, "microhttpd: --cert and --key go together, and a port has 16 bits\n");
        return EXIT_USAGE;
    }
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    signal(SIGPIPE, SIG_IGN); /* libmicrohttpd's */
    struct MHD_Daemon *http = start_server(threads) ? start_http(port, cert, key) : NULL;
    if (http == NULL) {
        fprintf(stderr, "microhttpd: cannot start\n");
        return EXIT_FAILURE;
    }
    printf("listening on 127.0.0.1:%u\n",
           (unsigned)MHD_get_daemon_info(http, MHD_DAEMON_INFO_BIND_PORT)->port);
    sigwait(&signals, &signal_number);
    MHD_quiesce_daemon(http); /* nobody new */
    tws_server_drain(server,
                     DRAIN_MS); /* 1001 to all; their handlers release libmicrohttpd's part */
    MHD_stop_daemon(http);
    free(cert_text);
    free(key_text);
    tws_server_free(server);
    return EXIT_SUCCESS;
}
