/* Reads of all kinds against the model. */
#include "support_model.h"

#include "conn/conn.h"

#include <stdlib.h>

bool model_again(struct run *r, tws_err err)
{
    if (err && tws_err_is_final(err) && !r->end) {
        r->end = err;
        if (!r->closing && err != TWS_ERR_STALLED &&
            !(r->peer_closes && err == TWS_ERR_PEER_CLOSED) &&
            !(r->others && err == TWS_ERR_CLOSED))
            model_wrong(&r->m, tws_err_name(err));
    }
    return err == TWS_OK;
}

/* ---- What has been read ---- */

size_t model_messages_in(struct run *r)
{
    return atomic_load(&r->m.c->count.messages_in);
}

/* The message that is being received, or comes next. */
static size_t current(struct run *r)
{
    const struct conn_incoming *in = &r->m.c->msg;

    return model_messages_in(r) - (in->streaming && !in->in_message);
}

static bool is_message(struct run *r, size_t at, const tws_message *m)
{
    const struct model_message *one = &r->m.sent[at];

    return at < r->m.sent_count && m->len == one->len && m->opcode == one->opcode &&
           memcmp(m->data, model_payload(&r->m, one), m->len + 1) == 0;
}

void model_look(struct run *r)
{
    size_t i = model_random(&r->m, TAKEN);

    if (r->shown.data && !is_message(r, r->shown_at, &r->shown))
        model_wrong(&r->m, "a message that was shown has changed");
    if (r->taken[i].data && !is_message(r, r->taken_at[i], &r->taken[i]))
        model_wrong(&r->m, "a message that was taken has changed");
}

static void read_begins(struct run *r)
{
    model_look(r);
    r->shown.data = NULL;
}

tws_err model_read_whole(struct run *r)
{
    const struct conn_incoming *in = &r->m.c->msg;
    size_t at = model_messages_in(r) + ((in->streaming && in->in_message) || in->skipping);
    tws_message m;
    tws_err err;

    read_begins(r);
    err = tws_read_message_within(r->m.c, &m, TWS_NOWAIT);
    r->offset = 0;
    if (model_again(r, err)) {
        if (model_messages_in(r) != at + 1 || !is_message(r, at, &m))
            model_wrong(&r->m, "a whole read gave another message");
        r->shown = m;
        r->shown_at = at;
    } else if (m.len != 0) {
        model_wrong(&r->m, "a whole read that failed left something");
    }
    return err;
}

static tws_err next_reader(struct run *r)
{
    size_t at = model_messages_in(r) + r->m.c->msg.in_message;
    tws_opcode opcode;
    tws_err err;

    read_begins(r);
    err = tws_next_reader(r->m.c, &opcode);
    r->offset = 0;
    if (model_again(r, err) &&
        (at >= r->m.sent_count || opcode != (tws_opcode)r->m.sent[at].opcode))
        model_wrong(&r->m, "a reader was opened on another message");
    return err;
}

static void expect_piece(struct run *r, size_t at, const uint8_t *buf, size_t n)
{
    const struct model_message *one = &r->m.sent[at];

    if (at >= r->m.sent_count || n > one->len - r->offset ||
        memcmp(buf, model_payload(&r->m, one) + r->offset, n) != 0)
        model_wrong(&r->m, "a piece is not of the message");
    r->offset += n;
}

static size_t piece_size(struct run *r)
{
    static const size_t sizes[] = {1, 2, 100, 5000, 8192, 40000, MODEL_LEN_MAX};

    return sizes[model_random(&r->m, sizeof sizes / sizeof *sizes)];
}

static tws_err reader_read(struct run *r)
{
    size_t size = piece_size(r), at = current(r), n;
    bool open = r->m.c->msg.streaming;
    uint8_t *buf = support_alloc(size);
    tws_err err;

    read_begins(r);
    err = tws_reader_read(r->m.c, buf, size, &n);
    if (!open && err != TWS_ERR_STATE && !tws_err_is_final(err))
        model_wrong(&r->m, "a piece of no message");
    if (model_again(r, err)) {
        if (n == 0 && r->offset != r->m.sent[at].len)
            model_wrong(&r->m, "a message ended early");
        expect_piece(r, at, buf, n);
    }
    free(buf);
    return err;
}

