/*
 * Counters say what was done, never go back, and read well as Prometheus text.
 */
#include "support.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static char text[65536];

/* The value of a sample, with its labels as they stand in the text; -1 when it is not there. */
static long long value_of(const char *sample)
{
    size_t len = strlen(sample);

    for (const char *at = text; (at = strstr(at, sample)); at += len)
        if ((at == text || at[-1] == '\n') && at[len] == ' ')
            return strtoll(at + len, NULL, 10);
    return -1;
}

static void scrape(tws_server *s)
{
    assert_in_range(tws_server_metrics(s, text, sizeof text), 1000, 32767); /* 32 KiB is enough */
}

#define assert_sample(sample, wanted) assert_int_equal(value_of(sample), wanted)

/* What test_counts has done, when both connections have ended. */
static void check_last_samples(tws_server *server)
{
    scrape(server);
    assert_sample("tws_connections_open", 0);
    assert_sample("tws_handshakes_open", 0);
    assert_sample("tws_connections_accepted_total", 3);
    assert_sample("tws_connections_upgraded_total", 2);
    assert_sample("tws_connections_refused_total{reason=\"full\"}", 1);
    assert_sample("tws_connections_closed_total{code=\"1000\"}", 1);
    assert_sample("tws_connections_closed_total{code=\"1007\"}", 1);
    assert_sample("tws_connections_closed_total{code=\"1006\"}", 0);
    assert_sample("tws_connection_errors_total{error=\"TWS_ERR_UTF8\"}", 1);
    assert_sample("tws_connection_errors_total{error=\"TWS_ERR_EOF\"}", 0);
    assert_sample("tws_messages_total{direction=\"in\"}", 11);
    assert_sample("tws_messages_total{direction=\"out\"}", 11);
    assert_sample("tws_payload_bytes_total{direction=\"in\"}", 50);
    assert_sample("tws_pings_total{direction=\"in\"}", 1);
    assert_sample("tws_threads", 0);
}

/* Two connections that do a known number of things and end in known ways. */
static void test_counts(void **state)
{
    tws_server_options opt;
    tws_server_stats st;
    struct support_server s;
    struct client a, b;
    char answer[512];

    (void)state;
    support_server_options(&opt, support_echo, NULL);
    opt.max_connections = 2;
    support_server_start(&s, &opt);
    client_open(&a, s.address);
    client_open(&b, s.address);
    for (int i = 0; i < 10; i++) {
        client_send(&a, CLIENT_FIN | CLIENT_TEXT, "12345", 5);
        client_expect(&a, CLIENT_FIN | CLIENT_TEXT, "12345", 5);
    }
    client_send(&b, CLIENT_FIN | CLIENT_PING, "p", 1);
    client_expect(&b, CLIENT_FIN | CLIENT_PONG, "p", 1);
    client_send(&b, CLIENT_FIN | CLIENT_PONG, "p", 1);
    client_send(&b, CLIENT_FIN | CLIENT_BINARY, NULL, 0);
    client_expect(&b, CLIENT_FIN | CLIENT_BINARY, NULL, 0);
    assert_int_equal(client_http(s.address, "", answer, sizeof answer), 503);
    WAIT_FOR((tws_server_get_stats(s.server, &st), st.messages_out == 11));
    assert_int_equal(st.open, 2);
    assert_int_equal(st.handshaking, 0);
    assert_int_equal(st.accepted, 3);
    assert_int_equal(st.upgraded, 2);
    assert_int_equal(st.refused_full, 1);
    assert_int_equal(st.refused_address + st.refused_descriptors + st.refused_threads, 0);
    assert_int_equal(st.threads, 2);
    assert_int_equal(st.messages_in, 11);
    assert_int_equal(st.bytes_in, 50);
    assert_int_equal(st.bytes_out, 50);
    assert_int_equal(st.wire_in, 10 * 11 + 7 + 7 + 6);
    assert_int_equal(st.wire_out, 10 * 7 + 3 + 2);
    assert_int_equal(st.pings_in, 1);
    assert_int_equal(st.pongs_out, 1);
    assert_int_equal(st.pongs_in, 1);
    assert_int_equal(st.pings_out, 0);
    scrape(s.server);
    assert_sample("tws_connections_open", 2);
    assert_sample("tws_connections_closed_total{code=\"1000\"}", 0);

    client_send_close(&a, 1000, NULL);
    client_drain(&a);
    client_close(&a);
    client_send(&b, CLIENT_FIN | CLIENT_TEXT, "\xff", 1);
    client_drain(&b);
    client_close(&b);
    WAIT_FOR((tws_server_get_stats(s.server, &st), st.threads == 0));
    check_last_samples(s.server);
    tws_server_free(s.server);
}

