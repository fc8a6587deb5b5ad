/*
 * What a server answers to our request, redirects and interim answers too, and what follows it into
 * the connection. What is accepted holds what RFC 6455 4.1 asks for, looked at once more.
 *
 * Input: three bytes of settings (options, cuts of what is received, the way), then what the server
 * sends, on the first connection and on those that a redirect opens.
 */
#include <tws/deflate.h>
#include <tws/tws.h>

#include "fuzz.h"
#include "lib/memory_stream.h"
#include "wire/http.h"

/* To the key that follows from the random bytes of lib/memory_stream.c. */
#define ACCEPT "9twnCz4Oi2Q3EuDqLAETCuip07c="

struct run {
    int heads, answers, cookies, connects;
    uint8_t last[20000]; /* the last answer's head */
    size_t last_len;
    char key[25];
};

static int on_connect(const char *host, uint16_t port, tws_ms timeout, void *arg)
{
    struct run *run = arg;

    (void)timeout;
    FUZZ_CHECK(host != NULL && port > 0);
    run->connects++;
    return MEMORY_FD;
}

static void on_head(bool sent, const char *head, size_t len, void *arg)
{
    struct run *run = arg;

    FUZZ_CHECK(head[len] == 0);
    if (sent) {
        const char *key = strstr(head, "Sec-WebSocket-Key: ");

        FUZZ_CHECK(len > 4 && memcmp(head + len - 4, "\r\n\r\n", 4) == 0 && key != NULL);
        memcpy(run->key, key + strlen("Sec-WebSocket-Key: "), 24);
        run->heads++;
        return;
    }
    run->answers++;
    run->last_len = len < sizeof run->last ? len : sizeof run->last;
    memcpy(run->last, head, run->last_len);
}

static void on_set_cookie(const char *url, const char *value, void *arg)
{
    struct run *run = arg;

    FUZZ_CHECK(strstr(url, "secret") == NULL && strpbrk(value, "\r\n") == NULL);
    run->cookies++;
}

static void set_options(tws_dial_options *opt, tws_deflate_options *deflate, struct run *run,
                        uint8_t settings)
{
    static const char *const protocols[] = {"chat", "v2.json"};
    static const tws_header headers[] = {{"X-One", "1"}, {"Authorization", "Bearer secret"}};
    static const uint32_t bytes[] = {16384, 256, 1024, 65535};

    tws_dial_options_init(opt);
    tws_deflate_options_init(deflate);
    deflate->server_no_context_takeover = (settings & 1) != 0;
    opt->deflate = settings & 2 ? deflate : NULL;
    opt->subprotocols = protocols;
    opt->subprotocol_count = settings & 4 ? 2 : 0;
    opt->max_redirects = settings & 8 ? 3 : 0;
    opt->headers = headers;
    opt->header_count = settings & 16 ? 2 : 0;
    opt->origin = settings & 32 ? "http://page" : NULL;
    opt->max_head_bytes = bytes[settings >> 6];
    opt->cookie = "a=secret";
    opt->connect = on_connect;
    opt->connect_arg = run;
    opt->on_head = on_head;
    opt->on_set_cookie = on_set_cookie;
    opt->hook_arg = run;
    opt->conn.max_message = 10000;
    opt->conn.max_control_rate = 0;
}

static void look(const tws_response *r)
{
    const char *name, *value;
    size_t len;

    FUZZ_CHECK(tws_response_status(r) >= 100 && strstr(tws_response_url(r), "secret") == NULL);
    for (size_t i = 0; tws_response_header_at(r, i, &name, &value); i++) {
        FUZZ_CHECK(name[0] != 0 && strpbrk(value, "\r\n") == NULL);
        FUZZ_CHECK(tws_response_header(r, name) != NULL);
    }
    FUZZ_CHECK(((const char *)tws_response_body(r, &len))[len] == 0 && len <= 4096);
}

/* RFC 6455 4.1, of the head that was shown last. */
static void check_accepted(const struct run *run, uint8_t settings)
{
    struct http_limits limits = {65535, 100};
    struct http_field fields[100];
    struct wire_text accept;
    struct http_head h;

    http_head_init(&h, true, fields, 100, &limits);
    FUZZ_CHECK(http_head_feed(&h, run->last, run->last_len) == HTTP_DONE && h.status == 101);
    FUZZ_CHECK(http_count(&h, run->last, "Sec-WebSocket-Accept") == 1);
    accept = http_text(run->last, http_find(&h, run->last, "Sec-WebSocket-Accept", NULL)->value);
    FUZZ_CHECK(wire_text_equal(accept, wire_text_of(ACCEPT)));
    FUZZ_CHECK(http_count(&h, run->last, "Upgrade") > 0);
    FUZZ_CHECK(http_count(&h, run->last, "Connection") > 0);
    FUZZ_CHECK(settings & 2 || !http_find(&h, run->last, "Sec-WebSocket-Extensions", NULL) ||
               !token_list_has(&h, run->last, "Sec-WebSocket-Extensions", "permessage-deflate"));
    FUZZ_CHECK(http_count(&h, run->last, "Sec-WebSocket-Protocol") <= (settings & 4 ? 1u : 0u));
}

static void read_on(tws_conn *c)
{
    tws_message m;

    for (int i = 0; i < 100 && tws_read_message(c, &m) == TWS_OK; i++)
        if (tws_write_message(c, m.opcode, m.data, m.len) != TWS_OK)
            break;
    tws_close(c, 1000, NULL);
    tws_conn_unref(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const urls[] = {"ws://user:secret@a.example/chat?x=1", "ws://[::1]:8080/"};
    static struct run run;
    struct fuzz_input in = {data, size};
    tws_deflate_options deflate;
    tws_dial_options opt;
    tws_response *response = NULL;
    tws_error error;
    tws_conn *conn;
    uint8_t settings = fuzz_byte(&in), receives = fuzz_byte(&in), way = fuzz_byte(&in);
    tws_err err;

    memset(&run, 0, sizeof run);
    set_options(&opt, &deflate, &run, settings);
    memory_begin(in.at, in.left);
    memory.receives = fuzz_cuts_of(receives);
    memory.sends = fuzz_cuts_of(way);
    if (way & 64) {
        opt.fd = MEMORY_FD;
        opt.connect = NULL;
    }
    err = tws_dial(&conn, urls[way >> 7], &opt, way & 32 ? NULL : &response, &error);
    FUZZ_CHECK(err == error.code && (err == TWS_OK) == (conn != NULL));
    FUZZ_CHECK(err == TWS_OK || error.text[0] != 0);
    FUZZ_CHECK(run.connects <= 4 && run.heads <= 4);
    if (response)
        look(response);
    tws_response_free(response);
    if (conn) {
        check_accepted(&run, settings);
        read_on(conn);
    }
    FUZZ_CHECK(memory.opened == memory.closed);
    return 0;
}
