#include "options.h"

#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <sched.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "deflate.h"
#include "options_help.h"

enum {
    OPT_CONNECT_RATE = 256,
    OPT_CONNECT_PARALLEL,
    OPT_EARLY,
    OPT_BURST,
    OPT_PIPELINE,
    OPT_MAX_INFLIGHT,
    OPT_WARMUP,
    OPT_DRAIN,
    OPT_CONNECT_TIMEOUT,
    OPT_CLOSE_TIMEOUT,
    OPT_BINARY,
    OPT_UTF8,
    OPT_ZERO_MASK,
    OPT_NO_VERIFY,
    OPT_DEFLATE,
    OPT_DEFLATE_LEVEL,
    OPT_INSECURE,
    OPT_CA,
    OPT_SOURCE,
    OPT_HEADER,
    OPT_SUBPROTOCOL,
    OPT_SNDBUF,
    OPT_RCVBUF,
    OPT_THREADS,
    OPT_CONNECT_ONLY,
    OPT_BROADCAST,
    OPT_EXCLUDE_SENDER,
    OPT_SENDERS,
    OPT_MUTE_PERCENT,
    OPT_MUTE_RCVBUF,
    OPT_JSON,
    OPT_METRICS,
    OPT_EVENTS,
    OPT_LABEL,
    OPT_STRICT,
    OPT_QUIET,
    OPT_PROGRESS,
    OPT_LAG_LIMIT,
    OPT_VERSION,
};

static const struct option long_options[] = {
    {"connections", required_argument, NULL, 'c'},
    {"connect-rate", required_argument, NULL, OPT_CONNECT_RATE},
    {"connect-parallel", required_argument, NULL, OPT_CONNECT_PARALLEL},
    {"early", no_argument, NULL, OPT_EARLY},
    {"rate", required_argument, NULL, 'r'},
    {"burst", required_argument, NULL, OPT_BURST},
    {"pipeline", required_argument, NULL, OPT_PIPELINE},
    {"max-inflight", required_argument, NULL, OPT_MAX_INFLIGHT},
    {"duration", required_argument, NULL, 'd'},
    {"warmup", required_argument, NULL, OPT_WARMUP},
    {"drain", required_argument, NULL, OPT_DRAIN},
    {"connect-timeout", required_argument, NULL, OPT_CONNECT_TIMEOUT},
    {"close-timeout", required_argument, NULL, OPT_CLOSE_TIMEOUT},
    {"size", required_argument, NULL, 's'},
    {"file", required_argument, NULL, 'f'},
    {"binary", no_argument, NULL, OPT_BINARY},
    {"utf8", no_argument, NULL, OPT_UTF8},
    {"zero-mask", no_argument, NULL, OPT_ZERO_MASK},
    {"no-verify", no_argument, NULL, OPT_NO_VERIFY},
    {"deflate", optional_argument, NULL, OPT_DEFLATE},
    {"deflate-level", required_argument, NULL, OPT_DEFLATE_LEVEL},
    {"insecure", no_argument, NULL, OPT_INSECURE},
    {"ca", required_argument, NULL, OPT_CA},
    {"source", required_argument, NULL, OPT_SOURCE},
    {"header", required_argument, NULL, OPT_HEADER},
    {"subprotocol", required_argument, NULL, OPT_SUBPROTOCOL},
    {"sndbuf", required_argument, NULL, OPT_SNDBUF},
    {"rcvbuf", required_argument, NULL, OPT_RCVBUF},
    {"threads", required_argument, NULL, OPT_THREADS},
    {"connect-only", no_argument, NULL, OPT_CONNECT_ONLY},
    {"broadcast", no_argument, NULL, OPT_BROADCAST},
    {"exclude-sender", no_argument, NULL, OPT_EXCLUDE_SENDER},
    {"senders", required_argument, NULL, OPT_SENDERS},
    {"mute-percent", required_argument, NULL, OPT_MUTE_PERCENT},
    {"mute-rcvbuf", required_argument, NULL, OPT_MUTE_RCVBUF},
    {"json", required_argument, NULL, OPT_JSON},
    {"metrics", required_argument, NULL, OPT_METRICS},
    {"events", required_argument, NULL, OPT_EVENTS},
    {"label", required_argument, NULL, OPT_LABEL},
    {"strict", no_argument, NULL, OPT_STRICT},
    {"quiet", no_argument, NULL, 'q'},
    {"progress", no_argument, NULL, OPT_PROGRESS},
    {"lag-limit", required_argument, NULL, OPT_LAG_LIMIT},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, OPT_VERSION},
    {NULL, 0, NULL, 0},
};

__attribute__((format(printf, 1, 2))) static int bad(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "%s: ", program_invocation_short_name);
    vfprintf(stderr, format, args);
    fputs(" (--help lists the options)\n", stderr);
    va_end(args);
    return -1;
}

