/*
 * Negotiation of permessage-deflate, RFC 7692 section 7.1: tables of what each side makes of a
 * text, all combinations of parameters against their rules, and our two sides against each other.
 * Every text ends at a guard page and is cut at every boundary.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "guard.h"
#include "head_script.h"
#include "rng.h"
#include "wire/deflate.h"
#include "wire/handshake.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define PMD "permessage-deflate"
#define SNT "server_no_context_takeover"
#define CNT "client_no_context_takeover"
#define SMW "server_max_window_bits"
#define CMW "client_max_window_bits"

/* What a server wishes in the tables: everything, small windows, no contexts. */
static const struct deflate_params all = {15, 15, false, false};
static const struct deflate_params small = {10, 11, false, false};
static const struct deflate_params fresh = {15, 15, true, true};

static bool same(const struct deflate_params *a, const struct deflate_params *b)
{
    return a->server_bits == b->server_bits && a->client_bits == b->client_bits &&
           a->server_no_takeover == b->server_no_takeover &&
           a->client_no_takeover == b->client_no_takeover;
}

/* The answer to a text that ends at the guard page; "" when it is declined. */
static void choose(struct guard *g, const char *text, size_t len, const struct deflate_params *want,
                   struct deflate_params *agreed, char out[DEFLATE_TEXT_MAX])
{
    struct extension_list list;
    size_t n;

    memset(out, 'x', DEFLATE_TEXT_MAX);
    extension_list_of_text(&list, (struct wire_text){(char *)guard_tail(g, text, len), len});
    n = deflate_choose(&list, want, agreed, out);
    if (n == 0)
        out[0] = '\0';
    assert_int_equal(strlen(out), n);
}

/* ---- server ---- */

struct server_row {
    const struct deflate_params *want;
    const char *offers;
    const char *answer; /* "": declined */
    struct deflate_params agreed;
};

