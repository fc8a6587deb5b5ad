/* Who gets what, in which order, and what a publisher is told. */
#include "party.h"

#include <stdio.h>
#include <stdlib.h>

static uint64_t accepted(const tws_publish_result *r)
{
    return r->sent + r->queued;
}

static bool everybody_has(const struct party *p, size_t count)
{
    for (size_t i = 0; i < p->count; i++)
        if (atomic_load(&p->logs[i].count) < count)
            return false;
    return true;
}

/* ---- Who gets it ---- */

struct odd {
    const struct party *p;
    _Atomic unsigned asked;
};

static bool is_odd(tws_conn *c, void *arg)
{
    struct odd *o = arg;

    atomic_fetch_add(&o->asked, 1);
    for (size_t i = 1; i < o->p->count; i += 2)
        if (o->p->conns[i] == c)
            return true;
    return false;
}

static void test_recipients(void **state)
{
    tws_publish_options how;
    tws_publish_result r;
    struct party_note n = {0, 0};
    struct party p;
    struct odd odd = {.p = &p};
    tws_prepared *m;

    (void)state;
    party_open(&p, 10, NULL, NULL);
    memset(&r, 0xff, sizeof r);
    assert_ok(party_publish(&p, "room", n, 8, &r)); /* nobody there */
    assert_int_equal(accepted(&r) + r.dropped + r.failed + r.skipped, 0);
    for (size_t i = 0; i < 6; i++)
        assert_ok(tws_hub_join(p.hub, p.conns[i], "room"));
    for (size_t i = 4; i < 10; i++)
        assert_ok(tws_hub_join(p.hub, p.conns[i], "other"));
    assert_ok(tws_prepared_new(&m, TWS_BINARY, &n, sizeof n));

    assert_ok(tws_hub_publish(p.hub, "room", m, NULL, &r));
    assert_int_equal(accepted(&r), 6);
    assert_ok(tws_hub_publish(p.hub, NULL, m, NULL, &r)); /* all, each once */
    assert_int_equal(accepted(&r), 10);
    tws_publish_options_init(&how);
    how.except = p.conns[4];
    assert_ok(tws_hub_publish(p.hub, "other", m, &how, &r));
    assert_int_equal(accepted(&r), 5);
    assert_int_equal(r.skipped, 1);
    how.except = p.conns[0]; /* not a member: nobody is left out */
    assert_ok(tws_hub_publish(p.hub, "other", m, &how, NULL));
    how.except = p.conns[5];
    how.filter = is_odd;
    how.arg = &odd;
    assert_ok(tws_hub_publish(p.hub, "other", m, &how, &r)); /* 7, 9 */
    assert_int_equal(accepted(&r), 2);
    assert_int_equal(r.skipped, 4);
    assert_int_equal(atomic_load(&odd.asked), 5);
    tws_prepared_unref(m);
    assert_ok(tws_hub_publish_message(p.hub, "room", TWS_BINARY, &n, sizeof n, p.conns[0], &r));
    assert_int_equal(accepted(&r), 5);
    assert_int_equal(r.skipped, 1);

    static const size_t wanted[10] = {2, 3, 3, 3, 4, 5, 3, 4, 3, 4};
    for (size_t i = 0; i < 10; i++)
        WAIT_FOR(atomic_load(&p.logs[i].count) == wanted[i]);
    assert_ok(party_publish(&p, NULL, n, 100, NULL)); /* nothing more comes before this */
    for (size_t i = 0; i < 10; i++)
        WAIT_FOR(atomic_load(&p.logs[i].count) == wanted[i] + 1);
    tws_abort(p.conns[9]);
    assert_ok(party_publish(&p, NULL, n, 8, &r)); /* whether it has left already or not */
    assert_int_equal(accepted(&r), 9);
    assert_in_range(r.failed, 0, 1);
    party_close(&p);
}

