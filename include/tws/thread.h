/*
 * thread.h: waiting, locking and handing things over, for handlers on either kind of thread.
 *
 * On a light thread (TWS_THREADS_LIGHT) these calls suspend the light thread, not the pthread that
 * carries it. On a connection's kernel thread and on the application's own pthreads they do the
 * same by blocking. All kinds can share one mutex, condition or channel.
 *
 * A light thread may continue on another pthread after any call that waits: do not keep the address
 * of a thread-local variable (errno is one) across such a call, and do not hold a pthread mutex over
 * it.
 */
#ifndef TWS_THREAD_H
#define TWS_THREAD_H

#include <tws/error.h>
#include <tws/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Runs a function that blocks outside this library: a database query, a file, a name lookup.
 *
 * On a light thread fn runs on a helper pthread while the light thread waits; elsewhere it runs
 * right here. At most 256 helpers of one server run at once; more calls wait their turn.
 *
 * @param fn the function
 * @param arg handed to fn
 * @return TWS_OK when fn has returned; TWS_ERR_SYSTEM when there is no thread to run it: it did not
 *         run.
 * Threads: any.
 */
TWS_API tws_err tws_blocking(void (*fn)(void *arg), void *arg);

/**
 * Waits.
 *
 * @param ms how long; 0 or less: not at all
 * Threads: any.
 */
TWS_API void tws_sleep(tws_ms ms);

/* ---- Threads of the application's own ---- */

/*
 * Threads of either kind that the library runs for the application, for instance one per dialled
 * connection: with light threads, thousands of clients cost what an event loop costs.
 */
typedef struct tws_group tws_group;

typedef struct tws_group_options {
    size_t size;         /* set by the initialiser */
    tws_threads threads; /* default TWS_THREADS_KERNEL */
    uint32_t carriers; /* pthreads that run light threads, at most 1,024; default 0: one per core */
    size_t stack_size; /* at least 16 KiB; default 0: 256 KiB, light 64 KiB */
    bool no_spread;    /* leave kernel threads to the scheduler instead of one core each in turn */
    /* Light: with much traffic on many connections carriers pause, half a millisecond at most, so
     * that some events come together. True: never; default false. */
    bool no_pause;
    const tws_allocator *allocator; /* default NULL: malloc; must outlive the group */
    uint64_t reserved[8];
} tws_group_options;

/**
 * Fills options with the defaults.
 *
 * @param opt the options
 * @param size sizeof *opt; use the macro tws_group_options_init(opt)
 * Threads: any.
 */
TWS_API void tws_group_options_init_sized(tws_group_options *opt, size_t size);
#define tws_group_options_init(opt) tws_group_options_init_sized((opt), sizeof *(opt))

/**
 * Makes a group of threads, with none in it yet.
 *
 * @param out set to the group; NULL on failure
 * @param opt options, or NULL for the defaults; copied
 * @return TWS_OK; TWS_ERR_ARGUMENT; TWS_ERR_MEMORY; TWS_ERR_SYSTEM: carriers could not be started;
 *         TWS_ERR_UNSUPPORTED: no light threads on this system.
 * Threads: any.
 * Ownership: tws_group_free().
 */
TWS_API tws_err tws_group_new(tws_group **out, const tws_group_options *opt);

/**
 * Runs a function on a new thread of the group.
 *
 * @param g the group
 * @param fn the function; the thread ends when it returns
 * @param arg handed to fn
 * @return TWS_OK; TWS_ERR_MEMORY, TWS_ERR_SYSTEM: fn will not run.
 * Threads: any, also those of the group.
 */
TWS_API tws_err tws_group_spawn(tws_group *g, void (*fn)(void *arg), void *arg);

/**
 * How many threads of the group have been spawned and have not ended, with those that the library
 * runs for the connections dialled on them (writers of send queues, callbacks).
 *
 * @param g the group
 * @return the number.
 * Threads: any.
 */
TWS_API uint32_t tws_group_count(tws_group *g);

/**
 * Waits until no thread of the group is left.
 *
 * @param g the group
 * @param ms how long to wait; 0: no limit; TWS_NOWAIT: not at all
 * @return TWS_OK; TWS_ERR_TIMEOUT; TWS_ERR_ARGUMENT; TWS_ERR_STATE on one of the group's threads.
 * Threads: any but those of the group.
 */
TWS_API tws_err tws_group_wait(tws_group *g, tws_ms ms);

/**
 * Waits for all threads of the group, and frees it.
 *
 * A thread cannot be ended from outside: close what it waits for first. Connections that were
 * dialled on the group's threads may outlive it, but only to be closed and given back.
 *
 * @param g the group, or NULL
 * Threads: any but those of the group.
 */
TWS_API void tws_group_free(tws_group *g);

/* ---- Mutex ---- */

