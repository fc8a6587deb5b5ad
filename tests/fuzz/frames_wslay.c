/*
 * The same bytes into wslay, a WebSocket library of other people, and into a connection of ours: the
 * same messages, the same end, the same close code.
 *
 * Differences that are none of ours to mend are named in forgiven().
 *
 * Input: two bytes of settings (role and cuts), then frames as they are on the wire.
 */
#include <wslay/wslay.h>

#include "conn/conn.h"
#include "fuzz.h"
#include "lib/connection.h"
#include "lib/frame_mutator.h"
#include "lib/memory_stream.h"
#include "lib/reference.h"

#define MESSAGES 512
#define MAX_MESSAGE (1 << 20)

struct seen {
    size_t messages, pings;
    uint32_t sums[MESSAGES], ping_sum;
    uint8_t opcodes[MESSAGES];
    uint16_t received, sent; /* close codes; 0: none */
};

struct other {
    struct seen seen;
    const uint8_t *in;
    size_t len, at;
    struct fuzz_cuts cuts;
};

/* ---- wslay ---- */

static ssize_t other_recv(wslay_event_context_ptr ctx, uint8_t *buf, size_t len, int flags,
                          void *arg)
{
    struct other *o = arg;
    size_t n = o->len - o->at, cut = fuzz_next_cut(&o->cuts);

    (void)flags;
    n = n < len ? n : len;
    n = n < cut ? n : cut;
    if (n == 0) {
        wslay_event_set_error(ctx, WSLAY_ERR_WOULDBLOCK);
        return -1;
    }
    memcpy(buf, o->in + o->at, n);
    o->at += n;
    return (ssize_t)n;
}

static ssize_t other_send(wslay_event_context_ptr ctx, const uint8_t *data, size_t len, int flags,
                          void *arg)
{
    (void)ctx;
    (void)data;
    (void)flags;
    (void)arg;
    return (ssize_t)len;
}

static int other_mask(wslay_event_context_ptr ctx, uint8_t *buf, size_t len, void *arg)
{
    (void)ctx;
    (void)arg;
    memset(buf, 0, len);
    return 0;
}

static void add(struct seen *s, uint8_t opcode, const void *data, size_t len)
{
    if (opcode == 9) {
        s->pings++;
        s->ping_sum = reference_sum(s->ping_sum, data, len);
    } else if (opcode < 8 && s->messages < MESSAGES) {
        s->opcodes[s->messages] = opcode;
        s->sums[s->messages++] = reference_sum(0, data, len);
    }
}

static void other_message(wslay_event_context_ptr ctx, const struct wslay_event_on_msg_recv_arg *m,
                          void *arg)
{
    struct other *o = arg;

    (void)ctx;
    add(&o->seen, m->opcode, m->msg, m->msg_length);
}

static void run_other(struct other *o, bool server)
{
    struct wslay_event_callbacks calls = {.recv_callback = other_recv,
                                          .send_callback = other_send,
                                          .genmask_callback = other_mask,
                                          .on_msg_recv_callback = other_message};
    wslay_event_context_ptr ctx;
    size_t before;
    int result;

    FUZZ_CHECK((server ? wslay_event_context_server_init
                       : wslay_event_context_client_init)(&ctx, &calls, o) == 0);
    wslay_event_config_set_max_recv_msg_length(ctx, MAX_MESSAGE);
    /* It wants to be called again when it has got less than a header. */
    do {
        before = o->at;
        result = wslay_event_recv(ctx);
        FUZZ_CHECK(wslay_event_send(ctx) == 0);
    } while (result == 0 && o->at > before);
    if (wslay_event_get_close_received(ctx))
        o->seen.received = wslay_event_get_status_code_received(ctx);
    if (wslay_event_get_close_sent(ctx))
        o->seen.sent = wslay_event_get_status_code_sent(ctx);
    if (result != 0) /* a malformed header: it closes without a code, where 7.4.1 has 1002 */
        o->seen.sent = 1002;
    wslay_event_context_free(ctx);
}

/* ---- Ours ---- */

static bool on_ping(tws_conn *c, const void *data, size_t len, void *arg)
{
    (void)c;
    add(arg, 9, data, len);
    return true;
}

