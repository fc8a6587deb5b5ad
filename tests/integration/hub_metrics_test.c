/* A hub's counters, and their text. */
#include "party.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char text[65536];

/* The value of a sample, with its labels as they stand in the text; -1 when it is not there. */
static double value_of(const char *sample)
{
    size_t len = strlen(sample);

    for (const char *at = text; (at = strstr(at, sample)); at += len)
        if ((at == text || at[-1] == '\n') && at[len] == ' ')
            return strtod(at + len, NULL);
    return -1;
}

#define assert_sample(sample, wanted) assert_true(value_of(sample) == (wanted))

static bool none(tws_conn *c, void *arg)
{
    (void)c;
    (void)arg;
    return false;
}

static void check_histogram(double publishes)
{
    char name[64];
    double last = 0;
    size_t buckets = 0;

    for (const char *at = text; (at = strstr(at, "tws_hub_publish_seconds_bucket{")); at++) {
        size_t len = strcspn(at, " ");
        double n;

        assert_true(len < sizeof name);
        memcpy(name, at, len);
        name[len] = 0;
        n = value_of(name);
        assert_true(n >= last && n <= publishes);
        last = n;
        buckets++;
    }
    assert_int_equal(buckets, TWS_HUB_LATENCIES);
    assert_sample("tws_hub_publish_seconds_bucket{le=\"+Inf\"}", publishes);
    assert_sample("tws_hub_publish_seconds_count", publishes);
    assert_true(value_of("tws_hub_publish_seconds_sum") > 0);
    assert_true(value_of("tws_hub_publish_seconds_sum") < SUPPORT_HANG_MS);
}

static void check_promtool(void)
{
    FILE *out;

    if (access("/usr/bin/promtool", X_OK) < 0)
        return; /* the samples have been looked at here */
    out = popen("/usr/bin/promtool check metrics >/dev/null 2>&1", "w");
    assert_non_null(out);
    fputs(text, out);
    assert_int_equal(pclose(out), 0);
}

static void test_counts(void **state)
{
    tws_publish_options how;
    tws_hub_stats st;
    tws_prepared *m;
    struct party p;
    size_t n;

    (void)state;
    party_open(&p, 5, NULL, NULL);
    party_join_all(&p, "room");
    assert_ok(tws_hub_join(p.hub, p.conns[0], "another"));
    assert_ok(tws_prepared_new(&m, TWS_BINARY, "12345678", 8));
    for (int i = 0; i < 3; i++)
        assert_ok(tws_hub_publish(p.hub, "room", m, NULL, NULL));
    assert_ok(tws_hub_publish(p.hub, NULL, m, NULL, NULL));
    assert_ok(tws_hub_publish(p.hub, "nobody", m, NULL, NULL));
    tws_publish_options_init(&how);
    how.filter = none;
    assert_ok(tws_hub_publish(p.hub, "another", m, &how, NULL));
    tws_prepared_unref(m);

    n = tws_server_metrics(p.s.server, text, sizeof text);
    assert_in_range(n, 1000, sizeof text - 4096);
    assert_in_range(tws_hub_metrics(p.hub, text + n, sizeof text - n), 1000, 4095); /* 4 KiB do */
    assert_sample("tws_hub_rooms", 2);
    assert_sample("tws_hub_members", 5);
    assert_sample("tws_hub_joined", 6);
    assert_sample("tws_hub_workers", 0);
    assert_sample("tws_hub_deliveries_total{result=\"sent\"}", 20);
    assert_sample("tws_hub_deliveries_total{result=\"queued\"}", 0);
    assert_sample("tws_hub_deliveries_total{result=\"dropped\"}", 0);
    assert_sample("tws_hub_deliveries_total{result=\"failed\"}", 0);
    assert_sample("tws_hub_deliveries_total{result=\"skipped\"}", 1);
    assert_sample("tws_hub_publishes_together_total", 0);
    assert_sample("tws_hub_publishes_spread_total", 0);
    check_histogram(6);
    check_promtool();
    tws_hub_get_stats(p.hub, &st);
    assert_int_equal(st.publishes, 6);
    assert_int_equal(st.sent, 20);
    assert_int_equal(st.skipped, 1);
    party_close(&p);
}

/* Whatever the room, it is never overrun; a caller of an older version gets what it knows. */
static void test_sizes(void **state)
{
    tws_hub_stats st;
    char small[100];
    size_t whole;
    tws_hub *h;

    (void)state;
    assert_ok(tws_hub_new(&h, NULL));
    whole = tws_hub_metrics(h, NULL, 0);
    for (size_t size = 1; size <= sizeof small; size++) {
        memset(small, 'x', sizeof small);
        assert_int_equal(tws_hub_metrics(h, small, size), whole);
        assert_int_equal(strlen(small), size - 1);
        for (size_t i = size; i < sizeof small; i++)
            assert_int_equal(small[i], 'x');
    }
    memset(&st, 0xff, sizeof st);
    tws_hub_stats_sized(h, &st, offsetof(tws_hub_stats, members));
    assert_int_equal(st.rooms, 0);
    assert_true(st.members == UINT64_MAX);
    tws_hub_free(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_sizes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
