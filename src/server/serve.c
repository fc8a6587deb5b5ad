/* Servers in one call, for as long as the process lives. */
#include "tws/event.h"
#include "tws/server.h"

static tws_err serve(const char *address, tws_server_options *opt, void *arg, tws_error *error)
{
    tws_server *server;
    tws_err err;

    opt->listen = &address;
    opt->listen_count = 1;
    opt->arg = arg;
    err = tws_server_start(&server, opt, error);
    if (err)
        return err;
    for (;;) /* nobody else has the handle */
        tws_server_wait(server);
}

tws_err tws_serve(const char *address, tws_connection_fn on_connection, void *arg, tws_error *error)
{
    tws_server_options opt;

    tws_server_options_init(&opt);
    opt.on_connection = on_connection;
    return serve(address, &opt, arg, error);
}

tws_err tws_serve_events(const char *address, const struct tws_events *events, void *arg,
                         tws_error *error)
{
    tws_server_options opt;
    tws_events none;

    tws_events_init(&none);
    tws_server_options_init(&opt);
    opt.events = events ? events : &none;
    return serve(address, &opt, arg, error);
}
