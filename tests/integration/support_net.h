/* support_net.h: some nodes on a bus, each with a hub and clients of its own, in one process. */
#ifndef TESTS_INTEGRATION_SUPPORT_NET_H
#define TESTS_INTEGRATION_SUPPORT_NET_H

#include "party.h"
#include "support_bus.h"

#define NET_GAPS 4096

struct net_gaps {
    pthread_mutex_t mu;
    size_t count;
    struct net_gap {
        char room[32]; /* "(all)" for those to all */
        char origin[TWS_ORIGIN_BYTES];
        uint64_t missed;
        tws_gap_cause cause;
        size_t delivered; /* what the node's first client had been sent by then */
    } list[NET_GAPS];
    _Atomic unsigned ups, downs;
    struct net *net;
    size_t node;
};

struct net {
    struct party party;
    struct bus *bus;
    size_t nodes, each; /* clients of each */
    tws_hub *hubs[BUS_NODES];
    tws_cluster *clusters[BUS_NODES];
    struct net_gaps *gaps[BUS_NODES];
    char origins[BUS_NODES][TWS_ORIGIN_BYTES];
};

/* Beats of 200 ms, on_gap noted. */
void net_options(tws_cluster_options *opt);
/* Nodes that are connected; nobody is in a room. opt: from net_options(), or NULL for just that. */
void net_open(struct net *n, size_t nodes, size_t each, const tws_cluster_options *opt);
/* A node more, under a number that is free; not connected yet. */
tws_err net_start(struct net *n, size_t node, bool keeps, const tws_cluster_options *opt);
void net_stop(struct net *n, size_t node);
void net_close(struct net *n);

/* Client number `client` of that node. */
tws_conn *net_conn(const struct net *n, size_t node, size_t client);
const struct party_log *net_log(const struct net *n, size_t node, size_t client);
/* All clients of the nodes from `first` on to before `end` are in the room, and these nodes know. */
void net_join(struct net *n, const char *room, size_t first, size_t end);
tws_err net_publish(struct net *n, size_t node, const char *room, uint32_t number);
/* Such numbers and no others, in this order, have come to that client from that node. */
bool net_has(const struct net *n, size_t node, size_t client, size_t from, const uint32_t *numbers,
             size_t count);
uint64_t net_elsewhere(const struct net *n, size_t node, const char *room);
/* Reports of that cause at a node; NULL room: of any. */
size_t net_gap_count(const struct net *n, size_t node, const char *room, tws_gap_cause cause);
uint64_t net_missed(const struct net *n, size_t node, const char *room);
tws_cluster_stats net_stats(const struct net *n, size_t node);

#endif
