/*
 * Every fault at every position. A child process runs a batch of them, one session each; the parent
 * runs several children, and ends one that hangs, with its stacks printed.
 *
 *     fault [--full] [--most N] [--seed N] [--jobs N] [--scene NAME] [--mode NAME]
 *           [--position N [--variant N]] [--from N] [--to N]
 */
#include "session.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

const struct scene scenes[] = {
    {"server", scene_server, false},     {"server-light", scene_server, true},
    {"events", scene_events, false},     {"events-light", scene_events, true},
    {"dial", scene_dial, false},         {"dial-light", scene_dial, true},
    {"deflate", scene_deflate, false},   {"deflate-light", scene_deflate, true},
    {"takeover", scene_takeover, false}, {"takeover-light", scene_takeover, true},
    {"hub", scene_hub, false},           {"hub-light", scene_hub, true},
    {"queue", scene_queue, false},       {"queue-light", scene_queue, true},
    {"stream", scene_stream, false},     {"stream-light", scene_stream, true},
    {"handoff", scene_handoff, false},   {"handoff-light", scene_handoff, true},
    {"cluster", scene_cluster, false},   {"tls", scene_tls, false},
    {"tls-light", scene_tls, true},      {"tls-wrong", scene_tls_wrong, false},
};
const size_t scene_count = sizeof scenes / sizeof *scenes;

static const struct mode {
    const char *name;
    enum fault_mode mode;
    bool onward, positions, errors;
} modes[] = {
    {"hook", FAULT_HOOK, false, true, false},
    {"hook-onward", FAULT_HOOK, true, true, false},
    {"memory", FAULT_MEMORY, false, true, false},
    {"memory-onward", FAULT_MEMORY, true, true, false},
    {"call", FAULT_CALL, false, true, true},
    {"call-onward", FAULT_CALL, true, true, false},
    {"kind", FAULT_KIND, true, false, false},
    {"clock-leap", FAULT_LEAP, false, true, false},
    {"clock-still", FAULT_STILL, false, true, false},
    {"short", FAULT_SHORT, false, false, false},
    {"interrupt", FAULT_INTERRUPT, false, false, false},
    {"again", FAULT_AGAIN, false, false, false},
    {"signals", FAULT_SIGNALS, false, false, false},
};
enum {
    MODES = sizeof modes / sizeof *modes,
    MOST_JOBS = 16,
    BATCH = 40,
    HANG_MS = 90000,
    SLOW_MS = 1500
};

static struct {
    const char *scene, *mode;
    long position, most, from, to;
    unsigned variant, seed, jobs;
    bool full;
} args = {.most = 6, .jobs = 3, .from = 1, .to = LONG_MAX};

/* ---- What is to be done ---- */

struct work {
    const struct scene *scene;
    const struct mode *mode;
    struct fault_plan *plans;
    long count, next; /* next: the first that no child has */
    long positions, done, struck, noticed, slow, failed;
};

struct child {
    pid_t pid;
    struct work *work;
    long first, count;
    struct report *report;
    FILE *log;
};

static struct child children[MOST_JOBS];
static long failures;

