/* A hub's counters as text. */
#include <tws/metrics.h>

#include "metrics/prometheus.h"

#include <stddef.h>
#include <string.h>

static void put_outcomes(struct prometheus *p, const tws_hub_stats *s)
{
    static const char name[] = "tws_hub_deliveries_total";

    prometheus_family(p, name, "counter",
                      "Published messages, once for each member, by what became of them.");
    prometheus_count(p, name, "result", "sent", s->sent);
    prometheus_count(p, name, "result", "queued", s->queued);
    prometheus_count(p, name, "result", "dropped", s->dropped);
    prometheus_count(p, name, "result", "failed", s->failed);
    prometheus_count(p, name, "result", "skipped", s->skipped);
}

static void put_latency(struct prometheus *p, const tws_hub_stats *s)
{
    static const char *const le[TWS_HUB_LATENCIES] = {
        "0.00005", "0.0001", "0.00025", "0.0005", "0.001", "0.0025", "0.005",
        "0.01",    "0.025",  "0.05",    "0.1",    "0.25",  "1",      "+Inf"};

    prometheus_family(p, "tws_hub_publish_seconds", "histogram",
                      "How long calls of publish took, waiting for their turn included.");
    for (size_t i = 0; i < TWS_HUB_LATENCIES; i++)
        prometheus_count(p, "tws_hub_publish_seconds_bucket", "le", le[i], s->publish_latency[i]);
    prometheus_real(p, "tws_hub_publish_seconds_sum", (double)s->publish_ns / 1e9);
    prometheus_count(p, "tws_hub_publish_seconds_count", NULL, NULL, s->publishes);
}

size_t tws_hub_metrics(tws_hub *h, char *buf, size_t size)
{
    struct prometheus p = {.buf = buf, .size = size};
    tws_hub_stats s;

    if (size > 0)
        buf[0] = 0;
    tws_hub_get_stats(h, &s);
    prometheus_gauge(&p, "tws_hub_rooms", "Rooms that somebody is in.", s.rooms);
    prometheus_gauge(&p, "tws_hub_members", "Connections in any room.", s.members);
    prometheus_gauge(&p, "tws_hub_joined", "Members of all rooms, summed.", s.joined);
    prometheus_gauge(&p, "tws_hub_workers", "Threads that help with large rooms.", s.workers);
    put_outcomes(&p, &s);
    prometheus_counter(&p, "tws_hub_publishes_together_total",
                       "Publishes whose messages left together with another's.", s.together);
    prometheus_counter(&p, "tws_hub_publishes_spread_total", "Publishes that a worker helped with.",
                       s.spread);
    put_latency(&p, &s);
    return p.len;
}