static const struct server_row server_rows[] = {
    {&all, "", "", {0}},
    {&all, "x-webkit-deflate-frame", "", {0}},
    {&all, "Permessage-Deflate", "", {0}},
    {&all, "permessage-deflate2", "", {0}},
    {&all, PMD, PMD, {15, 15, false, false}},
    {&small, PMD, PMD, {10, 15, false, false}}, /* cannot ask for less than it does not offer */
    {&fresh, PMD, PMD "; " SNT "; " CNT, {15, 15, true, true}},
    {&all, PMD "; " SNT, PMD "; " SNT, {15, 15, true, false}},
    {&all, PMD "; " CNT, PMD "; " CNT, {15, 15, false, true}},
    {&all, PMD ";" CNT " ;\t" SNT, PMD "; " SNT "; " CNT, {15, 15, true, true}},

    {&all, PMD "; " CMW, PMD, {15, 15, false, false}},                        /* B084 */
    {&small, PMD "; " CMW, PMD "; " CMW "=11", {10, 11, false, false}},       /* B084 */
    {&all, PMD "; " CMW "=10", PMD "; " CMW "=10", {15, 10, false, false}},   /* B086 */
    {&small, PMD "; " CMW "=15", PMD "; " CMW "=11", {10, 11, false, false}}, /* B086 */
    {&small, PMD "; " CMW "=9", PMD "; " CMW "=9", {10, 9, false, false}},    /* B086 */
    {&all, PMD "; " CMW "=8", PMD "; " CMW "=8", {15, 8, false, false}},      /* B086 */
    {&all, PMD "; " CMW "=\"8\"", PMD "; " CMW "=8", {15, 8, false, false}},
    {&all, PMD "; " CMW "=\"1\\0\"", PMD "; " CMW "=10", {15, 10, false, false}},
    {&all, PMD "; " CMW "=7", "", {0}},
    {&all, PMD "; " CMW "=16", "", {0}},
    {&all, PMD "; " CMW "=08", "", {0}},
    {&all, PMD "; " CMW "=0", "", {0}},
    {&all, PMD "; " CMW "=-9", "", {0}},
    {&all, PMD "; " CMW "=1e1", "", {0}},
    {&all, PMD "; " CMW "=4294967306", "", {0}},
    {&all, PMD "; " CMW "; " CMW, "", {0}},
    {&all, PMD "; " CMW "=10; " CMW "=10", "", {0}},

    {&all, PMD "; " SMW "=15", PMD "; " SMW "=15", {15, 15, false, false}},
    {&all, PMD "; " SMW "=9", PMD "; " SMW "=9", {9, 15, false, false}}, /* B088 */
    {&small, PMD "; " SMW "=15", PMD "; " SMW "=10", {10, 15, false, false}},
    {&small, PMD "; " SMW "=9", PMD "; " SMW "=9", {9, 15, false, false}},
    {&all, PMD "; " SMW "=\"12\"", PMD "; " SMW "=12", {12, 15, false, false}},
    {&all, PMD "; " SMW "=8", "", {0}}, /* zlib cannot write it */
    {&all, PMD "; " SMW, "", {0}},
    {&all, PMD "; " SMW "=7", "", {0}},
    {&all, PMD "; " SMW "=16", "", {0}},
    {&all, PMD "; " SMW "=010", "", {0}},
    {&all, PMD "; " SMW "=ten", "", {0}},
    {&all, PMD "; " SMW "=10; " SMW "=10", "", {0}},

    {&all, PMD "; " SNT "=1", "", {0}},
    {&all, PMD "; " CNT "=true", "", {0}},
    {&all, PMD "; " SNT "; " SNT, "", {0}},
    {&all, PMD "; " CNT "; x; " CNT, "", {0}},
    {&all, PMD "; x_unknown", "", {0}},     /* B090 */
    {&all, PMD "; foo=bar; " CMW, "", {0}}, /* B090 */
    {&all, PMD "; Server_No_Context_Takeover", "", {0}},
    {&all, PMD "; server_max_window_bit=10", "", {0}},

    {&all, PMD "; " SMW "=7, " PMD, PMD, {15, 15, false, false}}, /* B092 */
    {&all, "x-unknown; a=1, " PMD, PMD, {15, 15, false, false}},  /* B092 */
    {&all, PMD "; " SMW "=8, " PMD "; " SMW "=9, " PMD, PMD "; " SMW "=9", {9, 15, false, false}},
    {&all, PMD "; " CNT ", " PMD "; " SNT, PMD "; " CNT, {15, 15, false, true}},
    {&small, PMD ", " PMD "; " CMW, PMD, {10, 15, false, false}}, /* the client's order decides */
    {&all,
     PMD "; x, " PMD "; y, " PMD "; " CMW "=9;" SNT,
     PMD "; " SNT "; " CMW "=9",
     {15, 9, true, false}},
    {&all, PMD "; x, " PMD "; y", "", {0}},
    {&all, PMD "; x, ;;;, " PMD, "", {0}}, /* malformed: the handshake has refused it before */
};

static void test_server_table(void **state)
{
    struct guard g;

    (void)state;
    guard_open(&g, 512);
    for (size_t i = 0; i < COUNT(server_rows); i++) {
        const struct server_row *row = &server_rows[i];
        struct deflate_params agreed;
        char answer[DEFLATE_TEXT_MAX];

        choose(&g, row->offers, strlen(row->offers), row->want, &agreed, answer);
        if (strcmp(answer, row->answer) != 0)
            fail_msg("%s: answered %s", row->offers, answer);
        if (answer[0] != '\0' && !same(&agreed, &row->agreed))
            fail_msg("%s: agreed on %d %d %d %d", row->offers, agreed.server_bits,
                     agreed.client_bits, agreed.server_no_takeover, agreed.client_no_takeover);
        /* Cut anywhere, it is read to its end and answered with something well formed. */
        for (size_t len = 0; len < strlen(row->offers); len++) {
            choose(&g, row->offers, len, row->want, &agreed, answer);
            if (answer[0] != '\0' && strncmp(answer, PMD, strlen(PMD)) != 0)
                fail_msg("%.*s: answered %s", (int)len, row->offers, answer);
        }
    }
    guard_close(&g);
}

