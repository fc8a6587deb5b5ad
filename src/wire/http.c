#include "wire/http.h"

/* What the next byte belongs to. */
enum state {
    /* Request line. */
    REQUEST_START,
    REQUEST_EMPTY_LF, /* of the one empty line before it */
    METHOD_START,
    METHOD,
    TARGET_START,
    TARGET_REST, /* of the origin or absolute form: nothing more can go wrong but characters */
    TARGET_ASTERISK,
    TARGET_SCHEME,
    TARGET_SLASH_1,
    TARGET_SLASH_2,
    TARGET_HOST, /* first character behind the slashes */
    TARGET_AUTHORITY,
    TARGET_BRACKETS,
    TARGET_BRACKETS_END,
    TARGET_PORT,
    /* HTTP/x.y, of both kinds of head. */
    VERSION_NAME,
    VERSION_MAJOR,
    VERSION_DOT,
    VERSION_MINOR,
    REQUEST_LINE_CR,
    /* Status line. */
    STATUS_BLANK,
    STATUS_DIGITS,
    STATUS_END,
    REASON,
    START_LINE_LF,
    /* Fields. */
    FIELD_START,
    FIELD_NAME,
    FIELD_BLANKS,
    FIELD_VALUE,
    FIELD_LF,
    END_LF,
    FINISHED
};

enum error {
    FINE,
    E_METHOD,
    E_TARGET,
    E_FRAGMENT,
    E_TARGET_FORM,
    E_NO_VERSION,
    E_VERSION_SYNTAX,
    E_MAJOR,
    E_STATUS,
    E_REASON,
    E_BARE_CR,
    E_BARE_LF,
    E_FOLD,
    E_NAME,
    E_BLANK_BEFORE_COLON,
    E_NO_COLON,
    E_VALUE,
    E_FIELDS,
    E_LINE_LONG,
    E_HEAD_LONG
};

static const char *const error_texts[] = {
    [FINE] = "",
    [E_METHOD] = "bad character in the method",
    [E_TARGET] = "bad character in the request target",
    [E_FRAGMENT] = "fragment in the request target",
    [E_TARGET_FORM] = "request target does not fit the method",
    [E_NO_VERSION] = "request line without an HTTP version",
    [E_VERSION_SYNTAX] = "malformed HTTP version",
    [E_MAJOR] = "HTTP version is not 1.x",
    [E_STATUS] = "malformed status code",
    [E_REASON] = "control character in the reason phrase",
    [E_BARE_CR] = "CR without LF",
    [E_BARE_LF] = "LF without CR",
    [E_FOLD] = "field line that begins with a blank",
    [E_NAME] = "bad character in a field name",
    [E_BLANK_BEFORE_COLON] = "blank between field name and colon",
    [E_NO_COLON] = "field line without a colon",
    [E_VALUE] = "control character in a field value",
    [E_FIELDS] = "too many field lines",
    [E_LINE_LONG] = "request line too long",
    [E_HEAD_LONG] = "head too long",
};

/* Bits of http_head.methods. */
#define CONNECT 1U
#define OPTIONS 2U
#define METHOD_NAME_LEN 7 /* of both */

void http_head_init(struct http_head *h, bool is_response, struct http_field *fields, uint16_t cap,
                    const struct http_limits *limits)
{
    *h = (struct http_head){
        .is_response = is_response,
        .fields = fields,
        .field_cap = cap,
        .max_fields = limits->max_fields < cap ? limits->max_fields : cap,
        .max_bytes = limits->max_bytes,
        .state = is_response ? VERSION_NAME : REQUEST_START,
        .methods = CONNECT | OPTIONS,
    };
}

/* Bytes from the mark to the one under examination, which does not belong to them. */
static struct http_slice since_mark(const struct http_head *h)
{
    return (struct http_slice){h->mark, h->pos - h->mark};
}

static enum error go(struct http_head *h, enum state next)
{
    h->state = next;
    return FINE;
}

/* The next element begins behind the byte under examination. */
static enum error go_and_mark(struct http_head *h, enum state next)
{
    h->mark = h->pos + 1;
    return go(h, next);
}

static enum error line_error(uint8_t c, enum error otherwise)
{
    return c == '\n' ? E_BARE_LF : otherwise;
}

static enum error on_method(struct http_head *h, uint8_t c)
{
    uint32_t at = h->pos - h->mark;