static int get_double(const char *name, const char *s, double min, double max, double *out)
{
    char *end;
    errno = 0;
    double v = strtod(s, &end);
    if (end == s || *end != '\0' || errno != 0 || !isfinite(v) || v < min || v > max)
        return bad("%s: '%s' is not a number from %g to %g", name, s, min, max);
    *out = v;
    return 0;
}

/* Whole numbers; k, M and G stand for 1024, 1024^2 and 1024^3. */
static int get_size(const char *name, const char *s, uint64_t min, uint64_t max, uint64_t *out)
{
    char *end;
    errno = 0;
    unsigned long long v = strtoull(s, &end, 10);
    unsigned shift = 0;
    if (*end == 'k' || *end == 'K')
        shift = 10;
    else if (*end == 'M')
        shift = 20;
    else if (*end == 'G')
        shift = 30;
    const char *tail = shift != 0 ? end + 1 : end;
    bool fits = errno == 0 && v <= (UINT64_MAX >> shift);
    if (s[0] < '0' || s[0] > '9' || *tail != '\0' || !fits || (v << shift) < min ||
        (v << shift) > max)
        return bad("%s: '%s' is not a whole number from %llu to %llu", name, s,
                   (unsigned long long)min, (unsigned long long)max);
    *out = v << shift;
    return 0;
}

static int get_uint(const char *name, const char *s, unsigned min, unsigned max, unsigned *out)
{
    uint64_t v = 0;
    if (get_size(name, s, min, max, &v) != 0)
        return -1;
    *out = (unsigned)v;
    return 0;
}

static int get_int(const char *name, const char *s, unsigned min, unsigned max, int *out)
{
    unsigned v = 0;
    if (get_uint(name, s, min, max, &v) != 0)
        return -1;
    *out = (int)v;
    return 0;
}

/* Grows a list by one zeroed element and returns it. */
static void *append(void *list_pointer, unsigned *count, size_t size)
{
    void *list;
    memcpy(&list, list_pointer, sizeof list);
    char *grown = realloc(list, (*count + 1) * size);
    if (grown == NULL)
        return NULL;
    memcpy(list_pointer, &grown, sizeof grown);
    memset(grown + *count * size, 0, size);
    return grown + (*count)++ * size;
}

