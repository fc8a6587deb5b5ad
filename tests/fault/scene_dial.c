/* Clients of the library, with a server of it: plain and with compression. */
#include "scene_dial.h"

#include <stdio.h>

/* ---- A conversation ---- */

/* What was sent comes back. */
static bool hear(tws_conn *c, const char *data, size_t len)
{
    tws_message m;

    if (note(tws_read_message(c, &m)))
        return false;
    if (m.len != len || memcmp(m.data, data, len) != 0)
        die("a message came back torn");
    return true;
}

static bool say(tws_conn *c, const char *data, size_t len)
{
    return !note(tws_write_message(c, TWS_TEXT, data, len)) && hear(c, data, len);
}

static bool say_in_pieces(tws_conn *c, const char *data, size_t len)
{
    tws_writer *w;

    if (note(tws_next_writer(c, TWS_TEXT, &w)))
        return false;
    for (size_t done = 0, part; done < len; done += part) {
        part = len - done < 7000 ? len - done : 7000;
        if (note(tws_writer_write(w, data + done, part)))
            break;
    }
    return !note(tws_writer_close(w)) && hear(c, data, len);
}

static void converse(tws_conn *c, struct stand *s)
{
    static char data[30000];
    tws_error e;
    tws_err err;

    for (size_t i = 0; i < sizeof data; i++) /* does not compress to much less */
        data[i] = (char)(' ' + (i * i * 2654435761u >> 13) % 90);
    if (!say(c, data, 100) || (stand_echo(s), false) || !say_in_pieces(c, data, sizeof data) ||
        !say(c, data + 5, 200))
        goto out;
    note(tws_ping_wait(c, "p", 1, SCENE_MS, NULL));
    note(tws_close(c, 1000, "done"));
out:
    stand_echo(s);
    tws_abort(c);
    do { /* what ended it is told again and again */
        tws_message m;

        err = tws_read_message(c, &m);
    } while (err == TWS_OK);
    tws_conn_error(c, &e);
    if (e.code != TWS_ERR_CLOSED && e.code != TWS_ERR_PEER_CLOSED)
        note_error(e.code, &e);
}

void dial_and_talk(void *arg)
{
    struct talk *t = arg;
    tws_response *r;
    tws_error e;
    tws_conn *c;

    if (!note_error(tws_dial(&c, t->url, &t->opt, &r, &e), &e))
        converse(c, t->stand);
    else if (c)
        die("a dial failed with a connection");
    tws_conn_unref(c);
    tws_response_free(r);
}

/* ---- The same by handlers ---- */

static _Atomic unsigned opened, closed, heard;

static void on_open(tws_conn *c, void *arg)
{
    (void)arg;
    atomic_fetch_add(&opened, 1);
    if (note(tws_write_text(c, "hello"))) /* nothing will come back */
        note(tws_close_start(c, 1000, NULL));
}

static void on_message(tws_conn *c, tws_message *m, void *arg)
{
    (void)arg;
    (void)m;
    atomic_fetch_add(&heard, 1);
    note(tws_close_start(c, 1000, NULL));
}

static void on_close(tws_conn *c, const tws_error *e, void *arg)
{
    (void)c;
    (void)arg;
    if (e->code != TWS_ERR_CLOSED && e->code != TWS_ERR_PEER_CLOSED)
        note_error(e->code, e);
    atomic_fetch_add(&closed, 1);
}

static void dial_events(void *arg)
{
    struct talk *t = arg;
    tws_dial_options opt = t->opt;
    tws_events ev;
    tws_error e;
    tws_conn *c;

    tws_events_init(&ev);
    ev.on_open = on_open;
    ev.on_message = on_message;
    ev.on_close = on_close;
    opt.events = &ev;
    atomic_store(&opened, 0);
    atomic_store(&closed, 0);
    if (note_error(tws_dial(&c, t->url, &opt, NULL, &e), &e)) {
        if (atomic_load(&opened) || c)
            die("a dial failed, and there are events");
        return;
    }
    note(tws_events_wait(c, 2 * SCENE_MS));
    tws_conn_unref(c);
    AWAIT(atomic_load(&closed) == 1);
    if (atomic_load(&opened) != 1)
        die("opened %u times", atomic_load(&opened));
}

/* ---- Scenes ---- */

void talk_options(struct talk *t, struct stand *s, const char *scheme)
{
    static const char *const protocols[] = {"chat"};
    static const tws_header header = {"X-One", "1"};

    t->stand = s;
    snprintf(t->url, sizeof t->url, "%s://localhost%s/", scheme, strrchr(s->address, ':'));
    tws_dial_options_init(&t->opt);
    t->opt.allocator = fault_allocator();
    t->opt.headers = &header;
    t->opt.header_count = 1;
    t->opt.subprotocols = protocols;
    t->opt.subprotocol_count = 1;
    t->opt.timeout = SCENE_MS;
    conn_times(&t->opt.conn);
}

void scene_dial(bool light)
{
    tws_server_options opt;
    struct stand s;
    struct talk t;

    stand_options(&opt, light);
    if (!stand_open(&s, &opt, true))
        die("a server does not start");
    talk_options(&t, &s, "ws");
    on_thread(light, dial_and_talk, &t);
    on_thread(light, dial_events, &t);
    stand_close(&s);
}

static void deflate(bool light, bool takeover)
{
    tws_deflate_options d;
    tws_server_options opt;
    struct stand s;
    struct talk t;

    tws_deflate_options_init(&d);
    d.server_no_context_takeover = d.client_no_context_takeover = !takeover;
    d.threshold = 0;
    stand_options(&opt, light);
    opt.upgrade.deflate = &d;
    if (!stand_open(&s, &opt, true))
        die("a server does not start");
    talk_options(&t, &s, "ws");
    t.opt.deflate = &d;
    on_thread(light, dial_and_talk, &t);
    stand_close(&s);
}

void scene_deflate(bool light)
{
    deflate(light, false);
}

void scene_takeover(bool light)
{
    deflate(light, true);
}
