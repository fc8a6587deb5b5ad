/* Handing connections to another process, and taking them from one. */
#include <tws/handoff.h>

#include "base/clock.h"
#include "base/fault.h"
#include "conn/deflate.h"
#include "server/handoff_record.h"
#include "server/server.h"
#include "task/pass.h"
#include "wire/deflate.h"

#include <tws/thread.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* What has begun to arrive has to be whole within this, and an answer to leave. */
#define RECORD_MS 10000

struct tws_handoff {
    int fd;
    tws_mutex *turn; /* one record, with its answer, at a time */
    bool broken;     /* turn: the two sides do not agree any more where a record begins */
};

static tws_err fail(tws_error *e, tws_err code, int error, const char *what, const char *more)
{
    return base_fault(e, code, TWS_PHASE_NONE, error, what, more);
}

static tws_err done(tws_error *e)
{
    if (e)
        memset(e, 0, sizeof *e);
    return TWS_OK;
}

tws_err tws_handoff_new(tws_handoff **out, int fd)
{
    union net_peer peer;
    tws_handoff *h;
    int family;

    *out = NULL;
    family = net_connected(fd, &peer);
    if (family >= 0 ? family != AF_UNIX : family == -ENOTSOCK || family == -ENOTCONN)
        return TWS_ERR_ARGUMENT;
    if (family < 0)
        return TWS_ERR_SYSTEM;
    h = base_calloc(NULL, sizeof *h);
    if (!h)
        return TWS_ERR_MEMORY;
    h->fd = fd;
    h->turn = tws_mutex_new();
    if (!h->turn) {
        base_free(NULL, h);
        return TWS_ERR_MEMORY;
    }
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    *out = h;
    return TWS_OK;
}

void tws_handoff_free(tws_handoff *h)
{
    if (!h)
        return;
    close(h->fd);
    tws_mutex_free(h->turn);
    base_free(NULL, h);
}

const void *tws_handoff_data(const tws_conn *c, size_t *len)
{
    if (len)
        *len = c->handed ? c->handed->len : 0;
    return c->handed ? c->handed->data : NULL;
}

/* No record can go either way any more. */
static void break_off(tws_handoff *h)
{
    h->broken = true;
    shutdown(h->fd, SHUT_RDWR);
}

/* The right to use the socket. */
static tws_err take_turn(tws_handoff *h, tws_ms ms, tws_error *error)
{
    if (tws_mutex_lock(h->turn, ms) != TWS_OK)
        return fail(error, TWS_ERR_TIMEOUT, 0, "others are handing over", NULL);
    if (!h->broken)
        return TWS_OK;
    tws_mutex_unlock(h->turn);
    return fail(error, TWS_ERR_SYSTEM, 0, "the other process and this one are out of step", NULL);
}

/* ---- Sending ---- */

/* Run where blocking is allowed. */
struct sending {
    tws_handoff *h;
    const uint8_t *body;
    size_t len;
    int fd;
    int64_t deadline;
    int error;      /* -errno; 0: there is an answer */
    tws_err answer; /* TWS_OK: the other process has it */
};

static int await_answer(tws_handoff *h, tws_err *answer, int64_t deadline)
{
    uint8_t bytes[RECORD_ANSWER];
    bool begun;
    ssize_t n = task_pass_recv(h->fd, bytes, sizeof bytes, NULL, deadline, &begun);

    /* Whether the receiver has it is decided here: its answer came before this shutdown, or cannot be
     * sent any more. */
    if (n == -ETIMEDOUT && !begun) {
        break_off(h);
        n = task_pass_recv(h->fd, bytes, sizeof bytes, NULL, TASK_NOW, &begun);
        if (n == 0)
            n = -ETIMEDOUT;
    }
    if (n == (ssize_t)sizeof bytes && record_answer_read(bytes, answer))
        return 0;
    break_off(h);
    if (n == 0)
        return -ECONNRESET;
    return n < 0 ? (int)n : -EBADMSG;
}

static void send_main(void *sending)
{
    struct sending *s = sending;
    uint8_t head[RECORD_HEAD];
    struct iovec iov[2] = {{head, sizeof head}, {(void *)(uintptr_t)s->body, s->len}};
    bool begun;

    record_head_write(head, s->len);
    s->error = task_pass_send(s->h->fd, iov, 2, s->fd, s->deadline, &begun);
    if (s->error == 0)
        s->error = await_answer(s->h, &s->answer, s->deadline);
    else if (begun || s->error != -ETIMEDOUT)
        break_off(s->h);
}