/* Several lines are one list. */
static void test_server_lines(void **state)
{
    struct head_script s;
    struct extension_list list;
    struct deflate_params agreed;
    char answer[DEFLATE_TEXT_MAX];

    (void)state;
    head_script_request(&s, "GET / HTTP/1.1\r\n"
                            "Sec-WebSocket-Extensions: x-other, " PMD "; " SMW "=8\r\n"
                            "Host: a\r\n"
                            "sec-websocket-extensions: " PMD "; " SMW "=11\r\n\r\n");
    extension_list_of_head(&list, &s.head, s.buf);
    assert_int_not_equal(deflate_choose(&list, &all, &agreed, answer), 0);
    assert_string_equal(answer, PMD "; " SMW "=11");
    head_script_end(&s);
}

/* ---- all combinations of one offer or answer ---- */

/* Values of a window parameter: absent, bare, right and wrong ones. */
static const char *const window_values[] = {NULL, "",   "7",  "8",  "9",  "10", "11",
                                            "12", "14", "15", "16", "09", "99"};
/* Values of a flag: absent, bare, with a value. */
static const char *const flag_values[] = {NULL, "", "1"};

struct combination {
    const char *server_bits;
    const char *client_bits;
    const char *server_flag;
    const char *client_flag;
    char text[256];
};

static void add(char *text, size_t cap, const char *name, const char *value)
{
    size_t len = strlen(text);

    if (value == NULL)
        return;
    snprintf(text + len, cap - len, "; %s%s%s", name, value[0] != '\0' ? "=" : "", value);
}

/* The n-th combination; false behind the last one. */
static bool combine(struct combination *c, size_t n)
{
    c->server_bits = window_values[n % COUNT(window_values)];
    n /= COUNT(window_values);
    c->client_bits = window_values[n % COUNT(window_values)];
    n /= COUNT(window_values);
    c->server_flag = flag_values[n % COUNT(flag_values)];
    n /= COUNT(flag_values);
    c->client_flag = flag_values[n % COUNT(flag_values)];
    n /= COUNT(flag_values);
    snprintf(c->text, sizeof c->text, PMD);
    add(c->text, sizeof c->text, SMW, c->server_bits);
    add(c->text, sizeof c->text, SNT, c->server_flag);
    add(c->text, sizeof c->text, CMW, c->client_bits);
    add(c->text, sizeof c->text, CNT, c->client_flag);
    return n == 0;
}

/* -1: not a value of RFC 7692 7.1.2; 0: absent or bare. */
static int window(const char *value)
{
    static const char *const right[] = {"8", "9", "10", "11", "12", "13", "14", "15"};

    if (value == NULL || value[0] == '\0')
        return 0;
    for (size_t i = 0; i < COUNT(right); i++)
        if (strcmp(value, right[i]) == 0)
            return (int)i + 8;
    return -1;
}

static bool bare(const char *value)
{
    return value != NULL && value[0] == '\0';
}

