/*
 * The head of an HTTP/1.x request or response (RFC 9112): start line and fields, up to and
 * including the empty line.
 *
 * The parser works on a buffer that grows: after more bytes arrived the caller feeds the same
 * bytes again, longer, at any address. Every byte is examined once. Results are offsets, so the
 * buffer may move between calls. Nothing is allocated and nothing is copied.
 *
 * It is strict where leniency has been the way to smuggle requests:
 *  - Lines end in CR LF. RFC 9112 2.2 lets a recipient take a bare LF; this one does not, because
 *    two parties that split lines differently see different requests, and no WebSocket peer needs
 *    it. A CR without LF is refused as 2.2 demands.
 *  - One blank separates the parts of the start line, no other white space.
 *  - No blank before a field's colon (5.1), no folded lines (5.2), no control characters in values.
 *  - The form of the request target must fit the method (3.2). A fragment is refused. Of other
 *    bytes every visible ASCII character passes, since browsers send some that RFC 3986 would
 *    escape.
 * It is lenient in three places: one empty line before a request (2.2), a status line without the
 * blank before its empty reason, and a minor version above 1, which counts as 1.1 (RFC 9110 2.5).
 */
#ifndef WIRE_HTTP_H
#define WIRE_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/token.h"

struct http_slice {
    uint32_t off; /* into the head's buffer */
    uint32_t len;
};

struct http_field {
    struct http_slice name;
    struct http_slice value; /* without the blanks around it */
};

/* What a head may hold at most, where the user does not say. */
#define HTTP_DEFAULT_BYTES 16384
#define HTTP_DEFAULT_FIELDS 100
/* Whether a user may set these limits: one line why not, NULL when they are fine. */
const char *http_limits_fault(uint32_t max_bytes, uint32_t max_fields);

/* Where a table of fields can stand behind a head in one block of memory. */
#define HTTP_TABLE_AT(max_bytes)                                                                   \
    (((size_t)(max_bytes) + _Alignof(struct http_field) - 1) / _Alignof(struct http_field) *       \
     _Alignof(struct http_field))

struct http_limits {
    uint32_t max_bytes;  /* of the whole head */
    uint16_t max_fields; /* field lines; the caller's array bounds them too */
};

enum http_result {
    HTTP_MORE,     /* feed again when there are more bytes */
    HTTP_DONE,     /* the head is head_len bytes long */
    HTTP_BAD,      /* 400 */
    HTTP_TOO_LONG, /* the head passes max_bytes: 414 in the request line, else 431 */
    HTTP_TOO_MANY, /* fields: 431 */
    HTTP_VERSION   /* not HTTP/1.x: 505 */
};

enum http_target_form {
    HTTP_TARGET_ORIGIN,    /* /path?query */
    HTTP_TARGET_ABSOLUTE,  /* http://host/path?query */
    HTTP_TARGET_AUTHORITY, /* host:port, CONNECT only */
    HTTP_TARGET_ASTERISK   /* *, OPTIONS only */
};

struct http_head {
    /* Results, complete after HTTP_DONE. */
    struct http_slice method; /* request */
    struct http_slice target;
    struct http_slice reason; /* response; may be empty */
    int status;               /* response */
    uint32_t head_len;        /* bytes after it belong to what follows */
    uint16_t nfields;
    uint8_t minor;       /* of HTTP/1.minor */
    uint8_t target_form; /* enum http_target_form */
    bool is_response;
    struct http_field *fields; /* the caller's array */
    uint16_t field_cap;

    /* The parser's own. */
    uint16_t max_fields;
    uint32_t max_bytes;
    uint32_t pos;  /* bytes examined so far; never goes back */
    uint32_t mark; /* where the current element began */
    uint32_t end;  /* behind the last character of a value that was not a blank */
    uint8_t state;
    uint8_t result;  /* enum http_result */
    uint8_t error;   /* what http_head_error_text tells */
    uint8_t methods; /* methods with a target form of their own that the bytes may still spell */
    uint8_t digits;  /* of a status or a port, so far */
    uint8_t major;
};

/* `fields` has room for `cap` lines and lives as long as the head is used. */
void http_head_init(struct http_head *h, bool is_response, struct http_field *fields, uint16_t cap,
                    const struct http_limits *limits);
/* buf[0..len) are all bytes received so far, also the ones fed before. Once the result is
 * anything but HTTP_MORE it stays the same. */
enum http_result http_head_feed(struct http_head *h, const uint8_t *buf, size_t len);
/* Status to refuse a request with after a bad result: 400, 414, 431, 505; 0 when nothing is
 * wrong. */
int http_head_status(const struct http_head *h);
/* What was wrong, one line in lower case without a full stop; "" when nothing is. */
const char *http_head_error_text(const struct http_head *h);

/* The bytes of a slice. */
struct wire_text http_text(const uint8_t *buf, struct http_slice slice);
/* The next field called `name` (ASCII, without case) behind `after`; NULL for `after` starts at the
 * first one. NULL when there is none. */
const struct http_field *http_find(const struct http_head *h, const uint8_t *buf, const char *name,
                                   const struct http_field *after);
/* How many lines have that name. */
size_t http_count(const struct http_head *h, const uint8_t *buf, const char *name);

/* Reason phrase of a status, RFC 9110 15 and RFC 6585; "Unknown" for one that is not in the
 * table. */
const char *http_status_text(int status);

#define HTTP_DATE_LEN 29
/* IMF-fixdate of a moment in seconds since 1970 (RFC 9110 5.6.7), terminated. Years 1970 to 9999;
 * others are moved to the nearer end. */
void http_date(char out[HTTP_DATE_LEN + 1], int64_t seconds);

#endif