/* What a stream gives: from `at` on, across ends of messages. */
static void expect_bytes(struct run *r, size_t at, uint8_t owed, const uint8_t *buf, size_t size,
                         size_t n)
{
    size_t term = r->terminator ? strlen(r->terminator) : 0, left = owed;

    while (left == 0 && at < r->m.sent_count && r->offset == r->m.sent[at].len) {
        left = term;
        if (left > 0 || (!r->terminator && r->m.sent[at].len == 0))
            break;
        at++;
        r->offset = 0;
    }
    if (left > 0) {
        if (n != (left < size ? left : size) || memcmp(buf, r->terminator + term - left, n) != 0)
            model_wrong(&r->m, "another terminator");
    } else if (n > 0) {
        expect_piece(r, at, buf, n);
    } else if (at >= r->m.sent_count || r->m.sent[at].len != 0) {
        model_wrong(&r->m, "an end of the stream that nobody sent");
    }
}

static tws_err stream_read(struct run *r)
{
    const struct conn_incoming *in = &r->m.c->msg;
    bool open = in->streaming;
    size_t size = piece_size(r), n, at = open ? current(r) : model_messages_in(r) + in->in_message;
    uint8_t owed = in->owed, *buf = support_alloc(size);
    tws_err err;

    read_begins(r);
    if (!open)
        r->offset = 0;
    err = tws_stream_read(r->m.c, buf, size, &n);
    if (model_again(r, err) && !(r->peer_closes && n == 0))
        expect_bytes(r, at, owed, buf, size, n);
    else if (!in->streaming || current(r) != at)
        r->offset = 0;
    free(buf);
    return err;
}

void model_stream_join(struct run *r)
{
    static const char *const terminators[] = {NULL, "", "\n", "<the end>"};
    const char *text = terminators[model_random(&r->m, 4)];

    if (model_again(r, tws_stream_join(r->m.c, text)))
        r->terminator = text;
}

void model_take(struct run *r)
{
    size_t i = model_random(&r->m, TAKEN);

    tws_message_free(&r->taken[i]);
    r->taken[i].data = NULL;
    if (!r->shown.data)
        return;
    if (tws_message_take(r->m.c, &r->shown) != TWS_OK)
        model_wrong(&r->m, "what was shown last cannot be taken");
    r->taken[i] = r->shown;
    r->taken_at[i] = r->shown_at;
    r->shown.data = NULL;
}

tws_err model_read_some(struct run *r)
{
    switch (model_random(&r->m, 4)) {
    case 0:
        return next_reader(r);
    case 1:
        return stream_read(r);
    case 2:
        return r->m.c->msg.streaming ? reader_read(r) : model_read_whole(r);
    default:
        return model_read_whole(r);
    }
}

/* When nothing is ready a read finds nothing. */
void model_wait_any(struct run *r)
{
    tws_wait_item item = {.conn = r->m.c};
    tws_err err;

    read_begins(r);
    err = tws_wait_any(&item, 1, TWS_NOWAIT, NULL);
    if (err == TWS_OK)
        return;
    if (err != TWS_ERR_TIMEOUT)
        model_wrong(&r->m, "tws_wait_any");
    err = r->m.c->msg.streaming    ? reader_read(r)
          : model_random(&r->m, 2) ? stream_read(r)
                                   : model_read_whole(r);
    if (err != TWS_ERR_TIMEOUT && !(r->others && tws_err_is_final(err)))
        model_wrong(&r->m, "tws_wait_any did not see what could be read");
}

void model_set_limit(struct run *r)
{
    static const uint64_t limits[] = {0, UINT64_MAX, UINT64_MAX - 1, MODEL_LEN_MAX, 1 << 20};

    model_again(r, tws_set_limit(r->m.c, TWS_LIMIT_MESSAGE, limits[model_random(&r->m, 5)]));
}