/* An empty message, text, and one of some size arrive as they are. */
static void test_payloads(void **state)
{
    static const size_t sizes[] = {8, 125, 126, 127, 1000, 8000};
    enum { SIZES = sizeof sizes / sizeof *sizes };
    struct client_frame f;
    struct client raw;
    struct party p;
    uint8_t big[70000];

    (void)state;
    party_open(&p, 3, NULL, NULL);
    party_join_all(&p, "room");
    for (uint32_t i = 0; i < SIZES; i++)
        assert_ok(party_publish(&p, "room", (struct party_note){0, i}, sizes[i], NULL));
    WAIT_FOR(everybody_has(&p, SIZES));
    for (size_t i = 0; i < 3; i++)
        assert_true(party_complete(&p, i, 1, SIZES));
    p.conns = realloc(p.conns, 4 * sizeof *p.conns);
    p.conns[3] = NULL;
    /* One more client, whose frames the test looks at itself. */
    {
        int fd = client_dial(p.s.address);
        const char *request = "GET /3 HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\n"
                              "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                              "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

        memset(&raw, 0, sizeof raw);
        raw.fd = fd;
        assert_true(client_send_bytes(fd, request, strlen(request)));
        assert_int_equal(client_read_head(&raw), 101);
    }
    WAIT_FOR(p.conns[3] != NULL);
    assert_ok(tws_hub_join(p.hub, p.conns[3], "alone"));
    assert_ok(tws_hub_publish_message(p.hub, "alone", TWS_TEXT, NULL, 0, NULL, NULL));
    client_expect(&raw, CLIENT_FIN | CLIENT_TEXT, "", 0);
    assert_ok(tws_hub_publish_message(p.hub, "alone", TWS_TEXT, "grüß", 6, NULL, NULL));
    client_expect(&raw, CLIENT_FIN | CLIENT_TEXT, "grüß", 6);
    support_fill(big, sizeof big, 3);
    assert_ok(tws_hub_publish_message(p.hub, "alone", TWS_BINARY, big, sizeof big, NULL, NULL));
    assert_true(client_next(&raw, &f));
    assert_int_equal(f.opcode, CLIENT_BINARY);
    assert_int_equal(f.len, sizeof big);
    assert_memory_equal(f.data, big, sizeof big);
    client_close(&raw);
    tws_conn_unref(p.conns[3]);
    party_close(&p);
}

/* ---- Forms ---- */

struct forms {
    tws_hub *hub;
    _Atomic unsigned joined;
};

static void joins(tws_conn *c, void *arg)
{
    struct forms *f = arg;
    tws_message m;

    if (tws_hub_join(f->hub, c, "room") == TWS_OK)
        atomic_fetch_add(&f->joined, 1);
    while (!tws_err_is_final(tws_read_message(c, &m))) {
    }
}

/* Members that get the same message plain, compressed, and compressed with a context of their own,
 * on the server's side; and one, a client, that masks it. */
static void test_forms(void **state)
{
    enum { CLIENTS = 6, MESSAGES = 20, LEN = 3000 };
    tws_deflate_options deflate, takeover;
    tws_server_options opt;
    tws_dial_options dial;
    struct support_server s;
    struct forms f = {.joined = 0};
    tws_conn *c[CLIENTS];
    char url[200], text[LEN];

    (void)state;
    tws_deflate_options_init(&deflate);
    tws_deflate_options_init(&takeover);
    takeover.server_no_context_takeover = takeover.client_no_context_takeover = false;
    assert_ok(tws_hub_new(&f.hub, NULL));
    support_server_options(&opt, joins, &f);
    opt.upgrade.deflate = &takeover;
    support_server_start(&s, &opt);
    snprintf(url, sizeof url, "ws://%s/", s.address);
    for (int i = 0; i < CLIENTS; i++) {
        tws_dial_options_init(&dial);
        dial.deflate = i % 3 == 0 ? NULL : i % 3 == 1 ? &deflate : &takeover;
        assert_ok(tws_dial(&c[i], url, &dial, NULL, NULL));
    }
    WAIT_FOR(atomic_load(&f.joined) == CLIENTS);
    for (unsigned n = 0; n < MESSAGES; n++) {
        tws_publish_result r;

        support_fill(text, LEN, n);
        assert_ok(tws_hub_publish_message(f.hub, "room", TWS_TEXT, text, LEN, NULL, &r));
        assert_int_equal(accepted(&r), CLIENTS);
        for (int i = 0; i < CLIENTS; i++) {
            tws_message m;

            assert_ok(tws_read_message(c[i], &m));
            assert_int_equal(m.len, LEN);
            assert_memory_equal(m.data, text, LEN);
        }
    }
    for (int i = 0; i < CLIENTS; i++)
        tws_conn_unref(c[i]);
    tws_server_free(s.server);
    tws_hub_free(f.hub);
}

/* ---- From handlers and filters ---- */

struct relay {
    tws_hub *hub;
    _Atomic unsigned joined, wrong;
};

