/* Echo with libwebsockets, in the way of its own "minimal-ws-server-echo": the loop hands over
 * pieces of a message as they arrive, they are queued per connection, and written one per
 * writeable callback. */
#include <libwebsockets.h>

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A peer that sends faster than it reads is held back between these marks. */
enum { QUEUE_HIGH = 1 << 20, QUEUE_LOW = 1 << 18 };

struct piece {
    struct piece *next;
    size_t len;
    bool binary;
    bool first;
    bool final;
    unsigned char data[]; /* LWS_PRE bytes of room, then the payload */
};

struct session {
    struct piece *head;
    struct piece **tail;
    size_t queued;
    bool held;
};

static volatile sig_atomic_t stopped;

static int receive(struct lws *wsi, struct session *s, const void *in, size_t len)
{
    struct piece *p = malloc(sizeof(*p) + LWS_PRE + len);
    if (p == NULL) {
        return -1;
    }
    *p = (struct piece){
        .len = len,
        .binary = lws_frame_is_binary(wsi) != 0,
        .first = lws_is_first_fragment(wsi) != 0,
        .final = lws_is_final_fragment(wsi) != 0,
    };
    if (len > 0) {
        memcpy(p->data + LWS_PRE, in, len);
    }
    *s->tail = p;
    s->tail = &p->next;
    s->queued += len;
    if (s->queued > QUEUE_HIGH && !s->held) {
        s->held = true;
        lws_rx_flow_control(wsi, 0);
    }
    lws_callback_on_writable(wsi);
    return 0;
}

static int write_one(struct lws *wsi, struct session *s)
{
    struct piece *p = s->head;
    if (p == NULL) {
        return 0;
    }
    int flags =
        lws_write_ws_flags(p->binary ? LWS_WRITE_BINARY : LWS_WRITE_TEXT, p->first, p->final);
    int written = lws_write(wsi, p->data + LWS_PRE, p->len, (enum lws_write_protocol)flags);
    s->head = p->next;
    if (s->head == NULL) {
        s->tail = &s->head;
    }
    s->queued -= p->len;
    bool failed = written < (int)p->len;
    free(p);
    if (failed) {
        return -1;
    }
    if (s->held && s->queued < QUEUE_LOW) {
        s->held = false;
        lws_rx_flow_control(wsi, 1);
    }
    if (s->head != NULL) {
        lws_callback_on_writable(wsi);
    }
    return 0;
}

static void drop_queue(struct session *s)
{
    while (s->head != NULL) {
        struct piece *p = s->head;
        s->head = p->next;
        free(p);
    }
    s->tail = &s->head;
}

static int echo(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in, size_t len)
{
    struct session *s = user;
    switch (reason) {
    case LWS_CALLBACK_ESTABLISHED:
        *s = (struct session){.head = NULL};
        s->tail = &s->head;
        return 0;
    case LWS_CALLBACK_RECEIVE:
        return receive(wsi, s, in, len);
    case LWS_CALLBACK_SERVER_WRITEABLE:
        return write_one(wsi, s);
    case LWS_CALLBACK_CLOSED:
        drop_queue(s);
        return 0;
    default:
        return lws_callback_http_dummy(wsi, reason, user, in, len);
    }
}

static const struct lws_protocols protocols[] = {
    {.name = "echo", .callback = echo, .per_session_data_size = sizeof(struct session)},
    {.name = NULL},
};

static const struct lws_extension extensions[] = {
    {"permessage-deflate", lws_extension_callback_pm_deflate, "permessage-deflate"},
    {NULL, NULL, NULL},
};

static void stop(int number)
{
    (void)number;
    stopped = 1;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: %s HOST PORT\n", argv[0]);
        return 2;
    }
    signal(SIGTERM, stop);
    signal(SIGINT, stop);
    lws_set_log_level(LLL_ERR | LLL_WARN, NULL);
    const char *deflate = getenv("DEFLATE");
    struct lws_context_creation_info info = {
        .iface = argv[1],
        .port = (int)strtol(argv[2], NULL, 10),
        .protocols = protocols,
        .extensions = deflate != NULL && strcmp(deflate, "1") == 0 ? extensions : NULL,
        .gid = (gid_t)-1,
        .uid = (uid_t)-1,
        .options = LWS_SERVER_OPTION_VALIDATE_UTF8,
    };
    const char *cert = getenv("TLS_CERT");
    if (cert != NULL && *cert != '\0') {
        info.options |= LWS_SERVER_OPTION_DO_SSL_GLOBAL_INIT;
        info.ssl_cert_filepath = cert;
        info.ssl_private_key_filepath = getenv("TLS_KEY");
    }
    struct lws_context *context = lws_create_context(&info);
    if (context == NULL) {
        fprintf(stderr, "cannot listen on %s:%s\n", argv[1], argv[2]);
        return 1;
    }
    printf("listening on %s:%s\n", argv[1], argv[2]);
    fflush(stdout);
    while (!stopped && lws_service(context, 0) >= 0) {
    }
    lws_context_destroy(context);
    return 0;
}