/* No value where none may be, none out of range: what offers and answers have in common. */
static bool well_formed(const struct combination *c)
{
    return (c->server_flag == NULL || bare(c->server_flag)) &&
           (c->client_flag == NULL || bare(c->client_flag)) && window(c->server_bits) >= 0 &&
           window(c->client_bits) >= 0 && !bare(c->server_bits);
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* The rules of 7.1.1 and 7.1.2 for one offer, said once more. */
static void check_choice(struct guard *g, const struct combination *offer,
                         const struct deflate_params *want)
{
    struct deflate_params agreed;
    struct combination expected = {0};
    char answer[DEFLATE_TEXT_MAX];
    char server[4], client[4];
    int server_asked = window(offer->server_bits);
    int client_asked = window(offer->client_bits);

    choose(g, offer->text, strlen(offer->text), want, &agreed, answer);
    if (!well_formed(offer) || server_asked == 8) {
        if (answer[0] != '\0')
            fail_msg("%s: answered %s", offer->text, answer);
        return;
    }

    struct deflate_params right = {
        .server_bits = (uint8_t)least(want->server_bits, server_asked > 0 ? server_asked : 15),
        .client_bits = 15,
        .server_no_takeover = want->server_no_takeover || offer->server_flag != NULL,
        .client_no_takeover = want->client_no_takeover || offer->client_flag != NULL,
    };

    if (offer->client_bits != NULL)
        right.client_bits = (uint8_t)least(want->client_bits, client_asked > 0 ? client_asked : 15);
    snprintf(server, sizeof server, "%d", right.server_bits);
    snprintf(client, sizeof client, "%d", right.client_bits);
    snprintf(expected.text, sizeof expected.text, PMD);
    add(expected.text, sizeof expected.text, SNT, right.server_no_takeover ? "" : NULL);
    add(expected.text, sizeof expected.text, CNT, right.client_no_takeover ? "" : NULL);
    add(expected.text, sizeof expected.text, SMW, server_asked > 0 ? server : NULL);
    add(expected.text, sizeof expected.text, CMW, right.client_bits < 15 ? client : NULL);
    if (strcmp(answer, expected.text) != 0 || !same(&agreed, &right))
        fail_msg("%s: answered %s, not %s", offer->text, answer, expected.text);
}

/* Wishes that matter: the ends and the middle of both windows, all flags. */
static bool wish(struct deflate_params *want, size_t n, const uint8_t server[3],
                 const uint8_t client[3])
{
    *want =
        (struct deflate_params){server[n % 3], client[n / 3 % 3], n / 9 % 2 != 0, n / 18 % 2 != 0};
    return n < 36;
}

static void test_server_all(void **state)
{
    static const uint8_t server[3] = {9, 11, 15};
    static const uint8_t client[3] = {8, 12, 15};
    struct combination offer;
    struct deflate_params want;
    struct guard g;

    (void)state;
    guard_open(&g, 512);
    for (size_t w = 0; wish(&want, w, server, client); w++)
        for (size_t n = 0; combine(&offer, n); n++)
            check_choice(&g, &offer, &want);
    guard_close(&g);
}

/* ---- client ---- */

static void test_offers(void **state)
{
    static const struct {
        struct deflate_params want;
        const char *text;
    } rows[] = {
        {{15, 15, false, false}, PMD "; " CMW},
        {{15, 15, true, true}, PMD "; " SNT "; " CNT "; " CMW},
        {{9, 15, false, false}, PMD "; " SMW "=9; " CMW},
        {{8, 9, true, false}, PMD "; " SNT "; " SMW "=8; " CMW "=9"},
        {{14, 14, false, true}, PMD "; " CNT "; " SMW "=14; " CMW "=14"},
    };
    char text[DEFLATE_TEXT_MAX];

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        memset(text, 'x', sizeof text);
        assert_int_equal(deflate_write_offer(&rows[i].want, text), strlen(rows[i].text));
        assert_string_equal(text, rows[i].text);
    }
}

/* True when the client takes the whole list as an answer to what it wants. */
static bool judge(struct guard *g, const char *text, size_t len, const struct deflate_params *want,
                  struct deflate_answer *answer)
{
    struct extension_list list;
    struct extension ext;
    enum extension_result more;

    *answer = (struct deflate_answer){.want = *want};
    extension_list_of_text(&list, (struct wire_text){(char *)guard_tail(g, text, len), len});
    while ((more = extension_next(&list, &ext)) == EXTENSION_NEXT)
        if (!deflate_judge(answer, &ext))
            return false;
    return more == EXTENSION_END;
}

struct client_row {
    const struct deflate_params *want;
    const char *answer;
    bool taken;
    struct deflate_params agreed;
};

