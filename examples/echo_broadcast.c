/* echo_broadcast.c: see echo_broadcast.h. */
#include "echo_broadcast.h"

#include <tws/server.h>

#include <string.h>

static tws_hub *hub;
static const char *hub_path;

bool broadcast_open(const char *path)
{
    hub_path = path;
    return tws_hub_new(&hub, NULL) == TWS_OK;
}

void broadcast_close(void)
{
    tws_hub_free(hub);
    hub = NULL;
}

tws_hub *broadcast_hub(void)
{
    return hub;
}

bool broadcast_wanted(const tws_conn *c)
{
    return hub != NULL && strcmp(tws_request_path(tws_conn_request(c)), hub_path) == 0;
}

/* One who reads too slowly loses its connection by the policy of its queue; nobody waits for it. */
void broadcast(tws_conn *c)
{
    tws_message m;
    if (tws_hub_join(hub, c, "") != TWS_OK) {
        return;
    }
    while (tws_read_message(c, &m) == TWS_OK) {
        tws_hub_publish_message(hub, "", m.opcode, m.data, m.len, NULL, NULL);
    }
}
