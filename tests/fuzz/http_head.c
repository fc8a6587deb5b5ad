/*
 * The head of a request or a response. Fed in pieces, each time in a block of its own size, the
 * result is that of all bytes at once; and what it says about them is so.
 *
 * Input: a byte of settings, one for the cuts, then the head.
 */
#include "fuzz.h"
#include "wire/handshake.h"
#include "wire/http.h"

#define MAX_FIELDS 64

static struct http_limits limits_of(uint8_t settings)
{
    static const uint32_t bytes[] = {16384, 256, 1000, 65535};
    static const uint16_t fields[] = {MAX_FIELDS, 8, 1, MAX_FIELDS};

    return (struct http_limits){bytes[settings >> 1 & 3], fields[settings >> 3 & 3]};
}

static enum http_result feed(struct http_head *h, const uint8_t *data, size_t len,
                             struct fuzz_cuts cuts)
{
    enum http_result result = HTTP_MORE;
    size_t at = 0;

    while (result == HTTP_MORE && at < len) {
        size_t step = fuzz_next_cut(&cuts);
        uint8_t *copy;

        at = step < len - at ? at + step : len;
        copy = fuzz_copy(data, at);
        result = http_head_feed(h, copy, at);
        FUZZ_CHECK(h->pos <= at);
        free(copy);
    }
    return result;
}

static void check_slice(const struct http_head *h, struct http_slice s)
{
    FUZZ_CHECK(s.off <= h->head_len && s.len <= h->head_len - s.off);
}

static bool same_slice(struct http_slice a, struct http_slice b)
{
    return a.off == b.off && a.len == b.len;
}

static void check_same(const struct http_head *a, const struct http_head *b)
{
    FUZZ_CHECK(a->result == b->result && a->error == b->error);
    FUZZ_CHECK(http_head_status(a) == http_head_status(b));
    FUZZ_CHECK(strcmp(http_head_error_text(a), http_head_error_text(b)) == 0);
    if (a->result != HTTP_DONE)
        return;
    FUZZ_CHECK(a->head_len == b->head_len && a->nfields == b->nfields && a->minor == b->minor);
    FUZZ_CHECK(a->status == b->status && a->target_form == b->target_form);
    FUZZ_CHECK(same_slice(a->method, b->method) && same_slice(a->target, b->target));
    for (uint16_t i = 0; i < a->nfields; i++)
        FUZZ_CHECK(same_slice(a->fields[i].name, b->fields[i].name) &&
                   same_slice(a->fields[i].value, b->fields[i].value));
}

static void check_field(const struct http_head *h, const uint8_t *data, const struct http_field *f)
{
    struct wire_text name = http_text(data, f->name), value = http_text(data, f->value);
    char *string = malloc(name.len + 1);

    check_slice(h, f->name);
    check_slice(h, f->value);
    FUZZ_CHECK(token_valid(name) && token_value_valid(value));
    FUZZ_CHECK(data[f->name.off + f->name.len] == ':');
    FUZZ_CHECK(string != NULL);
    memcpy(string, name.at, name.len);
    string[name.len] = 0;
    FUZZ_CHECK(http_find(h, data, string, NULL) <= f && http_count(h, data, string) > 0);
    free(string);
}

/* A whole head, looked at by plainer means. */
static void check_head(const struct http_head *h, const uint8_t *data, size_t len,
                       const struct http_limits *limits)
{
    FUZZ_CHECK(h->head_len <= len && h->head_len <= limits->max_bytes);
    FUZZ_CHECK(h->nfields <= limits->max_fields && h->minor <= 9);
    FUZZ_CHECK(h->head_len >= 4 && memcmp(data + h->head_len - 4, "\r\n\r\n", 4) == 0);
    for (uint32_t i = 0; i < h->head_len; i++) {
        FUZZ_CHECK(data[i] != 0);
        FUZZ_CHECK((data[i] == '\n') == (i > 0 && data[i - 1] == '\r'));
    }
    if (h->is_response) {
        check_slice(h, h->reason);
        FUZZ_CHECK(h->status >= 100 && h->status <= 999);
    } else {
        check_slice(h, h->method);
        check_slice(h, h->target);
        FUZZ_CHECK(token_valid(http_text(data, h->method)) && h->target.len > 0);
    }
    for (uint16_t i = 0; i < h->nfields; i++)
        check_field(h, data, &h->fields[i]);
}

static void check_request(const struct http_head *h, const uint8_t *data)
{
    struct handshake_request r;

    handshake_examine(h, data, &r);
    FUZZ_CHECK(r.why != NULL && r.method.len > 0);
    FUZZ_CHECK(r.verdict == HANDSHAKE_UPGRADE || r.status >= 200);
    if (r.verdict == HANDSHAKE_UPGRADE)
        FUZZ_CHECK(r.key.len == 24 && r.path.len > 0 && r.host.len > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    uint8_t settings = fuzz_byte(&in);
    struct fuzz_cuts cuts = fuzz_cuts_of(fuzz_byte(&in)), whole = {0};
    struct http_limits limits = limits_of(settings);
    struct http_field fields[2][MAX_FIELDS];
    struct http_head once, pieces;
    enum http_result result;
    uint8_t *copy = fuzz_copy(in.at, in.left);

    http_head_init(&once, settings & 1, fields[0], MAX_FIELDS, &limits);
    http_head_init(&pieces, settings & 1, fields[1], MAX_FIELDS, &limits);
    result = feed(&once, copy, in.left, whole);
    feed(&pieces, copy, in.left, cuts);
    check_same(&once, &pieces);
    if (result == HTTP_DONE) {
        check_head(&once, copy, in.left, &limits);
        if (!once.is_response)
            check_request(&once, copy);
    } else if (result != HTTP_MORE) {
        FUZZ_CHECK(http_head_error_text(&once)[0] != 0 && http_head_status(&once) >= 400);
        FUZZ_CHECK(http_head_feed(&once, copy, in.left) == result);
    }
    free(copy);
    return 0;
}