/* Handshakes that fail, by reason. */
static void test_handshake_failures(void **state)
{
    static const struct {
        const char *request, *sample;
        int status;
    } failures[] = {
        {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "upgrade_required", 426},
        {"POST / HTTP/1.1\r\nHost: x\r\n\r\n", "method", 405},
        {"rubbish\r\n\r\n", "bad_request", 400},
        {"GET / HTTP/2.7\r\nHost: x\r\n\r\n", "version", 505},
        {"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: upgrade\r\n"
         "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
         "Origin: http://evil\r\n\r\n",
         "origin", 403},
    };
    tws_server_options opt;
    tws_server_stats st;
    struct support_server s;
    char answer[1024], sample[96];

    (void)state;
    support_server_options(&opt, support_echo, NULL);
    support_server_start(&s, &opt);
    for (size_t i = 0; i < sizeof failures / sizeof *failures; i++) {
        snprintf(sample, sizeof sample, "tws_handshakes_failed_total{reason=\"%s\"}",
                 failures[i].sample);
        scrape(s.server);
        assert_sample(sample, 0);
        assert_int_equal(client_http(s.address, failures[i].request, answer, sizeof answer),
                         failures[i].status);
        WAIT_FOR((tws_server_get_stats(s.server, &st), st.threads == 0));
        scrape(s.server);
        assert_sample(sample, 1);
    }
    tws_server_free(s.server);
}

/* ---- The text ---- */

/* A line is a comment of the two known kinds, or a sample of the family that was announced last. */
static void check_line(const char *line, char *family, size_t size)
{
    char name[128], type[16], rest[256];
    const char *at = line;
    char *end;

    if (sscanf(line, "# HELP %127s %255[^\n]", name, rest) == 2) {
        snprintf(family, size, "%s", name);
        return;
    }
    if (sscanf(line, "# TYPE %127s %15s", name, type) == 2) {
        assert_string_equal(name, family);
        assert_true(strcmp(type, "gauge") == 0 || strcmp(type, "counter") == 0);
        assert_int_equal(strcmp(type, "counter") == 0,
                         strlen(name) > 6 && strcmp(name + strlen(name) - 6, "_total") == 0);
        return;
    }
    assert_memory_equal(line, family, strlen(family));
    at += strlen(family);
    if (*at == '{') {
        assert_non_null(strchr(at, '}'));
        at = strchr(at, '}') + 1;
    }
    assert_int_equal(*at, ' ');
    assert_true(isdigit((unsigned char)at[1]));
    strtod(at, &end);
    assert_int_equal(*end, 0);
}

static void check_promtool(void)
{
    FILE *out;

    if (access("/usr/bin/promtool", X_OK) < 0)
        return; /* the lines have been looked at here */
    out = popen("/usr/bin/promtool check metrics >/dev/null 2>&1", "w");
    assert_non_null(out);
    fputs(text, out);
    assert_int_equal(pclose(out), 0);
}

