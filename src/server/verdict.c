/* Requests that another HTTP server has parsed and answers itself. */
#include "server/handshake.h"
#include "server/server.h"

#include "base/alloc.h"

#include <string.h>

struct tws_verdict {
    struct upgrade_config *cfg;
    struct upgrade_input in;
    tws_parsed_request parsed;
    struct handshake h;
    struct http_head head; /* of h.answer, with a zero behind each name and value */
    struct http_field *fields;
    bool over; /* the hooks know what became of it, or a connection did */
};

/* More than any answer has. */
#define ANSWER_FIELDS 80

/* Finds the parts of the answer. */
static bool take_apart(tws_verdict *v)
{
    const struct http_limits limits = {.max_bytes = UINT32_MAX, .max_fields = ANSWER_FIELDS};
    uint8_t *text = (uint8_t *)v->h.answer;

    v->fields = base_calloc(v->cfg->opt.allocator, ANSWER_FIELDS * sizeof *v->fields);
    if (!v->fields)
        return false;
    http_head_init(&v->head, true, v->fields, ANSWER_FIELDS, &limits);
    if (http_head_feed(&v->head, text, v->h.answer_len) != HTTP_DONE)
        return false;
    for (uint16_t i = 0; i < v->head.nfields; i++) {
        text[v->fields[i].name.off + v->fields[i].name.len] = 0;
        text[v->fields[i].value.off + v->fields[i].value.len] = 0;
    }
    return true;
}

static tws_verdict *verdict_new(struct upgrade_config *cfg, const tws_parsed_request *parsed)
{
    tws_verdict *v = base_calloc(cfg->opt.allocator, sizeof *v);

    if (!v)
        return NULL;
    v->cfg = cfg;
    v->parsed = *parsed;
    v->in.fd = -1;
    v->in.parsed = &v->parsed;
    v->in.block = base_pool_get(&cfg->env->blocks);
    if (!v->in.block) {
        base_free(cfg->opt.allocator, v);
        return NULL;
    }
    upgrade_peer_of_parsed(&v->in.peer, -1, parsed);
    return v;
}

/* Judges, and makes the answer. False: there is none. */
static bool judge(tws_verdict *v)
{
    struct handshake *h = &v->h;

    if (upgrade_prepare(h, v->cfg, &v->in))
        return false;
    h->stream.sock.fd = -1;
    h->keep = true;
    if (!upgrade_judge(h))
        upgrade_answer_switch(h);
    else if (h->status)
        upgrade_answer_refusal(h);
    return h->answer && take_apart(v);
}

tws_err tws_upgrade_judge(tws_verdict **out, const tws_parsed_request *request,
                          const tws_upgrade_options *opt, tws_error *error)
{
    struct upgrade_config *cfg = NULL;
    tws_parsed_request parsed;
    const char *what = NULL;
    tws_error local;
    tws_verdict *v;
    tws_err err;

    *out = NULL;
    if (!upgrade_take_parsed(&parsed, request))
        return upgrade_refuse_input(-1, TWS_ERR_ARGUMENT, "parsed request", error);
    err = upgrade_config_new(&cfg, opt, false, &what);
    if (err)
        return upgrade_refuse_input(-1, err, what, error);
    v = verdict_new(cfg, &parsed);
    if (!v) {
        upgrade_config_free(cfg);
        return upgrade_refuse_input(-1, TWS_ERR_MEMORY, NULL, error);
    }
    if (!judge(v) && !v->h.end) {
        v->h.end = UPGRADE_INTERNAL;
        v->h.why = "no memory for the answer";
    }
    upgrade_tell(&v->h, error ? error : &local);
    v->over = v->h.end != UPGRADE_DONE;
    err = error ? error->code : local.code;
    v->in.parsed = NULL; /* the strings are the caller's */
    if (!v->head.nfields || err == TWS_ERR_MEMORY)
        tws_verdict_free(v);
    else
        *out = v;
    return err;
}

int tws_verdict_status(const tws_verdict *v)
{
    return v->head.status;
}

