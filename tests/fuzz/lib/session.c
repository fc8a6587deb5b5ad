#include "lib/session.h"

#include "conn/conn.h"
#include "lib/connection.h"
#include "lib/memory_stream.h"
#include "lib/reference.h"

/* What the settings' bytes decide. */
enum { READS, RECEIVES, SENDS, LIMITS, WRITES, DEFLATE, ENDS, PAUSES };

enum { READ_WHOLE, READ_TAKE, READ_PIECES, READ_SKIP, READ_KINDS };

#define WRITTEN_MAX (REFERENCE_MESSAGES + 8)

struct written {
    uint8_t opcode;
    size_t len;
    uint32_t sum;
};

struct session {
    bool server, deflate;
    const uint8_t *set;
    tws_conn *conn;
    struct deflate_params agreed;
    struct reference in;  /* what the peer sends */
    struct reference out; /* what the library has sent */
    size_t next;          /* the message of `in` that comes next */
    uint8_t *got;
    size_t got_len;
    const void *view; /* the same bytes where the library shows them; NULL: it does not */
    struct written written[WRITTEN_MAX];
    size_t nwritten;
    size_t pings, own_pings;
    uint32_t ping_sum, turn;
    bool write_failed, closed_here;
};

/* ---- Setting up ---- */

static size_t max_message(const struct session *s)
{
    static const size_t sizes[] = {20000, 125, 1, 4096};

    return sizes[s->set[LIMITS] & 3];
}

static uint32_t max_fragments(const struct session *s)
{
    static const uint32_t counts[] = {0, 1, 5, 100};

    return counts[s->set[LIMITS] >> 2 & 3];
}

static bool on_ping(tws_conn *c, const void *data, size_t len, void *arg)
{
    struct session *s = arg;

    FUZZ_CHECK(c == s->conn && len <= 125);
    s->pings++;
    s->ping_sum = reference_sum(s->ping_sum, data, len);
    return true;
}

static void set_rules(struct session *s)
{
    bool server_fresh = s->agreed.server_no_takeover, client_fresh = s->agreed.client_no_takeover;

    memset(&s->in, 0, sizeof s->in);
    memset(&s->out, 0, sizeof s->out);
    s->in.masked = s->server;
    s->out.masked = !s->server;
    s->in.deflate = s->out.deflate = s->deflate;
    s->in.fresh = s->server ? client_fresh : server_fresh;
    s->out.fresh = s->server ? server_fresh : client_fresh;
    s->in.max_message = max_message(s);
    s->in.max_fragments = max_fragments(s);
    s->in.any_text = s->out.any_text = (s->set[LIMITS] & 0x40) != 0;
}

static void choose_deflate(struct session *s, tws_deflate_options *o)
{
    uint8_t d = s->set[DEFLATE];

    tws_deflate_options_init(o);
    o->level = 1 + d % 9;
    o->memory_level = 1 + (d >> 2) % 9;
    o->threshold = s->set[ENDS] & 8 ? 0 : TWS_DEFLATE_AUTO;
    s->agreed = (struct deflate_params){
        .server_bits = (uint8_t)(d & 16 ? 15 : 9 + d % 6),
        .client_bits = (uint8_t)(d & 32 ? 15 : 9 + d % 5),
        .server_no_takeover = (d & 64) != 0,
        .client_no_takeover = (d & 128) != 0,
    };
}

static void open_memory(struct session *s, const uint8_t *wire, size_t len)
{
    memory_begin(wire, len);
    memory.receives = fuzz_cuts_of(s->set[RECEIVES]);
    memory.sends = fuzz_cuts_of(s->set[SENDS]);
    memory.pauses = s->set[PAUSES] & 7;
    memory.reset = (s->set[ENDS] & 16) != 0;
    memory.breaks_at = s->set[ENDS] & 32 ? 1 + (size_t)s->set[PAUSES] : 0;
}

static void open_connection(struct session *s)
{
    tws_conn_options options;
    tws_deflate_options deflate;
    struct fuzz_connection f = {.server = s->server,
                                .light = (s->set[LIMITS] & 0x80) != 0,
                                .options = &options,
                                .deflate = s->deflate ? &deflate : NULL,
                                .fed = s->set[ENDS] & 64 ? s->set[RECEIVES] : 0};

    choose_deflate(s, &deflate);
    f.agreed = s->agreed;
    conn_options_init(&options);
    options.max_message = max_message(s);
    options.max_fragments = max_fragments(s);
    options.max_control_rate = 0; /* a clock decides about it */
    options.no_utf8_check = (s->set[LIMITS] & 0x40) != 0;
    options.read_timeout = s->set[PAUSES] & 8 ? 3600000 : 0;
    s->conn = fuzz_connect(&f);
    tws_set_ping_handler(s->conn, on_ping, s);
}