/* With both roles of c. TWS_OK: the other process has it. */
static tws_err exchange(tws_handoff *h, tws_conn *c, const void *data, size_t len, int64_t deadline,
                        tws_error *error)
{
    struct sending s = {.h = h, .fd = c->stream.sock.fd, .deadline = deadline};
    uint8_t *body = record_of(c, data, len, &s.len);
    tws_err err;

    if (!body)
        return fail(error, TWS_ERR_MEMORY, 0, "no memory for the record", NULL);
    s.body = body;
    err = tws_blocking(send_main, &s);
    base_free(c->env->allocator, body);
    if (err)
        return fail(error, err, 0, "no thread to send it", NULL);
    if (s.error == -ETIMEDOUT)
        return fail(error, TWS_ERR_TIMEOUT, 0, "the other process did not take it", NULL);
    if (s.error)
        return fail(error, TWS_ERR_SYSTEM, -s.error, "the other process", NULL);
    if (s.answer)
        return fail(error, TWS_ERR_SYSTEM, 0, "the other process refused it",
                    tws_err_text(s.answer));
    return TWS_OK;
}

static const char *why_not(tws_err err)
{
    switch (err) {
    case TWS_ERR_UNSUPPORTED:
        return "TLS, or compression with context takeover";
    case TWS_ERR_STATE:
        return "in the middle of a message or of a handler";
    case TWS_ERR_BUSY:
        return "it is being handed over already";
    case TWS_ERR_TIMEOUT:
        return "another thread reads, or what is to be sent does not leave";
    default:
        return "the connection";
    }
}

tws_err tws_handoff_send(tws_handoff *h, tws_conn *c, const void *data, size_t len, tws_ms ms,
                         tws_error *error)
{
    int64_t deadline = task_deadline(ms);
    tws_err err, ended;

    if (ms < 0 || len > TWS_HANDOFF_DATA_MAX || (!data && len > 0))
        return fail(error, TWS_ERR_ARGUMENT, 0, "time or data", NULL);
    err = conn_handover_begin(c, ms, deadline);
    if (err)
        return fail(error, err, 0, why_not(err), NULL);
    err = take_turn(h, ms, error);
    if (!err) {
        err = exchange(h, c, data, len, deadline, error);
        tws_mutex_unlock(h->turn);
    }
    ended = conn_handover_end(c, !err);
    if (ended)
        return fail(error, ended, 0, "it ended meanwhile", NULL);
    return err ? err : done(error);
}

/* ---- Receiving ---- */

/* A record that has come, and what is made of it. */
struct incoming {
    tws_handoff *h;
    int64_t deadline;
    int fd; /* -1: taken over */
    uint8_t *body;
    struct record record;
    union net_peer peer; /* with whom the socket is connected, as far as that can be told */
    ssize_t result;      /* of the receiving: above 0 when there is a record */
    const char *no;      /* it is one, but cannot be taken here */
    const char *fault;   /* it is not one */
    tws_err answer;      /* to be sent */
    int answered;        /* 0 or -errno */
};

/* Who takes what comes. prepare: NULL, or why not; decide: whether it is to be kept. */
struct taker {
    const char *(*prepare)(struct taker *t, struct incoming *in);
    void (*decide)(struct taker *t, bool go);
};

/* The socket that has come. */
static void examine(struct incoming *in)
{
    int family = net_connected(in->fd, &in->peer);

    if (family == -ENOTSOCK)
        in->fault = "no stream socket came with it";
    else if (family == -ENOTCONN)
        in->no = "its peer has gone";
    else if (family < 0)
        in->no = "the system does not tell its peer";
    else if (family == AF_UNIX)
        in->peer = in->record.peer; /* whom a proxy may have told of */
}

/* More of a record that has begun. False: it does not come, by the sender's fault or the system's. */
static bool receive_more(struct incoming *in, void *data, size_t len, int64_t deadline)
{
    bool begun;

    in->result = task_pass_recv(in->h->fd, data, len, NULL, deadline, &begun);
    if (in->result == 0 || in->result == -EBADMSG || in->result == -ETIMEDOUT)
        in->fault = "it ended early";
    return in->result > 0;
}

