#include "metrics.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <time.h>

enum value_kind { VALUE_SECONDS, VALUE_UNSIGNED, VALUE_SIGNED };

/* A family is one row, or several that follow each other with the same name and tell a label's
 * values apart. */
struct row {
    const char *name;
    const char *type;
    const char *help;
    const char *label; /* NULL: only the server */
    const char *label_value;
    unsigned has; /* the sample must have this */
    enum value_kind kind;
    size_t offset; /* in struct proc_sample */
};

#define FIELD(kind, member) VALUE_##kind, offsetof(struct proc_sample, member)

static const struct row rows[] = {
    {"process_cpu_seconds_total", "counter",
     "CPU time of all threads, user and system, in clock ticks as /proc/PID/stat has it.", NULL,
     NULL, PROC_ALWAYS, FIELD(SECONDS, cpu_seconds)},
    {"process_cpu_mode_seconds_total", "counter", "CPU time of all threads by mode.", "mode",
     "user", PROC_ALWAYS, FIELD(SECONDS, user_seconds)},
    {"process_cpu_mode_seconds_total", NULL, NULL, "mode", "system", PROC_ALWAYS,
     FIELD(SECONDS, system_seconds)},
    {"process_resident_memory_bytes", "gauge",
     "Resident memory. What the kernel holds for the process is not in it.", NULL, NULL,
     PROC_ALWAYS, FIELD(UNSIGNED, resident)},
    {"process_proportional_memory_bytes", "gauge",
     "Resident memory, pages shared with other processes divided among them.", NULL, NULL,
     PROC_PROPORTIONAL, FIELD(UNSIGNED, proportional)},
    {"process_virtual_memory_bytes", "gauge", "Size of the address space.", NULL, NULL, PROC_ALWAYS,
     FIELD(UNSIGNED, virtual_memory)},
    {"process_threads", "gauge", "Threads of the process.", NULL, NULL, PROC_ALWAYS,
     FIELD(UNSIGNED, threads)},
    {"process_open_fds", "gauge", "Open file descriptors.", NULL, NULL, PROC_FDS,
     FIELD(UNSIGNED, fds)},
    {"process_context_switches_total", "counter",
     "Context switches of all threads, also those that have ended.", "kind", "voluntary",
     PROC_SWITCHES, FIELD(UNSIGNED, voluntary)},
    {"process_context_switches_total", NULL, NULL, "kind", "involuntary", PROC_SWITCHES,
     FIELD(UNSIGNED, involuntary)},
    {"process_start_time_seconds", "gauge", "When the process was started, since the epoch.", NULL,
     NULL, PROC_ALWAYS, FIELD(SECONDS, start_seconds)},
    {"bench_kernel_memory_bytes", "gauge",
     "Memory that the kernel holds: source=cgroup is the process's own control group; "
     "source=machine_change is the growth of the whole machine's kernel stacks and slab since the "
     "process was first seen.",
     "source", "cgroup", PROC_KERNEL_CGROUP, FIELD(UNSIGNED, kernel_cgroup)},
    {"bench_kernel_memory_bytes", NULL, NULL, "source", "machine_change", PROC_KERNEL_CHANGE,
     FIELD(SIGNED, kernel_change)},
};

enum { ROWS = sizeof rows / sizeof rows[0] };

/* One scrape: the targets that could be read, in their order, and what was read. */
struct scrape {
    size_t count;
    const struct target *target[TARGET_MAX];
    struct proc_sample sample[TARGET_MAX];
};