/* ---- Reading ---- */

/* The message that was read is the next one of the reference. */
static void check_message(struct session *s, uint8_t opcode, const void *data, size_t len)
{
    const struct reference_message *m;

    FUZZ_CHECK(len <= max_message(s));
    if (len > 0)
        memmove(s->got, data, len);
    s->got_len = len;
    if (s->next == s->in.count && s->in.unsure)
        return;
    FUZZ_CHECK(s->next < s->in.count);
    m = &s->in.messages[s->next++];
    FUZZ_CHECK(m->opcode == opcode);
    if (!m->unsure) {
        FUZZ_CHECK(len == m->len);
        FUZZ_CHECK(len == 0 || memcmp(data, s->in.room + m->at, len) == 0);
    }
}

static tws_err read_whole(struct session *s, bool take, tws_opcode *opcode)
{
    tws_message m;
    tws_err err;

    do
        err = s->set[PAUSES] & 16 ? tws_read_message_within(s->conn, &m, 3600000)
                                  : tws_read_message(s->conn, &m);
    while (err == TWS_ERR_TIMEOUT);
    if (err)
        return err;
    FUZZ_CHECK(((const char *)m.data)[m.len] == 0);
    if (take)
        FUZZ_CHECK(tws_message_take(s->conn, &m) == TWS_OK);
    *opcode = m.opcode;
    check_message(s, (uint8_t)m.opcode, m.data, m.len);
    s->view = take ? NULL : m.data;
    tws_message_free(&m);
    return TWS_OK;
}

/* What has come of a message that then breaks is a beginning of what the reference knows, but that
 * keeps only whole ones. */
static tws_err read_pieces(struct session *s, tws_opcode *opcode)
{
    size_t size = (size_t)1 << (s->set[READS] >> 4), len = 0, n = 1, pieces = 0;
    uint8_t *piece = malloc(size);
    tws_err err;

    FUZZ_CHECK(piece != NULL);
    while ((err = tws_next_reader(s->conn, opcode)) == TWS_ERR_TIMEOUT)
        ;
    while (err == TWS_OK && n > 0) {
        while ((err = tws_reader_read(s->conn, piece, size, &n)) == TWS_ERR_TIMEOUT)
            FUZZ_CHECK(n == 0);
        FUZZ_CHECK(n <= size && (err == TWS_OK || n == 0));
        FUZZ_CHECK(len + n <= max_message(s) + 1);
        memcpy(s->got + len, piece, n);
        len += n;
        if (++pieces == FUZZ_PIECES && size < FUZZ_LARGE_PIECE) {
            free(piece);
            size = FUZZ_LARGE_PIECE;
            piece = malloc(size);
            FUZZ_CHECK(piece != NULL);
        }
    }
    free(piece);
    if (!err)
        check_message(s, (uint8_t)*opcode, s->got, len);
    return err;
}

/* Begins a message and leaves it, after a few bytes or none. */
static tws_err read_skip(struct session *s)
{
    tws_opcode opcode;
    uint8_t some[3];
    size_t n;
    tws_err err;

    while ((err = tws_next_reader(s->conn, &opcode)) == TWS_ERR_TIMEOUT)
        ;
    if (!err && s->turn & 1)
        err = tws_reader_read(s->conn, some, sizeof some, &n);
    if (err && err != TWS_ERR_TIMEOUT)
        return err;
    /* It may be faulty further on. */
    if (s->next < s->in.count) {
        const struct reference_message *m = &s->in.messages[s->next++];

        FUZZ_CHECK(m->opcode == (uint8_t)opcode);
    }
    return TWS_OK;
}

static tws_err read_one(struct session *s, tws_opcode *opcode, bool *skipped)
{
    uint8_t kind = s->set[READS] & 8 ? (uint8_t)(s->turn + s->set[READS]) : s->set[READS];

    *skipped = kind % READ_KINDS == READ_SKIP;
    s->view = NULL;
    switch (kind % READ_KINDS) {
    case READ_SKIP:
        return read_skip(s);
    case READ_PIECES:
        return read_pieces(s, opcode);
    default:
        return read_whole(s, kind % READ_KINDS == READ_TAKE, opcode);
    }
}

