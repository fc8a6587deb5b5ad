/*
 * hub.h: rooms of connections, and one message to all that are in a room.
 *
 *     static void talk(tws_conn *c, void *hub)
 *     {
 *         tws_message m;
 *         tws_hub_join(hub, c, "lobby");
 *         while (tws_read_message(c, &m) == TWS_OK)
 *             tws_hub_publish_message(hub, "lobby", m.opcode, m.data, m.len, NULL, NULL);
 *     }
 *
 * Members. A room is any zero-terminated string; it exists while somebody is in it. A connection
 * may be in many rooms and of many hubs, of servers and clients alike, and leaves by itself when it
 * ends. A hub holds no reference on its members: giving up the last one ends a connection as ever.
 *
 * Nobody waits for a slow member. What a member's socket does not take at once goes into its send
 * queue, and the policy of that queue (tws_queue_options) decides what happens when it is full;
 * TWS_QUEUE_WAIT does not wait here but drops the newest. A member with TWS_WRITER_NONE gets one
 * try: what its socket does not take is dropped. A member that has been dropped a message is not
 * told; its tws_queue_stats() count it.
 *
 * Order. Each room has one order of messages, in which all of its members see them, whoever
 * publishes from whatever thread and however the work is shared out. Messages to all (room NULL)
 * have one place in the order of every room. Between two rooms there is an order only where one
 * publish returned before the other was called. What is written to a member with tws_write_async()
 * or tws_write_message() stands between published messages in the order of the calls of one thread.
 *
 * Who gets a message. A connection gets all messages of a publish that is called after its join has
 * returned, and none of a publish that is called after its leave has returned. In between each
 * message stands before or behind the join, for all members alike in that order: from the first
 * message on that a member gets it misses none but what its queue drops, and gets none twice. A publish that was under way
 * when leave returned may still reach the one that left.
 *
 * Locks. No lock is held while messages are handed over or functions of the caller run. Members are
 * copied out 64 at a time under the room's lock, for about a microsecond, which is the longest that
 * a join, a leave or another publish waits for a publish, however large the room is. Joining and
 * leaving take half a microsecond each in a room of 10,000. Publishers of one room take turns; those
 * who come while one is at work are served together by the next, so that each member's messages
 * leave in one system call. All of it suits both kinds of thread; a light thread that publishes lets
 * others run in between.
 *
 * Memory. About 240 bytes for a member with its first room, 80 for each further one, 290 for a room
 * that is not empty; no allocation in a publish but for what has to be queued. What is queued is one
 * reference per member, the bytes are shared.
 */
#ifndef TWS_HUB_H
#define TWS_HUB_H

#include <tws/conn.h>
#include <tws/prepared.h>
#include <tws/queue.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Rooms and their members. Belongs to no server. */
typedef struct tws_hub tws_hub;

typedef struct tws_hub_options {
    size_t size; /* set by the initialiser */
    /*
     * Threads of the hub's own that help with messages to many members. They are started when first
     * needed and leave after a second without work. Default -1: one for each core but the first, at
     * most 7; 0: none, the publisher does all of it.
     */
    int workers;
    uint32_t spread;     /* members per thread that helps; default 256; 0 counts as 1 */
    uint32_t max_rooms;  /* TWS_ERR_STATE; default 0: no limit */
    uint32_t max_joined; /* rooms of one connection; TWS_ERR_STATE; default 1,024; 0: no limit */
    const tws_allocator *allocator; /* default NULL: malloc; must outlive hub and members */
    uint64_t reserved[8];
} tws_hub_options;

/**
 * Fills options with the defaults.
 *
 * @param opt the options
 * @param size sizeof *opt; use the macro tws_hub_options_init(opt)
 * Threads: any.
 */
TWS_API void tws_hub_options_init_sized(tws_hub_options *opt, size_t size);
#define tws_hub_options_init(opt) tws_hub_options_init_sized((opt), sizeof *(opt))

