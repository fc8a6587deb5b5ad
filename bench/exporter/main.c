/* A Prometheus exporter for servers under test: CPU, memory, threads and descriptors of a few
 * named processes, cheap also when one of them has 10,000 threads. */
#include "http.h"
#include "metrics.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXIT_USAGE = 2 };

static const char usage[] =
    " [OPTION]...\n"
    "Serves CPU, memory, threads and descriptors of processes at http://HOST:PORT/metrics\n"
    "\n"
    "  --listen HOST:PORT   where to listen (default 127.0.0.1:9464; port 0: any free one)\n"
    "  --proc SPEC          a process to watch; may be given again, one server each\n"
    "  --procs-file PATH    a file with one SPEC a line, read again at each scrape\n"
    "  --run ID             the run of every SPEC that names none\n"
    "  --proportional       proportional memory too (reads all mappings of a process: slower)\n"
    "  --no-switches        no context switches (the kernel adds them up with interrupts off: "
    "about\n"
    "                       1 ms for 10,000 threads)\n"
    "  --help               this text\n"
    "\n"
    "SPEC is server=NAME and one of pid=N, pidfile=PATH, comm=NAME, and perhaps run=ID, between\n"
    "commas: server=gws,pid=4711,run=2026-11-30. The series of a process that has ended are gone "
    "at\n"
    "the next scrape. A pid file is read and a comm looked for until the process is there, and\n"
    "again when it has ended.\n";

static volatile sig_atomic_t stopped;

static void stop(int number)
{
    (void)number;
    stopped = 1;
}

static _Noreturn void try_help(void)
{
    fprintf(stderr, "Try '%s --help'.\n", program_invocation_short_name);
    exit(EXIT_USAGE);
}

static void bad_option(const char *option, const char *value, const char *why)
{
    fprintf(stderr, "%s: --%s %s: %s\n", program_invocation_short_name, option, value, why);
    try_help();
}

struct settings {
    const char *listen;
    const char *spec[TARGET_MAX];
    size_t specs;
    bool no_switches;
};

static const struct option options[] = {
    {"listen", required_argument, NULL, 'l'},
    {"proc", required_argument, NULL, 'p'},
    {"procs-file", required_argument, NULL, 'f'},
    {"run", required_argument, NULL, 'r'},
    {"proportional", no_argument, NULL, 'P'},
    {"no-switches", no_argument, NULL, 'S'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

static void set_option(struct settings *s, struct metrics *m, int option, const char *value)
{
    switch (option) {
    case 'l':
        s->listen = value;
        break;
    case 'p':
        if (s->specs == TARGET_MAX) {
            bad_option("proc", value, "too many");
        }
        s->spec[s->specs++] = value;
        break;
    case 'f':
        m->targets.file = value;
        break;
    case 'r':
        if (strlen(value) > LABEL_MAX || !text_printable(value)) {
            bad_option("run", value, "a name is at most 64 printable ASCII characters");
        }
        m->targets.run = value;
        break;
    case 'P':
        m->options.proportional = true;
        break;
    case 'S':
        s->no_switches = true;
        break;
    case 'h':
        printf("usage: %s%s", program_invocation_short_name, usage);
        exit(EXIT_SUCCESS);
    default: /* getopt_long() has said what is wrong */
        try_help();
    }
}

static void read_options(struct settings *s, struct metrics *m, int argc, char **argv)
{
    int option;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        set_option(s, m, option, optarg);
    }
    if (optind < argc) {
        fprintf(stderr, "%s: unexpected argument '%s'\n", program_invocation_short_name,
                argv[optind]);
        try_help();
    }
    /* After all options, so that --run holds wherever it stands. */
    for (size_t i = 0; i < s->specs; i++) {
        const char *why;
        if (targets_add(&m->targets, s->spec[i], &why) < 0) {
            bad_option("proc", s->spec[i], why);
        }
    }
}

/* A pid on the command line that is nobody's is a mistake; one in a file may just have ended. */
static int check_pids(const struct targets *t)
{
    for (size_t i = 0; i < t->count; i++) {
        const struct target *one = &t->item[i];
        if (one->kind == TARGET_PID && !one->from_file && !one->attached) {
            fprintf(stderr, "%s: server=%s: there is no process %s\n",
                    program_invocation_short_name, one->server, one->value);
            return -ESRCH;
        }
    }
    return 0;
}

static int page(void *arg, struct text *body)
{
    return metrics_write(arg, body);
}

static void catch_signals(sigset_t *while_waiting)
{
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigprocmask(SIG_BLOCK, &signals, while_waiting);
    struct sigaction action = {.sa_handler = stop};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

static int run(struct settings *s, struct metrics *m)
{
    sigset_t mask;
    struct http_server *server = NULL;
    const char *why;
    char address[96];
    int result = http_open(&server, s->listen, page, METRICS_TYPE, m, &why);
    if (result == -EINVAL) {
        bad_option("listen", s->listen, why);
    }
    if (result < 0) {
        fprintf(stderr, "%s: --listen %s: %s\n", program_invocation_short_name, s->listen, why);
        return result;
    }
    targets_refresh(&m->targets);
    result = check_pids(&m->targets);
    if (result < 0) {
        goto out;
    }
    catch_signals(&mask);
    http_address(server, address, sizeof address);
    printf("listening on %s\n", address);
    fflush(stdout);
    result = http_serve(server, &stopped, &mask);
    if (result < 0) {
        fprintf(stderr, "%s: %s\n", program_invocation_short_name, strerror(-result));
    }
out:
    http_close(server);
    return result;
}

static void open_taskstats(struct taskstats_reader *r, bool wanted)
{
    r->fd = -1;
    int result = wanted ? taskstats_open(r) : 0;
    if (result < 0) {
        fprintf(stderr,
                "%s: no context switches: %s (they need CAP_NET_ADMIN and the host's "
                "namespaces)\n",
                program_invocation_short_name, strerror(-result));
    }
}

int main(int argc, char **argv)
{
    struct settings s = {.listen = "127.0.0.1:9464"};
    static struct metrics m;
    read_options(&s, &m, argc, argv);
    open_taskstats(&m.options.taskstats, !s.no_switches);
    int result = run(&s, &m);
    targets_free(&m.targets);
    taskstats_close(&m.options.taskstats);
    return result < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
