/* What the connections of one server share, and the threads that serve them beside their own. */
#include "conn/codec.h"

#include <errno.h>
#include <sys/mman.h>

/* A connection of a kernel thread and its receive area fill a page. */
#define KERNEL_BLOCK 4096
#define AREA_MIN 1024
/* One of a light thread has room for a small request behind it. */
#define LIGHT_BLOCK ((sizeof(tws_conn) + 512 + 63) & ~(size_t)63)

struct conn_env *conn_env_new(const tws_allocator *allocator, bool light)
{
    struct conn_env *env = base_calloc(allocator, sizeof *env);

    if (!env)
        return NULL;
    base_ref_init(&env->refs);
    env->allocator = allocator;
    env->area_min = light ? 0 : AREA_MIN;
    base_pool_init(&env->blocks, allocator, light ? LIGHT_BLOCK : KERNEL_BLOCK, 64);
    base_pool_init(&env->buffers, allocator, CONN_BUFFER, 32);
    pthread_mutex_init(&env->mu, NULL);
    return env;
}

struct conn_env *conn_env_ref(struct conn_env *env)
{
    base_ref_get(&env->refs);
    return env;
}

void conn_env_unref(struct conn_env *env)
{
    if (!base_ref_put(&env->refs))
        return;
    codec_env_free(env);
    base_pool_destroy(&env->blocks);
    base_pool_destroy(&env->buffers);
    hold_board_free(env->hold);
    if (atomic_load(&env->fork_word))
        munmap((void *)atomic_load(&env->fork_word), CONN_FORK_PAGE);
    if (env->runtime_own) /* the calling thread may be its last */
        task_runtime_release(env->runtime);
    pthread_mutex_destroy(&env->mu);
    base_free(env->allocator, env);
}

/* ---- Threads ---- */

/* A connection that no server made: kernel threads of its own. */
static int own_runtime_locked(struct conn_env *env)
{
    struct task_options t = {.kind = TASK_KERNEL, .name = "tws-write", .allocator = env->allocator};
    int r = task_runtime_new(&env->runtime, &t);

    env->runtime_own = r == 0;
    return r;
}

int conn_env_spawn_locked(struct conn_env *env, void (*fn)(void *), void *arg)
{
    int r = 0;

    if (!env->runtime)
        r = env->served ? -ESHUTDOWN : own_runtime_locked(env);
    return r < 0 ? r : task_spawn(env->runtime, fn, arg);
}

int conn_env_spawn(struct conn_env *env, void (*fn)(void *), void *arg)
{
    int r;

    pthread_mutex_lock(&env->mu);
    r = conn_env_spawn_locked(env, fn, arg);
    pthread_mutex_unlock(&env->mu);
    return r;
}

int conn_spawn(tws_conn *c, void (*fn)(void *), void *arg)
{
    struct task_runtime *rt = task_current_runtime();

    return rt ? task_spawn(rt, fn, arg) : conn_env_spawn(c->env, fn, arg);
}

void conn_env_serve(struct conn_env *env, struct task_runtime *rt)
{
    pthread_mutex_lock(&env->mu);
    /* A call that was under way may still have something to tell when the server has gone: then as
     * for a connection without one. */
    env->served = rt != NULL;
    env->runtime = rt;
    pthread_mutex_unlock(&env->mu);
}

void conn_env_quiet(struct conn_env *env)
{
    pthread_mutex_lock(&env->mu);
    env->quiet = true;
    task_queue_wake_all(&env->teller_idle);
    pthread_mutex_unlock(&env->mu);
}