/* Says everything that it reads to the room it is in itself. */
static void relays(tws_conn *c, void *arg)
{
    struct relay *r = arg;
    tws_publish_result result;
    tws_message m;

    if (tws_hub_join(r->hub, c, "room") != TWS_OK)
        atomic_fetch_add(&r->wrong, 1);
    atomic_fetch_add(&r->joined, 1);
    while (tws_read_message(c, &m) == TWS_OK) {
        if (tws_hub_publish_message(r->hub, "room", m.opcode, m.data, m.len, NULL, &result) ||
            accepted(&result) != 3)
            atomic_fetch_add(&r->wrong, 1);
    }
}

static void test_from_handlers(void **state)
{
    struct relay r = {.wrong = 0};
    struct support_server s;
    tws_server_options opt;
    struct client c[3];
    char text[32];

    (void)state;
    assert_ok(tws_hub_new(&r.hub, NULL));
    support_server_options(&opt, relays, &r);
    support_server_start(&s, &opt);
    for (int i = 0; i < 3; i++)
        client_open(&c[i], s.address);
    WAIT_FOR(atomic_load(&r.joined) == 3);
    for (int round = 0; round < 50; round++) {
        snprintf(text, sizeof text, "round %d", round);
        client_send_text(&c[round % 3], text);
        for (int i = 0; i < 3; i++)
            client_expect_text(&c[i], text);
    }
    assert_int_equal(atomic_load(&r.wrong), 0);
    for (int i = 0; i < 3; i++)
        client_close(&c[i]);
    tws_server_free(s.server);
    tws_hub_free(r.hub);
}

struct nosy {
    struct party *p;
    _Atomic int publish, join, count, each;
};

static bool nothing(tws_conn *c, void *arg)
{
    (void)c;
    (void)arg;
    return true;
}

/* A filter that publishes would wait for itself; it is told so. Everything else it may do. */
static bool nosy_filter(tws_conn *c, void *arg)
{
    struct nosy *n = arg;

    atomic_store(&n->publish,
                 tws_hub_publish_message(n->p->hub, "else", TWS_TEXT, "", 0, NULL, NULL));
    atomic_store(&n->join, tws_hub_join(n->p->hub, c, "else"));
    atomic_store(&n->count, (int)tws_hub_count(n->p->hub, "room"));
    atomic_store(&n->each, (int)tws_hub_each(n->p->hub, "room", nothing, NULL));
    return false;
}

static void test_filter_may_not_publish(void **state)
{
    tws_hub_options opt;
    tws_publish_options how;
    tws_publish_result r;
    tws_prepared *m;
    struct party p;

    (void)state;
    for (int workers = 0; workers <= 2;
         workers += 2) { /* on the publisher's and on others' threads */
        struct nosy n = {.p = &p};

        tws_hub_options_init(&opt);
        opt.workers = workers;
        opt.spread = 1;
        party_open(&p, 80, NULL, &opt);
        party_join_all(&p, "room");
        assert_ok(tws_prepared_new(&m, TWS_TEXT, "", 0));
        tws_publish_options_init(&how);
        how.filter = nosy_filter;
        how.arg = &n;
        assert_ok(tws_hub_publish(p.hub, "room", m, &how, &r));
        assert_int_equal(r.skipped, 80);
        assert_err((tws_err)atomic_load(&n.publish), TWS_ERR_STATE);
        assert_err((tws_err)atomic_load(&n.join), TWS_OK);
        assert_int_equal(atomic_load(&n.count), 80);
        assert_int_equal(atomic_load(&n.each), 80);
        assert_int_equal(tws_hub_count(p.hub, "else"), 80);
        assert_ok(tws_hub_publish(p.hub, "else", m, NULL, NULL)); /* this thread may again */
        tws_prepared_unref(m);
        party_close(&p);
    }
}

/* ---- Order ---- */

struct publisher {
    pthread_t thread;
    struct party *p;
    const char *room;
    uint32_t number, count;
    size_t len;
    _Atomic uint64_t sent, queued;
    uint64_t lost;
    tws_err err;
};

static void *publish_all(void *arg)
{
    struct publisher *u = arg;

    for (uint32_t i = 0; i < u->count && !u->err; i++) {
        tws_publish_result r;

        u->err = party_publish(u->p, u->room, (struct party_note){u->number, i}, u->len, &r);
        atomic_fetch_add(&u->sent, r.sent);
        atomic_fetch_add(&u->queued, r.queued);
        u->lost += r.dropped + r.failed + r.skipped;
    }
    return NULL;
}

