/*
 * A libwebsockets client against an echo server: sizes, fragments, a ping, the closing handshake.
 *
 * It offers no compression: with it, 4.1 hands out short uncompressed messages twice, and ends by an
 * assertion over TLS.
 *
 * usage: lws HOST PORT [CA.pem]    prints "ok" and ends with 0 when everything came back as it left
 */
#include <libwebsockets.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 30000, LARGEST = 1 << 20, PATIENCE_S = 30 };

static const size_t sizes[] = {0, 1, 125, 126, 65535, 65536, LARGEST};
enum { MESSAGES = 2 * sizeof sizes / sizeof sizes[0] };

static struct {
    unsigned message; /* number of the one that is under way; MESSAGES: the ping */
    size_t sent, got; /* bytes of it */
    bool begun, all_sent, closing, over, good;
    unsigned char buf[LWS_PRE + LARGEST];
} s;

static size_t length(void)
{
    return sizes[s.message / 2];
}

static bool is_binary(void)
{
    return s.message % 2 != 0;
}

static int fail(const char *why)
{
    printf("lws: message %u: %s\n", s.message, why);
    s.over = true;
    return -1;
}

/* The next piece of the message, as a frame. */
static int send_piece(struct lws *wsi)
{
    size_t n = length() - s.sent < PIECE ? length() - s.sent : PIECE;
    bool last = s.sent + n == length();
    int flags = lws_write_ws_flags(is_binary() ? LWS_WRITE_BINARY : LWS_WRITE_TEXT, !s.begun, last);

    memset(s.buf + LWS_PRE, is_binary() ? 0xff : 't', n);
    if (lws_write(wsi, s.buf + LWS_PRE, n, (enum lws_write_protocol)flags) < (int)n)
        return fail("not sent");
    s.begun = true;
    s.sent += n;
    s.all_sent = last;
    if (!last)
        lws_callback_on_writable(wsi);
    return 0;
}

static int on_writable(struct lws *wsi)
{
    static const char ping[] = "are you there";

    if (s.closing) {
        lws_close_reason(wsi, LWS_CLOSE_STATUS_NORMAL, (unsigned char *)(uintptr_t) "bye", 3);
        return -1;
    }
    if (s.message < MESSAGES)
        return s.all_sent ? 0 : send_piece(wsi);
    memcpy(s.buf + LWS_PRE, ping, sizeof ping - 1);
    return lws_write(wsi, s.buf + LWS_PRE, sizeof ping - 1, LWS_WRITE_PING) < 0 ? fail("no ping")
                                                                                : 0;
}

static int on_receive(struct lws *wsi, const unsigned char *data, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (data[i] != (is_binary() ? 0xff : 't'))
            return fail("other bytes");
    s.got += len;
    if (!lws_is_final_fragment(wsi) || lws_remaining_packet_payload(wsi) > 0)
        return 0;
    if (s.got != length() || (bool)lws_frame_is_binary(wsi) != is_binary())
        return fail("another length or type");
    s.message++;
    s.sent = s.got = 0;
    s.begun = s.all_sent = false;
    lws_callback_on_writable(wsi);
    return 0;
}

static int callback(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
                    size_t len)
{
    (void)user;
    switch (reason) {
    case LWS_CALLBACK_CLIENT_CONNECTION_ERROR:
        return fail(in ? in : "not connected");
    case LWS_CALLBACK_CLIENT_ESTABLISHED:
        lws_callback_on_writable(wsi);
        return 0;
    case LWS_CALLBACK_CLIENT_WRITEABLE:
        return on_writable(wsi);
    case LWS_CALLBACK_CLIENT_RECEIVE:
        return on_receive(wsi, in, len);
    case LWS_CALLBACK_CLIENT_RECEIVE_PONG:
        if (len != 13 || memcmp(in, "are you there", len) != 0)
            return fail("another pong");
        s.closing = true;
        lws_callback_on_writable(wsi);
        return 0;
    case LWS_CALLBACK_CLIENT_CLOSED:
        s.good = s.closing;
        s.over = true;
        return 0;
    default:
        return 0;
    }
}

static struct lws_context *create(const char *ca)
{
    static const struct lws_protocols protocols[] = {
        {.name = "none", .callback = callback, .rx_buffer_size = 65536}, {0}};
    struct lws_context_creation_info info = {0};

    lws_set_log_level(LLL_ERR, NULL);
    info.port = CONTEXT_PORT_NO_LISTEN;
    info.protocols = protocols;
    info.options = LWS_SERVER_OPTION_DO_SSL_GLOBAL_INIT;
    info.client_ssl_ca_filepath = ca;
    return lws_create_context(&info);
}

int main(int argc, char **argv)
{
    struct lws_context *context = create(argc > 3 ? argv[3] : NULL);
    struct lws_client_connect_info to = {0};
    lws_usec_t end = lws_now_usecs() + PATIENCE_S * LWS_USEC_PER_SEC;

    if (argc < 3 || !context)
        return 2;
    to.context = context;
    to.address = to.host = argv[1];
    to.port = atoi(argv[2]);
    to.path = "/";
    to.ssl_connection = argc > 3 ? LCCSCF_USE_SSL : 0;
    if (!lws_client_connect_via_info(&to))
        return 1;
    while (!s.over && lws_now_usecs() < end)
        lws_service(context, 0);
    lws_context_destroy(context);
    puts(s.good ? "ok" : "lws: did not get to the end");
    return s.good ? 0 : 1;
}
