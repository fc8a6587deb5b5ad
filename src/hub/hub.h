/*
 * hub.h: rooms, members and broadcasts, inside.
 *
 * Three locks, all short, taken in this order: the hub's `mu` (which rooms and members there are), a
 * room's `mu` (its slots and publishers), a connection's. The workers' lock stands alone. None is
 * held while a message is handed over, a function of the caller's runs, or a reference on a
 * connection is given back, which may end it.
 */
#ifndef HUB_HUB_H
#define HUB_HUB_H

#include "base/ref.h"
#include "base/table.h"
#include "conn/queue.h"
#include "hub/room.h"

#include <tws/hub.h>

/* A connection in a room. */
struct hub_seat {
    struct base_node node; /* of hub->seats, by connection and room */
    struct hub_member *member;
    struct hub_room *room;
    struct hub_seat *next, *prev; /* the member's other rooms */
    size_t slot;                  /* in room */
};

/* A connection that is in any room. */
struct hub_member {
    struct hub_seat all; /* its place in the room of all members, hub->everyone */
    struct conn_end_hook hook;
    struct base_ref refs; /* the hub's, while it is a member; the hook's, while that may come */
    tws_hub *hub;
    tws_conn *conn;
    struct hub_seat *seats;
    uint32_t seat_count;
    bool gone; /* no longer a member */
};

/* Publishes to all and to single rooms exclude each other, each kind together with its like. */
enum gate_kind { GATE_ROOM, GATE_ALL };

struct hub_gate {
    uint32_t inside[2], waits[2];
    struct task_queue queue[2];
};

/* A large publish, shared out; on its leader's stack. */
struct hub_work {
    struct hub_work *next;
    struct hub_room *room;
    struct room_publish **list;
    size_t count;
    _Atomic size_t cursor;  /* the next chunk */
    uint32_t wanted;        /* work_mu: workers that may still come */
    uint32_t helpers;       /* work_mu: workers that are at it */
    bool helped;            /* work_mu */
    struct task_queue done; /* work_mu: the leader waits for helpers to become 0 */
};

struct hub_workers {
    task_mutex mu;
    struct task_runtime *runtime;
    struct hub_work *head, *tail; /* mu */
    uint32_t count, idle, max;    /* mu; max is constant */
    struct task_queue queue;      /* mu: idle workers */
    bool stop;                    /* mu */
};

/* A thread that runs filters: it may not publish, for it would wait for itself. */
struct hub_filtering {
    struct hub_filtering *next, **link;
    uintptr_t thread;
};

/*
 * Somebody who is told how many members each room has, whenever that changes, with the hub's mu held.
 * `mark` is NULL when the first member comes; what is put there stays until the last has left. False:
 * no memory, which undoes a join.
 */
struct hub_watch {
    bool (*changed)(struct hub_watch *w, const struct hub_room *r, void **mark, size_t members);
};

struct tws_hub {
    struct base_ref refs; /* the owner's, and one of each member */
    const tws_allocator *allocator;
    struct base_key key;
    uint32_t spread, max_rooms, max_joined; /* constant */

    task_mutex mu;
    struct base_table rooms, seats; /* mu; rooms by name */
    struct hub_room *everyone;      /* constant; in no table */
    struct hub_gate gate;           /* mu */
    uint32_t calls;                 /* mu: publishes and visits under way */
    struct task_queue calls_ended;  /* mu: woken when calls becomes 0 */
    tws_hub_stats stats;            /* mu: sums; the rest is filled in when asked for */
    struct hub_workers workers;
    struct hub_filtering *filtering; /* mu */
    struct hub_watch *watch;         /* mu */
};

/* ---- watch.c ---- */

/* Tells of a room whose members have changed. */
bool hub_watch_tell_locked(tws_hub *h, struct hub_room *r);
/* Tells of all rooms there are, and from then on of each change. TWS_ERR_STATE: there is a watch. */
tws_err hub_watch_begin(tws_hub *h, struct hub_watch *w);
/* It is not called any more. */
void hub_watch_end(tws_hub *h);

/* ---- member.c ---- */

/* Finds a room and keeps it; NULL: there is none. mu is held. */
struct hub_room *hub_room_use_locked(tws_hub *h, const char *name);
/* Gives it back; frees it when nobody is in it. */
void hub_room_unuse_locked(tws_hub *h, struct hub_room *r);
/* Takes out all members. */
void hub_empty(tws_hub *h);
void hub_unref(tws_hub *h);

/* ---- publish.c ---- */

void hub_call_ended_locked(tws_hub *h);

/* ---- work.c ---- */

/* 0 or -errno. */
int hub_workers_init(struct hub_workers *w, const tws_allocator *a, uint32_t max);
void hub_workers_free(struct hub_workers *w);
/* Hands the publishes of `list` to every member of the room, with help when there are many. */
void hub_deliver(tws_hub *h, struct hub_room *r, struct room_publish **list, size_t count);

#endif
