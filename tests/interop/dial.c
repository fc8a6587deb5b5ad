/*
 * dial: the library's client against an echo server: sizes, fragments, a ping, the closing
 * handshake. Prints "ok", or why it could not be.
 */
#include <tws/tws.h>

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_HEADERS = 8, PATIENCE_MS = 30000, LARGEST = 1 << 20 };

struct settings {
    tws_dial_options dial;
    tws_tls_client_options tls;
    tws_tls_certificate certificate;
    tws_header proxy_headers[MAX_HEADERS];
    const char *url;
    bool only_dial; /* connect, tell about TLS, and close */
    tws_deflate_options deflate;
    tws_threads threads;
    bool good; /* the result */
};

static const char usage[] =
    "usage: dial [OPTION]... URL\n"
    "  --ca FILE            trust these authorities instead of the system's\n"
    "  --insecure           accept any certificate\n"
    "  --server-name NAME   verify this name instead of the URL's host\n"
    "  --cert FILE          show this certificate, with its key in...\n"
    "  --key FILE           ...this file\n"
    "  --tls13              nothing older\n"
    "  --proxy URL          go through this proxy\n"
    "  --env                take the proxy from the environment\n"
    "  --proxy-header N:V   a header for it; may be repeated\n"
    "  --timeout MS         for all of the dial (default 30000)\n"
    "  --only-dial          connect, tell about TLS, and close\n"
    "  --light              on a light thread\n"
    "  --deflate            offer compression\n";

static const struct option options[] = {
    {"ca", required_argument, NULL, 'a'},
    {"insecure", no_argument, NULL, 'i'},
    {"server-name", required_argument, NULL, 'n'},
    {"cert", required_argument, NULL, 'c'},
    {"key", required_argument, NULL, 'k'},
    {"tls13", no_argument, NULL, '3'},
    {"proxy", required_argument, NULL, 'p'},
    {"env", no_argument, NULL, 'e'},
    {"proxy-header", required_argument, NULL, 'H'},
    {"timeout", required_argument, NULL, 't'},
    {"only-dial", no_argument, NULL, 'o'},
    {"light", no_argument, NULL, 'l'},
    {"deflate", no_argument, NULL, 'd'},
    {NULL, 0, NULL, 0},
};

static void add_header(struct settings *s, char *text)
{
    char *colon = strchr(text, ':');

    if (!colon || s->dial.proxy_header_count == MAX_HEADERS) {
        fputs(usage, stderr);
        exit(2);
    }
    *colon = '\0';
    s->proxy_headers[s->dial.proxy_header_count++] = (tws_header){text, colon + 1};
}

static void take_option(struct settings *s, int letter)
{
    switch (letter) {
    case 'a':
        s->tls.ca_file = optarg;
        break;
    case 'i':
        s->tls.insecure_skip_verify = true;
        break;
    case 'n':
        s->tls.server_name = optarg;
        break;
    case 'c':
        s->certificate.cert_file = optarg;
        break;
    case 'k':
        s->certificate.key_file = optarg;
        break;
    case '3':
        s->tls.min_version = TWS_TLS_1_3;
        break;
    case 'p':
        s->dial.proxy = optarg;
        break;
    case 'e':
        s->dial.proxy_from_environment = true;
        break;
    case 'H':
        add_header(s, optarg);
        break;
    case 't':
        s->dial.timeout = atoi(optarg);
        break;
    case 'o':
        s->only_dial = true;
        break;
    case 'l':
        s->threads = TWS_THREADS_LIGHT;
        break;
    case 'd':
        s->dial.deflate = &s->deflate;
        break;
    default:
        fputs(usage, stderr);
        exit(2);
    }
}

static void read_options(struct settings *s, int argc, char **argv)
{
    int letter;

    tws_dial_options_init(&s->dial);
    tws_tls_client_options_init(&s->tls);
    tws_deflate_options_init(&s->deflate);
    s->dial.proxy_headers = s->proxy_headers;
    while ((letter = getopt_long(argc, argv, "", options, NULL)) != -1)
        take_option(s, letter);
    if (optind != argc - 1) {
        fputs(usage, stderr);
        exit(2);
    }
    s->url = argv[optind];
    if (s->certificate.cert_file)
        s->tls.certificate = &s->certificate;
}

/* ---- The conversation ---- */

static bool expect(tws_conn *c, tws_opcode opcode, const char *data, size_t len)
{
    tws_message m;
    tws_err err = tws_read_message(c, &m);

    if (err != TWS_OK) {
        printf("dial: read: %s\n", tws_err_name(err));
        return false;
    }
    if (m.opcode == opcode && m.len == len && memcmp(m.data, data, len) == 0)
        return true;
    printf("dial: sent %zu bytes, got %zu others\n", len, m.len);
    return false;
}

