#include "cat_options.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    " [OPTION]... URL\n"
    "Sends each line of standard input as a message, and prints each message that comes.\n"
    "URL: ws://HOST[:PORT]/PATH, wss://..., ws+unix:SOCKET:/PATH\n"
    "\n"
    "  -b, --binary           send binary messages instead of text\n"
    "  -1, --one              end after the first message that comes\n"
    "  -w, --wait             at the end of input, go on until the server closes\n"
    "  -c, --commands         /ping [TEXT], /close [CODE [REASON]], /text TEXT, /binary TEXT\n"
    "      --ping MS          ping a server that has been silent so long (default 30000; 0:\n"
    "                         never); -v shows how long the answers take\n"
    "      --close CODE       close with this code at the end of input (default 1000)\n"
    "      --reason TEXT      and with this reason\n"
    "  -v, --verbose          show both handshakes and what was agreed, on standard error\n"
    "      --help             print this and exit\n"
    "\n"
    "The request:\n"
    "  -H, --header 'N: V'    one more header; may be repeated\n"
    "      --subprotocol NAME offer it; may be repeated\n"
    "      --origin ORIGIN    Origin header\n"
    "      --host HOST        Host header in place of the URL's\n"
    "      --cookie 'N=V; ..' Cookie header\n"
    "      --deflate          offer compression\n"
    "  -L, --redirects N      follow so many redirects (default 0)\n"
    "\n"
    "The way:\n"
    "      --proxy URL        http://, socks5:// or socks5h://[USER:PASSWORD@]HOST:PORT\n"
    "      --proxy-env        take it from https_proxy, http_proxy, all_proxy, no_proxy\n"
    "      --proxy-header 'N: V'\n"
    "      --source ADDRESS   IP address to connect from\n"
    "      --timeout MS       until the connection is open (default 30000; 0: no limit)\n"
    "\n"
    "TLS:\n"
    "      --ca FILE          trust this authority instead of the system's\n"
    "      --cert FILE        the client's own certificate, with its chain\n"
    "      --key FILE         its key, if that is in another file\n"
    "      --insecure         accept any certificate: anybody may be listening\n"
    "\n"
    "Ends with 0 when the connection was closed with 1000 or 1001, 1 when it ended otherwise,\n"
    "2 for a wrong command line, 3 when there was no connection.\n";

enum {
    OPT_PING = 256,
    OPT_CLOSE,
    OPT_REASON,
    OPT_HELP,
    OPT_SUBPROTOCOL,
    OPT_ORIGIN,
    OPT_HOST,
    OPT_COOKIE,
    OPT_DEFLATE,
    OPT_PROXY,
    OPT_PROXY_ENV,
    OPT_PROXY_HEADER,
    OPT_SOURCE,
    OPT_TIMEOUT,
    OPT_CA,
    OPT_CERT,
    OPT_KEY,
    OPT_INSECURE
};

static const struct option options[] = {
    {"binary", no_argument, NULL, 'b'},
    {"one", no_argument, NULL, '1'},
    {"wait", no_argument, NULL, 'w'},
    {"commands", no_argument, NULL, 'c'},
    {"ping", required_argument, NULL, OPT_PING},
    {"close", required_argument, NULL, OPT_CLOSE},
    {"reason", required_argument, NULL, OPT_REASON},
    {"verbose", no_argument, NULL, 'v'},
    {"help", no_argument, NULL, OPT_HELP},
    {"header", required_argument, NULL, 'H'},
    {"subprotocol", required_argument, NULL, OPT_SUBPROTOCOL},
    {"origin", required_argument, NULL, OPT_ORIGIN},
    {"host", required_argument, NULL, OPT_HOST},
    {"cookie", required_argument, NULL, OPT_COOKIE},
    {"deflate", no_argument, NULL, OPT_DEFLATE},
    {"redirects", required_argument, NULL, 'L'},
    {"proxy", required_argument, NULL, OPT_PROXY},
    {"proxy-env", no_argument, NULL, OPT_PROXY_ENV},
    {"proxy-header", required_argument, NULL, OPT_PROXY_HEADER},
    {"source", required_argument, NULL, OPT_SOURCE},
    {"timeout", required_argument, NULL, OPT_TIMEOUT},
    {"ca", required_argument, NULL, OPT_CA},
    {"cert", required_argument, NULL, OPT_CERT},
    {"key", required_argument, NULL, OPT_KEY},
    {"insecure", no_argument, NULL, OPT_INSECURE},
    {NULL, 0, NULL, 0},
};

static _Noreturn void try_help(void)
{
    fprintf(stderr, "Try '%s --help'.\n", program_invocation_short_name);
    exit(EXIT_USAGE);
}