static void receive_main(void *incoming)
{
    struct incoming *in = incoming;
    uint8_t head[RECORD_HEAD];
    bool begun;
    ptrdiff_t len;
    int64_t whole;

    in->result = task_pass_recv(in->h->fd, head, 1, &in->fd, in->deadline, &begun);
    if (in->result == -EMFILE)
        in->no = "this process has no descriptor left";
    else if (in->result <= 0)
        return;
    whole = task_deadline(RECORD_MS);
    if (!receive_more(in, head + 1, sizeof head - 1, whole))
        return;
    len = record_head_read(head);
    if (len < 0) {
        in->answer = len == -EPROTONOSUPPORT ? TWS_ERR_UNSUPPORTED : TWS_ERR_PROTOCOL;
        in->fault = len == -EPROTONOSUPPORT ? "another version" : "no record";
        return;
    }
    in->body = base_alloc(NULL, (size_t)len);
    if (!in->body) {
        in->fault = "no memory";
        in->answer = TWS_ERR_MEMORY;
        return;
    }
    if (receive_more(in, in->body, (size_t)len, whole))
        in->fault = record_read(&in->record, in->body, (size_t)len);
    if (in->result > 0 && !in->fault && !in->no)
        examine(in);
    if (in->fault)
        in->answer = TWS_ERR_PROTOCOL;
}

static void answer_main(void *incoming)
{
    struct incoming *in = incoming;
    uint8_t bytes[RECORD_ANSWER];
    struct iovec iov = {bytes, sizeof bytes};
    bool begun;

    record_answer_write(bytes, in->answer);
    in->answered = task_pass_send(in->h->fd, &iov, 1, -1, task_deadline(RECORD_MS), &begun);
}

/* A record has come, or nothing; with the turn. */
static tws_err take(struct incoming *in, struct taker *t, tws_error *error)
{
    const char *why;
    tws_err err = tws_blocking(receive_main, in);

    if (err)
        return fail(error, err, 0, "no thread to receive", NULL);
    if (!in->fault && in->result == -ETIMEDOUT)
        return fail(error, TWS_ERR_TIMEOUT, 0, "no connection came", NULL);
    if (!in->fault && in->result == 0)
        return fail(error, TWS_ERR_EOF, 0, "the other process has closed the way", NULL);
    if (!in->fault && in->result < 0 && in->result != -EBADMSG) {
        break_off(in->h);
        return fail(error, TWS_ERR_SYSTEM, (int)-in->result, "the way", NULL);
    }
    if (in->fault || in->result < 0) {
        if (in->answer)
            tws_blocking(answer_main, in);
        break_off(in->h);
        if (in->answer == TWS_ERR_MEMORY)
            return fail(error, TWS_ERR_MEMORY, 0, "no room for what came", NULL);
        return fail(error, TWS_ERR_PROTOCOL, 0, "what came is no connection",
                    in->fault ? in->fault : "too many descriptors");
    }
    why = in->no ? in->no : t->prepare(t, in);
    in->answer = why ? TWS_ERR_REFUSED : TWS_OK;
    err = tws_blocking(answer_main, in);
    if (!why)
        t->decide(t, !err && in->answered == 0);
    if (err || in->answered < 0) {
        break_off(in->h);
        return fail(error, TWS_ERR_SYSTEM, err ? 0 : -in->answered, "the sender did not wait",
                    NULL);
    }
    return why ? fail(error, TWS_ERR_REFUSED, 0, why, NULL) : done(error);
}

static tws_err receive(tws_handoff *h, struct taker *t, tws_ms ms, tws_error *error)
{
    struct incoming in = {.h = h, .deadline = task_deadline(ms), .fd = -1};
    tws_err err;

    if (ms < TWS_NOWAIT)
        return fail(error, TWS_ERR_ARGUMENT, 0, "time", NULL);
    err = take_turn(h, ms, error);
    if (err)
        return err;
    err = take(&in, t, error);
    tws_mutex_unlock(h->turn);
    if (in.fd >= 0)
        close(in.fd);
    base_free(NULL, in.body);
    return err;
}

/* ---- What is made of it ---- */

/* What a connection becomes part of. */
struct place {
    struct conn_env *env;
    struct task_runtime *runtime;
    const tws_conn_options *options;
};

