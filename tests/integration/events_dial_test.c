/*
 * Events on connections that were dialled, upgraded, or chosen one by one; who keeps what for how
 * long.
 */
#include "support_dial.h"
#include "support_events.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- A server to dial, and a client of events ---- */

struct link {
    struct support_census before;
    struct support_server s;
    char url[200];
    tws_group *group; /* of the kind that the environment asks for */
    tws_events events;
    tws_dial_options dial;
    struct diary diary;
};

static void link_open(struct link *l, const tws_server_options *opt)
{
    tws_server_options o;

    memset(l, 0, sizeof *l);
    l->before = support_census();
    support_server_options(&o, support_echo, NULL);
    support_server_start(&l->s, opt ? opt : &o);
    snprintf(l->url, sizeof l->url, "ws://%s/", l->s.address);
    l->group = dialing_group();
    diary_events(&l->events, 0);
    tws_dial_options_init(&l->dial);
    l->dial.events = &l->events;
    l->dial.events_arg = &l->diary;
}

static void link_close(struct link *l, int connections)
{
    tws_server_free(l->s.server);
    tws_group_free(l->group);
    diary_end(&l->diary);
    assert_int_equal(atomic_load(&l->diary.opened), connections);
    assert_int_equal(atomic_load(&l->diary.closed), connections);
    assert_false(atomic_load(&l->diary.wrong));
    support_assert_census(l->before);
}

static void ask(tws_conn *c, struct diary *d)
{
    (void)d;
    tws_write_text(c, "question");
}

static void count_answer(tws_conn *c, tws_message *m, struct diary *d)
{
    (void)c;
    if (strcmp(m->data, "question") != 0)
        atomic_store(&d->wrong, true);
}

/* ---- Dialling ---- */

/* On a thread of a group, or of the library's own; with and without a handle for the caller. */
static void test_dial(void **state)
{
    (void)state;
    for (int way = 0; way < 8; way++) {
        struct link l;
        tws_conn *c = NULL;
        tws_error e;

        link_open(&l, NULL);
        l.diary.on_open = ask;
        l.diary.on_message = count_answer;
        l.dial.group = way & 1 ? l.group : NULL;
        l.events.parallel = way & 4 ? 3 : 0;
        assert_ok(tws_dial(way & 2 ? &c : NULL, l.url, &l.dial, NULL, &e));
        assert_int_equal(e.code, TWS_OK);
        WAIT_FOR(atomic_load(&l.diary.messages) == 1);
        if (c)
            assert_ptr_equal(c, atomic_load(&l.diary.conn));
        else
            c = tws_conn_ref(atomic_load(&l.diary.conn));
        assert_ok(tws_close(c, TWS_CLOSE_NORMAL, NULL));
        assert_ok(tws_events_wait(c, TWS_NO_LIMIT));
        assert_int_equal(atomic_load(&l.diary.closed), 1);
        assert_int_equal(l.diary.error.code, TWS_ERR_CLOSED);
        assert_ok(tws_events_wait(c, TWS_NOWAIT));
        tws_conn_unref(c);
        link_close(&l, 1);
    }
}

/* B131: the caller gives its reference back at once; the connection goes on until it is closed, and
 * nothing is called after on_close. */
static void test_reference(void **state)
{
    (void)state;
    for (int way = 0; way < 2; way++) {
        struct link l;
        tws_conn *c;

        link_open(&l, NULL);
        l.diary.on_open = ask;
        l.diary.on_message = count_answer;
        l.dial.group = way ? l.group : NULL;
        assert_ok(tws_dial(&c, l.url, &l.dial, NULL, NULL));
        tws_conn_unref(c);
        for (int i = 2; i < 5; i++) {
            WAIT_FOR(atomic_load(&l.diary.messages) == i - 1);
            assert_ok(tws_write_text(c, "question"));
        }
        tws_server_drain(l.s.server, SUPPORT_HANG_MS);
        assert_ok(tws_events_wait(c, SUPPORT_HANG_MS));
        assert_int_equal(l.diary.error.code, TWS_ERR_PEER_CLOSED);
        assert_int_equal(l.diary.error.close_code, 1001);
        link_close(&l, 1);
    }
}

/* Nobody but its thread keeps the connection, which may be gone before the dial has returned. */
static void hang_up(tws_conn *c, void *arg)
{
    (void)arg;
    tws_abort(c);
}

static void count_close(tws_conn *c, const tws_error *e, void *arg)
{
    (void)c;
    (void)e;
    atomic_fetch_add((_Atomic int *)arg, 1);
}

static void test_nobody_keeps(void **state)
{
    tws_server_options opt;
    _Atomic int closed = 0;
    struct link l;

    (void)state;
    support_server_options(&opt, hang_up, NULL);
    link_open(&l, &opt);
    tws_events_init(&l.events);
    l.events.on_close = count_close;
    l.dial.events_arg = &closed;
    for (int i = 0; i < 20; i++)
        assert_ok(tws_dial(NULL, l.url, &l.dial, NULL, NULL));
    WAIT_FOR(atomic_load(&closed) == 20);
    link_close(&l, 0);
}

