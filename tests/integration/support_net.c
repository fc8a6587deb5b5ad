#include "support_net.h"

#include <stdio.h>
#include <stdlib.h>

static void on_gap(const tws_gap *gap, void *arg)
{
    struct net_gaps *g = arg;
    struct net_gap *one;

    pthread_mutex_lock(&g->mu);
    if (g->count < NET_GAPS) {
        one = &g->list[g->count++];
        snprintf(one->room, sizeof one->room, "%s", gap->room ? gap->room : "(all)");
        snprintf(one->origin, sizeof one->origin, "%s", gap->origin);
        one->missed = gap->missed;
        one->cause = gap->cause;
        one->delivered = g->net->each > 0 ? atomic_load(&net_log(g->net, g->node, 0)->count) : 0;
    }
    pthread_mutex_unlock(&g->mu);
}

static void on_state(bool up, const char *text, void *arg)
{
    struct net_gaps *g = arg;

    (void)text;
    atomic_fetch_add(up ? &g->ups : &g->downs, 1);
}

void net_options(tws_cluster_options *opt)
{
    tws_cluster_options_init(opt);
    opt->beat = 200;
    opt->hold = TWS_NOWAIT;
    opt->linger = TWS_NOWAIT;
    opt->on_gap = on_gap;
    opt->on_state = on_state;
}

tws_err net_start(struct net *n, size_t node, bool keeps, const tws_cluster_options *opt)
{
    tws_cluster_options o;
    tws_broker broker;
    tws_err err;

    net_options(&o);
    if (opt)
        o = *opt;
    o.arg = n->gaps[node];
    bus_open(n->bus, node, keeps, &broker);
    err = tws_cluster_new(&n->clusters[node], n->hubs[node], &broker, &o, NULL);
    if (!err)
        tws_cluster_origin(n->clusters[node], n->origins[node]);
    return err;
}

void net_open(struct net *n, size_t nodes, size_t each, const tws_cluster_options *opt)
{
    memset(n, 0, sizeof *n);
    party_open(&n->party, nodes * each, NULL, NULL);
    n->bus = bus_new();
    n->nodes = nodes;
    n->each = each;
    for (size_t i = 0; i < BUS_NODES; i++) {
        n->gaps[i] = support_alloc(sizeof *n->gaps[i]);
        memset(n->gaps[i], 0, sizeof *n->gaps[i]);
        pthread_mutex_init(&n->gaps[i]->mu, NULL);
        n->gaps[i]->net = n;
        n->gaps[i]->node = i;
    }
    for (size_t i = 0; i < nodes; i++) {
        if (i == 0)
            n->hubs[i] = n->party.hub;
        else
            assert_ok(tws_hub_new(&n->hubs[i], NULL));
        assert_ok(net_start(n, i, i % 2 == 0, opt)); /* both kinds of broker */
        bus_up(n->bus, i);
    }
    for (size_t i = 0; i < nodes; i++)
        WAIT_FOR(atomic_load(&n->gaps[i]->ups) == 1 && bus_subscriptions(n->bus, i) == 1);
}

void net_stop(struct net *n, size_t node)
{
    tws_cluster_free(n->clusters[node]);
    n->clusters[node] = NULL;
}

void net_close(struct net *n)
{
    for (size_t i = 0; i < n->nodes; i++)
        net_stop(n, i);
    bus_free(n->bus);
    for (size_t i = 1; i < n->nodes; i++)
        tws_hub_free(n->hubs[i]);
    party_close(&n->party);
    for (size_t i = 0; i < BUS_NODES; i++) {
        pthread_mutex_destroy(&n->gaps[i]->mu);
        free(n->gaps[i]);
    }
}

tws_conn *net_conn(const struct net *n, size_t node, size_t client)
{
    return n->party.conns[node * n->each + client];
}

const struct party_log *net_log(const struct net *n, size_t node, size_t client)
{
    return &n->party.logs[node * n->each + client];
}

void net_join(struct net *n, const char *room, size_t first, size_t end)
{
    for (size_t i = first; i < end; i++)
        for (size_t k = 0; k < n->each; k++)
            assert_ok(tws_hub_join(n->hubs[i], net_conn(n, i, k), room));
    for (size_t i = first; i < end; i++)
        WAIT_FOR(net_elsewhere(n, i, room) == (end - first - 1) * n->each);
}

tws_err net_publish(struct net *n, size_t node, const char *room, uint32_t number)
{
    struct party_note note = {(uint32_t)node, number};

    return tws_cluster_publish_message(n->clusters[node], room, TWS_BINARY, &note, sizeof note,
                                       NULL, NULL);
}

bool net_has(const struct net *n, size_t node, size_t client, size_t from, const uint32_t *numbers,
             size_t count)
{
    const struct party_log *l = net_log(n, node, client);
    size_t found = 0, all = atomic_load(&l->count);

    for (size_t i = 0; i < all; i++) {
        if (l->notes[i].publisher != from)
            continue;
        if (found == count || l->notes[i].number != numbers[found])
            return false;
        found++;
    }
    return found == count;
}

uint64_t net_elsewhere(const struct net *n, size_t node, const char *room)
{
    tws_presence p;

    return tws_cluster_presence(n->clusters[node], room, &p) == TWS_OK ? p.elsewhere : UINT64_MAX;
}

size_t net_gap_count(const struct net *n, size_t node, const char *room, tws_gap_cause cause)
{
    struct net_gaps *g = n->gaps[node];
    size_t count = 0;

    pthread_mutex_lock(&g->mu);
    for (size_t i = 0; i < g->count; i++)
        count += g->list[i].cause == cause && (!room || strcmp(g->list[i].room, room) == 0);
    pthread_mutex_unlock(&g->mu);
    return count;
}

uint64_t net_missed(const struct net *n, size_t node, const char *room)
{
    struct net_gaps *g = n->gaps[node];
    uint64_t missed = 0;

    pthread_mutex_lock(&g->mu);
    for (size_t i = 0; i < g->count; i++)
        if (g->list[i].cause == TWS_GAP_MISSED && strcmp(g->list[i].room, room) == 0)
            missed += g->list[i].missed;
    pthread_mutex_unlock(&g->mu);
    return missed;
}

tws_cluster_stats net_stats(const struct net *n, size_t node)
{
    tws_cluster_stats s;

    tws_cluster_get_stats(n->clusters[node], &s);
    return s;
}
