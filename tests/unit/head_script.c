#include "head_script.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

const struct http_limits head_script_limits = {16384, 100};

struct copy {
    struct http_head head;
    struct http_field fields[HEAD_SCRIPT_FIELDS];
};

static void start(struct copy *c, bool is_response, const struct http_limits *limits)
{
    memset(c, 0, sizeof *c);
    http_head_init(&c->head, is_response, c->fields, HEAD_SCRIPT_FIELDS, limits);
}

static void assert_same_slice(struct http_slice a, struct http_slice b)
{
    assert_int_equal(a.off, b.off);
    assert_int_equal(a.len, b.len);
}

static void assert_same(const struct http_head *a, const struct http_head *b)
{
    assert_int_equal(a->result, b->result);
    assert_int_equal(a->pos, b->pos);
    assert_string_equal(http_head_error_text(a), http_head_error_text(b));
    assert_same_slice(a->method, b->method);
    assert_same_slice(a->target, b->target);
    assert_same_slice(a->reason, b->reason);
    assert_int_equal(a->status, b->status);
    assert_int_equal(a->minor, b->minor);
    assert_int_equal(a->target_form, b->target_form);
    assert_int_equal(a->head_len, b->head_len);
    assert_int_equal(a->nfields, b->nfields);
    for (size_t i = 0; i < a->nfields; i++) {
        assert_same_slice(a->fields[i].name, b->fields[i].name);
        assert_same_slice(a->fields[i].value, b->fields[i].value);
    }
}

static void run_cut_in_two(struct head_script *s, const char *text, size_t len,
                           const struct http_limits *limits)
{
    struct copy c;
    /* Bytes up to and with the one that decided; the parser stops on a wrong one, not behind it. */
    size_t decided = s->head.pos + (s->result == HTTP_BAD || s->result == HTTP_VERSION ||
                                    s->result == HTTP_TOO_MANY);

    for (size_t cut = 0; cut < len; cut++) {
        enum http_result early;
        uint8_t *whole;

        start(&c, s->head.is_response, limits);
        early = http_head_feed(&c.head, guard_tail(&s->guard, text, cut), cut);
        /* The verdict comes with the byte that decides it: no byte behind it is needed. */
        assert_int_equal(early, cut < decided ? HTTP_MORE : s->result);
        whole = guard_tail(&s->guard, text, len);
        memset(whole, 0, cut);
        http_head_feed(&c.head, whole, len);
        assert_same(&c.head, &s->head);
    }
}

static void run_byte_by_byte(struct head_script *s, const char *text, size_t len,
                             const struct http_limits *limits)
{
    struct copy c;

    start(&c, s->head.is_response, limits);
    for (size_t n = 1; n <= len; n++) {
        uint8_t *p = guard_tail(&s->guard, text, n);

        memset(p, 0, n - 1);
        if (http_head_feed(&c.head, p, n) != HTTP_MORE)
            break;
        assert_int_equal(c.head.pos, n);
    }
    assert_same(&c.head, &s->head);
}

void head_script_run(struct head_script *s, bool is_response, const char *text, size_t len,
                     const struct http_limits *limits)
{
    memset(s, 0, sizeof *s);
    guard_open(&s->guard, len);
    http_head_init(&s->head, is_response, s->fields, HEAD_SCRIPT_FIELDS, limits);
    s->result = http_head_feed(&s->head, guard_tail(&s->guard, text, len), len);
    if (len <= 2048) /* longer ones would take the square of their length */
        run_cut_in_two(s, text, len, limits);
    run_byte_by_byte(s, text, len, limits);
    s->buf = guard_tail(&s->guard, text, len);
    /* What is decided stays so, with more bytes and with fewer. */
    if (s->result != HTTP_MORE) {
        assert_int_equal(http_head_feed(&s->head, s->buf, len), s->result);
        assert_int_equal(http_head_feed(&s->head, s->buf, 0), s->result);
    }
}

void head_script_end(struct head_script *s)
{
    guard_close(&s->guard);
}

static void run_good(struct head_script *s, bool is_response, const char *text)
{
    head_script_run(s, is_response, text, strlen(text), &head_script_limits);
    if (s->result != HTTP_DONE)
        fail_msg("%s: %s", http_head_error_text(&s->head), text);
}

void head_script_request(struct head_script *s, const char *text)
{
    run_good(s, false, text);
}

void head_script_response(struct head_script *s, const char *text)
{
    run_good(s, true, text);
}
