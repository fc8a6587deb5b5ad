/*
 * Frames read as one stream of bytes (tws_stream_read()), with and without a terminator behind each
 * message, against what the reference makes of the same frames.
 *
 * Input: three bytes of settings (terminator and role, cuts, size of a read), then frames as they are
 * on the wire.
 */
#include "conn/conn.h"
#include "fuzz.h"
#include "lib/connection.h"
#include "lib/frame_mutator.h"
#include "lib/memory_stream.h"
#include "lib/reference.h"

#define ROOM (REFERENCE_ROOM + REFERENCE_MESSAGES * 4)

struct run {
    struct reference in;
    const char *terminator; /* NULL: an empty message is the end */
    uint8_t expected[ROOM], got[ROOM];
    size_t expected_len, got_len;
    size_t empty; /* messages */
};

static void expect(struct run *r)
{
    size_t end = r->terminator ? strlen(r->terminator) : 0;

    r->expected_len = r->got_len = r->empty = 0;
    for (size_t i = 0; i < r->in.count; i++) {
        const struct reference_message *m = &r->in.messages[i];

        memcpy(r->expected + r->expected_len, r->in.room + m->at, m->len);
        r->expected_len += m->len;
        if (end > 0)
            memcpy(r->expected + r->expected_len, r->terminator, end);
        r->expected_len += end;
        r->empty += m->len == 0 && !r->terminator;
    }
}

static tws_conn *open_connection(uint8_t settings)
{
    tws_conn_options options;
    struct fuzz_connection f = {
        .server = settings & 1, .light = (settings & 2) != 0, .options = &options};

    conn_options_init(&options);
    options.max_control_rate = 0;
    options.max_message = 10000;
    return fuzz_connect(&f);
}

/* A close in the middle of a message ends no stream cleanly. */
static bool clean_end(const struct reference *in)
{
    return in->end == REFERENCE_CLOSED && !in->open &&
           (in->code == 1000 || in->code == 1001 || in->code == 1005);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const terminators[] = {NULL, "", "\n", "\r\n."};
    static struct run r;
    struct fuzz_input in = {data, size};
    uint8_t settings = fuzz_byte(&in), cuts = fuzz_byte(&in);
    size_t room = (size_t)1 << (fuzz_byte(&in) & 15), n, ends = 0;
    uint8_t *piece = malloc(room);
    tws_err err;
    tws_conn *c;

    FUZZ_CHECK(piece != NULL);
    memset(&r.in, 0, sizeof r.in);
    r.in.masked = settings & 1;
    r.in.max_message = 10000;
    r.terminator = terminators[settings >> 2 & 3];
    reference_read(&r.in, in.at, in.left);
    expect(&r);
    memory_begin(in.at, in.left);
    memory.receives = fuzz_cuts_of(cuts);
    c = open_connection(settings);
    if (r.terminator)
        FUZZ_CHECK(tws_stream_join(c, r.terminator) == TWS_OK);
    while ((err = tws_stream_read(c, piece, room, &n)) == TWS_OK) {
        if (n == 0 && ++ends > r.empty)
            break;
        FUZZ_CHECK(n <= room && n <= ROOM - r.got_len);
        memcpy(r.got + r.got_len, piece, n);
        r.got_len += n;
        if (!r.in.end && r.got_len >= r.expected_len)
            break; /* the reference has stopped here */
    }
    free(piece);
    tws_conn_unref(c);
    /* Of a message that breaks off its beginning has come too. */
    FUZZ_CHECK(r.got_len >= r.expected_len && memcmp(r.got, r.expected, r.expected_len) == 0);
    if (r.in.end) {
        FUZZ_CHECK((err == TWS_OK) == clean_end(&r.in));
        FUZZ_CHECK(err != TWS_OK || r.got_len == r.expected_len);
    }
    return 0;
}

FRAME_MUTATOR(3, true, false)
