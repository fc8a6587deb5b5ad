/*
 * server.h: a server, inside.
 *
 * One thread accepts. Each accepted socket has a thread that performs the handshake, runs the
 * handler and finishes the closing handshake; while it does, a server_peer on its stack is linked
 * into the server's list. One more thread watches over held replies.
 */
#ifndef SERVER_SERVER_H
#define SERVER_SERVER_H

#include <tws/metrics.h>
#include <tws/server.h>

#include "event/event.h"
#include "net/inherit.h"
#include "net/listen.h"
#include "server/address_table.h"
#include "server/rate_table.h"
#include "server/upgrade.h"

enum peer_stage {
    PEER_HANDSHAKE,
    PEER_OPEN,     /* the handler runs */
    PEER_FINISHING /* the handler has returned */
};

struct server_peer {
    struct server_peer *next, *prev; /* server's mu */
    tws_server *server;
    int fd;                /* server's mu; -1: closed */
    enum peer_stage stage; /* server's mu */
    tws_conn *conn;        /* server's mu; NULL before the handshake is done */
    bool cut;              /* server's mu: ended by a drain */
};

/* Closed connections by the code of their close frame; the last counts all others. */
enum { SERVER_CLOSE_CODES = 18, SERVER_ERRORS = 48 };

/* Sums over ended connections, and what is counted per server. server's mu. */
struct server_totals {
    tws_stats ended;
    uint64_t accepted, upgraded, pages;
    uint64_t refused_full, refused_address, refused_descriptors, refused_threads;
    uint64_t refused_handshakes, refused_rate;
    uint64_t passed[CONN_PASSED_ENDS]; /* connections ended by a limit */
    uint64_t tls_1_2, tls_1_3, tls_resumed, tls_failed;
    uint64_t ends[UPGRADE_ENDS];
    uint64_t closed[SERVER_CLOSE_CODES];
    uint64_t errors[SERVER_ERRORS]; /* by -code */
};

struct tws_server {
    tws_server_options opt; /* pointers lead into our copies; `upgrade` is in cfg */
    struct upgrade_config *cfg;
    tws_events events; /* our copy, if opt.events */
    struct base_log log;
    struct base_log_gate log_refused, log_failed, log_passed; /* by what is told */
    struct task_runtime *runtime;
    struct net_listener *listeners;
    char **addresses;
    size_t listener_count;
    struct pollfd *accept_fds; /* the accepting thread's */
    int accept_spare;          /* the acceptor's: a descriptor to give up; open before it starts */
    struct task_event stop;    /* set once, never cleared */
    _Atomic bool stopping;     /* the same, for when poll itself fails */
    struct task_service acceptor, watcher;
    bool acceptor_runs, watcher_runs;

    task_mutex mu;
    struct server_peer *peers;        /* mu */
    uint32_t connections;             /* mu: sockets that have, or are about to have, a thread */
    uint32_t crowd;                   /* mu: the most of them since memory was given back last */
    int64_t trimmed_at;               /* mu: when that was; 0: never */
    uint32_t open, handshaking;       /* mu: by stage; handshaking from the accept on */
    bool draining;                    /* mu: new peers are cut, new connections closed */
    bool cutting;                     /* mu: time is up for everybody */
    bool drained;                     /* mu */
    bool was_cut;                     /* mu: a connection had to be cut */
    struct task_queue drain_done;     /* mu */
    struct address_table per_address; /* mu */
    struct rate_table rates;          /* the acceptor's */
    struct server_totals totals;      /* mu */
};

static inline const tws_allocator *server_allocator(const tws_server *s)
{
    return s->opt.upgrade.allocator;
}

/* ---- accept.c ---- */

/* Why a connection is not served. */
struct server_refusal {
    int status;
    const char *why;
    uint64_t *counter;      /* server's mu */
    uint32_t number, limit; /* both 0: there are none */
};
/* Whether one more fits; counts it then, as handshaking. Else why not. */
bool server_admit_locked(tws_server *s, const union net_peer *peer, struct server_refusal *r);

/* Memory for the accepting thread, so that it cannot fail for lack of it. False: there is none. */
bool server_accept_prepare(tws_server *s);
void server_accept_main(void *server);

/* ---- peer.c ---- */

/* Hands an accepted socket to a thread of its own; plain: without TLS. 0, or -errno: then the socket
 * is the caller's. */
int server_peer_spawn(tws_server *s, int fd, const union net_peer *peer, bool plain);
/* The handshake is done, or was never needed: the connection counts as open. */
void server_peer_link(struct server_peer *p);
void server_peer_opened(struct server_peer *p, tws_conn *c);
/* Runs the handler and everything after it; gives the reference back. */
void server_peer_run(struct server_peer *p);
/* A socket that the acceptor counted, with its address, is gone; its handshake was counted out
 * before. */
void server_forget_socket(tws_server *s, const union net_peer *address);
/* Adds a connection's counters to a sum of them. */
void server_add_stats(tws_stats *sum, const tws_stats *one);
/* The same of one that has ended: what waits now waits no longer. */
void server_add_ended(tws_stats *sum, tws_stats one);
/* Closes or cuts every peer; mu is held. */
void server_peers_close_locked(tws_server *s, tws_ms close_timeout);
void server_peers_cut_locked(tws_server *s);
/* ---- adopt.c: connections that were opened elsewhere ---- */

struct adopted;
struct server_adoption {
    /* Makes the connection, on the thread that is going to run its handler. NULL: not possible. */
    tws_conn *(*make)(struct server_adoption *a);
    void *arg;
    union net_peer address;
    tws_server *server;
    tws_conn *conn;
    struct task_park made;
    struct adopted *thread;
};
/* Makes a thread, which makes the connection and waits. NULL, or why not. */
const char *server_adopt(tws_server *s, struct server_adoption *a);
/* Lets it go on, or go. */
void server_adopt_decide(struct server_adoption *a, bool go);

/* The label of an index of server_totals.closed. */
uint16_t server_close_code(size_t index);

#endif