static void bad_usage(const char *what, const char *value)
{
    fprintf(stderr, "%s: %s '%s'\n", program_invocation_short_name, what, value);
    try_help();
}

static uint64_t number(const char *text, uint64_t max)
{
    char *end;
    errno = 0;
    unsigned long long n = strtoull(text, &end, 10);
    if (!isdigit((unsigned char)text[0]) || *end != '\0' || errno != 0 || n > max) {
        bad_usage("not a number that can be used here:", text);
    }
    return n;
}

/* Cuts "Name: value" in two, in place: the text is the command line's own. */
static void add_header(tws_header *list, size_t *count, char *text)
{
    char *colon = strchr(text, ':');
    if (colon == NULL) {
        bad_usage("no 'Name: value' in header", text);
    }
    if (*count == MAX_HEADERS) {
        bad_usage("too many headers, at", text);
    }
    *colon = '\0';
    list[*count].name = text;
    list[*count].value = colon + 1 + strspn(colon + 1, " \t");
    *count += 1;
}

static void add_subprotocol(struct settings *s, const char *name)
{
    if (s->dial.subprotocol_count == MAX_HEADERS) {
        bad_usage("too many subprotocols, at", name);
    }
    s->subprotocols[s->dial.subprotocol_count++] = name;
}

static void set_tls_option(struct settings *s, int option, const char *value)
{
    switch (option) {
    case OPT_CA:
        s->tls.ca_file = value;
        break;
    case OPT_CERT:
        s->certificate.cert_file = value;
        s->tls.certificate = &s->certificate;
        break;
    case OPT_KEY:
        s->certificate.key_file = value;
        break;
    case OPT_INSECURE:
        s->tls.insecure_skip_verify = true;
        break;
    default: /* getopt_long() has said what is wrong */
        try_help();
    }
}

static void set_dial_option(struct settings *s, int option, char *value)
{
    switch (option) {
    case 'H':
        add_header(s->headers, &s->dial.header_count, value);
        break;
    case OPT_SUBPROTOCOL:
        add_subprotocol(s, value);
        break;
    case OPT_ORIGIN:
        s->dial.origin = value;
        break;
    case OPT_HOST:
        s->dial.host = value;
        break;
    case OPT_COOKIE:
        s->dial.cookie = value;
        break;
    case OPT_DEFLATE:
        s->dial.deflate = &s->deflate;
        break;
    case 'L':
        s->dial.max_redirects = (uint32_t)number(value, 1000);
        break;
    case OPT_PROXY:
        s->dial.proxy = value;
        break;
    case OPT_PROXY_ENV:
        s->dial.proxy_from_environment = true;
        break;
    case OPT_PROXY_HEADER:
        add_header(s->proxy_headers, &s->dial.proxy_header_count, value);
        break;
    case OPT_SOURCE:
        s->dial.source_address = value;
        break;
    case OPT_TIMEOUT:
        s->dial.timeout = (tws_ms)number(value, 86400000);
        break;
    default:
        set_tls_option(s, option, value);
        break;
    }
}

static void set_option(struct settings *s, int option, char *value)
{
    switch (option) {
    case 'b':
        s->binary = true;
        break;
    case '1':
        s->one = true;
        break;
    case 'w':
        s->wait = true;
        break;
    case 'c':
        s->commands = true;
        break;
    case 'v':
        s->verbose = true;
        break;
    case OPT_PING:
        s->dial.conn.ping_interval = (tws_ms)number(value, 86400000);
        break;
    case OPT_CLOSE:
        s->close_code = (uint16_t)number(value, 4999);
        break;
    case OPT_REASON:
        s->close_reason = value;
        break;
    case OPT_HELP:
        printf("usage: %s%s", program_invocation_short_name, usage);
        exit(EXIT_SUCCESS);
    default:
        set_dial_option(s, option, value);
        break;
    }
}

void read_options(struct settings *s, int argc, char **argv)
{
    tws_dial_options_init(&s->dial);
    tws_deflate_options_init(&s->deflate);
    tws_tls_client_options_init(&s->tls);
    s->dial.headers = s->headers;
    s->dial.proxy_headers = s->proxy_headers;
    s->dial.subprotocols = s->subprotocols;
    s->close_code = TWS_CLOSE_NORMAL;
    int option;
    while ((option = getopt_long(argc, argv, "b1wcvH:L:", options, NULL)) != -1) {
        set_option(s, option, optarg);
    }
    if (optind + 1 != argc) {
        fprintf(stderr, "%s: %s\n", program_invocation_short_name,
                optind < argc ? "more than one URL" : "no URL");
        try_help();
    }
    s->url = argv[optind];
}
