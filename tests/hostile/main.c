/* hostile: many bad peers at once against a WebSocket server. `hostile --help`, `hostile --list`. */
#include "hostile.h"

#include <arpa/inet.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/err.h>

static volatile sig_atomic_t stop;

static const char usage[] =
    "usage: hostile [OPTION]... IP:PORT\n"
    "Plays bad peers, many at once, and tells what each kind met.\n"
    "\n"
    "  --list            name the behaviours and exit\n"
    "  --only A,B        these behaviours (default: all that fit the server)\n"
    "  --peers N         at once (default 100, at most 20000)\n"
    "  --seconds N       at most (default 10, at most 3600)\n"
    "  --ramp MS         until all have begun (default 1000)\n"
    "  --threads N       that play them (default 2)\n"
    "  --tls             the server speaks TLS\n"
    "  --spread          each peer has an address of its own in 127.1.0.0/16\n"
    "  --json            print JSON\n";

static void on_signal(int number)
{
    (void)number;
    stop = 1;
}

static void fail(const char *why, const char *what)
{
    fprintf(stderr, "hostile: %s%s%s\n", why, what ? ": " : "", what ? what : "");
    exit(2);
}

static uint32_t number(const char *text, uint32_t least, uint32_t most)
{
    char *end;
    unsigned long n = strtoul(text, &end, 10);

    if (*end || end == text || n < least || n > most)
        fail("not a number in its range", text);
    return (uint32_t)n;
}

static void list(void)
{
    for (size_t i = 0; i < behaviour_count; i++)
        printf("%-16s %s%s\n", behaviours[i].name, behaviours[i].says,
               behaviours[i].only_tls ? " (TLS)" : "");
    exit(0);
}

/* ---- What is played ---- */

static bool wanted(const struct behaviour *b, const struct plan *plan, const char *only)
{
    size_t len = strlen(b->name);

    if (b->only_tls && !plan->secure)
        return false;
    for (const char *at = only; at && *at; at += strcspn(at, ","), at += *at == ',')
        if (strcspn(at, ",") == len && strncmp(at, b->name, len) == 0)
            return true;
    return !only;
}

static void choose(struct plan *plan, const char *only)
{
    struct script *scripts = calloc(behaviour_count, sizeof *scripts);

    plan->chosen = calloc(behaviour_count, sizeof *plan->chosen);
    plan->met = calloc(behaviour_count, sizeof *plan->met);
    if (!scripts || !plan->chosen || !plan->met)
        fail("no memory", NULL);
    plan->scripts = scripts;
    for (size_t i = 0; i < behaviour_count; i++) {
        const struct behaviour *b = &behaviours[i];

        if (!wanted(b, plan, only))
            continue;
        if (b->make && !b->make(&scripts[plan->chosen_count]))
            fail("no memory", NULL);
        plan->chosen[plan->chosen_count++] = b;
    }
    if (plan->chosen_count == 0)
        fail("no such behaviour", only);
}

static SSL_CTX *context(int most)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());

    if (!ctx || SSL_CTX_set_max_proto_version(ctx, most) != 1)
        fail("TLS", NULL);
    SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                              SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    return ctx;
}

static void address(struct plan *plan, const char *text)
{
    char host[64];
    const char *colon = strrchr(text, ':');

    if (!colon || (size_t)(colon - text) >= sizeof host)
        fail("not IP:PORT", text);
    memcpy(host, text, (size_t)(colon - text));
    host[colon - text] = 0;
    plan->address.sin_family = AF_INET;
    plan->address.sin_port = htons((uint16_t)number(colon + 1, 1, 65535));
    if (inet_pton(AF_INET, host, &plan->address.sin_addr) != 1)
        fail("not IP:PORT", text);
}

/* ---- What they met ---- */