/* ---- Writing ---- */

static tws_err write_pieces(struct session *s, tws_opcode opcode, tws_compression mode)
{
    size_t step = (size_t)1 << (s->set[WRITES] >> 4), pieces = 0;
    tws_writer *w;
    tws_err err = tws_next_writer_as(s->conn, opcode, mode, &w), closed;

    if (err != TWS_OK)
        return err;
    for (size_t at = 0; at < s->got_len && err == TWS_OK; at += step) {
        if (++pieces == FUZZ_PIECES && step < FUZZ_LARGE_PIECE)
            step = FUZZ_LARGE_PIECE;
        err = tws_writer_write(w, s->got + at, at + step < s->got_len ? step : s->got_len - at);
    }
    closed = tws_writer_close(w);
    return err != TWS_OK ? err : closed;
}

static tws_err write_one(struct session *s, tws_opcode opcode)
{
    static const tws_compression modes[] = {TWS_COMPRESS_AUTO, TWS_COMPRESS_NEVER,
                                            TWS_COMPRESS_ALWAYS, TWS_COMPRESS_ALWAYS};
    tws_compression mode = modes[s->set[WRITES] & 3];
    struct iovec iov[2] = {{s->got, s->got_len / 2},
                           {s->got + s->got_len / 2, s->got_len - s->got_len / 2}};

    if (s->set[WRITES] & 8)
        return write_pieces(s, opcode, mode);
    if ((s->set[WRITES] & 3) == 1)
        return tws_writev_message(s->conn, opcode, iov, 2);
    return tws_write_message_as(s->conn, opcode, mode, s->view && s->turn & 2 ? s->view : s->got,
                                s->got_len);
}

static void echo(struct session *s, tws_opcode opcode)
{
    bool text_bad =
        opcode == TWS_TEXT && s->in.any_text == false && reference_text(s->got, s->got_len) != 0;
    tws_err err;

    FUZZ_CHECK(!text_bad);
    if (s->write_failed || (s->set[WRITES] & 4 && s->turn & 1) || s->nwritten >= WRITTEN_MAX - 1)
        return;
    err = write_one(s, opcode);
    if (err) {
        FUZZ_CHECK(memory.breaks_at > 0);
        s->write_failed = true;
        return;
    }
    s->written[s->nwritten++] =
        (struct written){(uint8_t)opcode, s->got_len, reference_sum(0, s->got, s->got_len)};
    if (s->set[ENDS] & 128 && s->own_pings < 10 && tws_ping(s->conn, "fuzz", 4) == TWS_OK)
        s->own_pings++;
}

/* ---- The end ---- */

static unsigned end_of(tws_err err)
{
    switch (err) {
    case TWS_ERR_EOF:
    case TWS_ERR_NETWORK:
        return REFERENCE_CUT;
    case TWS_ERR_PEER_CLOSED:
        return REFERENCE_CLOSED;
    case TWS_ERR_PROTOCOL:
        return REFERENCE_PROTOCOL;
    case TWS_ERR_UTF8:
        return REFERENCE_TEXT;
    case TWS_ERR_DEFLATE:
        return REFERENCE_INFLATE;
    case TWS_ERR_TOO_BIG:
        return REFERENCE_TOO_BIG;
    case TWS_ERR_FLOOD:
        return REFERENCE_FLOOD;
    default:
        return 0;
    }
}

static uint16_t code_of(const struct session *s, tws_err err)
{
    switch (err) {
    case TWS_ERR_PEER_CLOSED:
        return s->in.code;
    case TWS_ERR_PROTOCOL:
        return 1002;
    case TWS_ERR_UTF8:
    case TWS_ERR_DEFLATE:
        return 1007;
    case TWS_ERR_TOO_BIG:
        return 1009;
    case TWS_ERR_FLOOD:
        return 1008;
    default:
        return 0; /* no close frame */
    }
}

