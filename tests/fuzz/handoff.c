/*
 * A connection's record, as another process hands it on: what is taken is all within the bytes, can
 * have been a connection, and its request is one.
 *
 * Input: a byte that says what it is (an answer, a head, or else a body), then that.
 */
#include "fuzz.h"
#include "server/handoff_record.h"

static bool within(struct wire_text part, const uint8_t *body, size_t len)
{
    return part.len == 0 ||
           (part.at >= (const char *)body && part.at + part.len <= (const char *)body + len);
}

static void check_request(const struct record *r)
{
    const char *why = NULL, *name, *value;
    tws_request *request = record_request(r, NULL, &r->peer, -1, &why);
    char text[64];
    size_t i;

    FUZZ_CHECK(request != NULL || why[0] != 0);
    if (!request)
        return;
    FUZZ_CHECK(strlen(tws_request_method(request)) > 0);
    for (i = 0; tws_request_header_at(request, i, &name, &value); i++)
        FUZZ_CHECK(name[0] != 0 && strpbrk(value, "\r\n") == NULL);
    tws_request_param(request, "a", text, sizeof text);
    tws_request_peer_address(request, text, sizeof text);
    free(request);
}

static void check_body(const uint8_t *body, size_t len)
{
    struct record r;
    const char *fault = record_read(&r, body, len);

    if (fault) {
        FUZZ_CHECK(fault[0] != 0);
        return;
    }
    FUZZ_CHECK(within(r.subprotocol, body, len) && within(r.head, body, len));
    FUZZ_CHECK(within(r.input, body, len) && within(r.data, body, len));
    FUZZ_CHECK(r.input.len < CONN_BUFFER && r.data.len <= TWS_HANDOFF_DATA_MAX);
    FUZZ_CHECK(!r.subprotocol.at || token_valid(r.subprotocol));
    FUZZ_CHECK(!r.compressed || (r.server_bits >= 8 && r.server_bits <= 15 && r.client_bits >= 8 &&
                                 r.client_bits <= 15));
    if (r.head.len > 0)
        check_request(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    uint8_t what = fuzz_byte(&in) & 7;
    uint8_t *copy = fuzz_copy(in.at, in.left);
    ptrdiff_t len;
    tws_err err;

    if (what == 0 && in.left >= RECORD_ANSWER) {
        FUZZ_CHECK(!record_answer_read(copy, &err) || err <= 0);
    } else if (what == 1 && in.left >= RECORD_HEAD) {
        len = record_head_read(copy);
        FUZZ_CHECK(len < 0 || (len >= 4 && len <= RECORD_BODY_MAX));
    } else if (what > 1 &&
               in.left >= 4) { /* record_head_read() lets none through that is shorter */
        check_body(copy, in.left);
    }
    free(copy);
    return 0;
}