/**
 * Makes a hub.
 *
 * @param out set to the hub; NULL on errors
 * @param opt the options, copied; NULL: the defaults
 * @return TWS_OK; TWS_ERR_ARGUMENT; TWS_ERR_MEMORY.
 * Threads: any.
 * Ownership: tws_hub_free().
 */
TWS_API tws_err tws_hub_new(tws_hub **out, const tws_hub_options *opt);

/**
 * Frees a hub. All members leave; their connections stay as they are, and what is queued for them
 * still goes out.
 *
 * May come before or after the end of the members and of their servers. Calls that are under way in
 * other threads are waited for: publishes, which wait for nobody, and functions of the caller's.
 *
 * @param h the hub, or NULL
 * Threads: any, but not from a function that the hub calls; no call on h may begin afterwards.
 */
TWS_API void tws_hub_free(tws_hub *h);

/* ---- Members ---- */

/**
 * Puts a connection into a room.
 *
 * Being in the room already is no error.
 *
 * @param h the hub
 * @param c the connection
 * @param room its name, copied; "" is a name too
 * @return TWS_OK; TWS_ERR_ARGUMENT when room is NULL; TWS_ERR_STATE at max_rooms or max_joined;
 *         TWS_ERR_MEMORY; how the connection ended, when it is over.
 * Threads: any.
 */
TWS_API tws_err tws_hub_join(tws_hub *h, tws_conn *c, const char *room);

/**
 * Takes a connection out of a room.
 *
 * @param h the hub
 * @param c the connection
 * @param room its name
 * @return TWS_OK; TWS_ERR_STATE when it was not in that room, or no longer; TWS_ERR_ARGUMENT when
 *         room is NULL.
 * Threads: any.
 */
TWS_API tws_err tws_hub_leave(tws_hub *h, tws_conn *c, const char *room);

/**
 * Takes a connection out of all rooms, as happens by itself when it ends.
 *
 * @param h the hub
 * @param c the connection
 * @return how many rooms it was in.
 * Threads: any.
 */
TWS_API size_t tws_hub_leave_all(tws_hub *h, tws_conn *c);

/**
 * Counts members.
 *
 * @param h the hub
 * @param room the room; NULL: connections in any room, each once
 * @return how many there are at this moment.
 * Threads: any.
 */
TWS_API size_t tws_hub_count(tws_hub *h, const char *room);

/* Return false to stop. */
typedef bool (*tws_hub_member_fn)(tws_conn *c, void *arg);
typedef bool (*tws_hub_room_fn)(const char *room, size_t members, void *arg);

/**
 * Calls a function for every member of a room.
 *
 * Members may come and go meanwhile; each that is there all the time is visited once. No lock is
 * held during the calls: fn may do anything but free the hub.
 *
 * @param h the hub
 * @param room the room; NULL: connections in any room, each once
 * @param fn the function; its connection is valid during the call
 * @param arg handed to fn
 * @return how many were visited.
 * Threads: any.
 */
TWS_API size_t tws_hub_each(tws_hub *h, const char *room, tws_hub_member_fn fn, void *arg);

/**
 * Calls a function for every room.
 *
 * The names are those of one moment. No lock is held during the calls: fn may do anything but free
 * the hub.
 *
 * @param h the hub
 * @param fn the function; the name is valid during the call
 * @param arg handed to fn
 * @return how many were visited; 0 too when there is no memory for the list.
 * Threads: any.
 */
TWS_API size_t tws_hub_rooms(tws_hub *h, tws_hub_room_fn fn, void *arg);

/* ---- Publishing ---- */

/*
 * Chooses who gets a message: true for each member that does. Called without a lock, but it holds
 * up the room: it must not publish to the hub, nor wait for somebody who does. One publish may call
 * it in several threads at once: the publisher's, the hub's own, or another publisher's.
 */
typedef bool (*tws_hub_filter_fn)(tws_conn *c, void *arg);

typedef struct tws_publish_options {
    size_t size;              /* set by the initialiser */
    tws_conn *except;         /* this member does not get it; compared only; NULL: none */
    tws_hub_filter_fn filter; /* NULL: all get it */
    void *arg;                /* handed to filter */
    tws_written_fn done; /* called as by tws_write_prepared_async(), once for each member counted as
                            sent or queued; NULL: none */
    void *done_arg;      /* handed to done */
    uint64_t reserved[4];
} tws_publish_options;

