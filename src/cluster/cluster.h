/*
 * cluster.h: a hub's part in a cluster, inside.
 *
 * One service thread makes all calls to the broker, one after the other: subscriptions, beats, and what
 * publishers have queued. Publishers and the adapter's receiving threads only take `mu`, for moments.
 * Lock order: the hub's mu (inside which it tells of members), then this one. No function of the hub,
 * the broker or the caller is called with mu held.
 *
 * A room is created by a member or a publisher, under mu, and freed by the service thread alone.
 */
#ifndef CLUSTER_CLUSTER_H
#define CLUSTER_CLUSTER_H

#include "base/log.h"
#include "cluster/message.h"
#include "hub/hub.h"
#include "task/task.h"

#include <tws/cluster.h>

/* So many beats after subscribing, or after the connection was made, every node has spoken. */
#define CLUSTER_SETTLED_BEATS 2

/* Another node, as one room knows it. */
struct cluster_peer {
    struct cluster_peer *next;
    uint8_t origin[CLUSTER_ORIGIN];
    uint64_t stream, seq; /* the last that is accounted for */
    uint64_t members;
    int64_t heard;   /* when */
    int64_t told;    /* when it said how many members it has */
    int64_t beat_ns; /* how often it speaks at least */
    bool silent;     /* has not, for SILENT_BEATS, or is gone */
    bool gone;       /* has taken its leave: what comes under this stream's numbers is old */
};

/* All fields: c->mu, but for the names, which are constant. */
struct cluster_room {
    struct base_node node;            /* of c->rooms, by subject */
    struct cluster_room *next, *prev; /* c->first to c->last */
    struct cluster_room *todo_next;
    bool todo; /* in c->todo */

    uint64_t members; /* here */
    bool subscribed;  /* the broker has been told */
    int64_t since;    /* subscribed and connected since then; 0: not connected */
    bool shaky;       /* there was a connection before, and not all nodes can have spoken again */
    int64_t empty;    /* when the last member left */

    uint64_t stream, seq; /* of this node's own messages */
    uint64_t told_members, told_seq;
    bool ask, answer; /* the next beat asks; somebody has asked */
    int64_t beat_at;
    uint32_t beats; /* queued */
    int64_t spoke;  /* when something was last published */

    struct cluster_peer *peers;
    uint32_t peer_count;
    uint32_t users; /* queued messages and calls that hold on to it */

    char *subject;
    bool all; /* the messages to all */
    size_t name_len;
    char name[];
};

/* A message on its way to the broker. */
struct cluster_out {
    struct cluster_out *next;
    struct cluster_room *room;
    bool beat;
    size_t len;
    uint8_t bytes[];
};

struct tws_cluster {
    struct hub_watch watch; /* first */
    tws_hub *hub;
    tws_broker broker;
    tws_cluster_options opt; /* prefix points to the next */
    char prefix[CLUSTER_PREFIX_MAX + 1];
    size_t hash_digits; /* CLUSTER_HASH_DIGITS, but in tests */
    struct base_log log;
    uint8_t origin[CLUSTER_ORIGIN];
    struct base_key key;
    int64_t beat_ns, tick_ns;
    struct task_service service;

    task_mutex mu;
    struct base_table rooms;           /* mu */
    struct cluster_room *first, *last; /* mu */
    struct cluster_room *all;          /* messages to all; constant */
    struct cluster_room *todo;         /* mu: to be looked at at todo_at */
    int64_t todo_at, sweep_at;         /* mu */
    struct task_queue wake;            /* mu: the service waits */
    bool woken, ending;                /* mu */
    int64_t end_at;                    /* mu: deadline of the last sends */

    struct cluster_out *head, *tail; /* mu */
    struct task_queue space;         /* mu: publishers wait for room; at the end, for publishers */
    uint32_t calls;                  /* mu: publishers at work here */
    uintptr_t service_self;          /* mu: the service's task_self() */
    int64_t retry_at;                /* the service's: not before then */

    int64_t down_at;         /* mu: when it was lost */
    int64_t hold_until;      /* mu: the others may not have subscribed again before then */
    bool up;                 /* mu */
    bool came;               /* mu: it came up, and the service has not seen to it yet */
    bool forgot;             /* mu: without the subscriptions there were */
    bool told;               /* mu: on_state has been called */
    uint64_t streams;        /* mu: the last one given out */
    uint64_t random;         /* mu */
    tws_cluster_stats stats; /* mu */
};

/* ---- room.c ---- */

/* NULL: there is none. name NULL: c->all. */
struct cluster_room *cluster_room_find_locked(tws_cluster *c, const char *name, size_t len);
/* The same, made when there is none. NULL: no memory. */
struct cluster_room *cluster_room_get_locked(tws_cluster *c, const char *name, size_t len);
void cluster_room_free_locked(tws_cluster *c, struct cluster_room *r);
void cluster_room_link_locked(tws_cluster *c, struct cluster_room *r); /* as the last */
void cluster_room_unlink_locked(tws_cluster *c, struct cluster_room *r);
void cluster_room_forget_peers_locked(tws_cluster *c, struct cluster_room *r);
bool cluster_room_wanted(const struct cluster_room *r);
/* To be looked at by the service after so long. */
void cluster_todo_locked(tws_cluster *c, struct cluster_room *r, int64_t delay_ns);
void cluster_wake_locked(tws_cluster *c);
/* Below `limit`. */
int64_t cluster_random_locked(tws_cluster *c, int64_t limit);

/* ---- queue.c ---- */

/* A beat of the room. Without memory it is left out: the next one says the same. */
void cluster_queue_beat_locked(tws_cluster *c, struct cluster_room *r, uint8_t what);
/* Sends some of what is queued. */
void cluster_send_locked(tws_cluster *c);
/* Gives up what is queued, telling of each message. */
void cluster_queue_drop(tws_cluster *c);

/* ---- receive.c ---- */

/* mu is not held. origin NULL: this node's own. */
void cluster_tell_gap(tws_cluster *c, const struct cluster_room *r, const uint8_t *origin,
                      uint64_t missed, tws_gap_cause cause);

/* ---- service.c ---- */

void cluster_service(void *arg);

#endif