static void check_end(struct session *s, tws_err err)
{
    tws_error e;

    tws_conn_error(s->conn, &e);
    FUZZ_CHECK(tws_err_is_final(err) && e.code == err && strlen(e.text) < sizeof e.text);
    if (s->write_failed || memory.breaks_at > 0)
        return;
    if (s->in.unsure || !s->in.end)
        return;
    /* Whether zlib sees that a distance passes a smaller window depends on the room it has. */
    if (err == TWS_ERR_DEFLATE && (s->server ? s->agreed.client_bits : s->agreed.server_bits) < 15)
        return;
    if (s->next != s->in.count || !(end_of(err) & s->in.end))
        fprintf(stderr, "%s after %zu of %zu messages; the reference ends with %#x\n", e.text,
                s->next, s->in.count, s->in.end);
    FUZZ_CHECK(s->next == s->in.count);
    FUZZ_CHECK((end_of(err) & s->in.end) != 0);
    FUZZ_CHECK(e.close_code == (code_of(s, err) ? code_of(s, err) : 1006));
    FUZZ_CHECK(err != TWS_ERR_PEER_CLOSED || strcmp(e.reason, s->in.reason) == 0);
    FUZZ_CHECK(s->pings == s->in.pings && s->ping_sum == s->in.ping_sum);
}

/* What was sent are valid frames, and the messages that were written; the last one is the close
 * frame, if there has to be one. */
static void check_sent(struct session *s, tws_err err)
{
    struct reference *o = &s->out;
    uint16_t code = s->closed_here ? 1000 : code_of(s, err);

    if (memory.out_len > MEMORY_OUT || memory.breaks_at > 0)
        return;
    reference_read(o, memory.out, memory.out_len);
    FUZZ_CHECK(o->end == 0 || o->end == REFERENCE_CUT || o->end == REFERENCE_CLOSED);
    for (size_t i = 0; i < o->count; i++) {
        const struct reference_message *m = &o->messages[i];

        FUZZ_CHECK(i < s->nwritten && m->opcode == s->written[i].opcode);
        FUZZ_CHECK(m->len == s->written[i].len);
        FUZZ_CHECK(reference_sum(0, o->room + m->at, m->len) == s->written[i].sum);
    }
    reference_free(o);
    if (!o->end)
        return;
    FUZZ_CHECK(o->count == s->nwritten && o->pings == s->own_pings);
    /* While the socket takes nothing, a newer ping's pong replaces the one that waits (5.5.3). */
    FUZZ_CHECK(o->pongs <= s->pings);
    if ((s->set[SENDS] & 15) == 0)
        FUZZ_CHECK(o->pongs == s->pings && o->pong_sum == s->ping_sum);
    FUZZ_CHECK(o->end == (code ? REFERENCE_CLOSED : REFERENCE_CUT));
    FUZZ_CHECK(!code || o->code == code);
}

static void serve(struct session *s)
{
    tws_opcode opcode = TWS_TEXT;
    tws_err err = TWS_OK;
    bool skipped;

    while (!err) {
        if (s->set[ENDS] & 4 && s->turn == (s->set[ENDS] & 3u)) {
            s->closed_here = true;
            err = tws_close(s->conn, 1000, "enough");
            break;
        }
        if (!s->in.end && s->next == s->in.count) /* the reference has stopped here */
            break;
        err = read_one(s, &opcode, &skipped);
        if (!err && !skipped)
            echo(s, opcode);
        s->turn++;
    }
    if (s->closed_here)
        FUZZ_CHECK(tws_write_message(s->conn, TWS_TEXT, "", 0) != TWS_OK);
    else if (err)
        check_end(s, err);
    else
        return;
    tws_close(s->conn, 1000, NULL); /* what the socket did not take at once leaves now */
    check_sent(s, err);
}

void session_run(bool server, bool deflate, const uint8_t settings[SESSION_SETTINGS],
                 const uint8_t *wire, size_t len)
{
    static struct session s;
    static uint8_t got[REFERENCE_ROOM];
    tws_stats stats;

    memset(&s, 0, offsetof(struct session, in));
    memset(&s.next, 0, sizeof s - offsetof(struct session, next));
    s.server = server;
    s.deflate = deflate;
    s.set = settings;
    s.got = got;
    open_memory(&s, wire, len);
    open_connection(&s);
    set_rules(&s);
    reference_read(&s.in, wire, len);
    reference_free(&s.in);
    serve(&s);
    tws_conn_stats(s.conn, &stats);
    tws_conn_unref(s.conn);
    FUZZ_CHECK(memory.opened == 1 && memory.closed == 1);
}

void session_run_input(bool server, bool deflate, const uint8_t *data, size_t size)
{
    uint8_t settings[SESSION_SETTINGS] = {0};
    size_t n = size < sizeof settings ? size : sizeof settings;

    if (n > 0)
        memcpy(settings, data, n);
    size -= n;
    session_run(server, deflate, settings, n > 0 ? data + n : settings,
                size < SESSION_MAX_WIRE ? size : SESSION_MAX_WIRE);
}
