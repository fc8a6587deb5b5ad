/*
 * A whole request into the server's opening handshake, and what follows it into the connection. What
 * is answered is one valid response, which says what the call returned; hooks look at all there is
 * to see of the request.
 *
 * Input: four bytes of settings (options, cuts of what is received and sent, hooks), then the request.
 */
#include <openssl/evp.h>
#include <openssl/sha.h>

#include <tws/deflate.h>
#include <tws/tws.h>

#include "fuzz.h"
#include "lib/memory_stream.h"
#include "wire/http.h"

struct run {
    uint8_t hooks;
    int pages, upgrades, ends;
    bool refused;
    char key[64];
    tws_error ended;
};

/* All that a hook can ask. */
static void look(const tws_request *r)
{
    static const char *const names[] = {"a", "session", "", "token"};
    const char *name, *value;
    char text[64];
    ptrdiff_t n;
    size_t i;

    FUZZ_CHECK(strlen(tws_request_method(r)) > 0);
    FUZZ_CHECK(strpbrk(tws_request_path(r), " \r\n?") == NULL);
    FUZZ_CHECK(strpbrk(tws_request_query(r), " \r\n") == NULL);
    for (i = 0; tws_request_header_at(r, i, &name, &value); i++) {
        FUZZ_CHECK(strlen(name) > 0 && strpbrk(name, " :\r\n") == NULL);
        FUZZ_CHECK(strpbrk(value, "\r\n") == NULL && tws_request_header(r, name) != NULL);
    }
    for (i = 0; i < FUZZ_COUNT(names); i++) {
        n = tws_request_param(r, names[i], text, sizeof text);
        FUZZ_CHECK(n >= -2 && (n > 0 || text[0] == 0));
        n = tws_request_cookie(r, names[i], text, sizeof text);
        FUZZ_CHECK(n >= -1 && (n < 0 || n >= (ptrdiff_t)sizeof text || strlen(text) == (size_t)n));
    }
    for (i = 0; tws_request_subprotocol_at(r, i, text, sizeof text) >= 0; i++)
        FUZZ_CHECK(text[0] != 0 && i < 20000);
    tws_request_peer_address(r, text, sizeof text);
}

static bool on_upgrade(const tws_request *r, tws_reply *a, void *arg)
{
    struct run *run = arg;
    const char *key = tws_request_header(r, "Sec-WebSocket-Key");
    char name[64];

    run->upgrades++;
    look(r);
    FUZZ_CHECK(key != NULL && strlen(key) == 24);
    memcpy(run->key, key, 25);
    if (run->hooks & 1 &&
        tws_request_subprotocol_at(r, 0, name, sizeof name) < (ptrdiff_t)sizeof name)
        tws_reply_subprotocol(a, name);
    if (run->hooks & 2) /* what the peer says must not break out of its line */
        tws_reply_header(a, "X-Path", tws_request_path(r));
    run->refused = (run->hooks & 4) != 0;
    return !run->refused;
}

static bool on_page(const tws_request *r, tws_reply *a, void *arg)
{
    struct run *run = arg;

    run->pages++;
    look(r);
    tws_reply_body(a, "text/plain", tws_request_query(r), strlen(tws_request_query(r)));
    tws_reply_header(a, "X-Query", tws_request_query(r));
    return (run->hooks & 8) != 0;
}

static void on_end(const tws_error *error, const tws_request *r, void *user, void *arg)
{
    struct run *run = arg;

    (void)user;
    run->ends++;
    run->ended = *error;
    if (r)
        look(r);
}

static void set_options(tws_upgrade_options *opt, tws_deflate_options *deflate, struct run *run,
                        uint8_t settings)
{
    static const char *const origins[] = {"https://example.com", "*.example.org", "null"};
    static const char *const protocols[] = {"chat", "superchat", "v2.json"};
    static const uint32_t bytes[] = {16384, 300, 65535, 1024}, fields[] = {100, 8, 1000, 20};

    tws_upgrade_options_init(opt);
    tws_deflate_options_init(deflate);
    deflate->server_no_context_takeover = (settings & 1) != 0;
    deflate->client_no_context_takeover = (settings & 2) != 0;
    opt->deflate = settings & 4 ? deflate : NULL;
    opt->any_origin = (settings & 8) != 0;
    opt->origins = origins;
    opt->origin_count = FUZZ_COUNT(origins);
    opt->subprotocols = protocols;
    opt->subprotocol_count = settings & 16 ? FUZZ_COUNT(protocols) : 0;
    opt->server_name = settings & 32 ? "" : NULL;
    opt->max_head_bytes = bytes[settings >> 6];
    opt->max_head_fields = fields[settings >> 6];
    opt->on_upgrade = on_upgrade;
    opt->on_page = on_page;
    opt->on_handshake_end = on_end;
    opt->hook_arg = run;
    opt->conn.max_message = 10000;
    opt->conn.max_control_rate = 0;
}