/* With to_all, every second one publishes to all. */
static void start_publishers(struct publisher *u, size_t n, struct party *p, uint32_t each,
                             size_t len, bool to_all)
{
    for (size_t i = 0; i < n; i++) {
        u[i] = (struct publisher){.p = p,
                                  .room = to_all && i % 2 ? NULL : "room",
                                  .number = (uint32_t)i,
                                  .count = each,
                                  .len = len};
        support_thread(&u[i].thread, publish_all, &u[i]);
    }
}

/* Joins them: no member of the room was left out. */
static void join_publishers(struct publisher *u, size_t n, uint64_t members)
{
    for (size_t i = 0; i < n; i++) {
        pthread_join(u[i].thread, NULL);
        assert_ok(u[i].err);
        assert_int_equal(u[i].lost, 0);
        assert_int_equal(u[i].sent + u[i].queued, members * u[i].count);
    }
}

static void check_order(const struct party *p, uint32_t publishers, uint32_t each)
{
    for (size_t i = 0; i < p->count; i++) {
        assert_true(party_complete(p, i, publishers, each));
        assert_true(party_same_order(p, 0, i));
    }
}

/* Two publishers, one room, a thousand members: one order, that of each publisher kept. */
static void test_order_of_two(void **state)
{
    enum { EACH = 20 };
    struct publisher u[2];
    tws_hub_stats st;
    struct party p;

    (void)state;
    party_open(&p, 1000, NULL, NULL);
    party_join_all(&p, "room");
    start_publishers(u, 2, &p, EACH, 1000, false);
    join_publishers(u, 2, 1000);
    WAIT_FOR(everybody_has(&p, 2 * EACH));
    check_order(&p, 2, EACH);
    tws_hub_get_stats(p.hub, &st);
    assert_int_equal(st.publishes, 2 * EACH);
    assert_int_equal(st.sent + st.queued, 2 * EACH * 1000);
    party_close(&p);
}

/* The same while workers share the work, a quarter of the members has to queue everything, and half
 * of the messages go to all. */
static void test_order_all_ways(void **state)
{
    enum { MEMBERS = 200, PUBLISHERS = 6, EACH = 50 };
    struct publisher u[PUBLISHERS];
    tws_server_options opt;
    tws_hub_options hub;
    tws_hub_stats st;
    struct party p;
    uint64_t queued = 0;

    (void)state;
    tws_hub_options_init(&hub);
    hub.workers = 3;
    hub.spread = 20;
    party_options(&opt, &p);
    opt.upgrade.conn.queue.max_bytes = 0;
    opt.upgrade.conn.queue.max_messages = 0;
    party_open(&p, MEMBERS, &opt, &hub);
    party_join_all(&p, "room");
    for (size_t i = 0; i < MEMBERS; i += 4)
        crowd_pace(p.crowd, i, 0);
    start_publishers(u, PUBLISHERS, &p, EACH, 8000, true); /* all are in the room here */
    join_publishers(u, PUBLISHERS, MEMBERS);
    for (int i = 0; i < PUBLISHERS; i++)
        queued += u[i].queued;
    assert_true(queued > 0);
    for (size_t i = 0; i < MEMBERS; i += 4)
        crowd_pace(p.crowd, i, CROWD_ALL);
    WAIT_FOR(everybody_has(&p, PUBLISHERS * EACH));
    check_order(&p, PUBLISHERS, EACH);
    tws_hub_get_stats(p.hub, &st);
    assert_true(st.spread > 0);
    assert_in_range(st.workers, 0, 3);
    party_close(&p);
}

/* ---- Joining and leaving meanwhile ---- */

struct stay {
    struct party *p;
    _Atomic uint32_t called, returned; /* publishes */
    _Atomic bool stop;
    tws_err err;
};

static void *publish_on(void *arg)
{
    struct stay *s = arg;

    while (!atomic_load(&s->stop) && !s->err) {
        uint32_t n = atomic_fetch_add(&s->called, 1);

        s->err = party_publish(s->p, "room", (struct party_note){0, n}, 16, NULL);
        atomic_store(&s->returned, n + 1);
    }
    return NULL;
}

/* All in one piece: nothing missing, nothing twice; and where it begins and ends. */
static void check_piece(const struct party *p, size_t client, uint32_t not_before,
                        uint32_t first_by, uint32_t at_least_to, uint32_t end)
{
    const struct party_log *l = &p->logs[client];
    size_t count = atomic_load(&l->count);

    for (size_t i = 1; i < count; i++)
        assert_int_equal(l->notes[i].number, l->notes[i - 1].number + 1);
    if (at_least_to > first_by)
        assert_true(count > 0);
    if (count > 0) {
        assert_in_range(l->notes[0].number, not_before, first_by);
        assert_true(l->notes[count - 1].number + 1 >= at_least_to);
        assert_true(l->notes[count - 1].number < end);
    }
}