    if (c == ' ' && at > 0) {
        h->method = since_mark(h);
        if (at != METHOD_NAME_LEN)
            h->methods = 0;
        return go_and_mark(h, TARGET_START);
    }
    if (!token_char(c))
        return line_error(c, E_METHOD);
    if (at >= METHOD_NAME_LEN || c != (uint8_t) "CONNECT"[at])
        h->methods &= ~CONNECT;
    if (at >= METHOD_NAME_LEN || c != (uint8_t) "OPTIONS"[at])
        h->methods &= ~OPTIONS;
    return go(h, METHOD);
}

static enum error on_request_start(struct http_head *h, uint8_t c)
{
    switch (h->state) {
    case REQUEST_START:
        if (c == '\r')
            return go(h, REQUEST_EMPTY_LF);
        break;
    case REQUEST_EMPTY_LF:
        return c == '\n' ? go_and_mark(h, METHOD_START) : E_BARE_CR;
    default:
        break;
    }
    return on_method(h, c);
}

/* First byte of a target: decides its form. */
static enum error on_target_start(struct http_head *h, uint8_t c)
{
    if (h->methods & CONNECT) {
        h->target_form = HTTP_TARGET_AUTHORITY;
        if (c == ':' || c == '/' || c == '?' || c == '@')
            return E_TARGET_FORM;
        return go(h, c == '[' ? TARGET_BRACKETS : TARGET_AUTHORITY);
    }
    h->target_form = HTTP_TARGET_ORIGIN;
    if (c == '/')
        return go(h, TARGET_REST);
    if (c == '*') {
        h->target_form = HTTP_TARGET_ASTERISK;
        return go(h, TARGET_ASTERISK);
    }
    h->target_form = HTTP_TARGET_ABSOLUTE;
    return wire_is_alpha(c) ? go(h, TARGET_SCHEME) : E_TARGET_FORM;
}

/* A target of the form scheme://host..., up to the host. */
static enum error on_absolute_target(struct http_head *h, uint8_t c)
{
    switch (h->state) {
    case TARGET_SCHEME:
        if (c == ':')
            return go(h, TARGET_SLASH_1);
        return wire_is_alpha(c) || wire_is_digit(c) || c == '+' || c == '-' || c == '.'
                   ? FINE
                   : E_TARGET_FORM;
    case TARGET_SLASH_1:
        return c == '/' ? go(h, TARGET_SLASH_2) : E_TARGET_FORM;
    case TARGET_SLASH_2:
        return c == '/' ? go(h, TARGET_HOST) : E_TARGET_FORM;
    default: /* TARGET_HOST */
        return c != '/' && c != '?' ? go(h, TARGET_REST) : E_TARGET_FORM;
    }
}

/* host:port of CONNECT; the characters of the host are not looked at more closely here. */
static enum error on_authority_target(struct http_head *h, uint8_t c)
{
    switch (h->state) {
    case TARGET_BRACKETS:
        return c == ']' ? go(h, TARGET_BRACKETS_END) : FINE;
    case TARGET_PORT:
        h->digits = 1;
        return wire_is_digit(c) ? FINE : E_TARGET_FORM;
    default: /* TARGET_AUTHORITY, TARGET_BRACKETS_END */
        if (c == ':')
            return go(h, TARGET_PORT);
        if (h->state == TARGET_BRACKETS_END || c == '/' || c == '?' || c == '@')
            return E_TARGET_FORM;
        return FINE;
    }
}

/* A target may only end where its form is complete. */
static bool target_complete(const struct http_head *h)
{
    return h->state == TARGET_REST || h->state == TARGET_ASTERISK ||
           (h->state == TARGET_PORT && h->digits > 0);
}

static enum error on_target(struct http_head *h, uint8_t c)
{
    if (c == ' ' && h->pos > h->mark) {
        if (!target_complete(h))
            return E_TARGET_FORM;
        h->target = since_mark(h);
        return go_and_mark(h, VERSION_NAME);
    }
    if (c == '\r')
        return E_NO_VERSION;
    if (c == '#')
        return E_FRAGMENT;
    if (c <= ' ' || c > '~')
        return line_error(c, E_TARGET);
    switch (h->state) {
    case TARGET_START:
        return on_target_start(h, c);
    case TARGET_REST:
        return FINE;
    case TARGET_ASTERISK:
        return E_TARGET_FORM;
    case TARGET_AUTHORITY:
    case TARGET_BRACKETS:
    case TARGET_BRACKETS_END:
    case TARGET_PORT:
        return on_authority_target(h, c);
    default:
        return on_absolute_target(h, c);
    }
}

