/* An old program on the newest library: shorter structs are filled no further than they go, and work. Prints the
 * library's version. */
#include "tws_0_1.h"

#include <stdio.h>
#include <string.h>

#define GUARD 0x5a

/* Bytes behind an old struct, which the library must leave alone. */
struct guard {
    unsigned char bytes[256];
};

static bool intact(const struct guard *g)
{
    for (size_t i = 0; i < sizeof g->bytes; i++)
        if (g->bytes[i] != GUARD)
            return false;
    return true;
}

static void echo(tws_conn *c, void *arg)
{
    tws_message m;

    (void)arg;
    while (tws_read_message(c, &m) == 0)
        if (tws_write_message(c, m.opcode, m.data, m.len) != 0)
            break;
}

static bool talk(const char *address)
{
    struct {
        tws_stats stats;
        struct guard guard;
    } s;
    char url[96];
    tws_conn *c;
    tws_message m;
    bool ok;

    memset(&s, GUARD, sizeof s);
    snprintf(url, sizeof url, "ws://%s/", address);
    if (tws_dial(&c, url, NULL, NULL, NULL) != 0)
        return false;
    ok = tws_write_message(c, 1, "old", 3) == 0 && tws_read_message(c, &m) == 0 && m.len == 3 &&
         memcmp(m.data, "old", 3) == 0;
    tws_conn_stats_sized(c, &s.stats, sizeof s.stats);
    ok = ok && s.stats.first[0] > 0 && s.stats.first[0] < 1000 && intact(&s.guard);
    tws_close(c, 1000, "");
    tws_conn_unref(c);
    return ok;
}

int main(void)
{
    struct {
        tws_server_options opt;
        struct guard guard;
    } server;
    struct {
        tws_deflate_options opt;
        struct guard guard;
    } deflate;
    const char *listen = "127.0.0.1:0";
    tws_server *s;
    char address[64];
    bool ok;

    memset(&server, GUARD, sizeof server);
    memset(&deflate, GUARD, sizeof deflate);
    tws_server_options_init_sized(&server.opt, sizeof server.opt);
    tws_deflate_options_init_sized(&deflate.opt, sizeof deflate.opt);
    if (!intact(&server.guard) || !intact(&deflate.guard) || server.opt.size != sizeof server.opt ||
        server.opt.max_connections != 10000 || server.opt.upgrade.handshake_timeout != 10000)
        return 1;
    server.opt.listen = &listen, server.opt.listen_count = 1;
    server.opt.on_connection = echo;
    server.opt.upgrade.deflate = &deflate.opt;
    if (tws_server_start(&s, &server.opt, NULL) != 0)
        return 1;
    tws_server_address(s, 0, address, sizeof address);
    ok = talk(address);
    tws_server_drain(s, 5000);
    tws_server_free(s);
    puts(tws_version());
    return !ok;
}