static void test_text(void **state)
{
    char family[128] = "", copy[65536];
    tws_server_options opt;
    struct support_server s;
    char *save = NULL;

    (void)state;
    support_server_options(&opt, support_echo, NULL);
    support_server_start(&s, &opt);
    scrape(s.server);
    assert_int_equal(text[strlen(text) - 1], '\n');
    strcpy(copy, text);
    for (char *line = strtok_r(copy, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
        check_line(line, family, sizeof family);
    check_promtool();
    assert_true(value_of("process_resident_memory_bytes") > 1000000);
    assert_true(value_of("process_cpu_seconds_total") >= 0);
    tws_server_free(s.server);
}

/* Whatever the room, it is never overrun, and what fits is there. */
static void test_small_buffers(void **state)
{
    tws_server_options opt;
    struct support_server s;
    size_t len, same = 0;

    (void)state;
    support_server_options(&opt, support_echo, NULL);
    support_server_start(&s, &opt);
    scrape(s.server);
    len = strlen(text);
    assert_in_range(tws_server_metrics(s.server, NULL, 0), len - 20, len + 20);
    for (size_t size = 1; size < len; size += 1 + size / 7) {
        char *exact = support_alloc(size); /* ASan watches its borders */

        assert_in_range(tws_server_metrics(s.server, exact, size), len - 20, len + 20);
        assert_int_equal(exact[size - 1], 0);
        assert_int_equal(strlen(exact), size - 1);
        same += strncmp(exact, text, size - 1) == 0;
        free(exact);
    }
    assert_true(same > 10);
    tws_server_free(s.server);
}

/* Options of an older program, smaller than today's, and larger ones get what fits. */
static void test_sizes_of_stats(void **state)
{
    union {
        tws_server_stats st;
        unsigned char bytes[sizeof(tws_server_stats) + 64];
    } u;
    struct support_server s;
    tws_server_options opt;

    (void)state;
    support_server_options(&opt, support_echo, NULL);
    support_server_start(&s, &opt);
    memset(&u, 0xee, sizeof u);
    tws_server_stats_sized(s.server, &u.st, sizeof u);
    for (size_t i = sizeof u.st; i < sizeof u; i++)
        assert_int_equal(u.bytes[i], 0);
    memset(&u, 0xee, sizeof u);
    tws_server_stats_sized(s.server, &u.st, 8);
    assert_int_equal(u.st.open, 0);
    for (size_t i = 8; i < sizeof u; i++)
        assert_int_equal(u.bytes[i], 0xee);
    tws_server_free(s.server);
}

/* ---- Never back ---- */

struct watcher {
    pthread_t thread;
    tws_server *server;
    _Atomic bool stop, went_back;
    unsigned rounds;
};

static void *watch_main(void *arg)
{
    struct watcher *w = arg;
    tws_server_stats last = {0}, now;

    while (!atomic_load(&w->stop)) {
        tws_server_get_stats(w->server, &now);
        if (now.messages_in < last.messages_in || now.messages_out < last.messages_out ||
            now.bytes_in < last.bytes_in || now.wire_in < last.wire_in ||
            now.wire_out < last.wire_out || now.accepted < last.accepted ||
            now.upgraded < last.upgraded || now.pings_in < last.pings_in ||
            now.pongs_out < last.pongs_out)
            atomic_store(&w->went_back, true);
        last = now;
        w->rounds++;
    }
    return NULL;
}

static void test_never_back(void **state)
{
    struct watcher w = {.rounds = 0};
    tws_server_options opt;
    tws_server_stats st;
    struct support_server s;

    (void)state;
    support_server_options(&opt, support_echo, NULL);
    support_server_start(&s, &opt);
    w.server = s.server;
    support_thread(&w.thread, watch_main, &w);
    for (int i = 0; i < 150; i++) {
        struct client c;

        client_open(&c, s.address);
        client_send(&c, CLIENT_FIN | CLIENT_PING, NULL, 0);
        client_send_text(&c, "counted");
        client_expect(&c, CLIENT_FIN | CLIENT_PONG, NULL, 0);
        client_expect_text(&c, "counted");
        if (i % 2)
            client_reset(&c);
        else
            client_close(&c);
    }
    WAIT_FOR((tws_server_get_stats(s.server, &st), st.threads == 0));
    atomic_store(&w.stop, true);
    pthread_join(w.thread, NULL);
    assert_false(atomic_load(&w.went_back));
    assert_true(w.rounds > 0);
    assert_int_equal(st.messages_in, 150);
    assert_int_equal(st.messages_out, 150);
    assert_int_equal(st.upgraded, 150);
    tws_server_free(s.server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts),         cmocka_unit_test(test_handshake_failures),
        cmocka_unit_test(test_text),           cmocka_unit_test(test_small_buffers),
        cmocka_unit_test(test_sizes_of_stats), cmocka_unit_test(test_never_back),
    };

    return cmocka_run_group_tests_name("metrics", tests, NULL, NULL);
}
