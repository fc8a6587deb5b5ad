/* Two nodes of a cluster on a broker in memory. */
#include "scene.h"
#include "support_bus.h"

#include <stdio.h>

enum { NODES = 2, POSTS = 5 };

struct node {
    tws_hub *hub;
    tws_cluster *cluster;
    tws_conn *server, *client;
};

static bool node_open(struct node *n, struct bus *b, size_t number)
{
    tws_cluster_options opt;
    tws_hub_options ho;
    tws_pair_options po;
    tws_broker broker;
    tws_error e;

    tws_hub_options_init(&ho);
    ho.allocator = fault_allocator();
    if (note(tws_hub_new(&n->hub, &ho)))
        return false;
    tws_cluster_options_init(&opt);
    opt.allocator = fault_allocator();
    opt.beat = 200;
    opt.hold = opt.linger = TWS_NOWAIT;
    opt.drain = 500;
    bus_open(b, number, number == 0, &broker);
    if (note_error(tws_cluster_new(&n->cluster, n->hub, &broker, &opt, &e), &e))
        return false;
    bus_up(b, number);
    tws_pair_options_init(&po);
    po.allocator = fault_allocator();
    conn_times(&po.server);
    conn_times(&po.client);
    return !note(tws_pair(&n->server, &n->client, &po)) &&
           !note(tws_hub_join(n->hub, n->server, "room"));
}

static bool subscribed(const struct node *n)
{
    tws_presence p;

    return tws_cluster_presence(n->cluster, "room", &p) == TWS_OK;
}

/* Not waited for for long once something has failed. */
static bool find_each_other(struct node *nodes)
{
    int64_t end = support_now_ms() + SUPPORT_HANG_MS;

    while (!subscribed(&nodes[0]) || !subscribed(&nodes[1])) {
        if (fault_struck() && support_now_ms() > end - SUPPORT_HANG_MS + 500)
            return false;
        if (support_now_ms() > end)
            die("the nodes do not find each other");
        support_pause_ms(1);
    }
    return true;
}

static void node_close(struct node *n)
{
    tws_conn_unref(n->server);
    tws_conn_unref(n->client);
    tws_cluster_free(n->cluster);
    tws_hub_free(n->hub);
}

static void hear(struct node *n, unsigned count)
{
    tws_message m;

    for (unsigned i = 0; i < count; i++) {
        tws_err err =
            tws_read_message_within(n->client, &m, fault_struck() && !fault_is_mild() ? 100 : 5000);

        if (note(err))
            break;
        if (m.len != 5 || memcmp(m.data, "hello", 5) != 0)
            die("a published message came torn");
    }
}

static void cluster_main(void *unused)
{
    struct node nodes[NODES] = {{.hub = NULL}};
    struct bus *b = bus_new();
    bool ok = true;

    (void)unused;
    for (size_t i = 0; i < NODES; i++)
        ok = ok && node_open(&nodes[i], b, i);
    if (ok && find_each_other(nodes)) {
        for (unsigned i = 0; i < POSTS; i++)
            note(tws_cluster_publish_message(nodes[0].cluster, "room", TWS_TEXT, "hello", 5, NULL,
                                             NULL));
        hear(&nodes[0], POSTS);
        hear(&nodes[1], POSTS);
    }
    for (size_t i = 0; i < NODES; i++)
        node_close(&nodes[i]);
    bus_free(b);
}

void scene_cluster(bool light)
{
    on_thread(light, cluster_main, NULL);
}
