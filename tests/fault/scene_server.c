/* Servers, with a plain client outside of the library. */
#include "scene.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>

/* ---- The server's side ---- */

static bool decide(const tws_request *r, tws_reply *a, void *arg)
{
    (void)arg;
    (void)r;
    return note(tws_reply_header(a, "X-A", "b")) == TWS_OK;
}

/* Uses what takes memory: a large message that is taken, a streamed answer, a value kept. */
static void handle(tws_conn *c, void *arg)
{
    tws_message m;
    tws_writer *w;

    (void)arg;
    note(tws_session_set(c, "key", "value", NULL));
    while (tws_read_message(c, &m) == TWS_OK) {
        note(tws_message_take(c, &m));
        if (note(tws_next_writer(c, m.opcode, &w)) == TWS_OK) {
            note(tws_writer_write(w, m.data, m.len));
            note(tws_writer_close(w));
        } else {
            note(tws_write_message(c, m.opcode, m.data, m.len));
        }
        tws_message_free(&m);
    }
}

/* ---- The client's side ---- */

/* The next message whole, as it was sent; false when the connection ended. */
static bool hear(struct client *c, const uint8_t *data, size_t len)
{
    struct client_frame f = {.fin = false};
    size_t done = 0;

    do {
        if (client_try_next(c, &f) != 1 || f.opcode == CLIENT_CLOSE)
            return false;
        if (f.opcode >= CLIENT_CLOSE)
            continue;
        if (f.len > len - done || memcmp(f.data, data + done, f.len) != 0)
            die("a message came back torn");
        done += f.len;
    } while (!f.fin || f.opcode >= CLIENT_CLOSE);
    if (done != len)
        die("a message came back short");
    return true;
}

static bool converse(struct stand *s, struct client *c)
{
    static uint8_t data[41000], wire[41000 + 128];
    size_t len;

    support_fill(data, sizeof data, 0);
    if (!client_send_bytes(c->fd, wire, client_frame(wire, CLIENT_FIN | CLIENT_TEXT, data, 10)) ||
        !hear(c, data, 10))
        return false;
    stand_echo(s);
    len = client_frame(wire, CLIENT_TEXT, data, 40000);
    len += client_frame(wire + len, CLIENT_FIN | CLIENT_PING, "p", 1);
    len += client_frame(wire + len, CLIENT_FIN, data + 40000, 1000);
    if (!client_send_bytes(c->fd, wire, len) || !hear(c, data, 41000))
        return false;
    stand_echo(s);
    return client_send_bytes(c->fd, wire,
                             client_frame(wire, CLIENT_FIN | CLIENT_CLOSE, "\x03\xe8", 2));
}

/* A server that cannot accept says nothing: that is not waited for for long. */
static bool await_answer(struct pollfd *p)
{
    int64_t begin = support_now_ms();

    while (support_now_ms() - begin < (fault_struck() ? 1000 : SUPPORT_HANG_MS))
        if (poll(p, 1, 50) == 1)
            return true;
    return false;
}

static bool upgrade(struct client *c, const char *address, const char *headers)
{
    char request[4096];
    struct pollfd p = {.fd = client_dial(address), .events = POLLIN};

    memset(c, 0, sizeof *c);
    c->fd = p.fd;
    return p.fd >= 0 &&
           client_send_bytes(p.fd, request, client_request(request, sizeof request, headers)) &&
           await_answer(&p) && client_read_head(c) == 101;
}

static void serve(tws_server_options *opt)
{
    static const char *const protocols[] = {"p"};
    char headers[1900];
    struct client_frame f;
    struct client c = {.fd = -1};
    sigset_t all;
    struct stand s;

    sigfillset(&all); /* the client's own calls are not meant */
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    /* Headers too long for the connection's own block. */
    memset(headers, 'h', sizeof headers);
    memcpy(headers, "Sec-WebSocket-Protocol: p\r\nX-Long: ", 35);
    memcpy(headers + sizeof headers - 3, "\r\n", 3);
    opt->upgrade.on_upgrade = decide;
    opt->upgrade.subprotocols = protocols;
    opt->upgrade.subprotocol_count = 1;
    if (!stand_open(&s, opt, false))
        return;
    if (!upgrade(&c, s.address, headers) || !converse(&s, &c))
        note_loss();
    else
        while (client_try_next(&c, &f) == 1) {
        }
    client_close(&c);
    stand_close(&s);
}

void scene_server(bool light)
{
    tws_server_options opt;

    stand_options(&opt, light);
    opt.on_connection = handle;
    serve(&opt);
}

void scene_events(bool light)
{
    tws_server_options opt;
    tws_events ev;

    tws_events_init(&ev);
    ev.on_message = support_echo_event;
    ev.parallel = 2;
    stand_options(&opt, light);
    opt.on_connection = NULL;
    opt.events = &ev;
    serve(&opt);
}
