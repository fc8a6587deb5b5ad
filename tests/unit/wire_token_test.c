/*
 * Tokens, quoted strings and comma lists, RFC 9110 sections 5.5 and 5.6. Every text ends at a
 * guard page.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "head_script.h"
#include "wire/token.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static struct guard guard;

static struct wire_text at_guard(const char *string)
{
    size_t len = strlen(string);

    return (struct wire_text){(const char *)guard_tail(&guard, string, len), len};
}

static int open_guard(void **state)
{
    (void)state;
    guard_open(&guard, 4096);
    return 0;
}

static int close_guard(void **state)
{
    (void)state;
    guard_close(&guard);
    return 0;
}

static void test_characters(void **state)
{
    (void)state;
    for (int c = 0; c < 256; c++) {
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        bool digit = c >= '0' && c <= '9';
        bool token = letter || digit || (c != 0 && strchr("!#$%&'*+-.^_`|~", c) != NULL);
        const char one = (char)c;
        const struct wire_text text = {&one, 1};

        assert_int_equal(token_char((uint8_t)c), token);
        assert_int_equal(token_valid(text), token);
        assert_int_equal(token_value_char((uint8_t)c), (c >= 32 || c == '\t') && c != 127);
        assert_int_equal(token_value_valid(text), c > 32 && c != 127);
        assert_int_equal(wire_is_alpha((uint8_t)c), letter);
        assert_int_equal(wire_is_digit((uint8_t)c), digit);
    }
}

static void test_values(void **state)
{
    static const struct {
        const char *text;
        bool token;
        bool value;
    } table[] = {
        {"", false, true},
        {"websocket", true, true},
        {"a b", false, true},
        {"a\tb", false, true},
        {" a", false, false},
        {"a\t", false, false},
        {"a\r\nX-Evil: 1", false, false}, /* B166 */
        {"a\nX-Evil: 1", false, false},   /* B166 */
        {"a\rb", false, false},
        {"X Y", false, true}, /* B166: as a name it is refused */
        {"\xe2\x84\xaa", false, true},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        assert_int_equal(token_valid(at_guard(table[i].text)), table[i].token);
        assert_int_equal(token_value_valid(at_guard(table[i].text)), table[i].value);
    }
}

static void test_comparison(void **state)
{
    (void)state;
    assert_true(wire_text_is(at_guard("WebSocket"), "websocket"));
    assert_true(wire_text_is(at_guard(""), ""));
    assert_false(wire_text_is(at_guard("websocke"), "websocket"));
    assert_false(wire_text_is(at_guard("websockets"), "websocket"));
    /* Pairs 32 apart that are no letters, and the Kelvin sign. */
    assert_false(wire_text_is(at_guard("@"), "`"));
    assert_false(wire_text_is(at_guard("["), "{"));
    assert_false(wire_text_is(at_guard("\xe2\x84\xaa"), "k"));
    assert_false(wire_text_is(at_guard("\xc3\x89"), "\xc3\xa9"));
    assert_false(wire_text_equal(at_guard("a"), wire_text_of("A")));
    assert_true(wire_text_starts(at_guard("Sec-WebSocket-Key"), "sec-websocket-"));
    assert_false(wire_text_starts(at_guard("Sec"), "sec-websocket-"));
    assert_true(wire_equal_secret("abcd", "abcx", 3));
    assert_false(wire_equal_secret("abcd", "abcx", 4));
    assert_false(wire_equal_secret("xbcd", "abcd", 4));
    assert_true(wire_equal_secret("a", "b", 0));
}

static void test_quoted(void **state)
{
    static const struct {
        const char *text;
        size_t length;
        const char *content;
    } table[] = {
        {"\"\"", 2, ""},
        {"\"a,;b\" rest", 6, "a,;b"},
        {"\"a\\\"b\\\\c\\d\"x", 11, "a\"b\\cd"},
        {"\"\t\xc3\xa9\"", 5, "\t\xc3\xa9"},
        {"\"", 0, NULL},
        {"\"abc", 0, NULL},
        {"\"abc\\", 0, NULL},
        {"\"abc\\\"", 0, NULL},
        {"\"a\x01\"", 0, NULL},
        {"\"a\\\n\"", 0, NULL},
        {"\"a\x7f\"", 0, NULL},
    };
    char out[16];

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        struct wire_text text = at_guard(table[i].text);
        size_t n = token_quoted_length(text);

        assert_int_equal(n, table[i].length);
        if (n == 0)
            continue;

        struct wire_text inside = {text.at + 1, n - 2};

        assert_int_equal(token_unescape(out, sizeof out, inside), strlen(table[i].content));
        assert_memory_equal(out, table[i].content, strlen(table[i].content));
    }
    /* Too little room: the length is told, and nothing is written behind the room. */
    memset(out, '#', sizeof out);
    assert_int_equal(token_unescape(out, 2, wire_text_of("a\\bcd")), 4);
    assert_memory_equal(out, "ab##", 4);
}

/* Elements joined by bars, and how the list ends. */
struct list_row {
    const char *text;
    const char *elements;
    int end;
};