static void put_counts(const char *name, const uint64_t *counts, const uint16_t *values, size_t n,
                       bool json)
{
    const char *comma = "";

    printf(json ? ", \"%s\": {" : " %s", name);
    for (size_t i = 0; i < n; i++) {
        if (counts[i] == 0)
            continue;
        if (json)
            printf("%s\"%u\": %llu", comma, values[i], (unsigned long long)counts[i]);
        else
            printf(" %u x %llu", values[i], (unsigned long long)counts[i]);
        comma = ", ";
    }
    printf(json ? "}" : comma[0] ? ";" : " none;");
}

static void put_met(const struct behaviour *b, const struct met *m, bool json)
{
    const struct {
        const char *name;
        uint64_t n;
    } counts[] = {{"connections", m->connections}, {"not_connected", m->not_connected},
                  {"tls_failed", m->tls_failed},   {"ends", m->ends},
                  {"resets", m->resets},           {"left", m->left},
                  {"silent", m->silent},           {"sent", m->sent},
                  {"received", m->received},       {"longest_ms", m->longest_ms}};

    printf(json ? "  \"%s\": {" : "%-16s", b->name);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (json || counts[i].n > 0)
            printf(json ? "%s\"%s\": %llu" : "%s%s %llu;",
                   json && i == 0 ? ""
                   : json         ? ", "
                                  : " ",
                   counts[i].name, (unsigned long long)counts[i].n);
    put_counts("status", m->statuses, met_statuses, STATUSES, json);
    put_counts("close", m->closes, met_closes, CLOSES, json);
    printf(json ? "}" : "\n");
}

static void report(const struct plan *plan, bool json)
{
    if (json)
        printf("{\n");
    for (size_t i = 0; i < plan->chosen_count; i++) {
        put_met(plan->chosen[i], &plan->met[i], json);
        if (json)
            printf(i + 1 < plan->chosen_count ? ",\n" : "\n}\n");
    }
}

struct settings {
    const char *only; /* NULL: all */
    bool json;
};

static void read_options(struct plan *plan, struct settings *settings, int argc, char **argv)
{
    static const struct option options[] = {{"list", no_argument, NULL, 'l'},
                                            {"only", required_argument, NULL, 'o'},
                                            {"peers", required_argument, NULL, 'p'},
                                            {"seconds", required_argument, NULL, 's'},
                                            {"ramp", required_argument, NULL, 'r'},
                                            {"threads", required_argument, NULL, 't'},
                                            {"tls", no_argument, NULL, 'T'},
                                            {"spread", no_argument, NULL, 'S'},
                                            {"json", no_argument, NULL, 'j'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    int o;

    while ((o = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (o) {
        case 'l':
            list();
            break;
        case 'o':
            settings->only = optarg;
            break;
        case 'p':
            plan->peers = number(optarg, 1, 20000);
            break;
        case 's':
            plan->seconds = number(optarg, 1, 3600);
            break;
        case 'r':
            plan->ramp_ms = number(optarg, 0, 600000);
            break;
        case 't':
            plan->threads = number(optarg, 1, 16);
            break;
        case 'T':
            plan->secure = true;
            break;
        case 'S':
            plan->spread = true;
            break;
        case 'j':
            settings->json = true;
            break;
        default:
            fputs(usage, o == 'h' ? stdout : stderr);
            exit(o == 'h' ? 0 : 2);
        }
    }
    if (optind != argc - 1)
        fail("one address is needed", NULL);
    address(plan, argv[optind]);
}

int main(int argc, char **argv)
{
    struct plan plan = {.peers = 100, .seconds = 10, .threads = 2, .ramp_ms = 1000, .stop = &stop};
    struct settings settings = {0};

    read_options(&plan, &settings, argc, argv);
    choose(&plan, settings.only);
    plan.tls = context(0);
    plan.tls_1_2 = context(TLS1_2_VERSION);
    signal(SIGPIPE, SIG_IGN); /* OpenSSL writes with write(2) */
    signal(SIGTERM, on_signal);
    signal(SIGINT, on_signal);
    if (!hostile_run(&plan))
        fail("not enough memory, descriptors or threads", NULL);
    report(&plan, settings.json);
    return 0;
}