bool tws_verdict_header_at(const tws_verdict *v, size_t index, const char **name,
                           const char **value)
{
    if (index >= v->head.nfields)
        return false;
    *name = v->h.answer + v->fields[index].name.off;
    *value = v->h.answer + v->fields[index].value.off;
    return true;
}

const void *tws_verdict_body(const tws_verdict *v, size_t *len)
{
    if (len)
        *len = v->h.answer_len - v->head.head_len;
    return v->h.answer + v->head.head_len;
}

/* What is wrong with a call; closes fd then. */
static tws_err check(const tws_verdict *v, int fd, const void *buffered, size_t len,
                     tws_error *error)
{
    if (error)
        memset(error, 0, sizeof *error);
    if (fd < 0 || (!buffered && len > 0) || len > CONN_BUFFER - 1)
        return upgrade_refuse_input(fd, TWS_ERR_ARGUMENT, "descriptor or buffer", error);
    if (v->h.end || v->head.status != 101)
        return upgrade_refuse_input(fd, TWS_ERR_STATE, "the answer is not 101", error);
    return TWS_OK;
}

/* The connection, on the calling thread; NULL: not possible, and fd is closed. */
static tws_conn *open_for(tws_verdict *v, struct task_runtime *rt, int fd, const void *buffered,
                          size_t len)
{
    struct net_tcp tcp = conn_tcp(&v->cfg->opt.conn);
    struct handshake *h = &v->h;
    tws_conn *c = NULL;

    if (net_stream_init(&h->stream, rt, fd, &tcp) < 0)
        return NULL; /* freeing the verdict closes it */
    if (h->peer.family == 0)
        net_peer_of(&h->peer, fd);
    h->request->fd = fd;
    h->request->peer = h->peer;
    h->rest = buffered;
    h->rest_len = len;
    v->over = upgrade_open(h, &c) == UPGRADE_DONE;
    return c;
}

tws_err tws_verdict_open(tws_conn **out, tws_verdict *v, int fd, const void *buffered,
                         size_t buffered_len, tws_error *error)
{
    tws_err err = check(v, fd, buffered, buffered_len, error);

    *out = NULL;
    if (!err) {
        *out = open_for(v, NULL, fd, buffered, buffered_len);
        if (!*out)
            err = upgrade_refuse_input(-1, TWS_ERR_MEMORY, NULL, error);
    }
    tws_verdict_free(v);
    return err;
}

/* ---- For a server ---- */

struct serving {
    tws_verdict *verdict;
    int fd; /* -1: taken over */
    const void *buffered;
    size_t len;
};

static tws_conn *make(struct server_adoption *a)
{
    struct serving *s = a->arg;
    int fd = s->fd;

    s->fd = -1;
    return open_for(s->verdict, a->server->runtime, fd, s->buffered, s->len);
}

tws_err tws_verdict_serve(tws_server *s, tws_verdict *v, int fd, const void *buffered,
                          size_t buffered_len, tws_error *error)
{
    struct serving serving = {v, fd, buffered, buffered_len};
    struct server_adoption a = {.make = make, .arg = &serving, .address = v->h.peer};
    tws_err err = check(v, fd, buffered, buffered_len, error);
    const char *why;

    if (!err) {
        if (a.address.family == 0)
            net_peer_of(&a.address, fd);
        why = server_adopt(s, &a);
        if (why)
            err = upgrade_refuse_input(serving.fd, TWS_ERR_REFUSED, why, error);
        else
            server_adopt_decide(&a, true);
    }
    tws_verdict_free(v);
    return err;
}

/* What the hooks have prepared for a connection that will not be. */
static void tell_unused(tws_verdict *v)
{
    tws_error local;

    if (v->h.end == UPGRADE_DONE) {
        v->h.end = UPGRADE_CUT;
        v->h.why = "no connection was made of the verdict";
    }
    upgrade_tell(&v->h, &local);
}

void tws_verdict_free(tws_verdict *v)
{
    struct upgrade_config *cfg;

    if (!v)
        return;
    cfg = v->cfg;
    if (!v->over)
        tell_unused(v);
    base_free(cfg->opt.allocator, v->fields);
    upgrade_handshake_free(&v->h);
    base_free(cfg->opt.allocator, v);
    upgrade_config_free(cfg);
}
