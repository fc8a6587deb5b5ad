/* A cluster's counters as text. */
#include "cluster/cluster.h"
#include "metrics/prometheus.h"

static void put_queue(struct prometheus *p, const tws_cluster_stats *s)
{
    static const char published[] = "tws_cluster_published_total";

    prometheus_gauge(p, "tws_cluster_queue_bytes", "Bytes that wait in this node for the broker.",
                     s->queue_bytes);
    prometheus_gauge(p, "tws_cluster_queue_messages",
                     "Messages that wait in this node for the broker.", s->queue_messages);
    prometheus_family(p, published, "counter", "Messages of this node, by what became of them.");
    prometheus_count(p, published, "result", "queued", s->published);
    prometheus_count(p, published, "result", "refused", s->refused);
    prometheus_count(p, published, "result", "unsent", s->unsent);
    prometheus_counter(p, "tws_cluster_published_bytes_total", "Payload bytes of those queued.",
                       s->published_bytes);
    prometheus_counter(p, "tws_cluster_waits_total", "Publishes that waited for room in the queue.",
                       s->waited);
}

static void put_received(struct prometheus *p, const tws_cluster_stats *s)
{
    static const char ignored[] = "tws_cluster_ignored_total";

    prometheus_counter(p, "tws_cluster_received_total",
                       "Messages of other nodes that were handed to members here.", s->received);
    prometheus_counter(p, "tws_cluster_received_bytes_total", "Their payload bytes.",
                       s->received_bytes);
    prometheus_family(p, ignored, "counter", "What came and was ignored, by reason.");
    prometheus_count(p, ignored, "reason", "echo", s->echoes);
    prometheus_count(p, ignored, "reason", "stale", s->stale);
    prometheus_count(p, ignored, "reason", "foreign", s->foreign);
    prometheus_count(p, ignored, "reason", "unwanted", s->unwanted);
    prometheus_counter(p, "tws_cluster_gaps_total", "Gaps that were reported.", s->gaps);
    prometheus_counter(p, "tws_cluster_missed_total", "Messages that are missing by these reports.",
                       s->missed);
}

static void put_broker(struct prometheus *p, const tws_cluster_stats *s)
{
    prometheus_gauge(p, "tws_cluster_up", "Whether the broker is connected.", s->up);
    prometheus_counter(p, "tws_cluster_connects_total", "Connections made to the broker.", s->ups);
    prometheus_counter(p, "tws_cluster_disconnects_total", "Connections to the broker lost.",
                       s->downs);
    prometheus_gauge(p, "tws_cluster_broker_pending_bytes",
                     "Bytes that the network has not taken yet.", s->broker_pending_bytes);
    prometheus_gauge(p, "tws_cluster_broker_pending_messages",
                     "Messages that have come and wait to be handled.", s->broker_pending_in);
    prometheus_counter(p, "tws_cluster_broker_dropped_total",
                       "Messages dropped because this node was too slow a consumer.",
                       s->broker_dropped);
    prometheus_counter(p, "tws_cluster_broker_errors_total", "Errors that the broker reported.",
                       s->broker_errors);
}

size_t tws_cluster_metrics(tws_cluster *c, char *buf, size_t size)
{
    struct prometheus p = {.buf = buf, .size = size};
    tws_cluster_stats s;

    if (size > 0)
        buf[0] = 0;
    tws_cluster_get_stats(c, &s);
    put_broker(&p, &s);
    prometheus_gauge(&p, "tws_cluster_rooms", "Rooms that this node knows.", s.rooms);
    prometheus_gauge(&p, "tws_cluster_subscriptions", "Subscriptions at the broker.",
                     s.subscriptions);
    put_queue(&p, &s);
    put_received(&p, &s);
    return p.len;
}
