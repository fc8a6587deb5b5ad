/* Two connections that are each other's peer. */
#include <tws/pair.h>

#include "base/sized.h"
#include "conn/codec.h"
#include "conn/queue.h"
#include "server/request.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

void tws_pair_options_init_sized(tws_pair_options *opt, size_t size)
{
    tws_pair_options o;

    memset(&o, 0, sizeof o);
    o.size = size;
    o.target = "/";
    conn_options_init(&o.server);
    conn_options_init(&o.client);
    base_sized_give(opt, size, &o, sizeof o);
}

static struct conn_env *make_env(const tws_pair_options *o, const tws_deflate_options *deflate,
                                 const struct task_runtime *rt)
{
    struct conn_env *env = conn_env_new(o->allocator, rt && rt->kind == &task_light);

    if (env && deflate && !conn_env_deflate(env, deflate)) {
        conn_env_unref(env);
        return NULL;
    }
    return env;
}

/* ---- The request that no one has sent ---- */

#define HEAD_BYTES 16384
#define HEAD_FIELDS 100

static void free_request(tws_conn *c)
{
    base_free(c->env->allocator, (void *)(uintptr_t)c->request);
}

/* From its parts to a head to a request, so that it is no other than one from the wire. */
static tws_err build_request(tws_conn *c, const tws_pair_options *o, uint8_t *buf)
{
    struct handshake_parsed parsed = {.method = "GET",
                                      .target = o->target ? o->target : "/",
                                      .version = "HTTP/1.1",
                                      .headers = o->headers,
                                      .nheaders = o->header_count};
    struct http_limits limits = {.max_bytes = HEAD_BYTES, .max_fields = HEAD_FIELDS};
    struct http_field *fields = (void *)(buf + HTTP_TABLE_AT(HEAD_BYTES));
    ptrdiff_t len = handshake_write_parsed((char *)buf, HEAD_BYTES, &parsed);
    struct handshake_request hs;
    struct http_head head;
    void *mem;

    http_head_init(&head, false, fields, HEAD_FIELDS, &limits);
    if (len < 0 || len > HEAD_BYTES || http_head_feed(&head, buf, (size_t)len) != HTTP_DONE)
        return TWS_ERR_ARGUMENT;
    handshake_examine(&head, buf, &hs);
    mem = base_alloc(c->env->allocator, request_size(&head, &hs));
    if (!mem)
        return TWS_ERR_MEMORY;
    c->request = request_build(mem, &head, buf, &hs, &c->peer, c->stream.sock.fd);
    c->request_free = free_request;
    return TWS_OK;
}

static tws_err make_request(tws_conn *c, const tws_pair_options *o)
{
    uint8_t *buf = base_alloc(o->allocator,
                              HTTP_TABLE_AT(HEAD_BYTES) + HEAD_FIELDS * sizeof(struct http_field));
    tws_err err = buf ? build_request(c, o, buf) : TWS_ERR_MEMORY;

    base_free(o->allocator, buf);
    return err;
}

/* What a handshake would have agreed. */
static tws_err agree(tws_conn *c, const tws_pair_options *o)
{
    struct deflate_params agreed;

    if (conn_deflate_want(c->env, true, &agreed) && !conn_deflate_start(c, &agreed))
        return TWS_ERR_MEMORY;
    if (o->subprotocol) {
        c->subprotocol = base_strdup(c->env->allocator, o->subprotocol);
        if (!c->subprotocol)
            return TWS_ERR_MEMORY;
    }
    return c->server ? make_request(c, o) : TWS_OK;
}

/* ---- The connections ---- */

/* A connection in an env of its own, whose queue options are the side's. Takes fd over, also on
 * failure. */
static tws_err make_side(tws_conn **out, struct conn_env *env, struct task_runtime *rt, int fd,
                         bool server, const tws_conn_options *opt)
{
    struct net_tcp tcp = conn_tcp(opt);
    struct conn_setup setup = {.env = env, .server = server, .options = opt, .user = opt->user};
    void *block = env ? base_pool_get(&env->blocks) : NULL;
    int r = -ENOMEM;

    if (block) {
        net_peer_of(&setup.peer, fd);
        r = net_stream_init(&setup.stream, rt, fd, &tcp);
    }
    if (r < 0) {
        if (block)
            base_pool_put(&env->blocks, block);
        close(fd);
        return r == -ENOMEM ? TWS_ERR_MEMORY : TWS_ERR_SYSTEM;
    }
    if (server)
        *out = conn_init(block, &setup,
                         env->area_min > 0 ? env->blocks.block_size - sizeof(tws_conn) : 0);
    else
        *out = conn_init_client(block, &setup);
    return TWS_OK;
}

static tws_err make_pair(tws_conn **side[2], const tws_pair_options *o,
                         const tws_deflate_options *deflate)
{
    struct task_runtime *rt = o->group ? task_group_runtime(o->group) : task_current_runtime();
    tws_err err = TWS_OK;
    int fd[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd) < 0)
        return TWS_ERR_SYSTEM;
    for (int i = 0; i < 2; i++) {
        struct conn_env *env = make_env(o, deflate, rt);
        tws_err one = make_side(side[i], env, rt, fd[i], i == 0, i == 0 ? &o->server : &o->client);

        if (env)
            conn_env_unref(env); /* the connection has a reference of its own */
        if (!one)
            one = agree(*side[i], o);
        err = err ? err : one;
    }
    for (int i = 0; err && i < 2; i++) {
        tws_conn_unref(*side[i]);
        *side[i] = NULL;
    }
    return err;
}

tws_err tws_pair(tws_conn **server_side, tws_conn **client_side, const tws_pair_options *opt)
{
    tws_pair_options o;
    tws_deflate_options deflate;
    const char *what;
    tws_err err;

    *server_side = *client_side = NULL;
    tws_pair_options_init(&o);
    if (opt && opt->size < offsetof(tws_pair_options, deflate))
        return TWS_ERR_ARGUMENT;
    if (opt)
        base_sized_take(&o, sizeof o, opt, opt->size);
    if (conn_options_fault(&o.server) || conn_options_fault(&o.client))
        return TWS_ERR_ARGUMENT;
    if (!o.headers && o.header_count > 0)
        return TWS_ERR_ARGUMENT;
    err = o.deflate ? conn_deflate_options(&deflate, o.deflate, &what) : TWS_OK;
    if (err)
        return err;
    return make_pair((tws_conn **[2]){server_side, client_side}, &o, o.deflate ? &deflate : NULL);
}