static struct report *shared_report(void)
{
    void *p = mmap(NULL, sizeof(struct report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                   -1, 0);

    if (p == MAP_FAILED)
        die("no memory");
    return p;
}

static void describe(const struct work *w, const struct fault_plan *p)
{
    printf("%s %s position %ld variant %u%s%s", w->scene->name, w->mode->name, p->position,
           p->variant, p->mode == FAULT_KIND ? " " : "",
           p->mode == FAULT_KIND ? fault_call_name(p->call) : "");
}

/* ---- Children ---- */

static void child_main(struct child *c)
{
    static const struct fault_plan none = {.mode = FAULT_NONE};
    struct report *r = c->report;

    dup2(fileno(c->log), STDERR_FILENO);
    atomic_store(&r->since, support_now_ms());
    atomic_store(&r->item, -1);
    session_run(c->work->scene, &none);
    for (long i = c->first; i < c->first + c->count; i++) {
        int64_t begin = support_now_ms();

        atomic_store(&r->since, begin);
        atomic_store(&r->item, i);
        session_run(c->work->scene, &c->work->plans[i]);
        atomic_fetch_add(&r->struck, fault_struck());
        atomic_fetch_add(&r->noticed, notes() > 0);
        if (support_now_ms() - begin > SLOW_MS) {
            atomic_fetch_add(&r->slow, 1);
            fprintf(stderr, "slow: item %ld position %ld variant %u %lld ms\n", i,
                    c->work->plans[i].position, c->work->plans[i].variant,
                    (long long)(support_now_ms() - begin));
        }
        atomic_fetch_add(&r->done, 1);
    }
    exit(0); /* LeakSanitizer looks now */
}

static void child_start(struct child *c, struct work *w, long first, long count)
{
    c->work = w;
    c->first = first;
    c->count = count;
    c->report = shared_report();
    c->log = tmpfile();
    if (!c->log)
        die("no file");
    fflush(stdout);
    c->pid = fork();
    if (c->pid < 0)
        die("no process");
    if (c->pid == 0)
        child_main(c);
}

static void show_log(struct child *c)
{
    char line[512];
    int lines = 0;

    rewind(c->log);
    while (lines++ < 60 && fgets(line, sizeof line, c->log))
        printf("    %s", line);
}

static void show_stacks(pid_t pid)
{
    char command[200];

    snprintf(command, sizeof command,
             "gdb -q -batch -p %d -ex 'thread apply all bt 12' 2>&1 | grep -E '^(#|Thread)'",
             (int)pid);
    fflush(stdout);
    if (system(command) != 0)
        puts("no debugger");
}

/* A child has ended, well or not. What is left of its batch goes to another. */
static void child_ended(struct child *c, int status, bool hung)
{
    struct work *w = c->work;
    struct report *r = c->report;
    long done = atomic_load(&r->done), at = atomic_load(&r->item);

    w->done += done;
    w->struck += atomic_load(&r->struck);
    w->noticed += atomic_load(&r->noticed);
    w->slow += atomic_load(&r->slow);
    if ((atomic_load(&r->slow) || args.position) && getenv("FAULT_VERBOSE"))
        show_log(c);
    if (hung || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        failures++;
        w->failed++;
        printf("FAILED: ");
        if (at < 0)
            printf("%s %s without a fault", w->scene->name, w->mode->name);
        else
            describe(w, &w->plans[at]);
        printf("%s (status %d)\n", hung ? ": hangs" : "", status);
        show_log(c);
    }
    fclose(c->log);
    munmap(r, sizeof *r);
    c->pid = 0;
    if (at >= 0 && at + 1 < c->first + c->count && done < c->count && w->failed < 6)
        child_start(c, w, at + 1, c->first + c->count - at - 1);
}

/* Looks after all children once; how many there are. */
static unsigned children_look(void)
{
    unsigned running = 0;

    for (unsigned i = 0; i < args.jobs; i++) {
        struct child *c = &children[i];
        int status;

        if (!c->pid)
            continue;
        running++;
        if (waitpid(c->pid, &status, WNOHANG) == c->pid) {
            child_ended(c, status, false);
        } else if (support_now_ms() - atomic_load(&c->report->since) > HANG_MS &&
                   atomic_load(&c->report->since)) {
            show_stacks(c->pid);
            kill(c->pid, SIGKILL);
            waitpid(c->pid, &status, 0);
            child_ended(c, status, true);
        }
    }
    return running;
}

static void run_work(struct work *w)
{
    long batch = w->count / args.jobs + 1;

    batch = batch > BATCH ? BATCH : batch;
    for (;;) {
        for (unsigned i = 0; i < args.jobs && w->next < w->count; i++)
            if (!children[i].pid) {
                long n = w->count - w->next < batch ? w->count - w->next : batch;

                w->next += n;
                child_start(&children[i], w, w->next - n, n);
            }
        if (children_look() == 0 && w->next >= w->count)
            break;
        usleep(3000);
    }
}

/* ---- Plans ---- */

static void add(struct work *w, struct fault_plan p)
{
    w->plans = realloc(w->plans, (size_t)(w->count + 1) * sizeof *w->plans);
    if (!w->plans)
        die("no memory");
    p.mode = w->mode->mode;
    p.onward = w->mode->onward;
    w->plans[w->count++] = p;
}

/* The positions of a session without faults, in a child; false when it failed. */
static bool count_positions(const struct work *w, struct report *r)
{
    struct fault_plan p = {.mode = w->mode->mode, .position = FAULT_NEVER};
    int status = 0;
    pid_t pid;

    if (p.mode == FAULT_KIND)
        p.mode = FAULT_CALL;
    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        for (int i = 0; i < 2; i++)
            session_run(w->scene, &p);
        r->seen = fault_trace(r->kinds, (long)sizeof r->kinds);
        r->seen = fault_seen();
        exit(0);
    }
    waitpid(pid, &status, 0);
    return pid > 0 && status == 0;
}

/* With how many errors the call at a position fails. */
static unsigned errors_at(const struct work *w, const struct report *r, long position)
{
    if (!w->mode->errors || position > r->seen || position > (long)sizeof r->kinds)
        return 1;
    return fault_call_errors(r->kinds[position - 1]);
}