static int add_source(struct options *o, const char *s, size_t n)
{
    char text[INET6_ADDRSTRLEN];
    struct address *a = append(&o->sources, &o->source_count, sizeof *a);
    if (a == NULL)
        return bad("out of memory");
    if (n >= sizeof text)
        return bad("--source: '%.*s' is not an address", (int)n, s);
    memcpy(text, s, n);
    text[n] = '\0';
    struct sockaddr_in *v4 = (struct sockaddr_in *)&a->sa;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&a->sa;
    if (inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        a->len = sizeof *v4;
    } else if (inet_pton(AF_INET6, text, &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        a->len = sizeof *v6;
    } else {
        return bad("--source: '%s' is not an address", text);
    }
    return 0;
}

static int add_sources(struct options *o, const char *list)
{
    while (1) {
        size_t n = strcspn(list, ",");
        if (add_source(o, list, n) != 0)
            return -1;
        if (list[n] == '\0')
            return 0;
        list += n + 1;
    }
}

static int add_header(struct options *o, const char *text)
{
    const char *colon = strchr(text, ':');
    if (colon == NULL || colon == text || strpbrk(text, "\r\n") != NULL)
        return bad("--header: '%s' is not of the form 'Name: value'", text);
    const char **slot = append(&o->headers, &o->header_count, sizeof *slot);
    if (slot == NULL)
        return bad("out of memory");
    *slot = text;
    return 0;
}

/* Names of Prometheus labels: [a-zA-Z_][a-zA-Z0-9_]*, and none that the metrics use themselves. */
static int add_label(struct options *o, char *text)
{
    static const char *const taken[] = {"state", "kind", "le", "quantile", "mode", "phase"};
    char *equals = strchr(text, '=');
    size_t n = equals != NULL ? (size_t)(equals - text) : 0;
    if (n == 0 ||
        strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789") != n ||
        (text[0] >= '0' && text[0] <= '9'))
        return bad("--label: '%s' is not of the form NAME=VALUE", text);
    *equals = '\0';
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        if (strcmp(text, taken[i]) == 0)
            return bad("--label: the name '%s' is used by the metrics themselves", text);
    for (unsigned i = 0; i < o->label_count; i++)
        if (strcmp(text, o->labels[i].name) == 0)
            return bad("--label: '%s' is given twice", text);
    struct label *l = append(&o->labels, &o->label_count, sizeof *l);
    if (l == NULL)
        return bad("out of memory");
    *l = (struct label){text, equals + 1};
    return 0;
}

static int add_url(struct options *o, const char *text)
{
    const char *why;
    struct url *u = append(&o->urls, &o->url_count, sizeof *u);
    if (u == NULL)
        return bad("out of memory");
    if (url_parse(u, text, &why) != 0)
        return bad("'%s' is not a WebSocket address: %s", text, why);
    return 0;
}

/* Options about time and pace. Returns 1 when it is none of them. */
static int set_pace(struct options *o, int id, char *arg)
{
    switch (id) {
    case 'c':
        return get_uint("-c", arg, 1, 1000000, &o->connections);
    case OPT_CONNECT_RATE:
        return get_double("--connect-rate", arg, 0, 1e6, &o->connect_rate);
    case OPT_CONNECT_PARALLEL:
        return get_uint("--connect-parallel", arg, 1, 100000, &o->connect_parallel);
    case 'r':
        return get_double("-r", arg, 0.001, 1e7, &o->rate);
    case OPT_BURST:
        return get_uint("--burst", arg, 1, 100000, &o->burst);
    case OPT_PIPELINE:
        return get_uint("--pipeline", arg, 1, 1000000, &o->pipeline);
    case OPT_MAX_INFLIGHT:
        return get_uint("--max-inflight", arg, 0, 100000000, &o->max_inflight);
    case 'd':
        return get_double("-d", arg, 0, 1e7, &o->duration);
    case OPT_WARMUP:
        return get_double("--warmup", arg, 0, 1e6, &o->warmup);
    case OPT_DRAIN:
        return get_double("--drain", arg, 0, 3600, &o->drain);
    case OPT_CONNECT_TIMEOUT:
        return get_double("--connect-timeout", arg, 0.001, 3600, &o->connect_timeout);
    case OPT_CLOSE_TIMEOUT:
        return get_double("--close-timeout", arg, 0, 3600, &o->close_timeout);
    case OPT_LAG_LIMIT:
        return get_double("--lag-limit", arg, 0.001, 1e6, &o->lag_limit);
    case OPT_SENDERS:
        return get_uint("--senders", arg, 1, 1000000, &o->senders);
    case OPT_MUTE_PERCENT:
        return get_uint("--mute-percent", arg, 0, 99, &o->mute_percent);
    case OPT_MUTE_RCVBUF:
        return get_int("--mute-rcvbuf", arg, 1, 1U << 30, &o->mute_rcvbuf);
    default:
        return 1;
    }
}

/* Options that name something. Returns 1 when it is none of them. */
static int set_value(struct options *o, int id, char *arg)
{
    uint64_t size = 0;
    switch (id) {
    case 's':
        if (get_size("-s", arg, 0, UINT64_C(1) << 30, &size) != 0)
            return -1;
        o->size = (size_t)size;
        o->size_given = true;
        return 0;
    case 'f':
        o->file = arg;
        return 0;
    case OPT_DEFLATE:
        o->deflate = true;
        o->deflate_params = arg;
        return 0;
    case OPT_DEFLATE_LEVEL:
        return get_int("--deflate-level", arg, 1, 9, &o->deflate_level);
    case OPT_CA:
        o->ca = arg;
        return 0;
    case OPT_SOURCE:
        return add_sources(o, arg);
    case OPT_HEADER:
        return add_header(o, arg);
    case OPT_SUBPROTOCOL:
        o->subprotocol = arg;
        return 0;
    case OPT_SNDBUF:
        return get_int("--sndbuf", arg, 1, 1U << 30, &o->sndbuf);
    case OPT_RCVBUF:
        return get_int("--rcvbuf", arg, 1, 1U << 30, &o->rcvbuf);
    case OPT_THREADS:
        return get_uint("--threads", arg, 1, 64, &o->threads);
    case OPT_JSON:
        o->json = arg;
        return 0;
    case OPT_METRICS:
        o->metrics = arg;
        return 0;
    case OPT_EVENTS:
        o->events = arg;
        return 0;
    case OPT_LABEL:
        return add_label(o, arg);
    default:
        return 1;
    }
}

static int set_flag(struct options *o, int id)
{
    bool *flag = NULL;
    switch (id) {
    case OPT_EARLY:
        flag = &o->early;
        break;
    case OPT_BINARY:
        flag = &o->binary;
        break;
    case OPT_UTF8:
        flag = &o->utf8;
        break;
    case OPT_ZERO_MASK:
        flag = &o->zero_mask;
        break;
    case OPT_INSECURE:
        flag = &o->insecure;
        break;
    case OPT_CONNECT_ONLY:
        flag = &o->connect_only;
        break;
    case OPT_BROADCAST:
        flag = &o->broadcast;
        break;
    case OPT_EXCLUDE_SENDER:
        flag = &o->exclude_sender;
        break;
    case OPT_STRICT:
        flag = &o->strict;
        break;
    case 'q':
        flag = &o->quiet;
        break;
    case OPT_PROGRESS:
        flag = &o->progress;
        break;
    default:
        return -1;
    }
    *flag = true;
    return 0;
}

unsigned options_cores(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return 1;
    int n = CPU_COUNT(&set);
    return n >= 1 ? (unsigned)n : 1;
}

/* Combinations that make no sense are refused rather than silently adjusted. */
static int check_broadcast(struct options *o)
{
    if (!o->broadcast)
        return o->mute_percent != 0 || o->exclude_sender
                   ? bad("--mute-percent and --exclude-sender need --broadcast")
                   : 0;
    if (o->connect_only)
        return bad("--broadcast and --connect-only exclude each other");
    if (o->file != NULL || o->size < 32)
        return bad(
            "--broadcast measures by a stamp in the message: it needs -s 32 or more, not -f");
    if (o->senders >= o->connections)
        return bad("--broadcast needs more connections (-c %u) than senders (%u)", o->connections,
                   o->senders);
    if (o->rate == 0 && o->exclude_sender)
        return bad("--exclude-sender needs -r: without it a sender waits for its own message");
    if (o->early)
        return bad("--broadcast and --early exclude each other");
    o->muted = (unsigned)((uint64_t)(o->connections - o->senders) * o->mute_percent / 100);
    return 0;
}

static int check(struct options *o)
{
    if (o->url_count == 0)
        return bad("no address given");
    if (o->connect_only && o->rate != 0)
        return bad("--connect-only sends nothing: leave out -r");
    if (o->file != NULL && o->size_given)
        return bad("-f and -s exclude each other");
    if (o->binary && o->utf8)
        return bad("--binary and --utf8 exclude each other");
    if (o->rate != 0 && o->pipeline > 1)
        return bad("--pipeline is for runs without -r (with it the schedule never waits)");
    if (o->rate == 0 && (o->burst > 1 || o->max_inflight != 0))
        return bad("--burst and --max-inflight need -r");
    if (o->deflate_params != NULL && !deflate_offer_valid(o->deflate_params))
        return bad("--deflate: '%s' is no list of permessage-deflate parameters",
                   o->deflate_params);
    if (o->duration == 0 && !o->connect_only)
        return bad("-d must be over 0");
    if (o->threads > o->connections)
        o->threads = o->connections;
    return check_broadcast(o);
}

static enum options_result parse_one(struct options *o, int id, char *arg)
{
    if (id == '?' || id == ':')
        return OPTIONS_BAD;
    if (id == 'h') {
        printf("usage: %s%s", program_invocation_short_name, options_help);
        return OPTIONS_DONE;
    }
    if (id == OPT_VERSION) {
        puts(LOAD_VERSION);
        return OPTIONS_DONE;
    }
    if (id == OPT_NO_VERIFY) {
        o->verify = false;
        return OPTIONS_RUN;
    }
    int rc = set_pace(o, id, arg);
    if (rc > 0)
        rc = set_value(o, id, arg);
    if (rc > 0)
        rc = set_flag(o, id);
    return rc == 0 ? OPTIONS_RUN : OPTIONS_BAD;
}

enum options_result options_parse(struct options *o, int argc, char **argv)
{
    *o = (struct options){
        .connections = 1,
        .connect_parallel = 256,
        .burst = 1,
        .pipeline = 1,
        .duration = -1,
        .warmup = -1,
        .drain = 5,
        .connect_timeout = 10,
        .close_timeout = 3,
        .size = 1000,
        .verify = true,
        .deflate_level = 6,
        .threads = options_cores() >= 2 ? 2 : 1,
        .senders = 1,
        .mute_rcvbuf = 4096,
        .lag_limit = 50,
    };
    int id;
    while ((id = getopt_long(argc, argv, "c:r:d:s:f:qh", long_options, NULL)) != -1) {
        enum options_result rc = parse_one(o, id, optarg);
        if (rc != OPTIONS_RUN)
            return rc;
    }
    while (optind < argc)
        if (add_url(o, argv[optind++]) != 0)
            return OPTIONS_BAD;
    if (o->duration < 0)
        o->duration = o->connect_only ? 0 : 10;
    if (o->warmup < 0)
        o->warmup = o->connect_only ? 0 : 1;
    if (check(o) != 0)
        return OPTIONS_BAD;
    if (!o->quiet && isatty(STDERR_FILENO))
        o->progress = true;
    return OPTIONS_RUN;
}

void options_clear(struct options *o)
{
    for (unsigned i = 0; i < o->url_count; i++)
        url_clear(&o->urls[i]);
    free(o->urls);
    free(o->sources);
    free(o->headers);
    free(o->labels);
}