static bool echo_sizes(tws_conn *c, char *buf)
{
    static const size_t sizes[] = {0, 1, 125, 126, 65535, 65536, LARGEST};

    for (size_t i = 0; i < 2 * sizeof sizes / sizeof sizes[0]; i++) {
        tws_opcode opcode = i % 2 ? TWS_BINARY : TWS_TEXT;

        memset(buf, i % 2 ? 0xff : 't', sizes[i / 2]);
        if (tws_write_message(c, opcode, buf, sizes[i / 2]) != TWS_OK ||
            !expect(c, opcode, buf, sizes[i / 2]))
            return false;
    }
    return true;
}

static bool echo_fragments(tws_conn *c, char *buf)
{
    tws_writer *w;
    size_t len = 0;

    if (tws_next_writer(c, TWS_TEXT, &w) != TWS_OK)
        return false;
    for (int i = 0; i < 20000; i++) {
        int n = snprintf(buf + len, LARGEST - len, "part %d, ", i);

        if (tws_writer_write(w, buf + len, (size_t)n) != TWS_OK)
            return false;
        len += (size_t)n;
    }
    return tws_writer_close(w) == TWS_OK && expect(c, TWS_TEXT, buf, len);
}

static bool on_pong(tws_conn *c, const void *data, size_t len, void *arg)
{
    (void)c;
    *(bool *)arg = len == 13 && memcmp(data, "are you there", len) == 0;
    return true;
}

static bool talk(tws_conn *c, char *buf)
{
    bool pong = false;

    tws_set_pong_handler(c, on_pong, &pong);
    if (tws_set_timeout(c, TWS_TIMEOUT_READ, PATIENCE_MS) != TWS_OK || !echo_sizes(c, buf) ||
        !echo_fragments(c, buf) || tws_ping(c, "are you there", 13) != TWS_OK ||
        tws_write_text(c, "behind the ping") != TWS_OK ||
        !expect(c, TWS_TEXT, "behind the ping", 15))
        return false;
    tws_set_pong_handler(c, NULL, NULL);
    if (!pong)
        printf("dial: no pong\n");
    return pong;
}

static void tell_tls(tws_conn *c)
{
    tws_tls_info info;

    if (tws_conn_tls(c, &info))
        printf("TLS 1.%d%s, verified %d, resumed %d, %s\n", info.version - 0x0301,
               info.alpn[0] ? " with ALPN" : "", info.verified, info.resumed, info.peer_subject);
}

static bool dial(const struct settings *s, char *buf)
{
    tws_error error;
    tws_conn *c;
    tws_err err;
    bool good = true;

    if (tws_dial(&c, s->url, &s->dial, NULL, &error) != TWS_OK) {
        printf("%s phase %d status %d: %s\n", tws_err_name(error.code), (int)error.phase,
               error.http_status, error.text);
        return false;
    }
    if (s->only_dial)
        tell_tls(c);
    else
        good = talk(c, buf);
    err = tws_close(c, TWS_CLOSE_NORMAL, "bye");
    if (err != TWS_OK) {
        printf("dial: close: %s\n", tws_err_name(err));
        good = false;
    }
    tws_conn_unref(c);
    return good;
}

static void run(void *arg)
{
    struct settings *s = arg;
    char *buf = malloc(LARGEST);

    s->good = buf && dial(s, buf);
    if (s->good && !s->only_dial)
        puts("ok");
    free(buf);
}

/* On a thread of the kind that was asked for. */
static bool run_in_group(struct settings *s)
{
    tws_group_options opt;
    tws_group *group;

    tws_group_options_init(&opt);
    opt.threads = s->threads;
    if (tws_group_new(&group, &opt) != TWS_OK)
        return false;
    if (tws_group_spawn(group, run, s) == TWS_OK)
        tws_group_wait(group, TWS_NO_LIMIT);
    tws_group_free(group);
    return s->good;
}

int main(int argc, char **argv)
{
    struct settings s = {.threads = TWS_THREADS_KERNEL};
    tws_error error = {0};
    tws_tls *tls = NULL;

    read_options(&s, argc, argv);
    if (tws_tls_client_new(&tls, &s.tls, &error) != TWS_OK) {
        printf("%s: %s\n", tws_err_name(error.code), error.text);
        return 1;
    }
    s.dial.tls = tls;
    run_in_group(&s);
    tws_tls_unref(tls);
    return !s.good;
}
