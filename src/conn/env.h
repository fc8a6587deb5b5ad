/*
 * env.h: what the connections of one server share, or those that were dialled alike.
 */
#ifndef CONN_ENV_H
#define CONN_ENV_H

#include <tws/queue.h>

#include "base/pool.h"
#include "base/ref.h"
#include "conn/hold.h"
#include "task/task.h"

struct conn_env {
    struct base_ref refs;
    const tws_allocator *allocator;
    struct base_pool blocks;  /* each becomes a connection, with what fits behind it */
    uint32_t area_min;        /* receive area behind it, at least; 0: none, buffers are borrowed */
    struct base_pool buffers; /* CONN_BUFFER bytes: borrowed while there is more to receive */
    struct hold_board *hold;  /* watched over by the server; NULL: no reply is ever held back */
    _Atomic(_Atomic uint64_t *) fork_word; /* see keys.c; NULL: not yet */
    struct codec_env *codec;               /* NULL: no connection compresses */

    /* Threads beside those that read: writers of queues, and the one that runs callbacks. */
    task_mutex mu;
    struct task_runtime *runtime;      /* mu: of the server, or our own; NULL: none */
    bool runtime_own;                  /* mu */
    bool served;                       /* mu: the server's runtime or none */
    bool quiet;                        /* mu: no thread may linger */
    bool teller_runs;                  /* mu */
    uintptr_t teller;                  /* mu: task_self() of it; 0 */
    struct task_queue teller_idle;     /* mu */
    tws_conn *tell_head, *tell_tail;   /* mu: connections with something to tell */
    _Atomic bool untold;               /* something is to be told, and there is no thread for it */
    _Atomic uint32_t writers, tellers; /* threads that exist */
    tws_queue_options queue;           /* mu until the first connection has set it */
    bool queue_set;                    /* mu */
};
#define CONN_FORK_PAGE 4096

#define CONN_BUFFER 16384

/* light: threads that need no buffer while they wait, and whose connections shall be small. */
struct conn_env *conn_env_new(const tws_allocator *allocator, bool light);
struct conn_env *conn_env_ref(struct conn_env *env);
void conn_env_unref(struct conn_env *env);
/* From now on rt makes the threads for env's connections; NULL: none are made any more. */
void conn_env_serve(struct conn_env *env, struct task_runtime *rt);
/* Threads that wait for something to do leave. */
void conn_env_quiet(struct conn_env *env);
/* A thread of the same kind as the connections'. 0 or -errno. */
int conn_env_spawn(struct conn_env *env, void (*fn)(void *), void *arg);
int conn_env_spawn_locked(struct conn_env *env, void (*fn)(void *), void *arg);

/* ---- tell.c: callbacks, see conn_tell_locked() ---- */

/* Tries to make a thread for what waits for want of one. */
void conn_tell_again(struct conn_env *env);
/* Tells what waits for want of a thread. Callable wherever application code may run. */
void conn_tell_here(struct conn_env *env);
/* The same, looked for in passing. */
static inline void conn_tell_untold(struct conn_env *env)
{
    if (atomic_load_explicit(&env->untold, memory_order_relaxed))
        conn_tell_here(env);
}

/* The calling thread is running callbacks of env. */
bool conn_tells_here(struct conn_env *env);

#endif
