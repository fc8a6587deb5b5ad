/*
 * Callbacks: completions of queued messages, water marks, and the end of a connection. They run on
 * one thread for all connections of an env, which is made when there is something to tell and stays
 * for a moment; so they never run on the stack of a caller, who may hold a lock of his own.
 */
#include "conn/queue.h"

#include "base/clock.h"

/* How long the thread stays when there is nothing left to tell. */
#define LINGER_NS (100 * BASE_NS_PER_MS)

/* ---- The list ---- */

static tws_conn *pop_locked(struct conn_env *env)
{
    tws_conn *c = env->tell_head;

    if (!c)
        return NULL;
    env->tell_head = c->tell_next;
    if (!env->tell_head)
        env->tell_tail = NULL;
    c->telling = false;
    return c;
}

static void append_locked(struct conn_env *env, tws_conn *c)
{
    if (c->telling)
        return;
    c->telling = true;
    c->tell_next = NULL;
    if (env->tell_tail)
        env->tell_tail->tell_next = c;
    else
        env->tell_head = c;
    env->tell_tail = c;
    conn_keep(c);
}

/* ---- Telling ---- */

/* One callback, if one is due. mu is held, but not during the callback. */
static bool tell_one_locked(tws_conn *c)
{
    struct conn_end_hook *hook = c->end_hooks;

    if (conn_queue_tell_locked(c))
        return true;
    if (!hook || conn_state(c) != CONN_ENDED)
        return false;
    c->end_hooks = hook->next;
    if (hook->next)
        hook->next->prev = NULL;
    hook->linked = false;
    pthread_mutex_unlock(&c->mu);
    hook->fn(c, hook);
    pthread_mutex_lock(&c->mu);
    return true;
}

static void tell(tws_conn *c)
{
    pthread_mutex_lock(&c->mu);
    while (tell_one_locked(c)) {
    }
    pthread_mutex_unlock(&c->mu);
    conn_drop(c);
}

/* Tells until there is nothing left. The caller is the teller; env->mu is held, but not meanwhile. */
static void tell_all_locked(struct conn_env *env)
{
    tws_conn *c;

    while ((c = pop_locked(env))) {
        pthread_mutex_unlock(&env->mu);
        tell(c);
        pthread_mutex_lock(&env->mu);
    }
    atomic_store(&env->untold, false);
}

static void teller_main(void *arg)
{
    struct conn_env *env = arg;

    pthread_mutex_lock(&env->mu);
    env->teller = task_self();
    for (;;) {
        int64_t deadline = base_clock_ns() + LINGER_NS;

        tell_all_locked(env);
        if (env->quiet)
            break;
        if (task_queue_wait(&env->teller_idle, &env->mu, deadline) < 0 && !env->tell_head)
            break;
    }
    env->teller = 0;
    env->teller_runs = false;
    pthread_mutex_unlock(&env->mu);
    atomic_fetch_sub(&env->tellers, 1);
    conn_env_unref(env);
}

static void start_locked(struct conn_env *env)
{
    conn_env_ref(env);
    atomic_fetch_add(&env->tellers, 1);
    env->teller_runs = conn_env_spawn_locked(env, teller_main, env) == 0;
    atomic_store(&env->untold, !env->teller_runs);
    if (env->teller_runs)
        return;
    atomic_fetch_sub(&env->tellers, 1);
    base_ref_put(&env->refs); /* the connection has another */
}

void conn_tell_locked(tws_conn *c)
{
    struct conn_env *env = c->env;

    pthread_mutex_lock(&env->mu);
    append_locked(env, c);
    if (env->teller_runs)
        task_queue_wake_one(&env->teller_idle);
    else
        start_locked(env);
    pthread_mutex_unlock(&env->mu);
    if (c->hold && atomic_load(&env->untold))
        hold_begin(env->hold, c->hold); /* the watch tries again */
}

void conn_tell_again(struct conn_env *env)
{
    pthread_mutex_lock(&env->mu);
    if (env->tell_head && !env->teller_runs)
        start_locked(env);
    pthread_mutex_unlock(&env->mu);
}

void conn_tell_here(struct conn_env *env)
{
    conn_env_ref(env);
    pthread_mutex_lock(&env->mu);
    if (!env->teller_runs) {
        env->teller_runs = true;
        env->teller = task_self();
        tell_all_locked(env);
        env->teller = 0;
        env->teller_runs = false;
    }
    pthread_mutex_unlock(&env->mu);
    conn_env_unref(env);
}

bool conn_tells_here(struct conn_env *env)
{
    bool here;

    pthread_mutex_lock(&env->mu);
    here = env->teller == task_self();
    pthread_mutex_unlock(&env->mu);
    return here;
}

/* ---- The end ---- */

bool conn_on_end(tws_conn *c, struct conn_end_hook *hook)
{
    bool open;

    pthread_mutex_lock(&c->mu);
    open = conn_state(c) != CONN_ENDED;
    if (open) {
        hook->next = c->end_hooks;
        hook->prev = NULL;
        if (hook->next)
            hook->next->prev = hook;
        c->end_hooks = hook;
    }
    hook->linked = open;
    pthread_mutex_unlock(&c->mu);
    return open;
}

bool conn_off_end(tws_conn *c, struct conn_end_hook *hook)
{
    bool linked;

    pthread_mutex_lock(&c->mu);
    linked = hook->linked;
    if (linked) {
        if (hook->prev)
            hook->prev->next = hook->next;
        else
            c->end_hooks = hook->next;
        if (hook->next)
            hook->next->prev = hook->prev;
        hook->linked = false;
    }
    pthread_mutex_unlock(&c->mu);
    return linked;
}