static enum error on_version(struct http_head *h, uint8_t c)
{
    uint32_t at = h->pos - h->mark;

    switch (h->state) {
    case VERSION_NAME:
        if (c != (uint8_t) "HTTP/"[at])
            return line_error(c, E_VERSION_SYNTAX);
        return at < 4 ? FINE : go(h, VERSION_MAJOR);
    case VERSION_MAJOR:
        h->major = (uint8_t)(c - '0');
        return wire_is_digit(c) ? go(h, VERSION_DOT) : line_error(c, E_VERSION_SYNTAX);
    case VERSION_DOT:
        return c == '.' ? go(h, VERSION_MINOR) : line_error(c, E_VERSION_SYNTAX);
    case VERSION_MINOR:
        h->minor = (uint8_t)(c - '0');
        if (!wire_is_digit(c))
            return line_error(c, E_VERSION_SYNTAX);
        return go(h, h->is_response ? STATUS_BLANK : REQUEST_LINE_CR);
    default: /* REQUEST_LINE_CR */
        if (c != '\r')
            return line_error(c, E_VERSION_SYNTAX);
        if (h->major != 1) /* comes first, to answer HTTP/2's "PRI * HTTP/2.0" */
            return E_MAJOR;
        if (h->target_form == HTTP_TARGET_ASTERISK && !(h->methods & OPTIONS))
            return E_TARGET_FORM;
        return go(h, START_LINE_LF);
    }
}

static enum error on_status_line(struct http_head *h, uint8_t c)
{
    switch (h->state) {
    case STATUS_BLANK:
        if (h->major != 1)
            return E_MAJOR;
        return c == ' ' ? go(h, STATUS_DIGITS) : line_error(c, E_STATUS);
    case STATUS_DIGITS:
        if (!wire_is_digit(c) || (h->digits == 0 && c == '0'))
            return line_error(c, E_STATUS);
        h->status = h->status * 10 + (c - '0');
        return ++h->digits < 3 ? FINE : go(h, STATUS_END);
    case STATUS_END:
        if (c == ' ')
            return go_and_mark(h, REASON);
        h->reason = (struct http_slice){h->pos, 0};
        return c == '\r' ? go(h, START_LINE_LF) : line_error(c, E_STATUS);
    default: /* REASON */
        if (token_value_char(c))
            return FINE;
        h->reason = since_mark(h);
        return c == '\r' ? go(h, START_LINE_LF) : line_error(c, E_REASON);
    }
}

static enum error on_field_name(struct http_head *h, uint8_t c)
{
    if (h->state == FIELD_START) {
        if (c == '\r')
            return go(h, END_LF);
        if (c == ' ' || c == '\t')
            return E_FOLD;
        if (h->nfields == h->max_fields && token_char(c))
            return E_FIELDS;
        h->mark = h->pos;
    }
    if (token_char(c))
        return go(h, FIELD_NAME);
    if (c == ':' && h->pos > h->mark) {
        h->fields[h->nfields].name = since_mark(h);
        return go(h, FIELD_BLANKS);
    }
    if (c == ' ' || c == '\t')
        return E_BLANK_BEFORE_COLON;
    return c == '\r' ? E_NO_COLON : line_error(c, E_NAME);
}

static enum error on_field_value(struct http_head *h, uint8_t c)
{
    if (c == '\r') {
        if (h->state == FIELD_BLANKS)
            h->mark = h->end = h->pos;
        h->fields[h->nfields].value = (struct http_slice){h->mark, h->end - h->mark};
        return go(h, FIELD_LF);
    }
    if (!token_value_char(c))
        return line_error(c, E_VALUE);
    if (c != ' ' && c != '\t') {
        if (h->state == FIELD_BLANKS)
            h->mark = h->pos;
        h->end = h->pos + 1;
        h->state = FIELD_VALUE;
    }
    return FINE;
}

static enum error on_line_end(struct http_head *h, uint8_t c)
{
    if (c != '\n')
        return E_BARE_CR;
    if (h->state == END_LF) {
        h->head_len = h->pos + 1;
        return go(h, FINISHED);
    }
    if (h->state == FIELD_LF)
        h->nfields++;
    return go(h, FIELD_START);
}