static void plan_positions(struct work *w, const struct report *r)
{
    long step = args.full ? 1 : (r->seen + args.most) / args.most;

    w->positions = r->seen;
    for (long n = args.from; n <= r->seen + 2 && n <= args.to; n++) {
        unsigned errors = errors_at(w, r, n);

        if ((n + (long)args.seed) % step)
            continue;
        for (unsigned v = 0; v < errors; v++)
            if (args.full || v == (args.seed + (unsigned)n) % errors)
                add(w, (struct fault_plan){.position = n, .variant = v});
    }
}

/* Each kind of call that comes up fails for good from its first, second, fourth, ... on. */
static void plan_kinds(struct work *w, const struct report *r)
{
    for (int call = 0; call < CALL_COUNT; call++) {
        long count = 0;

        for (long i = 0; i < r->seen && i < (long)sizeof r->kinds; i++)
            count += r->kinds[i] == call;
        w->positions += count > 0;
        if (!args.full && ((unsigned)call + args.seed) % 3)
            continue;
        for (long n = 1; n <= count; n *= 2)
            for (unsigned v = 0; v < fault_call_errors(call); v++)
                if (args.full || (n == 1 && v == 0))
                    add(w, (struct fault_plan){.position = n, .variant = v, .call = call});
    }
}

static void plan(struct work *w)
{
    struct report *r = shared_report();

    if (args.position > 0) {
        add(w, (struct fault_plan){.position = args.position, .variant = args.variant});
    } else if (!w->mode->positions && w->mode->mode != FAULT_KIND) {
        for (int i = 0; i < (args.full ? 5 : 1); i++)
            add(w, (struct fault_plan){.position = 1});
    } else if (!count_positions(w, r)) {
        printf("FAILED: %s %s while counting\n", w->scene->name, w->mode->name);
        failures++;
    } else if (w->mode->mode == FAULT_KIND) {
        plan_kinds(w, r);
    } else {
        plan_positions(w, r);
    }
    munmap(r, sizeof *r);
}

/* ---- All ---- */

static bool read_args(int argc, char **argv)
{
    static const struct option options[] = {{"full", no_argument, NULL, 'f'},
                                            {"most", required_argument, NULL, 'n'},
                                            {"seed", required_argument, NULL, 's'},
                                            {"jobs", required_argument, NULL, 'j'},
                                            {"scene", required_argument, NULL, 'c'},
                                            {"mode", required_argument, NULL, 'm'},
                                            {"position", required_argument, NULL, 'p'},
                                            {"variant", required_argument, NULL, 'v'},
                                            {"from", required_argument, NULL, 'a'},
                                            {"to", required_argument, NULL, 'z'},
                                            {NULL, 0, NULL, 0}};
    int o;

    while ((o = getopt_long(argc, argv, "", options, NULL)) != -1)
        switch (o) {
        case 'f':
            args.full = true;
            break;
        case 'n':
            args.most = atol(optarg);
            break;
        case 's':
            args.seed = (unsigned)atol(optarg);
            break;
        case 'j':
            args.jobs = (unsigned)atol(optarg);
            break;
        case 'c':
            args.scene = optarg;
            break;
        case 'm':
            args.mode = optarg;
            break;
        case 'p':
            args.position = atol(optarg);
            break;
        case 'a':
            args.from = atol(optarg);
            break;
        case 'z':
            args.to = atol(optarg);
            break;
        case 'v':
            args.variant = (unsigned)atol(optarg);
            break;
        default:
            return false;
        }
    return optind == argc && args.most > 0 && args.from > 0 && args.jobs >= 1 &&
           args.jobs <= MOST_JOBS;
}

static long run_all(void)
{
    long ran = 0;

    for (size_t i = 0; i < scene_count; i++)
        for (size_t m = 0; m < MODES; m++) {
            struct work w = {.scene = &scenes[i], .mode = &modes[m]};
            int64_t begin = support_now_ms();

            if ((args.scene && strcmp(args.scene, scenes[i].name) != 0) ||
                (args.mode && strcmp(args.mode, modes[m].name) != 0))
                continue;
            plan(&w);
            run_work(&w);
            ran += w.done;
            printf("%-15s %-14s %6ld positions, %6ld sessions, %6ld struck, %6ld told, %ld slow, "
                   "%lld ms\n",
                   w.scene->name, w.mode->name, w.positions, w.done, w.struck, w.noticed, w.slow,
                   (long long)(support_now_ms() - begin));
            fflush(stdout);
            free(w.plans);
        }
    return ran;
}

int main(int argc, char **argv)
{
    long ran;

    args.seed = (unsigned)(time(NULL) / 60 % 10000);
    if (!read_args(argc, argv)) {
        fputs("usage: see tests/fault/main.c\n", stderr);
        return 2;
    }
    fault_init();
    scene_tls_prepare();
    printf("seed %u\n", args.seed);
    ran = run_all();
    printf("%ld passed, %ld failed, 0 skipped\n", ran, failures);
    return failures ? 1 : 0;
}
