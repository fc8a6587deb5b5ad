/* One message for many connections, encoded once for each form that one of them needs. */
#include "conn/queue.h"

#include "base/alloc.h"
#include "wire/utf8.h"

#include <string.h>

/* A compressed form: the whole frame. */
struct prepared_form {
    struct prepared_form *next;
    uint32_t key;  /* CONN_DEFLATE_FORM_KEY */
    bool ready;    /* prepared's mu: else somebody is making it */
    size_t hlen;   /* frame header in data */
    size_t len;    /* payload behind it; 0: it does not get smaller, the plain frame is sent */
    uint8_t *data; /* NULL when len is 0 */
};

struct tws_prepared {
    struct base_ref refs;
    tws_opcode opcode;
    const uint8_t *payload;
    size_t len;
    tws_release_fn release; /* of an adopted payload; NULL: none */
    void *arg;
    void *adopted;               /* what release is called with */
    task_mutex mu;               /* never held while compressing */
    struct task_queue made;      /* mu: woken when a form has become ready */
    struct prepared_form *forms; /* mu; once ready they do not change */
    size_t hlen;
    uint8_t header[WIRE_FRAME_HEADER_MAX]; /* of the plain frame */
    uint8_t space[];                       /* header and payload, when it was copied */
};

/* ---- Life ---- */

static tws_err check(tws_opcode opcode, const void *data, size_t len)
{
    if ((opcode != TWS_TEXT && opcode != TWS_BINARY) || (!data && len > 0) || len > INT64_MAX)
        return TWS_ERR_ARGUMENT;
    return opcode == TWS_TEXT && !wire_utf8_valid(data, len) ? TWS_ERR_TEXT : TWS_OK;
}

static tws_prepared *prepared_alloc(tws_opcode opcode, size_t len, size_t space)
{
    struct wire_frame f = {.opcode = (uint8_t)opcode, .fin = true, .len = len};
    tws_prepared *p;

    if (space > SIZE_MAX - sizeof *p)
        return NULL;
    p = base_alloc(NULL, sizeof *p + space);
    if (!p)
        return NULL;
    memset(p, 0, sizeof *p);
    base_ref_init(&p->refs);
    p->opcode = opcode;
    p->len = len;
    pthread_mutex_init(&p->mu, NULL);
    p->hlen = wire_frame_write(p->header, &f);
    return p;
}

/* The pieces are read only for their len bytes in all; nothing of them is checked. */
static tws_err prepared_copy(tws_prepared **out, tws_opcode opcode, const struct iovec *iov,
                             int count, size_t len)
{
    tws_prepared *p = prepared_alloc(opcode, len, len + WIRE_FRAME_HEADER_MAX + 1);
    uint8_t *at;

    if (!p)
        return TWS_ERR_MEMORY;
    memcpy(p->space, p->header, p->hlen);
    at = p->space + p->hlen;
    p->payload = at;
    for (int i = 0; i < count; i++) {
        if (iov[i].iov_len > 0)
            memcpy(at, iov[i].iov_base, iov[i].iov_len);
        at += iov[i].iov_len;
    }
    *out = p;
    return TWS_OK;
}

tws_err tws_prepared_new(tws_prepared **out, tws_opcode opcode, const void *data, size_t len)
{
    struct iovec all = {.iov_base = (void *)(uintptr_t)data, .iov_len = len};
    tws_err err;

    *out = NULL;
    err = check(opcode, data, len);
    return err ? err : prepared_copy(out, opcode, &all, 1, len);
}

tws_err tws_prepared_newv(tws_prepared **out, tws_opcode opcode, const struct iovec *iov, int count)
{
    tws_prepared *p;
    size_t len = 0;
    tws_err err;

    *out = NULL;
    if (count < 0 || count > 1024 || (count > 0 && !iov))
        return TWS_ERR_ARGUMENT;
    for (int i = 0; i < count; i++) {
        if ((!iov[i].iov_base && iov[i].iov_len > 0) || iov[i].iov_len > INT64_MAX - len)
            return TWS_ERR_ARGUMENT;
        len += iov[i].iov_len;
    }
    err = check(opcode, NULL, 0);
    if (err)
        return err;
    err = prepared_copy(&p, opcode, iov, count, len);
    if (err)
        return err;
    err = check(opcode, p->payload, len); /* of all together: a character may lie in two pieces */
    if (err)
        tws_prepared_unref(p);
    else
        *out = p;
    return err;
}

tws_err tws_prepared_adopt(tws_prepared **out, tws_opcode opcode, void *data, size_t len,
                           tws_release_fn release, void *arg)
{
    tws_prepared *p;
    tws_err err;

    *out = NULL;
    err = check(opcode, data, len);
    if (err)
        return err;
    p = prepared_alloc(opcode, len, 0);
    if (!p)
        return TWS_ERR_MEMORY;
    p->payload = data ? data : p->header; /* never NULL */
    p->adopted = data;
    p->release = release;
    p->arg = arg;
    *out = p;
    return TWS_OK;
}

tws_prepared *tws_prepared_ref(tws_prepared *p)
{
    base_ref_get(&p->refs);
    return p;
}

void tws_prepared_unref(tws_prepared *p)
{
    struct prepared_form *form;

    if (!p || !base_ref_put(&p->refs))
        return;
    while ((form = p->forms)) {
        p->forms = form->next;
        base_free(NULL, form->data);
        base_free(NULL, form);
    }
    if (p->release)
        p->release(p->adopted, p->len, p->arg);
    pthread_mutex_destroy(&p->mu);
    base_free(NULL, p);
}

