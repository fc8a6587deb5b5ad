/* Two connections that are each other's peer. */
#include <tws/pair.h>

#include "base/sized.h"
#include "conn/codec.h"
#include "conn/queue.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

void tws_pair_options_init_sized(tws_pair_options *opt, size_t size)
{
    tws_pair_options o;

    memset(&o, 0, sizeof o);
    o.size = size;
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

/* A connection in an env of its own, whose queue options are the side's. Takes fd over, also on
 * failure. */
static tws_err make_side(tws_conn **out, struct conn_env *env, struct task_runtime *rt, int fd,
                         bool server, const tws_conn_options *opt)
{
    struct conn_setup setup = {.env = env, .server = server, .options = opt, .user = opt->user};
    void *block = env ? base_pool_get(&env->blocks) : NULL;
    struct deflate_params agreed;
    int r = -ENOMEM;

    if (block) {
        net_peer_of(&setup.peer, fd);
        r = net_stream_init(&setup.stream, rt, fd, false);
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
    if (conn_deflate_want(env, true, &agreed) && !conn_deflate_start(*out, &agreed)) {
        tws_conn_unref(*out);
        *out = NULL;
        return TWS_ERR_MEMORY;
    }
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

    *server_side = *client_side = NULL;
    tws_pair_options_init(&o);
    if (opt && opt->size < offsetof(tws_pair_options, deflate))
        return TWS_ERR_ARGUMENT;
    if (opt)
        base_sized_take(&o, sizeof o, opt, opt->size);
    if (!conn_options_durations_valid(&o.server) || !conn_options_durations_valid(&o.client))
        return TWS_ERR_ARGUMENT;
    if (conn_queue_check(&o.server.queue) || conn_queue_check(&o.client.queue))
        return TWS_ERR_ARGUMENT;
    if (o.deflate && conn_deflate_options(&deflate, o.deflate))
        return TWS_ERR_ARGUMENT;
    return make_pair((tws_conn **[2]){server_side, client_side}, &o, o.deflate ? &deflate : NULL);
}
