#include "http_request.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

size_t http_head_length(const char *bytes, size_t len)
{
    const char *end = memmem(bytes, len, "\r\n\r\n", 4);
    return end == NULL ? 0 : (size_t)(end - bytes) + 4;
}

/* Takes the next line off [*AT, END): returns its length and moves *AT behind the line's end. */
static size_t next_line(const char **at, const char *end)
{
    const char *line = *at;
    const char *stop = memmem(line, (size_t)(end - line), "\r\n", 2);
    if (stop == NULL) {
        stop = end;
    }
    *at = stop == end ? end : stop + 2;
    return (size_t)(stop - line);
}

/* METHOD SP TARGET SP HTTP/1.x, one blank each. */
static int parse_request_line(const char *line, size_t len, struct http_request *r)
{
    const char *target = memchr(line, ' ', len);
    if (target == NULL || memchr(line, '\0', len) != NULL) {
        return 400;
    }
    size_t method_len = (size_t)(target++ - line);
    const char *version = memchr(target, ' ', len - method_len - 1);
    if (version == NULL || method_len == 0 || *target != '/') {
        return 400;
    }
    size_t target_len = (size_t)(version++ - target);
    size_t version_len = len - (size_t)(version - line);
    if (version_len != 8 || memcmp(version, "HTTP/", 5) != 0) {
        return 400;
    }
    if (memcmp(version, "HTTP/1.", 7) != 0 || (version[7] != '0' && version[7] != '1')) {
        return 505;
    }
    r->keep_alive = version[7] == '1';
    r->head = method_len == 4 && memcmp(line, "HEAD", 4) == 0;
    if (!r->head && (method_len != 3 || memcmp(line, "GET", 3) != 0)) {
        return 405;
    }
    const char *query = memchr(target, '?', target_len);
    size_t path_len = query == NULL ? target_len : (size_t)(query - target);
    if (path_len >= sizeof r->path) {
        return 404;
    }
    memcpy(r->path, target, path_len);
    r->path[path_len] = '\0';
    return 200;
}

static bool is_field(const char *line, size_t name_len, const char *name)
{
    return strlen(name) == name_len && strncasecmp(line, name, name_len) == 0;
}

static int parse_field(const char *line, size_t len, struct http_request *r)
{
    const char *colon = memchr(line, ':', len);
    if (colon == NULL || colon == line || *line == ' ' || *line == '\t' || colon[-1] == ' ') {
        return 400;
    }
    size_t name_len = (size_t)(colon - line);
    char value[64];
    size_t value_len = len - name_len - 1;
    if (value_len >= sizeof value) {
        value_len = sizeof value - 1; /* of the fields that matter none is longer */
    }
    memcpy(value, colon + 1, value_len);
    value[value_len] = '\0';
    if (is_field(line, name_len, "connection")) {
        if (strcasestr(value, "close") != NULL) {
            r->keep_alive = false;
        } else if (strcasestr(value, "keep-alive") != NULL) {
            r->keep_alive = true;
        }
    } else if (is_field(line, name_len, "transfer-encoding") ||
               (is_field(line, name_len, "content-length") && strtol(value, NULL, 10) != 0)) {
        return 413; /* a request for a page has no body */
    }
    return 200;
}

int http_parse(const char *bytes, size_t len, struct http_request *r)
{
    *r = (struct http_request){.head = false};
    const char *end = bytes + len - 2; /* without the blank line */
    const char *at = bytes;
    const char *line = at;
    size_t line_len = next_line(&at, end);
    int status = parse_request_line(line, line_len, r);
    int refused = status == 200 ? 0 : status;
    while (at < end) {
        line = at;
        line_len = next_line(&at, end);
        status = parse_field(line, line_len, r);
        if (refused == 0 && status != 200) {
            refused = status;
        }
    }
    if (refused != 0) {
        r->keep_alive = false; /* there may be a body, and nobody is going to read it */
    }
    return refused != 0 ? refused : 200;
}

const char *http_reason(int status)
{
    switch (status) {
    case 200:
        return "OK";
    case 400:
        return "Bad Request";
    case 404:
        return "Not Found";
    case 405:
        return "Method Not Allowed";
    case 408:
        return "Request Timeout";
    case 413:
        return "Content Too Large";
    case 431:
        return "Request Header Fields Too Large";
    case 505:
        return "HTTP Version Not Supported";
    default:
        return "Internal Server Error";
    }
}
