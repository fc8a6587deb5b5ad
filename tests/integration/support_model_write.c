/* Writes of all kinds against the model. */
#include "support_model.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- Writing ---- */

static void written(struct run *r, tws_err err)
{
    if (model_again(r, err)) {
        if (r->closing)
            model_wrong(&r->m, "written after the connection was closed");
    } else {
        model_unwrites(&r->m);
    }
}

static void write_sync(struct run *r)
{
    struct model_message *one =
        model_writes(&r->m, model_length(&r->m), 1 + model_random(&r->m, 2));
    const uint8_t *data = model_payload(&r->m, one);
    size_t cut = model_random(&r->m, (uint32_t)one->len + 1);
    struct iovec iov[2] = {{(void *)(uintptr_t)data, cut},
                           {(void *)(uintptr_t)(data + cut), one->len - cut}};
    tws_prepared *p;

    switch (model_random(&r->m, 3)) {
    case 0:
        written(r, tws_writev_message(r->m.c, (tws_opcode)one->opcode, iov, 2));
        break;
    case 1:
        if (tws_prepared_newv(&p, (tws_opcode)one->opcode, iov, 2) != TWS_OK)
            model_wrong(&r->m, "tws_prepared_newv");
        written(r, tws_write_prepared(r->m.c, p));
        tws_prepared_unref(p);
        break;
    default:
        written(r, tws_write_message_within(r->m.c, (tws_opcode)one->opcode, data, one->len,
                                            TWS_NOWAIT));
    }
}

/* What was read is sent from where it stands. */
static void echo(struct run *r)
{
    struct model_message *one;

    if (!r->shown.data)
        return;
    one = model_writes(&r->m, r->shown.len, r->shown.opcode);
    one->seed = r->m.sent[r->shown_at].seed;
    written(r, tws_write_message(r->m.c, r->shown.opcode, r->shown.data, r->shown.len));
}

static void on_written(tws_conn *c, tws_err result, void *arg)
{
    struct model_message *one = arg;

    (void)c;
    atomic_store(&one->result, (int)result);
    atomic_fetch_add(&one->told, 1);
}

static void write_async(struct run *r)
{
    /* Not so short that a later one may be the same. */
    struct model_message *one =
        model_writes(&r->m, 20 + model_length(&r->m) / 2, 1 + model_random(&r->m, 2));
    const uint8_t *data = model_payload(&r->m, one);
    tws_prepared *p;
    tws_err err;

    one->may_miss = one->wants_told = true;
    if (model_random(&r->m, 2)) {
        err = tws_write_async(r->m.c, (tws_opcode)one->opcode, data, one->len, on_written, one);
    } else {
        if (tws_prepared_new(&p, (tws_opcode)one->opcode, data, one->len) != TWS_OK)
            model_wrong(&r->m, "tws_prepared_new");
        err = tws_write_prepared_async(r->m.c, p, on_written, one);
        tws_prepared_unref(p);
    }
    written(r, err);
}

static void set_queue(struct run *r)
{
    static const tws_queue_policy policies[] = {TWS_QUEUE_WAIT, TWS_QUEUE_DROP_NEWEST,
                                                TWS_QUEUE_DROP_OLDEST};
    tws_queue_options o;

    tws_queue_options_init(&o);
    o.policy = policies[model_random(&r->m, 3)];
    o.wait = TWS_NOWAIT;
    o.writer = (tws_writer_mode)model_random(&r->m, 3);
    o.max_bytes = model_random(&r->m, 2) ? 100000 : 0;
    o.max_messages = model_random(&r->m, 2) ? 3 : 0;
    if (tws_set_queue(r->m.c, &o) != TWS_OK)
        model_wrong(&r->m, "tws_set_queue");
}

static void write_file(struct run *r)
{
    struct model_message *one =
        model_writes(&r->m, model_length(&r->m), 1 + model_random(&r->m, 2));
    static const size_t fragments[] = {0, 1000, 20000};
    int fd = memfd_create("model", MFD_CLOEXEC);

    if (fd < 0 || write(fd, model_payload(&r->m, one), one->len) != (ssize_t)one->len)
        model_wrong(&r->m, "no file");
    written(r, tws_write_file(r->m.c, (tws_opcode)one->opcode, fd, 0, TWS_FILE_REST,
                              fragments[model_random(&r->m, 3)]));
    close(fd);
}

/* ---- A message in pieces ---- */

static void writer_close(struct run *r)
{
    tws_err err;

    if (r->written < r->open->len) {
        if (r->open->opcode == TWS_TEXT) /* a part of it may end inside a character */
            return;
        r->open->len = r->written;
    }
    err = tws_writer_close(r->writer);
    r->writer = NULL;
    if (!model_again(r, err))
        r->open->lost = true;
}

static void writer_write(struct run *r)
{
    size_t left = r->open->len - r->written, n = 1 + model_random(&r->m, 30000);
    const uint8_t *data = model_payload(&r->m, r->open);

    n = n < left ? n : left;
    if (tws_writer_write(r->writer, data + r->written, n) != TWS_OK) {
        r->open->opcode = TWS_BINARY; /* whatever it is: it will not come */
        writer_close(r);
        return;
    }
    r->written += n;
}

static void write_pieces(struct run *r)
{
    tws_err err;

    if (r->writer && (r->written == r->open->len || model_random(&r->m, 20) == 0)) {
        writer_close(r);
    } else if (r->writer) {
        writer_write(r);
    } else {
        r->open = model_writes(&r->m, model_length(&r->m), 1 + model_random(&r->m, 2));
        r->written = 0;
        err = tws_next_writer(r->m.c, (tws_opcode)r->open->opcode, &r->writer);
        written(r, err);
    }
}

static void control(struct run *r)
{
    char data[125] = "data";

    switch (model_random(&r->m, 4)) {
    case 0:
        model_again(r, tws_ping(r->m.c, data, model_random(&r->m, 126)));
        break;
    case 1:
        model_again(r, tws_pong(r->m.c, data, model_random(&r->m, 126)));
        break;
    case 2:
        model_again(r, tws_flush(r->m.c));
        break;
    default:
        model_again(r, tws_queue_wait(r->m.c, TWS_NOWAIT));
    }
}

void model_write_some(struct run *r)
{
    if (r->m.written_count >= MODEL_MESSAGES - 1)
        return;
    switch (model_random(&r->m, 8)) {
    case 0:
        write_async(r);
        break;
    case 1:
        echo(r);
        break;
    case 2:
        set_queue(r);
        break;
    case 3:
        write_file(r);
        break;
    case 4:
    case 5:
        write_pieces(r);
        break;
    case 6:
        control(r);
        break;
    default:
        write_sync(r);
    }
}