/* The last reference may go inside on_close. */
static void let_go(tws_conn *c, const tws_error *e, void *arg)
{
    (void)e;
    tws_conn_unref(c);
    atomic_store((_Atomic bool *)arg, true);
}

static void test_unref_in_close(void **state)
{
    struct link l;
    _Atomic bool gone = false;
    tws_events ev;
    tws_conn *c;

    (void)state;
    link_open(&l, NULL);
    tws_events_init(&ev);
    ev.on_close = let_go;
    l.dial.events = &ev;
    l.dial.events_arg = &gone;
    assert_ok(tws_dial(&c, l.url, &l.dial, NULL, NULL));
    tws_server_drain(l.s.server, SUPPORT_HANG_MS);
    WAIT_FOR(atomic_load(&gone));
    link_close(&l, 0);
}

struct own_dial {
    struct link *l;
    tws_err err;
    _Atomic bool done;
};

static void dial_here(void *arg)
{
    struct own_dial *o = arg;

    o->err = tws_dial(NULL, o->l->url, &o->l->dial, NULL, NULL);
    atomic_store(&o->done, true);
}

/* Called on a thread of a group, the events run on another one of that group. */
static void test_dial_within_group(void **state)
{
    struct own_dial o;
    struct link l;

    (void)state;
    link_open(&l, NULL);
    o = (struct own_dial){.l = &l};
    assert_ok(tws_group_spawn(l.group, dial_here, &o));
    WAIT_FOR(atomic_load(&o.done) && atomic_load(&l.diary.opened) == 1);
    assert_ok(o.err);
    WAIT_FOR(tws_group_count(l.group) == 1);
    assert_ok(tws_close(atomic_load(&l.diary.conn), TWS_CLOSE_NORMAL, NULL));
    assert_ok(tws_group_wait(l.group, SUPPORT_HANG_MS));
    assert_int_equal(atomic_load(&l.diary.closed), 1);
    link_close(&l, 1);
}

/* ---- Dials that fail ---- */

static bool refuse(const tws_request *r, tws_reply *a, void *arg)
{
    (void)r;
    (void)a;
    (void)arg;
    return false;
}

static void test_refused(void **state)
{
    (void)state;
    for (int way = 0; way < 2; way++) {
        tws_server_options opt;
        tws_response *response;
        struct link l;
        tws_error e;
        tws_conn *c;

        support_server_options(&opt, support_echo, NULL);
        opt.upgrade.on_upgrade = refuse;
        link_open(&l, &opt);
        l.dial.group = way ? l.group : NULL;
        assert_err(tws_dial(&c, l.url, &l.dial, &response, &e), TWS_ERR_REFUSED);
        assert_null(c);
        assert_int_equal(e.http_status, 403);
        assert_int_equal(tws_response_status(response), 403);
        tws_response_free(response);
        link_close(&l, 0);
    }
}

/* An option that is not allowed; the descriptor is closed all the same. */
static void check_refusal(struct link *l, tws_conn **out, const char *word)
{
    int fd[2];
    char byte;
    tws_error e;

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd), 0);
    l->dial.fd = fd[1];
    assert_err(tws_dial(out, l->url, &l->dial, NULL, &e), TWS_ERR_ARGUMENT);
    assert_non_null(strstr(e.text, word));
    assert_int_equal(read(fd[0], &byte, 1), 0);
    close(fd[0]);
    l->dial.fd = -1;
}

static void test_options(void **state)
{
    struct link l;
    tws_conn *c;

    (void)state;
    link_open(&l, NULL);
    l.events.parallel = TWS_PARALLEL_MAX + 1;
    check_refusal(&l, &c, "parallel");
    l.events.size = 1;
    check_refusal(&l, &c, "initialised");
    l.dial.events = NULL;
    check_refusal(&l, NULL, "out");
    l.dial.group = l.group;
    check_refusal(&l, &c, "group");
    l.dial.size = 1;
    assert_err(tws_dial(&c, l.url, &l.dial, NULL, NULL), TWS_ERR_ARGUMENT);
    link_close(&l, 0);
}

/* ---- tws_run ---- */

struct upgraded {
    int fd;
    struct diary diary;
    tws_err err, again;
    pthread_t thread;
};

static void *serve(void *arg)
{
    struct upgraded *u = arg;
    tws_events ev;
    tws_conn *c;

    diary_events(&ev, 0);
    if (tws_upgrade(&c, u->fd, NULL, 0, NULL, NULL) != TWS_OK)
        return NULL;
    if (tws_run(c, NULL, NULL) != TWS_ERR_ARGUMENT || tws_events_wait(c, 0) != TWS_OK)
        atomic_store(&u->diary.wrong, true);
    u->err = tws_run(c, &ev, &u->diary);
    u->again = tws_run(c, &ev, &u->diary);
    tws_conn_unref(c);
    return NULL;
}

