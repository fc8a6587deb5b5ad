/*
 * A server that is going to end says so first. It still takes connections for a while, as proxies
 * send some until they have asked again, and only then closes all.
 */
#include "echo_health.h"

#include <stdatomic.h>
#include <string.h>

static atomic_bool leaving;

bool health_page(const tws_request *r, tws_reply *a, void *arg)
{
    (void)arg;
    if (strcmp(tws_request_path(r), "/healthz") != 0) {
        return false; /* 426: this is a WebSocket server */
    }
    if (leaving) {
        tws_reply_status(a, 503);
        return tws_reply_body(a, "text/plain", "leaving\n", 8) == TWS_OK;
    }
    return tws_reply_body(a, "text/plain", "ok\n", 3) == TWS_OK;
}

void health_leave(tws_ms ms)
{
    leaving = true;
    if (ms > 0) {
        tws_sleep(ms);
    }
}