bool conn_prepared_drop(tws_prepared *p)
{
    if (p->release)
        return base_ref_put_shared(&p->refs);
    tws_prepared_unref(p);
    return true;
}

tws_opcode tws_prepared_opcode(const tws_prepared *p)
{
    return p->opcode;
}

const void *tws_prepared_data(const tws_prepared *p, size_t *len)
{
    if (len)
        *len = p->len;
    return p->payload;
}

/* ---- Forms ---- */

/* The compressed form with that key: made by this call, by another that is waited for, or found.
 * NULL: no memory. *mine: the caller has to make it. mu is held, but not while waiting. */
static struct prepared_form *form_locked(tws_prepared *p, uint32_t key, bool *mine)
{
    struct prepared_form *form = p->forms;

    *mine = false;
    while (form && form->key != key)
        form = form->next;
    if (!form) {
        form = base_calloc(NULL, sizeof *form);
        if (!form)
            return NULL;
        form->key = key;
        form->next = p->forms;
        p->forms = form;
        *mine = true;
    }
    while (!*mine && !form->ready)
        task_queue_wait(&p->made, &p->mu, TASK_FOREVER);
    return form;
}

/* The frame of the compressed payload; without memory for it, none: plain will do. */
static void form_make(struct conn_env *env, tws_prepared *p, struct conn_deflate_form params,
                      struct prepared_form *form)
{
    struct conn_deflated d = {.data = NULL};
    struct wire_frame f = {.opcode = (uint8_t)p->opcode, .fin = true, .rsv = WIRE_RSV1};

    if (conn_deflate_once(env, params, p->payload, p->len, &d) != TWS_OK || !d.data)
        return;
    form->data = base_alloc(NULL, d.len + WIRE_FRAME_HEADER_MAX);
    if (form->data) {
        f.len = d.len;
        form->hlen = wire_frame_write(form->data, &f);
        memcpy(form->data + form->hlen, d.data, d.len);
        form->len = d.len;
    }
    conn_deflated_free(env, &d);
}

/* The compressed form for c's messages. NULL: they leave plain. */
static const struct prepared_form *form_for(tws_conn *c, tws_prepared *p)
{
    struct conn_deflate_form params;
    struct prepared_form *form;
    bool mine;

    if (!conn_deflate_wanted(c, conn_deflate_mode(c), p->len) || !conn_deflate_form(c, &params))
        return NULL;
    pthread_mutex_lock(&p->mu);
    form = form_locked(p, (uint32_t)CONN_DEFLATE_FORM_KEY(params), &mine);
    pthread_mutex_unlock(&p->mu);
    if (mine) {
        form_make(c->env, p, params, form);
        pthread_mutex_lock(&p->mu);
        form->ready = true;
        task_queue_wake_all(&p->made);
        pthread_mutex_unlock(&p->mu);
    }
    return form && form->len > 0 ? form : NULL;
}

void conn_prepared_frame(tws_conn *c, tws_prepared *p, struct prepared_frame *f)
{
    const struct prepared_form *form = form_for(c, p);

    f->compressed = 0;
    f->count = 1;
    if (form) {
        f->iov[0] = (struct iovec){.iov_base = form->data, .iov_len = form->hlen + form->len};
        f->compressed = form->len;
    } else if (p->payload == p->space + p->hlen) {
        f->iov[0] = (struct iovec){.iov_base = p->space, .iov_len = p->hlen + p->len};
    } else {
        f->iov[0] = (struct iovec){.iov_base = p->header, .iov_len = p->hlen};
        f->iov[1] = (struct iovec){.iov_base = (void *)(uintptr_t)p->payload, .iov_len = p->len};
        f->count = p->len > 0 ? 2 : 1;
    }
}

/* ---- Sending ---- */

/* With the writer's role. */
static tws_err send_prepared(tws_conn *c, tws_prepared *p, struct conn_wait *w)
{
    struct prepared_frame f;
    tws_err err;

    conn_prepared_frame(c, p, &f);
    err = conn_send_made(c, f.iov, f.count, CONN_TURN_DATA, w);
    if (err)
        return err;
    CONN_COUNT(c->count.messages_out, 1);
    CONN_COUNT(c->count.bytes_out, p->len);
    if (f.compressed > 0) {
        struct conn_deflated d = {.len = f.compressed, .original = p->len};

        conn_deflate_count(c, &d);
        conn_deflate_reset(c);
    }
    return TWS_OK;
}

tws_err tws_write_prepared(tws_conn *c, tws_prepared *p)
{
    struct conn_wait w = {.ms = conn_timeout(c, TWS_TIMEOUT_WRITE)};
    uint64_t max = conn_limit(c, TWS_LIMIT_WRITE);
    tws_err err;

    if (!c->server) /* masked anew each time */
        return tws_write_message(c, p->opcode, p->payload, p->len);
    if (max > 0 && p->len > max)
        return TWS_ERR_MESSAGE_SIZE;
    err = conn_turn_take(c, CONN_TURN_DATA, &w);
    if (err) {
        if (err == TWS_ERR_TIMEOUT)
            CONN_ADD(c->count.timeouts, 1);
        return err;
    }
    err = send_prepared(c, p, &w);
    conn_turn_give(c);
    return err;
}