typedef struct tws_mutex tws_mutex;

/**
 * Makes a mutex. It is not recursive.
 *
 * @return the mutex, or NULL when there is no memory.
 * Threads: any.
 * Ownership: tws_mutex_free().
 */
TWS_API tws_mutex *tws_mutex_new(void);

/**
 * Frees a mutex that nobody holds or waits for.
 *
 * @param m the mutex, or NULL
 * Threads: any.
 */
TWS_API void tws_mutex_free(tws_mutex *m);

/**
 * Locks a mutex, waiting in order of arrival.
 *
 * @param m the mutex
 * @param ms how long to wait; 0: no limit; TWS_NOWAIT: not at all
 * @return TWS_OK; TWS_ERR_TIMEOUT; TWS_ERR_STATE when this thread holds it already;
 *         TWS_ERR_ARGUMENT.
 * Threads: any.
 */
TWS_API tws_err tws_mutex_lock(tws_mutex *m, tws_ms ms);

/**
 * Unlocks a mutex.
 *
 * @param m the mutex
 * @return TWS_OK; TWS_ERR_STATE when this thread does not hold it.
 * Threads: the one that locked it.
 */
TWS_API tws_err tws_mutex_unlock(tws_mutex *m);

/* ---- Condition ---- */

typedef struct tws_cond tws_cond;

/**
 * Makes a condition.
 *
 * @return the condition, or NULL when there is no memory.
 * Threads: any.
 * Ownership: tws_cond_free().
 */
TWS_API tws_cond *tws_cond_new(void);

/**
 * Frees a condition that nobody waits for.
 *
 * @param c the condition, or NULL
 * Threads: any.
 */
TWS_API void tws_cond_free(tws_cond *c);

/**
 * Unlocks a mutex, waits to be signalled, and locks it again, as pthread_cond_wait() does.
 *
 * There are no spurious wake-ups, but another thread may run first: test what you wait for again.
 *
 * @param c the condition
 * @param m a mutex that this thread holds
 * @param ms how long to wait; 0: no limit; TWS_NOWAIT: not at all
 * @return TWS_OK; TWS_ERR_TIMEOUT: m is held again; TWS_ERR_STATE when this thread does not hold m;
 *         TWS_ERR_ARGUMENT: m was not let go.
 * Threads: any.
 */
TWS_API tws_err tws_cond_wait(tws_cond *c, tws_mutex *m, tws_ms ms);

/**
 * Wakes the thread that has waited longest, if any.
 *
 * @param c the condition
 * Threads: any.
 */
TWS_API void tws_cond_signal(tws_cond *c);

/**
 * Wakes all threads that wait.
 *
 * @param c the condition
 * Threads: any.
 */
TWS_API void tws_cond_broadcast(tws_cond *c);

/* ---- Channel ---- */

/* A queue of pointers with an end: any number of threads put in, any number take out. */
typedef struct tws_channel tws_channel;

/**
 * Makes a channel.
 *
 * @param capacity pointers it holds before senders wait; at least 1
 * @return the channel, or NULL when there is no memory or capacity is 0.
 * Threads: any.
 * Ownership: tws_channel_free().
 */
TWS_API tws_channel *tws_channel_new(size_t capacity);

/**
 * Frees a channel that nobody uses any more. Pointers still in it are the caller's to know of.
 *
 * @param ch the channel, or NULL
 * Threads: any.
 */
TWS_API void tws_channel_free(tws_channel *ch);

/**
 * Puts a pointer in, waiting for room.
 *
 * @param ch the channel
 * @param item any pointer
 * @param ms how long to wait; 0: no limit; TWS_NOWAIT: not at all
 * @return TWS_OK; TWS_ERR_TIMEOUT; TWS_ERR_CLOSED after tws_channel_close(); TWS_ERR_ARGUMENT. With
 *         an error the item was not taken.
 * Threads: any.
 */
TWS_API tws_err tws_channel_send(tws_channel *ch, void *item, tws_ms ms);

/**
 * Takes the oldest pointer out, waiting for one.
 *
 * @param ch the channel
 * @param item set to the pointer; NULL on errors
 * @param ms how long to wait; 0: no limit; TWS_NOWAIT: not at all
 * @return TWS_OK; TWS_ERR_TIMEOUT; TWS_ERR_CLOSED when it is closed and empty; TWS_ERR_ARGUMENT.
 * Threads: any.
 */
TWS_API tws_err tws_channel_receive(tws_channel *ch, void **item, tws_ms ms);

/**
 * Closes a channel: senders fail, receivers get what is left and then fail. Wakes all who wait.
 *
 * @param ch the channel
 * Threads: any.
 */
TWS_API void tws_channel_close(tws_channel *ch);

#ifdef __cplusplus
}
#endif
#endif