/* ---- The answer ---- */

static void check_accept(const struct http_head *h, const char *key)
{
    char text[96];
    unsigned char digest[SHA_DIGEST_LENGTH], wanted[64];
    const struct http_field *f = http_find(h, memory.out, "Sec-WebSocket-Accept", NULL);
    int n = snprintf(text, sizeof text, "%s258EAFA5-E914-47DA-95CA-C5AB0DC85B11", key);

    SHA1((unsigned char *)text, (size_t)n, digest);
    n = EVP_EncodeBlock(wanted, digest, sizeof digest);
    FUZZ_CHECK(f != NULL && f->value.len == (uint32_t)n);
    FUZZ_CHECK(memcmp(memory.out + f->value.off, wanted, (size_t)n) == 0);
}

/* A request of which no whole head was understood is answered as a GET is. */
static void check_body(const struct http_head *h, bool is_head)
{
    const struct http_field *f = http_find(h, memory.out, "Content-Length", NULL);
    size_t len = 0;

    FUZZ_CHECK(f != NULL && http_count(h, memory.out, "Content-Length") == 1);
    for (uint32_t i = 0; i < f->value.len; i++)
        len = len * 10 + memory.out[f->value.off + i] - '0';
    FUZZ_CHECK(memory.out_len == h->head_len + len || (is_head && memory.out_len == h->head_len));
}

/* Exactly one response; its head in *h. */
static void check_answer(struct http_head *h, struct run *run, tws_err err, bool is_head)
{
    bool switched = err == TWS_OK;

    FUZZ_CHECK(http_head_feed(h, memory.out, memory.out_len) == HTTP_DONE);
    FUZZ_CHECK((h->status == 101) == switched && h->minor == 1);
    FUZZ_CHECK(http_count(h, memory.out, "Sec-WebSocket-Accept") == (switched ? 1 : 0));
    FUZZ_CHECK(http_count(h, memory.out, "Sec-WebSocket-Extensions") <= 1);
    FUZZ_CHECK(http_count(h, memory.out, "Sec-WebSocket-Protocol") <= 1);
    FUZZ_CHECK(http_count(h, memory.out, "X-Path") <= 1 &&
               http_count(h, memory.out, "X-Query") <= 1);
    if (switched) {
        check_accept(h, run->key);
        return;
    }
    FUZZ_CHECK(run->ended.code == err && run->ended.http_status == h->status);
    FUZZ_CHECK(h->status != 426 || http_count(h, memory.out, "Upgrade") == 1);
    check_body(h, is_head);
}

/* ---- What follows ---- */

static void read_on(tws_conn *c)
{
    tws_message m;

    look(tws_conn_request(c));
    for (int i = 0; i < 100 && tws_read_message(c, &m) == TWS_OK; i++)
        if (tws_write_message(c, m.opcode, m.data, m.len) != TWS_OK)
            break;
    tws_close(c, 1000, NULL);
    tws_conn_unref(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    struct http_limits limits = {65535, 100};
    struct http_field fields[100];
    struct http_head head;
    tws_deflate_options deflate;
    tws_upgrade_options opt;
    tws_error error;
    tws_conn *conn;
    uint8_t settings = fuzz_byte(&in), receives = fuzz_byte(&in), sends = fuzz_byte(&in);
    struct run run = {.hooks = fuzz_byte(&in)};
    bool is_head =
        in.left > 5 && (memcmp(in.at, "HEAD ", 5) == 0 || memcmp(in.at, "\r\nHEAD", 6) == 0);
    size_t buffered;
    tws_err err;

    set_options(&opt, &deflate, &run, settings);
    memory_begin(in.at, in.left);
    memory.receives = fuzz_cuts_of(receives);
    memory.sends = fuzz_cuts_of(sends);
    buffered = run.hooks & 16 ? receives : 0;
    if (buffered > in.left)
        buffered = in.left;
    memory.in_at = buffered;
    err = tws_upgrade(&conn, MEMORY_FD, buffered ? in.at : NULL, buffered, &opt, &error);
    FUZZ_CHECK(err == error.code && (err == TWS_OK) == (conn != NULL));
    FUZZ_CHECK(run.ends == (err != TWS_OK) && (err == TWS_OK || error.text[0] != 0));
    if (memory.out_len > 0) {
        http_head_init(&head, true, fields, 100, &limits);
        check_answer(&head, &run, err, is_head);
    } else {
        FUZZ_CHECK(err == TWS_ERR_EOF);
    }
    if (conn)
        read_on(conn);
    FUZZ_CHECK(memory.opened == memory.closed);
    return 0;
}