static void test_joins_and_leaves_meanwhile(void **state)
{
    enum { MEMBERS = 150 };
    uint32_t before[MEMBERS], joined[MEMBERS], leaving[MEMBERS], left[MEMBERS];
    struct party p;
    struct stay s = {.p = &p};
    pthread_t publisher;

    (void)state;
    party_open(&p, MEMBERS, NULL, NULL);
    support_thread(&publisher, publish_on, &s);
    for (size_t i = 0; i < MEMBERS; i++) {
        before[i] = atomic_load(&s.returned);
        assert_ok(tws_hub_join(p.hub, p.conns[i], "room"));
        joined[i] = atomic_load(&s.called);
        if (i % 10 == 0) {
            uint32_t more = atomic_load(&s.returned) + 3;

            WAIT_FOR(atomic_load(&s.returned) >= more);
        }
    }
    for (size_t i = 0; i < MEMBERS; i++) {
        leaving[i] = atomic_load(&s.returned);
        assert_ok(tws_hub_leave(p.hub, p.conns[i], "room"));
        left[i] = atomic_load(&s.called);
        if (i % 10 == 0) {
            uint32_t more = atomic_load(&s.returned) + 3;

            WAIT_FOR(atomic_load(&s.returned) >= more);
        }
    }
    atomic_store(&s.stop, true);
    pthread_join(publisher, NULL);
    assert_ok(s.err);
    /* One message more to each marks the end of what can still come. */
    for (size_t i = 0; i < MEMBERS; i++) {
        size_t count;

        WAIT_FOR((count = atomic_load(&p.logs[i].count)) >= leaving[i] - joined[i]);
        assert_ok(tws_hub_join(p.hub, p.conns[i], "last"));
    }
    assert_ok(party_publish(&p, "last", (struct party_note){9, 9}, 8, NULL));
    for (size_t i = 0; i < MEMBERS; i++) {
        struct party_log *l = &p.logs[i];

        WAIT_FOR(atomic_load(&l->count) > 0 && l->notes[l->count - 1].publisher == 9);
        l->count--;
        check_piece(&p, i, before[i], joined[i], leaving[i], left[i]);
    }
    party_close(&p);
}

/* Whoever leaves and comes back in the middle of a publish gets that message once at most. */
static void test_no_message_twice(void **state)
{
    enum { MEMBERS = 200, ROUNDS = 200 };
    struct party p;
    struct stay s = {.p = &p};
    pthread_t publisher;

    (void)state;
    party_open(&p, MEMBERS, NULL, NULL);
    party_join_all(&p, "room");
    support_thread(&publisher, publish_on, &s);
    for (int round = 0; round < ROUNDS; round++) {
        /* The first member moves to a slot behind, the last one to one in front. */
        size_t i = round % 2 ? 0 : MEMBERS - 1;

        assert_ok(tws_hub_leave(p.hub, p.conns[i], "room"));
        assert_ok(tws_hub_leave(p.hub, p.conns[MEMBERS / 2], "room"));
        assert_ok(tws_hub_join(p.hub, p.conns[i], "room"));
        assert_ok(tws_hub_join(p.hub, p.conns[MEMBERS / 2], "room"));
    }
    atomic_store(&s.stop, true);
    pthread_join(publisher, NULL);
    assert_ok(s.err);
    WAIT_FOR(atomic_load(&p.logs[1].count) == atomic_load(&s.called));
    for (size_t i = 0; i < MEMBERS; i++) {
        const struct party_log *l = &p.logs[i];
        bool moved = i == 0 || i == MEMBERS - 1 || i == MEMBERS / 2;

        if (!moved)
            WAIT_FOR(atomic_load(&l->count) == atomic_load(&s.called));
        for (size_t k = 1; k < atomic_load(&l->count); k++)
            assert_true(moved ? l->notes[k].number > l->notes[k - 1].number
                              : l->notes[k].number == l->notes[k - 1].number + 1);
    }
    party_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recipients),
        cmocka_unit_test(test_payloads),
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_from_handlers),
        cmocka_unit_test(test_filter_may_not_publish),
        cmocka_unit_test(test_order_of_two),
        cmocka_unit_test(test_order_all_ways),
        cmocka_unit_test(test_joins_and_leaves_meanwhile),
        cmocka_unit_test(test_no_message_twice),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
