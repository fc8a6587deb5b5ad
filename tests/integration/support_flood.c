#include "support_flood.h"

#include <sys/socket.h>

static void *flood_main(void *arg)
{
    struct flood *f = arg;
    uint8_t frames[700];
    size_t len = 0;

    for (int i = 0; i < 100; i++)
        len += client_frame(frames + len, CLIENT_FIN | CLIENT_PONG, "x", 1);
    while (!atomic_load(&f->stop) && client_send_bytes(f->rig.client.fd, frames, len)) {
    }
    return NULL;
}

void flood_open(struct flood *f)
{
    tws_server_options opt;

    rig_options(&opt);
    opt.upgrade.conn.max_control_rate = 0;
    atomic_store(&f->stop, false);
    rig_open(&f->rig, &opt);
    support_thread(&f->thread, flood_main, f);
}

void flood_close(struct flood *f)
{
    atomic_store(&f->stop, true);
    tws_abort(f->rig.conn);
    shutdown(f->rig.client.fd, SHUT_RDWR); /* its sender may wait for room that nobody makes */
    pthread_join(f->thread, NULL);
    rig_close(&f->rig);
}