static const struct client_row client_rows[] = {
    {&all, PMD, true, {15, 15, false, false}},
    {&small, PMD, false, {0}}, /* the window it asked for is not promised */
    {&small, PMD "; " SMW "=10", true, {10, 11, false, false}},
    {&small, PMD "; " SMW "=8", true, {8, 11, false, false}},
    {&small, PMD "; " SMW "=11", false, {0}},
    {&small, PMD "; " SMW "=10; " CMW "=12", false, {0}},
    {&small, PMD "; " SMW "=10; " CMW "=11", true, {10, 11, false, false}},
    {&small, PMD "; " SMW "=10; " CMW "=9", true, {10, 9, false, false}},
    {&all, PMD "; " CMW "=8", true, {15, 8, false, false}},
    {&all, PMD "; " CMW "=\"9\"", true, {15, 9, false, false}},
    {&all, PMD "; " CMW, false, {0}},
    {&all, PMD "; " CMW "=7", false, {0}},
    {&all, PMD "; " CMW "=16", false, {0}},
    {&all, PMD "; " SMW "=9", true, {9, 15, false, false}},
    {&all, PMD "; " SMW "=99", false, {0}}, /* B172 */
    {&all, PMD "; " SMW "=7", false, {0}},  /* B172 */
    {&all, PMD "; " SMW, false, {0}},       /* B172 */
    {&all, PMD "; " SMW "=9; " SMW "=9", false, {0}},
    {&all, PMD "; " SMW "=09", false, {0}},
    {&all, PMD "; " SNT, true, {15, 15, true, false}},
    {&all, PMD "; " CNT "; " SNT, true, {15, 15, true, true}},
    {&fresh, PMD "; " SNT, true, {15, 15, true, true}}, /* its own promise binds it all the same */
    {&fresh, PMD "; " CNT, false, {0}},
    {&fresh, PMD, false, {0}},
    {&all, PMD "; " SNT "=1", false, {0}},
    {&all, PMD "; " SNT "; " SNT, false, {0}},
    {&all, PMD "; " CNT "; " CNT, false, {0}},
    {&all, PMD "; mode=best", false, {0}},
    {&all, PMD ", " PMD, false, {0}},
    {&all, PMD ", x-other", false, {0}},
    {&all, "x-other", false, {0}},
    {&all, "Permessage-Deflate", false, {0}},
    {&all, PMD ";", false, {0}},
};

static void test_client_table(void **state)
{
    struct guard g;

    (void)state;
    guard_open(&g, 512);
    for (size_t i = 0; i < COUNT(client_rows); i++) {
        const struct client_row *row = &client_rows[i];
        struct deflate_answer a;

        if (judge(&g, row->answer, strlen(row->answer), row->want, &a) != row->taken)
            fail_msg("%s: %s", row->answer, row->taken ? "refused" : "taken");
        if (row->taken && (!a.accepted || !same(&a.agreed, &row->agreed)))
            fail_msg("%s: agreed on %d %d %d %d", row->answer, a.agreed.server_bits,
                     a.agreed.client_bits, a.agreed.server_no_takeover,
                     a.agreed.client_no_takeover);
        for (size_t len = 0; len < strlen(row->answer); len++)
            judge(&g, row->answer, len, row->want, &a);
    }
    guard_close(&g);
}

static void test_client_all(void **state)
{
    static const uint8_t server[3] = {8, 11, 15};
    static const uint8_t client[3] = {9, 12, 15};
    struct combination c;
    struct deflate_params want;
    struct guard g;

    (void)state;
    guard_open(&g, 512);
    for (size_t w = 0; wish(&want, w, server, client); w++) {
        for (size_t n = 0; combine(&c, n); n++) {
            struct deflate_answer a;
            int server_said = window(c.server_bits);
            int client_said = window(c.client_bits);
            bool right = well_formed(&c) && !bare(c.client_bits) &&
                         (c.server_flag != NULL || !want.server_no_takeover) &&
                         (server_said > 0 || want.server_bits == 15) &&
                         server_said <= want.server_bits && client_said <= want.client_bits;
            struct deflate_params agreed = {
                .server_bits = (uint8_t)(server_said > 0 ? server_said : 15),
                .client_bits = (uint8_t)(client_said > 0 ? client_said : want.client_bits),
                .server_no_takeover = c.server_flag != NULL,
                .client_no_takeover = c.client_flag != NULL || want.client_no_takeover,
            };

            if (judge(&g, c.text, strlen(c.text), &want, &a) != right || a.accepted != right)
                fail_msg("%s is %s", c.text, right ? "right" : "wrong");
            if (right && !same(&a.agreed, &agreed))
                fail_msg("%s: agreed otherwise", c.text);
        }
    }
    guard_close(&g);
}

