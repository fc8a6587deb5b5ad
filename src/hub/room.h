/*
 * room.h: who is in a room, and whose turn it is to publish there.
 *
 * Members stand in slots, in chunks of 64. A slot is taken and given back under the room's lock and
 * never moves, so that a publisher may go through the chunks one by one, holding the lock only
 * while it copies one out: who is there all the time is met exactly once. Each slot says from which
 * message on its member is one; that makes a join a point in the room's order of messages.
 *
 * Publishers queue up. The first one leads: it takes all that have come by then, hands their
 * messages to each member, wakes them, and makes the next in the queue the leader.
 */
#ifndef HUB_ROOM_H
#define HUB_ROOM_H

#include "base/table.h"
#include "task/task.h"

#include <tws/hub.h>

#define ROOM_CHUNK 64
/* Publishes that are served together at most. */
#define ROOM_BATCH 16

struct room_slot {
    tws_conn *conn; /* no reference: the member leaves before the connection is freed */
    uint64_t since; /* sequence number of the first message it gets */
};

struct room_chunk {
    uint64_t used; /* a bit for each slot */
    uint32_t cap;  /* slots; ROOM_CHUNK in all but the first */
    struct room_slot slots[];
};

enum publish_state { PUBLISH_WAITS, PUBLISH_LEADS, PUBLISH_DONE };

/* What became of a message at one member. */
enum publish_outcome { OUT_SENT, OUT_QUEUED, OUT_DROPPED, OUT_FAILED, OUT_SKIPPED, OUT_COUNT };

/* One call of publish, on its caller's stack. */
struct room_publish {
    struct room_publish *next; /* room's mu, then the leader's */
    tws_prepared *prepared;
    const tws_conn *except;
    tws_hub_filter_fn filter;
    void *arg;
    tws_written_fn done;
    void *done_arg;
    uint64_t seq;             /* its place in the room's order */
    enum publish_state state; /* set by the leader before it unparks */
    struct task_park park;
    uint64_t counts[OUT_COUNT]; /* the leader's */
    bool together;              /* served with another */
    bool spread;                /* a worker helped */
};

struct hub_room {
    struct base_node node; /* hub's mu, like users */
    uint32_t users;        /* members, and calls that are inside */
    void *mark;            /* hub's mu: the watch's own, see hub.h */
    const tws_allocator *allocator;

    task_mutex mu;
    struct room_chunk **chunks;       /* mu */
    size_t chunk_count, chunk_cap;    /* mu */
    size_t hint;                      /* mu: no chunk before this one has a free slot */
    size_t members;                   /* mu */
    uint64_t seq;                     /* mu: the last one given out */
    struct room_publish *head, *tail; /* mu: publishes that nobody leads yet */
    bool led;                         /* mu: somebody is at work, or has been told to be */

    size_t name_len;
    char name[];
};

static inline struct hub_room *room_of_node(struct base_node *n)
{
    return (struct hub_room *)(void *)((char *)n - offsetof(struct hub_room, node));
}

/* NULL: no memory. name need not be zero-terminated. */
struct hub_room *room_new(const tws_allocator *a, const char *name, size_t len);
void room_free(struct hub_room *r);

/* Takes a slot. False: no memory. */
bool room_enter(struct hub_room *r, tws_conn *c, size_t *slot);
void room_exit(struct hub_room *r, size_t slot);
size_t room_members(struct hub_room *r);
/* A place in the room's order, for one who looks at all members: those who join later come after. */
uint64_t room_mark(struct hub_room *r);

/* What keeps those that are copied out. */
enum room_hold {
    ROOM_KEEP, /* conn_keep(): nothing but memory, so that giving it up never ends a connection */
    ROOM_REF /* a caller's reference; one whose last has just gone is about to leave, and left out */
};

/* Copies out chunk number `index` into ROOM_CHUNK slots; sets how many. False: there is no such
 * chunk. */
bool room_copy(struct hub_room *r, size_t index, enum room_hold hold, struct room_slot *slots,
               size_t *count);

/* Takes a place in the order. True: the caller leads. False: p has been served. */
bool room_line_up(struct hub_room *r, struct room_publish *p);
/* The leader's: takes those to be served, at most ROOM_BATCH, its own first; how many. */
size_t room_batch(struct hub_room *r, struct room_publish **list);
/* The leader's: they have been served; the next ones may go on. */
void room_served(struct hub_room *r, struct room_publish **list, size_t count);

#endif