/**
 * Fills options with the defaults: to all, nothing called.
 *
 * @param opt the options
 * @param size sizeof *opt; use the macro tws_publish_options_init(opt)
 * Threads: any.
 */
TWS_API void tws_publish_options_init_sized(tws_publish_options *opt, size_t size);
#define tws_publish_options_init(opt) tws_publish_options_init_sized((opt), sizeof *(opt))

/* What became of a message. Each member of the room is in exactly one of the counts. */
typedef struct tws_publish_result {
    uint64_t sent;    /* the member's socket took it */
    uint64_t queued;  /* it waits in the member's queue, behind what came before */
    uint64_t dropped; /* not taken: the queue is full and the policy drops the newest, or waits */
    uint64_t failed;  /* the connection is over, or ended now by its policy or for lack of memory */
    uint64_t skipped; /* the exception, or refused by the filter */
    uint64_t reserved[3];
} tws_publish_result;

/**
 * Sends a message to every member of a room.
 *
 * Returns when the message has been handed to each member's socket or queue. Never waits for a
 * member; only for other publishers of the room, who wait for nobody either. A handler may publish
 * to a room that its own connection is in.
 *
 * @param h the hub
 * @param room the room; NULL: every connection that is in any room, each once
 * @param p the message; encoded once for each form that members need
 * @param opt the options; NULL: the defaults
 * @param result filled, zeros on errors; may be NULL
 * @return TWS_OK, also when nobody is there; TWS_ERR_ARGUMENT; TWS_ERR_STATE in a filter.
 * Threads: any.
 * Ownership: p stays the caller's and may be given up after the call.
 */
TWS_API tws_err tws_hub_publish(tws_hub *h, const char *room, tws_prepared *p,
                                const tws_publish_options *opt, tws_publish_result *result);

/**
 * Prepares a message, sends it to every member of a room, and gives it up.
 *
 * @param h the hub
 * @param room as for tws_hub_publish()
 * @param opcode TWS_TEXT or TWS_BINARY
 * @param data the payload, copied; may be NULL when len is 0
 * @param len bytes
 * @param except this member does not get it; NULL: none
 * @param result filled, zeros on errors; may be NULL
 * @return as tws_hub_publish(); TWS_ERR_TEXT; TWS_ERR_MESSAGE_SIZE; TWS_ERR_MEMORY.
 * Threads: any.
 */
TWS_API tws_err tws_hub_publish_message(tws_hub *h, const char *room, tws_opcode opcode,
                                        const void *data, size_t len, const tws_conn *except,
                                        tws_publish_result *result);

/* ---- What it has done ---- */

#define TWS_HUB_LATENCIES 14

typedef struct tws_hub_stats {
    uint64_t rooms, members;
    uint64_t joined;                                 /* sum of all rooms' members */
    uint64_t workers;                                /* the hub's own threads that exist now */
    uint64_t publishes;                              /* calls that have returned TWS_OK */
    uint64_t sent, queued, dropped, failed, skipped; /* sums of tws_publish_result */
    uint64_t together;                               /* publishes served together with another */
    uint64_t spread;                                 /* publishes that a worker helped with */
    uint64_t publish_ns;                             /* time spent in publishes, summed */
    /* Publishes that took at most 50 and 100 us, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250 ms, 1 s,
     * and any time: each count includes those before it. */
    uint64_t publish_latency[TWS_HUB_LATENCIES];
} tws_hub_stats;

/**
 * Reads the counters of a hub.
 *
 * @param h the hub
 * @param out filled
 * @param size sizeof *out; use the macro tws_hub_get_stats(h, out)
 * Threads: any.
 */
TWS_API void tws_hub_stats_sized(tws_hub *h, tws_hub_stats *out, size_t size);
#define tws_hub_get_stats(h, out) tws_hub_stats_sized((h), (out), sizeof *(out))

#ifdef __cplusplus
}
#endif
#endif