/* One byte. */
static enum error on_byte(struct http_head *h, uint8_t c)
{
    switch (h->state) {
    case REQUEST_START:
    case REQUEST_EMPTY_LF:
    case METHOD_START:
        return on_request_start(h, c);
    case METHOD:
        return on_method(h, c);
    case VERSION_NAME:
    case VERSION_MAJOR:
    case VERSION_DOT:
    case VERSION_MINOR:
    case REQUEST_LINE_CR:
        return on_version(h, c);
    case STATUS_BLANK:
    case STATUS_DIGITS:
    case STATUS_END:
    case REASON:
        return on_status_line(h, c);
    case START_LINE_LF:
    case FIELD_LF:
    case END_LF:
        return on_line_end(h, c);
    case FIELD_START:
    case FIELD_NAME:
        return on_field_name(h, c);
    case FIELD_BLANKS:
    case FIELD_VALUE:
        return on_field_value(h, c);
    default:
        return on_target(h, c);
    }
}

static enum http_result finish(struct http_head *h, enum error error)
{
    h->error = (uint8_t)error;
    switch (error) {
    case FINE:
        h->result = HTTP_DONE;
        break;
    case E_MAJOR:
        h->result = HTTP_VERSION;
        break;
    case E_FIELDS:
        h->result = HTTP_TOO_MANY;
        break;
    case E_LINE_LONG:
    case E_HEAD_LONG:
        h->result = HTTP_TOO_LONG;
        break;
    default:
        h->result = HTTP_BAD;
        break;
    }
    return (enum http_result)h->result;
}

/* Most of a head are names and values: goes over bytes that on_byte would take one by one and stay
 * in the same state. */
static void step_over_run(struct http_head *h, const uint8_t *buf, uint32_t limit)
{
    uint32_t at = h->pos;

    if (h->state == FIELD_NAME) {
        while (at < limit && token_char(buf[at]))
            at++;
    } else if (h->state == FIELD_VALUE) {
        while (at < limit && buf[at] > ' ' && buf[at] != 127)
            at++;
        if (at > h->pos)
            h->end = at;
    }
    h->pos = at;
}

enum http_result http_head_feed(struct http_head *h, const uint8_t *buf, size_t len)
{
    uint32_t limit = len < h->max_bytes ? (uint32_t)len : h->max_bytes;

    if (h->result != HTTP_MORE)
        return (enum http_result)h->result;
    while (h->pos < limit) {
        enum error error = on_byte(h, buf[h->pos]);

        if (error != FINE)
            return finish(h, error);
        h->pos++;
        if (h->state == FINISHED)
            return finish(h, FINE);
        step_over_run(h, buf, limit);
    }
    if (h->pos == h->max_bytes)
        return finish(h, !h->is_response && h->state < START_LINE_LF ? E_LINE_LONG : E_HEAD_LONG);
    return HTTP_MORE;
}

int http_head_status(const struct http_head *h)
{
    switch (h->error) {
    case FINE:
        return 0;
    case E_MAJOR:
        return 505;
    case E_LINE_LONG:
        return 414;
    case E_FIELDS:
    case E_HEAD_LONG:
        return 431;
    default:
        return 400;
    }
}

const char *http_head_error_text(const struct http_head *h)
{
    return error_texts[h->error];
}

struct wire_text http_text(const uint8_t *buf, struct http_slice slice)
{
    return (struct wire_text){(const char *)buf + slice.off, slice.len};
}

const struct http_field *http_find(const struct http_head *h, const uint8_t *buf, const char *name,
                                   const struct http_field *after)
{
    struct wire_text wanted = wire_text_of(name);
    size_t i = after != NULL ? (size_t)(after - h->fields) + 1 : 0;

    for (; i < h->nfields; i++)
        if (wire_text_equal_nocase(http_text(buf, h->fields[i].name), wanted))
            return &h->fields[i];
    return NULL;
}

size_t http_count(const struct http_head *h, const uint8_t *buf, const char *name)
{
    const struct http_field *field = NULL;
    size_t n = 0;

    while ((field = http_find(h, buf, name, field)) != NULL)
        n++;
    return n;
}

const char *http_limits_fault(uint32_t max_bytes, uint32_t max_fields)
{
    if (max_bytes < 256 || max_bytes > 65535)
        return "max_head_bytes is not between 256 and 65,535";
    if (max_fields < 8 || max_fields > 1000)
        return "max_head_fields is not between 8 and 1,000";
    return NULL;
}
