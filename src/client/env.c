/* What dialled connections share: all of a group's that have the same options, else nobody. */
#include "client/dial.h"

#include <string.h>

/* Different sets of options in one group; connections with more of them share nothing. */
#define ENVS_MAX 8

struct dial_envs {
    const tws_allocator *allocator;
    task_mutex mu;
    size_t count; /* mu */
    struct {
        struct dial_env_key key;
        struct conn_env *env;
    } list[ENVS_MAX]; /* mu */
};

static struct conn_env *make(const struct dial *d, const tws_allocator *allocator, bool light)
{
    struct conn_env *env = conn_env_new(allocator, light);

    if (env && d->key.compress && !conn_env_deflate(env, &d->key.deflate)) {
        conn_env_unref(env);
        return NULL;
    }
    return env;
}

static void *envs_new(void *arg)
{
    const struct task_runtime *rt = arg;
    struct dial_envs *envs = base_calloc(rt->allocator, sizeof *envs);

    if (envs) {
        envs->allocator = rt->allocator;
        pthread_mutex_init(&envs->mu, NULL);
    }
    return envs;
}

/* The runtime ends. Connections may outlive it, but get no more threads. */
static void envs_release(void *shared)
{
    struct dial_envs *envs = shared;

    for (size_t i = 0; i < envs->count; i++) {
        conn_env_serve(envs->list[i].env, NULL);
        conn_env_quiet(envs->list[i].env);
        conn_env_unref(envs->list[i].env);
    }
    pthread_mutex_destroy(&envs->mu);
    base_free(envs->allocator, envs);
}

/* NULL: no memory, or no place. */
static struct conn_env *find_locked(struct dial_envs *envs, const struct dial *d)
{
    struct task_runtime *rt = d->runtime;
    const void *wanted = &d->key;
    struct conn_env *env;

    for (size_t i = 0; i < envs->count; i++) {
        const void *has = &envs->list[i].key;

        if (memcmp(has, wanted, sizeof d->key) == 0)
            return envs->list[i].env;
    }
    if (envs->count == ENVS_MAX)
        return NULL;
    env = make(d, rt->allocator, rt->kind == &task_light);
    if (!env)
        return NULL;
    conn_env_serve(env, rt);
    envs->list[envs->count].key = d->key;
    envs->list[envs->count++].env = env;
    return env;
}

struct conn_env *dial_env(const struct dial *d)
{
    struct task_runtime *rt = d->runtime;
    struct dial_envs *envs = NULL;
    struct conn_env *env = NULL;

    if (rt && d->allocator == rt->allocator)
        envs = task_runtime_share(rt, envs_new, rt, envs_release);
    if (envs) {
        pthread_mutex_lock(&envs->mu);
        env = find_locked(envs, d);
        if (env)
            conn_env_ref(env);
        pthread_mutex_unlock(&envs->mu);
    }
    return env ? env : make(d, d->allocator, rt && rt->kind == &task_light);
}
