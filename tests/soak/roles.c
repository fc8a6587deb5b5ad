/* roles.c: what the actors of a soak's client do. */
#include "client.h"

#include <stdio.h>
#include <string.h>

/* An ending that nobody asked for. */
static void fail_ended(struct actor *a, tws_conn *c)
{
    tws_error error;
    if (!a->failed) {
        tws_conn_error(c, &error);
        fail(a, "%s: %s", tws_err_name(error.code), error.text);
    }
}

/*
 * How much a connection does before it leaves. What an actor's first one does is a matter of chance: all of
 * them begin at the same time, and would leave together again and again, more loosely each time. The least
 * memory of a while, just after they have left, would rise for an hour.
 */
static int rounds(struct actor *a, int most)
{
    return a->dials > 0 ? most : 1 + (int)dice_below(&a->dice, (uint64_t)most);
}

/* ---- Echoes, on connections that stay for some minutes ---- */

static void talk(struct actor *a, const char *path)
{
    int most = rounds(a, 1000);
    tws_conn *c = dial(a, path);
    for (int i = 0; c != NULL && i < most && pause_for(a, 500); i++) {
        bool ok = dice_below(&a->dice, 2) != 0 ? burst(a, c, 1 + (unsigned)dice_below(&a->dice, 8))
                                               : round_trip(a, c, dice_size(&a->dice, 256 * 1024));
        if (!ok) {
            fail_ended(a, c);
            break;
        }
    }
    if (c != NULL) {
        hang_up(a, c);
    }
}

static void talk_echo(struct actor *a)
{
    talk(a, "/echo");
}

static void talk_queued(struct actor *a)
{
    talk(a, "/queued");
}

static void talk_stream(struct actor *a)
{
    talk(a, "/stream");
}

/* ---- Big messages ---- */

static void big(struct actor *a)
{
    static const char *const paths[] = {"/echo", "/stream", "/queued"};
    if (!pause_for(a, 30000)) {
        return;
    }
    tws_conn *c = dial(a, paths[a->dials % 3]);
    if (c == NULL) {
        return;
    }
    size_t size =
        dice_below(&a->dice, 2) != 0 ? BIG_MAX : BIG_MAX / (1 + (size_t)dice_below(&a->dice, 20));
    if (!round_trip(a, c, size)) {
        fail_ended(a, c);
    }
    hang_up(a, c);
}

/* ---- Coming and going ---- */

static void churn(struct actor *a)
{
    tws_conn *c = dial(a, "/echo");
    if (c == NULL) {
        return;
    }
    for (uint64_t n = dice_below(&a->dice, 4); n > 0; n--) {
        if (!round_trip(a, c, dice_size(&a->dice, 4096))) {
            fail_ended(a, c);
            break;
        }
    }
    if (a->dials % 4 == 0) {
        tws_abort(c);
        tws_conn_unref(c);
    } else {
        hang_up(a, c);
    }
    pause_for(a, 1000);
}

/* The server answers five messages and ends the connection over the sixth, one way or the other. */
static void until_shot(tws_conn *c, void *arg)
{
    struct actor *a = arg;
    tws_error error;
    atomic_fetch_add(&client.connections, 1);
    for (int i = 0; i < 5 && pause_for(a, 400); i++) {
        if (!round_trip(a, c, dice_size(&a->dice, 2048))) {
            tws_conn_error(c, &error);
            if (error.code != TWS_ERR_CLOSED) { /* by who cancelled */
                fail_ended(a, c);
            }
            break;
        }
    }
    if (stopping() || a->failed) {
        return;
    }
    if (round_trip(a, c, 10)) {
        fail(a, "the server answered after the end");
        return;
    }
    tws_conn_error(c, &error);
    if (error.code == TWS_ERR_PEER_CLOSED
            ? error.close_code != TWS_CLOSE_SERVICE_RESTART
            : error.code != TWS_ERR_EOF && error.code != TWS_ERR_NETWORK &&
                  error.code != TWS_ERR_TRUNCATED && error.code != TWS_ERR_CLOSED) {
        fail_ended(a, c);
    }
}

static void reconnect(struct actor *a)
{
    tws_dial_options opt;
    tws_deflate_options deflate;
    tws_reconnect_options again;
    tws_error error;
    char url[128];
    set_way(a, &opt, &deflate, "/shot", url, sizeof url);
    opt.cancel = client.stop;
    tws_reconnect_options_init(&again);
    again.min_delay = 100;
    again.max_delay = 3000;
    if (tws_reconnect(url, &opt, &again, until_shot, a, &error) != TWS_ERR_CANCELLED) {
        fail(a, "reconnecting ended: %s", error.text);
    }
}

/* ---- Rooms ---- */

/* Reads the next numbered message; false when there is none, or a wrong one, or it is time to stop. */
static bool next_numbered(struct actor *a, tws_conn *c, uint64_t *number)
{
    for (tws_ms waited = 0; waited < PATIENCE_MS; waited += 1000) {
        tws_message m;
        tws_set_timeout(c, TWS_TIMEOUT_READ, 1000);
        tws_err err = tws_read_message(c, &m);
        if (err == TWS_OK) {
            *number = numbered_check(m.data, m.len);
            if (*number == UINT64_MAX) {
                fail(a, "a numbered message of %zu bytes has a wrong byte", m.len);
            }
            atomic_fetch_add(&client.messages, 1);
            atomic_fetch_add(&client.bytes, m.len);
            return !a->failed;
        }
        if (err != TWS_ERR_TIMEOUT) {
            fail_ended(a, c);
            return false;
        }
        if (stopping()) {
            return false;
        }
    }
    fail(a, "nothing came for %d s", PATIENCE_MS / 1000);
    return false;
}