/* ---- both ---- */

/* Whatever the two sides wish, the client takes the server's answer, and neither side's
 * compressor goes beyond what the other one reckons with. */
static void test_both_sides(void **state)
{
    static const uint8_t bits[3] = {9, 12, 15};
    struct deflate_params server, client;
    struct guard g;

    (void)state;
    guard_open(&g, 512);
    for (size_t i = 0; wish(&client, i, bits, bits); i++) {
        for (size_t k = 0; wish(&server, k, bits, bits); k++) {
            char offer[DEFLATE_TEXT_MAX], answer[DEFLATE_TEXT_MAX];
            struct deflate_params agreed;
            struct deflate_answer a;

            deflate_write_offer(&client, offer);
            choose(&g, offer, strlen(offer), &server, &agreed, answer);
            if (!judge(&g, answer, strlen(answer), &client, &a) || !a.accepted)
                fail_msg("%s, answered %s", offer, answer);
            assert_true(agreed.server_bits <= a.agreed.server_bits);
            assert_true(agreed.server_bits <= client.server_bits);
            assert_int_equal(agreed.client_bits, a.agreed.client_bits);
            assert_int_equal(agreed.server_no_takeover, a.agreed.server_no_takeover);
            assert_int_equal(agreed.client_no_takeover, a.agreed.client_no_takeover);
            assert_int_equal(agreed.client_no_takeover,
                             server.client_no_takeover || client.client_no_takeover);
        }
    }
    guard_close(&g);
}

/* The text fits at its longest, and is one that the handshake may send. */
static void test_longest(void **state)
{
    static const struct deflate_params want = {10, 10, true, true};
    char offer[DEFLATE_TEXT_MAX], answer[DEFLATE_TEXT_MAX], out[1024];
    struct deflate_params agreed;
    struct guard g;

    (void)state;
    guard_open(&g, 512);
    assert_true(deflate_write_offer(&want, offer) < sizeof offer);
    choose(&g, offer, strlen(offer), &want, &agreed, answer);
    assert_string_equal(offer, answer);
    assert_string_equal(answer, PMD "; " SNT "; " CNT "; " SMW "=10; " CMW "=10");
    assert_true(handshake_write_switch(
                    out, sizeof out,
                    &(struct handshake_switch){.key = wire_text_of("dGhlIHNhbXBsZSBub25jZQ=="),
                                               .extensions = answer}) > 0);
    guard_close(&g);
}

/* Parameters put together at random: reading stays inside the text, and a text that the server
 * takes has no fault that can be seen from outside. */
static void test_random(void **state)
{
    static const char *const pieces[] = {PMD, ";",  ",", "=", " ", SNT,  CNT, SMW,
                                         CMW, "10", "8", "7", "x", "\"", ";", PMD ";"};
    struct rng rng = {7692};
    unsigned taken = 0, declined = 0;
    struct guard g;

    (void)state;
    guard_open(&g, 512);
    for (int round = 0; round < 50000; round++) {
        char text[400] = PMD;
        size_t pieces_left = rng_below(&rng, 10);
        struct deflate_params agreed;
        struct deflate_answer a;
        char answer[DEFLATE_TEXT_MAX];

        while (pieces_left-- > 0)
            strcat(text, pieces[rng_below(&rng, COUNT(pieces))]);
        choose(&g, text, strlen(text), &all, &agreed, answer);
        if (answer[0] != '\0')
            taken++;
        else
            declined++;
        judge(&g, text, strlen(text), &all, &a);
    }
    guard_close(&g);
    assert_true(taken > 1000 && declined > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_server_table), cmocka_unit_test(test_server_lines),
        cmocka_unit_test(test_server_all),   cmocka_unit_test(test_offers),
        cmocka_unit_test(test_client_table), cmocka_unit_test(test_client_all),
        cmocka_unit_test(test_both_sides),   cmocka_unit_test(test_longest),
        cmocka_unit_test(test_random),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