/* On a connection that somebody else accepted; once only. */
static void test_upgraded(void **state)
{
    struct upgraded u = {.fd = -1};
    struct client c;
    int fd[2];

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd), 0);
    u.fd = fd[1];
    support_thread(&u.thread, serve, &u);
    assert_int_equal(client_upgrade(&c, fd[0], NULL), 101);
    client_send_text(&c, "hello");
    client_expect_text(&c, "hello");
    client_send_close(&c, 1000, "");
    client_expect_close(&c, 1000, "");
    client_expect_eof(&c);
    client_close(&c);
    pthread_join(u.thread, NULL);
    assert_err(u.err, TWS_ERR_PEER_CLOSED);
    assert_err(u.again, TWS_ERR_STATE);
    assert_int_equal(atomic_load(&u.diary.opened), 1);
    assert_int_equal(atomic_load(&u.diary.closed), 1);
    assert_false(atomic_load(&u.diary.wrong));
    diary_end(&u.diary);
}

/* ---- Handing over ---- */

struct receiver {
    pthread_t thread;
    tws_handoff *way;
    tws_server *server;
    tws_err err;
};

static void *receive(void *arg)
{
    struct receiver *r = arg;

    r->err = tws_handoff_serve(r->way, r->server, SUPPORT_HANG_MS, NULL);
    return NULL;
}

/* A connection that goes on elsewhere is closed here, and opened there. */
static void test_handed_over(void **state)
{
    struct stage old = {.diary = {.opened = 0}}, new = {.diary = {.opened = 0}};
    struct receiver r;
    tws_server_options opt;
    tws_handoff *way;
    int fd[2];

    (void)state;
    support_server_options(&opt, NULL, NULL);
    opt.upgrade.conn.handoff = true;
    stage_open(&old, 0, &opt);
    stage_open(&new, 0, &opt);
    client_close(&new.client); /* that server's own first one */
    stage_await_close(&new);
    diary_end(&new.diary);
    atomic_store(&new.diary.opened, 0);
    atomic_store(&new.diary.closed, 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd), 0);
    assert_ok(tws_handoff_new(&way, fd[0]));
    assert_ok(tws_handoff_new(&r.way, fd[1]));
    r.server = new.s.server;
    support_thread(&r.thread, receive, &r);
    WAIT_FOR(atomic_load(&old.diary.conn) != NULL);
    assert_ok(tws_handoff_send(way, atomic_load(&old.diary.conn), NULL, 0, SUPPORT_HANG_MS, NULL));
    pthread_join(r.thread, NULL);
    assert_ok(r.err);
    stage_await_close(&old);
    assert_int_equal(old.diary.error.code, TWS_ERR_HANDED_OVER);
    client_send_text(&old.client, "over there");
    client_expect_text(&old.client, "over there");
    assert_int_equal(atomic_load(&old.diary.messages), 0);
    client_close(&old.client);
    stage_await_close(&new);
    tws_handoff_free(way);
    tws_handoff_free(r.way);
    new.before = old.before;
    diary_end(&old.diary);
    tws_server_free(old.s.server);
    old.s.server = NULL;
    stage_close(&new);
    stage_close(&old);
}

/* Both faces in one server, by the path. */
static void shout(tws_conn *c, tws_message *m, void *arg)
{
    (void)arg;
    (void)m;
    tws_write_text(c, "EVENTS");
}

static void choose(tws_conn *c, void *arg)
{
    if (strstr(tws_request_query(tws_conn_request(c)), "events")) {
        tws_events ev;

        tws_events_init(&ev);
        ev.on_message = shout;
        tws_run(c, &ev, arg);
    } else {
        support_echo(c, arg);
    }
}

static void talk(const char *address, const char *path, const char *expected)
{
    tws_message m;
    tws_conn *c;
    char url[200];

    snprintf(url, sizeof url, "ws://%s%s", address, path);
    assert_ok(tws_dial(&c, url, NULL, NULL, NULL));
    assert_ok(tws_write_text(c, "loop"));
    assert_ok(tws_read_message(c, &m));
    assert_string_equal(m.data, expected);
    assert_ok(tws_close(c, TWS_CLOSE_NORMAL, NULL));
    tws_conn_unref(c);
}

static void test_both_faces(void **state)
{
    struct support_census before = support_census();
    struct support_server s;
    tws_server_options opt;

    (void)state;
    support_server_options(&opt, choose, NULL);
    support_server_start(&s, &opt);
    talk(s.address, "/", "loop");
    talk(s.address, "/?events", "EVENTS");
    talk(s.address, "/", "loop");
    tws_server_free(s.server);
    support_assert_census(before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dial),
        cmocka_unit_test(test_reference),
        cmocka_unit_test(test_nobody_keeps),
        cmocka_unit_test(test_unref_in_close),
        cmocka_unit_test(test_dial_within_group),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_upgraded),
        cmocka_unit_test(test_handed_over),
        cmocka_unit_test(test_both_faces),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