static const struct list_row lists[] = {
    {"", "", 0},
    {",,,", "", 0},
    {" \t, ,\t", "", 0},
    {"upgrade", "upgrade|", 0},
    {"keep-alive, Upgrade", "keep-alive|Upgrade|", 0}, /* B001 */
    {"Upgrade,Keep-Alive", "Upgrade|Keep-Alive|", 0},  /* B003 */
    {",, upgrade", "upgrade|", 0},                     /* B003 */
    {"a ,b\t,,c,", "a|b|c|", 0},
    {"a b, c=\"x,y\" ;z , d", "a b|c=\"x,y\" ;z|d|", 0},
    {"\"\\\",\",b", "\"\\\",\"|b|", 0},
    {"a, \"b", "a|", -1},
    {"a, \"b\\", "a|", -1},
    {"a, b\"\"\"", "a|", -1},
};

static void check_list(struct token_list *list, const struct list_row *row)
{
    struct wire_text element = {"untouched", 9};
    char got[128] = "";
    int more;

    while ((more = token_list_next(list, &element)) == 1)
        snprintf(got + strlen(got), sizeof got - strlen(got), "%.*s|", (int)element.len,
                 element.at);
    assert_string_equal(got, row->elements);
    assert_int_equal(more, row->end);
    assert_int_equal(token_list_next(list, &element), row->end);
}

static void test_lists(void **state)
{
    struct token_list list;

    (void)state;
    for (size_t i = 0; i < COUNT(lists); i++) {
        token_list_of_text(&list, at_guard(lists[i].text));
        check_list(&list, &lists[i]);
    }
}

static void test_lists_of_one_field(void **state)
{
    struct head_script s;
    struct token_list list;
    char text[256];

    (void)state;
    for (size_t i = 0; i < COUNT(lists); i++) {
        snprintf(text, sizeof text, "GET / HTTP/1.1\r\nB: no\r\na: %s\r\nC: no\r\n\r\n",
                 lists[i].text);
        head_script_request(&s, text);
        token_list_of_head(&list, &s.head, s.buf, "A");
        check_list(&list, &lists[i]);
        head_script_end(&s);
    }
}

/* Lines of the same name are one list; a quoted string does not go on in the next line. */
static void test_lists_of_several_fields(void **state)
{
    static const struct list_row rows[] = {
        {"A: a, b\r\nX: no\r\na:\r\nA: ,c\r\n", "a|b|c|", 0},
        {"X: a\r\n", "", 0},
        {"A: \"a\r\nA: b\"\r\n", "", -1},
    };
    struct head_script s;
    struct token_list list;
    char text[256];

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        snprintf(text, sizeof text, "GET / HTTP/1.1\r\n%s\r\n", rows[i].text);
        head_script_request(&s, text);
        token_list_of_head(&list, &s.head, s.buf, "A");
        check_list(&list, &rows[i]);
        head_script_end(&s);
    }
}

static void test_has(void **state)
{
    static const struct {
        const char *lines;
        bool has;
    } table[] = {
        {"Connection: keep-alive, Upgrade\r\n", true}, /* B001 */
        {"Connection: Upgrade,Keep-Alive\r\n", true},  /* B003 */
        {"Connection: ,, upgrade\r\n", true},          /* B003 */
        {"Connection: uPGRADE\r\n", true},             /* B005 */
        {"Connection: close\r\nconnection: upgrade\r\n", true},
        {"Connection: keep-alive\r\n", false}, /* B007 */
        {"Connection: upgrader\r\n", false},   /* B007 */
        {"X: upgrade\r\n", false},             /* B007 */
        {"Connection: up, grade\r\n", false},
        {"Connection: upgrade grade\r\n", false},
        {"Connection: \"upgrade\"\r\n", false},
        {"Connection: upgrade, \"x\r\n", false},
    };
    struct head_script s;
    char text[256];

    (void)state;
    for (size_t i = 0; i < COUNT(table); i++) {
        snprintf(text, sizeof text, "GET / HTTP/1.1\r\n%s\r\n", table[i].lines);
        head_script_request(&s, text);
        assert_int_equal(token_list_has(&s.head, s.buf, "Connection", "upgrade"), table[i].has);
        head_script_end(&s);
    }
}

static void test_out(void **state)
{
    (void)state;
    for (size_t cap = 0; cap <= 32; cap++) {
        const char *whole = "a18446744073709551615bc0";
        struct wire_out out = {(char *)guard_tail(&guard, NULL, cap), cap, 0};

        wire_put_char(&out, 'a');
        wire_put_number(&out, UINT64_MAX);
        wire_put_string(&out, "bc");
        wire_put_string(&out, "");
        wire_put_number(&out, 0);
        assert_int_equal(out.len, strlen(whole));
        assert_memory_equal(out.at, whole, cap < out.len ? cap : out.len);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_characters),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_comparison),
        cmocka_unit_test(test_quoted),
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_lists_of_one_field),
        cmocka_unit_test(test_lists_of_several_fields),
        cmocka_unit_test(test_has),
        cmocka_unit_test(test_out),
    };

    return cmocka_run_group_tests(tests, open_guard, close_guard);
}