static void write_head(struct text *out, const char *name, const char *type, const char *help)
{
    text_addf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void write_value(struct text *out, const struct row *r, const struct proc_sample *s)
{
    const void *at = (const char *)s + r->offset;
    switch (r->kind) {
    case VALUE_SECONDS:
        text_addf(out, " %.6f\n", *(const double *)at);
        break;
    case VALUE_UNSIGNED:
        text_addf(out, " %" PRIu64 "\n", *(const uint64_t *)at);
        break;
    case VALUE_SIGNED:
        text_addf(out, " %" PRId64 "\n", *(const int64_t *)at);
        break;
    }
}

static bool row_has_samples(const struct row *r, const struct scrape *scrape)
{
    for (size_t i = 0; i < scrape->count; i++) {
        if ((scrape->sample[i].has & r->has) == r->has) {
            return true;
        }
    }
    return false;
}

/* A family without samples is left out whole. */
static bool family_has_samples(size_t first, const struct scrape *scrape)
{
    size_t i = first;
    do {
        if (row_has_samples(&rows[i], scrape)) {
            return true;
        }
        i++;
    } while (i < ROWS && rows[i].type == NULL);
    return false;
}

static void write_row(struct text *out, const struct row *r, const struct scrape *scrape)
{
    for (size_t i = 0; i < scrape->count; i++) {
        const struct proc_sample *s = &scrape->sample[i];
        if ((s->has & r->has) != r->has) {
            continue;
        }
        text_add(out, r->name);
        text_add(out, "{");
        text_label(out, "server", scrape->target[i]->server);
        if (r->label != NULL) {
            text_add(out, ",");
            text_label(out, r->label, r->label_value);
        }
        text_add(out, "}");
        write_value(out, r, s);
    }
}

static void write_processes(struct text *out, const struct scrape *scrape)
{
    for (size_t i = 0; i < ROWS; i++) {
        if (rows[i].type != NULL && family_has_samples(i, scrape)) {
            write_head(out, rows[i].name, rows[i].type, rows[i].help);
        }
        write_row(out, &rows[i], scrape);
    }
}

static void write_runs(struct text *out, const struct scrape *scrape)
{
    bool head = false;
    for (size_t i = 0; i < scrape->count; i++) {
        if (scrape->target[i]->run[0] == '\0') {
            continue;
        }
        if (!head) {
            write_head(out, "bench_run_active", "gauge",
                       "1 while this run has this server under test.");
            head = true;
        }
        text_add(out, "bench_run_active{");
        text_label(out, "server", scrape->target[i]->server);
        text_add(out, ",");
        text_label(out, "run", scrape->target[i]->run);
        text_add(out, "} 1\n");
    }
}

static void write_machine(struct text *out, const struct machine_memory *machine)
{
    static const char name[] = "bench_machine_kernel_memory_bytes";
    write_head(out, name, "gauge", "Memory of the kernel, whole machine.");
    text_addf(out, "%s{kind=\"kernel_stack\"} %" PRIu64 "\n", name, machine->kernel_stack);
    text_addf(out, "%s{kind=\"slab\"} %" PRIu64 "\n", name, machine->slab);
    text_addf(out, "%s{kind=\"page_tables\"} %" PRIu64 "\n", name, machine->page_tables);
}

static void write_self(struct text *out, const struct metrics *m)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    write_head(out, "bench_exporter_cpu_seconds_total", "counter", "CPU time of the exporter.");
    text_addf(out, "bench_exporter_cpu_seconds_total %lld.%09ld\n", (long long)t.tv_sec, t.tv_nsec);
    write_head(out, "bench_exporter_scrapes_total", "counter", "Pages served, this one included.");
    text_addf(out, "bench_exporter_scrapes_total %" PRIu64 "\n", m->scrapes);
    write_head(out, "bench_exporter_bad_lines", "gauge",
               "Lines of the file of processes that could not be taken.");
    text_addf(out, "bench_exporter_bad_lines %zu\n", m->targets.bad_lines);
}

int metrics_write(struct metrics *m, struct text *out)
{
    struct scrape scrape = {.count = 0};
    struct machine_memory machine;
    m->scrapes++;
    targets_refresh(&m->targets);
    bool has_machine = machine_memory_read(&machine) == 0;
    for (size_t i = 0; i < m->targets.count; i++) {
        struct target *t = &m->targets.item[i];
        if (target_read(t, &m->options, has_machine ? &machine : NULL,
                        &scrape.sample[scrape.count]) == 0) {
            scrape.target[scrape.count++] = t;
        }
    }
    write_processes(out, &scrape);
    write_runs(out, &scrape);
    if (has_machine) {
        write_machine(out, &machine);
    }
    write_self(out, m);
    return text_failed(out) ? -ENOMEM : 0;
}
