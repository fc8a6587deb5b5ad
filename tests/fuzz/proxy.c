/*
 * What a proxy answers to CONNECT and to SOCKS5. Input: two bytes of settings, then the answer. Of a
 * success nothing is taken that belongs to the server behind it.
 */
#include <errno.h>

#include "client/proxy.h"
#include "fuzz.h"
#include "lib/memory_stream.h"

static const char *const targets[] = {"ws://example.com/", "ws://127.0.0.1:81/", "wss://[::1]/",
                                      "ws://a.b:9/x?y"};

static void on_head(bool sent, const char *head, size_t len, void *arg)
{
    (void)arg;
    FUZZ_CHECK(len > 0 && head[len] == 0);
    FUZZ_CHECK(!sent || memcmp(head, "CONNECT ", 8) == 0);
}

static void choose(struct proxy *p, uint8_t settings, const struct wire_url *url)
{
    static const char *const proxies[] = {"http://p:1", "http://u:p%0Aw@p:1", "socks5h://p:1",
                                          "socks5h://user:pass@p:1"};
    struct proxy_source source = {.option = proxies[settings & 3]};
    struct proxy_error err = {.status = 0};
    int r = proxy_choose(p, &source, url, &err);

    if (r < 0) { /* user information with a line feed */
        source.option = proxies[0];
        r = proxy_choose(p, &source, url, &err);
    }
    FUZZ_CHECK(r == 0 && p->kind != PROXY_NONE);
}

/* Where a successful answer to a SOCKS client ends. */
static size_t socks_end(const uint8_t *in, size_t len, bool password)
{
    size_t at = 2;

    FUZZ_CHECK(len > at && in[0] == 5 && (in[1] == 0 || (in[1] == 2 && password)));
    at += in[1] == 2 ? 2 : 0;
    FUZZ_CHECK(len > at + 4 && in[at] == 5 && in[at + 1] == 0);
    return at + 4 + (in[at + 3] == 1 ? 4 : in[at + 3] == 4 ? 16 : 1 + (size_t)in[at + 4]) + 2;
}

static void check(const struct proxy *p, int result, const struct proxy_error *err)
{
    FUZZ_CHECK(strlen(err->text) < sizeof err->text);
    if (result < 0) {
        FUZZ_CHECK(err->text[0] != 0 && (result == -EPROTO || result == -ETIMEDOUT));
        return;
    }
    if (p->kind == PROXY_HTTP)
        FUZZ_CHECK(memory.in_at >= 4 && memcmp(memory.in + memory.in_at - 4, "\r\n\r\n", 4) == 0);
    else
        FUZZ_CHECK(memory.in_at == socks_end(memory.in, memory.in_len, p->has_userinfo));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    uint8_t settings = fuzz_byte(&in), cuts = fuzz_byte(&in);
    struct proxy_target target = {.max_head_bytes = settings & 16 ? 256 : 16384,
                                  .max_head_fields = settings & 32 ? 8 : 100,
                                  .on_head = settings & 64 ? on_head : NULL};
    struct proxy_error err;
    struct wire_url url;
    struct net_stream st;
    struct proxy p;
    int result;

    FUZZ_CHECK(wire_url_parse(&url, wire_text_of(targets[settings >> 2 & 3])) == WIRE_URL_OK);
    target.url = &url;
    choose(&p, settings, &url);
    memory_begin(in.at, in.left);
    memory.receives = fuzz_cuts_of(cuts);
    memory.sends = fuzz_cuts_of(cuts >> 4);
    memory.pauses = settings & 128 ? 5 : 0;
    st = memory_open();
    result = proxy_open(&st, &p, &target, 1, &err);
    check(&p, result, &err);
    net_stream_close(&st);
    proxy_release(&p);
    return 0;
}