/* Gives it all that came with it. NULL, or why not. */
static const char *furnish(tws_conn *c, const struct record *r)
{
    struct deflate_params agreed = {r->server_bits, r->client_bits, true, true};
    const tws_allocator *a = c->env->allocator;
    const char *why = "no memory";

    c->handed = base_calloc(a, sizeof *c->handed + r->data.len + 1);
    if (!c->handed || !conn_feed(c, r->input.at, r->input.len))
        return why;
    c->handed->len = r->data.len;
    if (r->data.len > 0)
        memcpy(c->handed->data, r->data.at, r->data.len);
    if (r->subprotocol.at) {
        c->subprotocol = base_calloc(a, r->subprotocol.len + 1);
        if (!c->subprotocol)
            return why;
        memcpy(c->subprotocol, r->subprotocol.at, r->subprotocol.len);
    }
    if (r->head.len > 0) {
        c->request = record_request(r, a, &c->peer, c->stream.sock.fd, &why);
        if (!c->request)
            return why;
        c->request_free = upgrade_request_free;
    }
    if (!r->compressed)
        return NULL;
    if (!c->env->codec)
        return "its messages are compressed, which is not wanted here";
    if (!conn_deflate_start(c, &agreed))
        return why;
    tws_set_compression(c, (tws_compression)r->mode);
    return NULL;
}

/* Takes the descriptor over. */
static tws_conn *make(struct incoming *in, const struct place *p, const char **why)
{
    const struct record *r = &in->record;
    struct conn_setup setup = {.env = p->env,
                               .peer = in->peer,
                               .server = r->server,
                               .options = p->options,
                               .user = p->options->user};
    void *block = base_pool_get(&p->env->blocks);
    tws_conn *c;

    *why = "no memory or descriptor";
    if (!block || net_stream_inherit(&setup.stream, p->runtime, in->fd) < 0) {
        if (block)
            base_pool_put(&p->env->blocks, block);
        return NULL;
    }
    in->fd = -1;
    if (r->server)
        c = conn_init(block, &setup,
                      p->env->area_min > 0 ? p->env->blocks.block_size - sizeof *c : 0);
    else
        c = conn_init_client(block, &setup);
    *why = furnish(c, r);
    if (!*why)
        return c;
    conn_disown(c);
    tws_conn_unref(c);
    return NULL;
}

/* ---- For a server ---- */

struct for_server {
    struct taker taker;
    struct server_adoption adoption;
    tws_server *server;
    struct incoming *in;
    const char *why;
};

static tws_conn *make_adopted(struct server_adoption *a)
{
    struct for_server *f = a->arg;
    const struct place place = {f->server->cfg->env, f->server->runtime, &f->server->cfg->opt.conn};

    return make(f->in, &place, &f->why);
}

static const char *prepare_adoption(struct taker *t, struct incoming *in)
{
    struct for_server *f = (struct for_server *)t;
    const char *why;

    if (!in->record.server)
        return "it is a client's connection";
    f->in = in;
    f->adoption.address = in->peer;
    why = server_adopt(f->server, &f->adoption);
    return why && f->why ? f->why : why;
}

static void decide_adoption(struct taker *t, bool go)
{
    server_adopt_decide(&((struct for_server *)t)->adoption, go);
}

tws_err tws_handoff_serve(tws_handoff *h, tws_server *s, tws_ms ms, tws_error *error)
{
    struct for_server f = {.taker = {prepare_adoption, decide_adoption},
                           .adoption = {.make = make_adopted, .arg = &f},
                           .server = s};

    return receive(h, &f.taker, ms, error);
}

/* ---- For the calling thread ---- */

struct for_caller {
    struct taker taker;
    struct upgrade_config *cfg;
    tws_conn *conn;
};

static const char *prepare_own(struct taker *t, struct incoming *in)
{
    struct for_caller *f = (struct for_caller *)t;
    const struct place place = {f->cfg->env, NULL, &f->cfg->opt.conn};
    const char *why = NULL;

    f->conn = make(in, &place, &why);
    return why;
}

static void decide_own(struct taker *t, bool go)
{
    struct for_caller *f = (struct for_caller *)t;

    if (go)
        return;
    conn_disown(f->conn);
    tws_conn_unref(f->conn);
    f->conn = NULL;
}

tws_err tws_handoff_receive(tws_conn **out, tws_handoff *h, const tws_upgrade_options *opt,
                            tws_ms ms, tws_error *error)
{
    struct for_caller f = {.taker = {prepare_own, decide_own}};
    const char *what = "options";
    tws_deflate_options deflate;
    tws_err err;

    *out = NULL;
    err = upgrade_config_new(&f.cfg, opt, false, &what);
    if (err)
        return fail(error, err, 0, what ? what : "options", NULL);
    tws_deflate_options_init(&deflate);
    if (!f.cfg->env->codec && !conn_env_deflate(f.cfg->env, &deflate))
        err = fail(error, TWS_ERR_MEMORY, 0, "options", NULL);
    else
        err = receive(h, &f.taker, ms, error);
    *out = f.conn;
    upgrade_config_free(f.cfg);
    return err;
}
