/*
 * A request that somebody else has parsed gets the answer that the same request gets when the library
 * reads it itself; parts that cannot have come in one request are refused.
 *
 * Input: a byte of settings, then lines: method, target, version, and name, value and name, value...
 * A 0x01 stands for a line feed.
 */
#include <tws/tws.h>

#include "fuzz.h"
#include "lib/memory_stream.h"

#define HEADERS 16
#define ROOM 16384

struct run {
    char *parts[3 + 2 * HEADERS];
    size_t nparts;
    tws_header headers[HEADERS];
    size_t count;
    char text[ROOM], answer[ROOM];
    size_t text_len, answer_len;
};

static void take_parts(struct run *r, struct fuzz_input *in)
{
    size_t len;

    r->nparts = r->count = 0;
    while (r->nparts < 3 || (in->left > 0 && r->count < HEADERS)) {
        char *part = r->parts[r->nparts++] = fuzz_line(in, &len);

        for (; *part; part++)
            *part = *part == 1 ? '\n' : *part;
        if (r->nparts > 3 && r->nparts % 2 == 1)
            r->headers[r->count++] = (tws_header){r->parts[r->nparts - 2], r->parts[r->nparts - 1]};
    }
}

/* Nothing of it could be taken for the end of a part, or lost at one. */
static bool plain(const char *text, bool value)
{
    size_t len = strlen(text);

    for (size_t i = 0; i < len; i++)
        if ((unsigned char)text[i] < ' ' || text[i] == 127 ||
            (!value && strchr(" :", text[i]) && text[i]))
            return false;
    return value ? len == 0 || (text[0] != ' ' && text[len - 1] != ' ') : len > 0;
}

/* The same request as text; false when it cannot be one. */
static bool write_text(struct run *r)
{
    size_t n =
        (size_t)snprintf(r->text, ROOM, "%s %s %s\r\n", r->parts[0], r->parts[1], r->parts[2]);
    bool same = plain(r->parts[0], false) && strpbrk(r->parts[1], " \r\n\t") == NULL &&
                r->parts[1][0] != 0 && plain(r->parts[2], false);

    for (size_t i = 0; i < r->count; i++) {
        same = same && plain(r->headers[i].name, false) && plain(r->headers[i].value, true);
        n += (size_t)snprintf(r->text + n, ROOM - n, "%s: %s\r\n", r->headers[i].name,
                              r->headers[i].value);
    }
    r->text_len = n + (size_t)snprintf(r->text + n, ROOM - n, "\r\n");
    return same;
}

/* What was answered, without the date. */
static size_t take_answer(char *out)
{
    size_t len = memory.out_len < ROOM - 1 ? memory.out_len : ROOM - 1;
    char *date;

    memcpy(out, memory.out, len);
    out[len] = 0;
    date = strstr(out, "\r\nDate: ");
    if (date)
        memset(date, 'D', strcspn(date + 2, "\r") + 2);
    return len;
}

/* What is not valid at all is told of in other words, and of two faults the other one may be. */
static bool same_answer(const char *a, const char *b)
{
    static const char bad[] = "HTTP/1.1 400 ";
    size_t n = sizeof bad - 1;

    return strcmp(a, b) == 0 || strncmp(a, bad, n) == 0 || strncmp(b, bad, n) == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const protocols[] = {"chat"};
    static struct run r;
    struct fuzz_input in = {data, size < 4096 ? size : 4096};
    uint8_t settings = fuzz_byte(&in);
    char again[ROOM];
    tws_parsed_request request;
    tws_upgrade_options opt;
    tws_conn *conn;
    tws_err err, text_err;
    bool is_text;

    take_parts(&r, &in);
    is_text = write_text(&r);
    tws_upgrade_options_init(&opt);
    opt.any_origin = settings & 1;
    opt.subprotocols = protocols;
    opt.subprotocol_count = settings & 2 ? 1 : 0;
    tws_parsed_request_init(&request);
    request.method = r.parts[0];
    request.target = r.parts[1];
    request.version = r.parts[2];
    request.headers = r.headers;
    request.header_count = r.count;
    memory_begin(NULL, 0);
    err = tws_upgrade_parsed(&conn, MEMORY_FD, NULL, 0, &request, &opt, NULL);
    r.answer_len = take_answer(r.answer);
    if (conn) {
        FUZZ_CHECK(tws_is_upgrade_request(request.method, r.headers, r.count));
        FUZZ_CHECK(strcmp(tws_request_method(tws_conn_request(conn)), r.parts[0]) == 0);
        tws_conn_unref(conn);
    }
    memory_begin((const uint8_t *)r.text, r.text_len);
    text_err = tws_upgrade(&conn, MEMORY_FD, NULL, 0, &opt, NULL);
    take_answer(again);
    if (is_text && (err != text_err || !same_answer(r.answer, again))) {
        fprintf(stderr, "parsed: %s\n%s\nread: %s\n%s\n", tws_err_name(err), r.answer,
                tws_err_name(text_err), again);
        abort();
    }
    tws_conn_unref(conn);
    for (size_t i = 0; i < r.nparts; i++)
        free(r.parts[i]);
    return 0;
}