static void run_ours(struct seen *s, bool server, const uint8_t *in, size_t len, uint8_t cuts)
{
    tws_conn_options options;
    struct fuzz_connection f = {.server = server, .options = &options};
    tws_conn *c;
    tws_message m;
    tws_error e;
    tws_err err;

    memory_begin(in, len);
    memory.receives = fuzz_cuts_of(cuts);
    conn_options_init(&options);
    options.max_control_rate = 0;
    options.max_message = MAX_MESSAGE;
    c = fuzz_connect(&f);
    tws_set_ping_handler(c, on_ping, s);
    while ((err = tws_read_message(c, &m)) == TWS_OK)
        add(s, (uint8_t)m.opcode, m.data, m.len);
    tws_conn_error(c, &e);
    s->received = err == TWS_ERR_PEER_CLOSED ? e.close_code : 0;
    s->sent = err == TWS_ERR_EOF ? 0 : e.close_code;
    tws_conn_unref(c);
}

/* ---- Both ---- */

/*
 * - wslay takes no close codes above 1011; 1012 to 1014 have been registered since (RFC 6455 11.7,
 *   IANA). Where it fails the connection with 1002 for that, we have been closed by the peer.
 * - It takes a close frame of one byte for an empty one, which 5.5.1 does not allow: the first two
 *   bytes must be a code.
 */
static bool forgiven(const struct seen *ours, const struct seen *other)
{
    if (ours->received >= 1012 && ours->received <= 1014)
        return other->sent == 1002;
    if (ours->sent == 1007 && other->received >= 1000)
        return other->sent == other->received;
    if (ours->sent == 0 && other->received == 0)
        return other->sent == 1007;
    if (ours->sent == 1007 && other->received == 0) /* 1012 to 1014, and not UTF-8 */
        return other->sent == 1002;
    if (ours->sent == 1002 && other->received == 0)
        return other->sent == 1007;
    return ours->sent == 1002 && other->received == 1005 && other->sent == 1005;
}

static void ask_other(struct other *o, const uint8_t *in, size_t len, uint8_t settings,
                      struct fuzz_cuts cuts)
{
    memset(o, 0, sizeof *o);
    o->in = in;
    o->len = len;
    o->cuts = cuts;
    run_other(o, settings & 1);
}

static bool codes_agree(const struct seen *ours, const struct seen *other)
{
    if (ours->received == other->received && ours->sent == other->sent)
        return true;
    return forgiven(ours, other);
}

/*
 * A close frame that comes in pieces: wslay leaves out the first two bytes of each piece, not of the
 * frame only, when it looks whether the reason is UTF-8. So it gets all at once, and, since it receives
 * by 4,096 bytes, in pieces that end elsewhere.
 */
static bool agree_uncut(const struct seen *ours, struct other *o, uint8_t settings)
{
    static const size_t pieces[] = {0, 3000};

    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        ask_other(o, o->in, o->len, settings, fuzz_cuts_each(pieces[i]));
        if (codes_agree(ours, &o->seen))
            return true;
    }
    return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct seen ours;
    static struct other other;
    struct fuzz_input in = {data, size};
    uint8_t settings = fuzz_byte(&in), cuts = fuzz_byte(&in);
    size_t n;
    uint8_t *longer = calloc(1, in.left + WIRE_FRAME_HEADER_MAX);

    FUZZ_CHECK(longer != NULL);
    if (in.left > 0)
        memcpy(longer, in.at, in.left);
    memset(&ours, 0, sizeof ours);
    run_ours(&ours, settings & 1, in.at, in.left, settings >> 1);
    ask_other(&other, longer, in.left, settings, fuzz_cuts_of(cuts));
    if ((ours.sent == 1002 || ours.sent == 1009) && other.seen.sent == 0) {
        /* We see from the first bytes of a header what it sees when it is whole, and from a whole
         * one that the message is too long, which it sees when there is more. */
        ask_other(&other, longer, in.left + WIRE_FRAME_HEADER_MAX, settings, fuzz_cuts_of(cuts));
    }
    n = ours.messages;
    FUZZ_CHECK(n == other.seen.messages);
    FUZZ_CHECK(memcmp(ours.sums, other.seen.sums, n * sizeof ours.sums[0]) == 0);
    FUZZ_CHECK(memcmp(ours.opcodes, other.seen.opcodes, n) == 0);
    FUZZ_CHECK(ours.pings == other.seen.pings && ours.ping_sum == other.seen.ping_sum);
    if (!codes_agree(&ours, &other.seen) && !agree_uncut(&ours, &other, settings)) {
        fprintf(stderr, "received %u and %u, sent %u and %u\n", ours.received, other.seen.received,
                ours.sent, other.seen.sent);
        abort();
    }
    free(longer);
    return 0;
}

FRAME_MUTATOR(2, true, false)
