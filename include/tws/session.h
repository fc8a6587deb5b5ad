/*
 * session.h: values by name, kept with a connection: what an upgrade hook has found out about the
 * peer, and whatever else belongs to it. For a single pointer there is tws_conn_user() (conn.h),
 * which costs nothing.
 *
 *     tws_session_set(c, "name", strdup("Ann"), free);
 *     const char *name = tws_session_get(c, "name");   // NULL when that has failed
 *
 * A value's destructor is called exactly once: when the value is replaced or deleted, or when the
 * connection's memory goes, which is after the last event, handler and callback and with the last
 * reference. It runs on whatever thread that happens on, with no lock held; it may block only
 * shortly. A connection that stores nothing pays nothing.
 */
#ifndef TWS_SESSION_H
#define TWS_SESSION_H

#include <tws/error.h>
#include <tws/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Lets go of a value. */
typedef void (*tws_destroy_fn)(void *value);
/* Return false to stop. */
typedef bool (*tws_session_fn)(const char *key, void *value, void *arg);

/**
 * Stores a value under a name, in place of the one that had it.
 *
 * The same value under the same name again stays, with the new destructor in place of the old one.
 *
 * @param c the connection
 * @param key its name; any string
 * @param value any pointer
 * @param destroy called once with value when it is no longer needed; or NULL
 * @return TWS_OK; TWS_ERR_ARGUMENT when key is NULL; TWS_ERR_MEMORY. After an error nothing has
 *         changed and destroy is not called: the value stays the caller's.
 * Threads: any.
 * Ownership: key is copied; value is the connection's after TWS_OK.
 */
TWS_API tws_err tws_session_set(tws_conn *c, const char *key, void *value, tws_destroy_fn destroy);

/**
 * Finds a value.
 *
 * @param c the connection
 * @param key its name
 * @return the value; NULL when there is none of that name. It is valid until somebody replaces or
 *         deletes it: where other threads do that, look at it inside tws_session_each(), or store
 *         values that count their references.
 * Threads: any.
 */
TWS_API void *tws_session_get(tws_conn *c, const char *key);

/**
 * Deletes a value, and calls its destructor before it returns; or, while tws_session_each() is at
 * this value, as soon as that has moved on.
 *
 * @param c the connection
 * @param key its name
 * @return true when there was one of that name.
 * Threads: any.
 */
TWS_API bool tws_session_delete(tws_conn *c, const char *key);

/**
 * Calls a function for every value, in the order in which they were set.
 *
 * Values may be set and deleted meanwhile, by fn too: those set after the call began are not
 * visited, those deleted before their turn neither, and the one that is being visited is valid until
 * fn returns. No lock is held.
 *
 * @param c the connection
 * @param fn the function; key and value are valid during the call
 * @param arg handed to fn
 * @return how many were visited.
 * Threads: any.
 */
TWS_API size_t tws_session_each(tws_conn *c, tws_session_fn fn, void *arg);

/**
 * Stores a value in the session of the connection that will be opened, from the upgrade hook.
 *
 * Its destructor is called exactly once, also when no connection comes of it: then after
 * on_handshake_end.
 *
 * @param a the answer
 * @param key its name
 * @param value any pointer
 * @param destroy as for tws_session_set()
 * @return as tws_session_set().
 * Threads: the one that runs the hook.
 * Ownership: as for tws_session_set().
 */
TWS_API tws_err tws_reply_session_set(tws_reply *a, const char *key, void *value,
                                      tws_destroy_fn destroy);

#ifdef __cplusplus
}
#endif
#endif