static void listen_in(struct actor *a, const char *path)
{
    int most = rounds(a, 600);
    tws_conn *c = dial(a, path);
    uint64_t number;
    uint64_t expected = 0;
    for (int i = 0; c != NULL && i < most && next_numbered(a, c, &number); i++) {
        if (i > 0 && number != expected) {
            fail(a, "message %llu of the room came in place of %llu", (unsigned long long)number,
                 (unsigned long long)expected);
            break;
        }
        expected = number + 1;
    }
    if (c != NULL) {
        hang_up(a, c);
    }
}

static void room_member(struct actor *a)
{
    listen_in(a, a->number % 3 == 0 ? "/room/klein" : "/room/gr%C3%B6%C3%9Fer");
}

/* The only one that speaks in its room; what it says comes back to it too. */
static void room_speaker(struct actor *a)
{
    int most = rounds(a, 500);
    tws_conn *c = dial(a, a->number % 2 == 0 ? "/room/klein" : "/room/gr%C3%B6%C3%9Fer");
    uint8_t *buf = client.memory.alloc(NUMBERED_MAX, client.memory.arg);
    for (int i = 0; c != NULL && buf != NULL && i < most && pause_for(a, 500); i++) {
        uint64_t number = 0;
        numbered_fill(buf, ++a->seen);
        if (tws_write_message(c, TWS_BINARY, buf, numbered_size(a->seen)) != TWS_OK) {
            fail_ended(a, c);
            break;
        }
        if (!next_numbered(a, c, &number)) {
            break;
        }
        if (number != a->seen) {
            fail(a, "own message %llu came back as %llu", (unsigned long long)a->seen,
                 (unsigned long long)number);
            break;
        }
    }
    if (c != NULL) {
        hang_up(a, c);
    }
    client.memory.release(buf, client.memory.arg);
}

/* ---- Slow readers, and silent ones ---- */

/* Closes in the middle of a flood. A server that is inside a frame then may cut instead of answering. */
static void leave_flood(struct actor *a, tws_conn *c)
{
    tws_err err = a->failed ? TWS_OK : tws_close(c, TWS_CLOSE_GOING_AWAY, NULL);
    if (err == TWS_ERR_NETWORK || err == TWS_ERR_EOF || err == TWS_ERR_TRUNCATED) {
        atomic_fetch_add(&client.cuts, 1);
    } else if (err != TWS_OK) {
        fail_ended(a, c);
    }
    tws_conn_unref(c);
}

static void slow(struct actor *a, const char *path, bool all)
{
    int most = rounds(a, 1000);
    tws_conn *c = dial(a, path);
    uint64_t number;
    uint64_t expected = 0;
    for (int i = 0; c != NULL && i < most && pause_for(a, 100) && next_numbered(a, c, &number);
         i++) {
        if (all ? number != expected : number < expected) {
            fail(a, "message %llu of the flood came in place of %llu", (unsigned long long)number,
                 (unsigned long long)expected);
            break;
        }
        expected = number + 1;
    }
    if (c != NULL && dice_below(&a->dice, 2) != 0 && !a->failed) {
        tws_abort(c);
        tws_conn_unref(c);
    } else if (c != NULL) {
        leave_flood(a, c);
    }
}

static void slow_all(struct actor *a)
{
    slow(a, "/flood/wait", true);
}

static void slow_some(struct actor *a)
{
    slow(a, "/flood/drop", false);
}

static bool on_pong(tws_conn *c, const void *data, size_t len, void *arg)
{
    uint64_t *last = arg;
    (void)c;
    if (len == sizeof *last) {
        memcpy(last, data, len);
    }
    return true;
}

static void silent(struct actor *a)
{
    uint64_t most = (uint64_t)rounds(a, 300);
    tws_conn *c = dial(a, "/echo");
    uint64_t pong = 0;
    if (c == NULL) {
        return;
    }
    tws_set_pong_handler(c, on_pong, &pong);
    for (uint64_t ping = 1; ping <= most && !stopping(); ping++) {
        tws_message m;
        tws_ping(c, &ping, sizeof ping);
        for (tws_ms waited = 0; pong != ping && waited < PATIENCE_MS; waited += 1000) {
            tws_set_timeout(c, TWS_TIMEOUT_READ, 1000);
            if (tws_read_message(c, &m) != TWS_ERR_TIMEOUT) {
                fail_ended(a, c);
                break;
            }
        }
        if (pong != ping && !a->failed) {
            fail(a, "no pong in %d s", PATIENCE_MS / 1000);
        }
        if (a->failed) {
            break;
        }
    }
    hang_up(a, c);
}

/* An even number of each: half run on kernel threads, half on light ones. */
const struct role roles[] = {
    {"room speaker", 2, room_speaker}, /* numbers 0 and 1: one for each room */
    {"room member", 10, room_member},
    {"echo", 12, talk_echo},
    {"queued", 8, talk_queued},
    {"stream", 6, talk_stream},
    {"big", 2, big},
    {"churn", 4, churn},
    {"reconnect", 4, reconnect},
    {"slow, all", 4, slow_all},
    {"slow, some", 4, slow_some},
    {"silent", 4, silent},
    {NULL, 0, NULL},
};
