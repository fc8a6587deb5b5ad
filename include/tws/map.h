/*
 * map.h: connections by name, for any number of threads: who is logged in, whom to send to.
 *
 *     tws_map *users = tws_map_new(NULL);
 *     tws_map_set(users, "ann", c, NULL);
 *     tws_conn *ann = tws_map_get(users, "ann");
 *     if (ann) {
 *         tws_write_text(ann, "hello");
 *         tws_conn_unref(ann);
 *     }
 *     tws_map_delete(users, "ann", c);
 *
 * The map holds a reference on each of its connections. One that ends is not taken out by itself:
 * delete it in on_close, or when its handler returns. A name stands for one connection; for users
 * with several, and to send to many, take the rooms of a hub (hub.h), one for each user if need be.
 */
#ifndef TWS_MAP_H
#define TWS_MAP_H

#include <tws/conn.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tws_map tws_map;

/* Return false to stop. */
typedef bool (*tws_map_fn)(const char *key, tws_conn *c, void *arg);

/**
 * Makes an empty map.
 *
 * @param allocator default NULL: malloc; must outlive the map
 * @return the map; NULL when there is no memory.
 * Threads: any.
 * Ownership: tws_map_free().
 */
TWS_API tws_map *tws_map_new(const tws_allocator *allocator);

/**
 * Frees a map that nobody uses any more, and gives its references back.
 *
 * @param m the map, or NULL
 * Threads: any.
 */
TWS_API void tws_map_free(tws_map *m);

/**
 * Stores a connection under a name, in place of the one that had it.
 *
 * @param m the map
 * @param key its name; any string
 * @param c the connection
 * @param old set to the connection that had the name (also when that is c), with a reference, or to
 *        NULL; may be NULL. So the former of two that log in as the same user can be closed.
 * @return TWS_OK; TWS_ERR_ARGUMENT when key or c is NULL; TWS_ERR_MEMORY: nothing has changed.
 * Threads: any.
 * Ownership: key is copied; the map takes a reference of its own on c. Give *old back with
 *         tws_conn_unref().
 */
TWS_API tws_err tws_map_set(tws_map *m, const char *key, tws_conn *c, tws_conn **old);

/**
 * Finds a connection.
 *
 * @param m the map
 * @param key its name
 * @return the connection, which may have ended; NULL when there is none of that name.
 * Threads: any.
 * Ownership: a new reference: give it back with tws_conn_unref().
 */
TWS_API tws_conn *tws_map_get(tws_map *m, const char *key);

/**
 * Deletes a name.
 *
 * @param m the map
 * @param key the name
 * @param only delete it only if it stands for this connection; NULL: whichever. A connection that
 *        ends names itself here, so that it does not take out another one that has come back under
 *        the same name meanwhile.
 * @return true when it was deleted.
 * Threads: any.
 */
TWS_API bool tws_map_delete(tws_map *m, const char *key, const tws_conn *only);

/**
 * How many names there are.
 *
 * @param m the map
 * @return the number.
 * Threads: any.
 */
TWS_API size_t tws_map_count(tws_map *m);

/**
 * Calls a function for every connection, in the order in which they were set.
 *
 * Names may come and go meanwhile, by fn too: those that are there all the time are visited once,
 * those set after the call began not at all. No lock is held, so fn may write, close and block.
 *
 * @param m the map
 * @param fn the function; key and connection are valid during the call
 * @param arg handed to fn
 * @return how many were visited.
 * Threads: any.
 */
TWS_API size_t tws_map_each(tws_map *m, tws_map_fn fn, void *arg);

#ifdef __cplusplus
}
#endif
#endif
