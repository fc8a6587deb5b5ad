#include "target.h"

#include "file.h"
#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- What is said about a target ---- */

static bool parse_pid(const char *s, pid_t *pid)
{
    char *end;
    errno = 0;
    long n = strtol(s, &end, 10);
    if (*s < '0' || *s > '9' || *end != '\0' || errno != 0 || n <= 0 || n > INT_MAX) {
        return false;
    }
    *pid = (pid_t)n;
    return true;
}

static const char *set_label(char *label, const char *value)
{
    if (*value == '\0' || !text_printable(value) || !text_copy(label, LABEL_MAX + 1, value)) {
        return "a name is 1 to 64 printable ASCII characters";
    }
    return NULL;
}

static const char *set_source(struct target *t, enum target_kind kind, const char *value)
{
    if (t->value[0] != '\0') {
        return "one of pid=, pidfile= and comm= is enough";
    }
    if (kind == TARGET_PID && !parse_pid(value, &t->pid)) {
        return "not a process id";
    }
    if (*value == '\0' || !text_copy(t->value, sizeof t->value, value)) {
        return "empty or too long";
    }
    t->kind = kind;
    return NULL;
}

static const char *set_part(struct target *t, char *part)
{
    char *value = strchr(part, '=');
    if (value == NULL) {
        return "expected NAME=VALUE between commas";
    }
    *value++ = '\0';
    if (strcmp(part, "server") == 0) {
        return set_label(t->server, value);
    }
    if (strcmp(part, "run") == 0) {
        return set_label(t->run, value);
    }
    if (strcmp(part, "pid") == 0) {
        return set_source(t, TARGET_PID, value);
    }
    if (strcmp(part, "pidfile") == 0) {
        return set_source(t, TARGET_PIDFILE, value);
    }
    if (strcmp(part, "comm") == 0) {
        return set_source(t, TARGET_COMM, value);
    }
    return "unknown name: there are server, pid, pidfile, comm and run";
}

/* Returns NULL, or what is wrong. */
static const char *parse(struct target *t, const char *text)
{
    char copy[VALUE_MAX + 4 * LABEL_MAX];
    *t = (struct target){.proc.dir = -1, .cgroup = -1};
    if (!text_copy(copy, sizeof copy, text)) {
        return "too long";
    }
    char *rest = copy;
    const char *why = NULL;
    for (char *part; why == NULL && (part = strsep(&rest, ",")) != NULL;) {
        why = set_part(t, part);
    }
    if (why == NULL && t->server[0] == '\0') {
        why = "server=NAME is missing";
    }
    if (why == NULL && t->value[0] == '\0') {
        why = "pid=N, pidfile=PATH or comm=NAME is missing";
    }
    return why;
}

static struct target *find_server(struct target *item, size_t count, const char *server)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(item[i].server, server) == 0) {
            return &item[i];
        }
    }
    return NULL;
}

/* Adds ONE to ITEM, which has room for TARGET_MAX. Returns NULL, or what is wrong. */
static const char *insert(struct target *item, size_t *count, const struct target *one)
{
    if (find_server(item, *count, one->server) != NULL) {
        return "another process has this server's name";
    }
    if (*count == TARGET_MAX) {
        return "too many servers";
    }
    item[(*count)++] = *one;
    return NULL;
}

static const char *parse_for(const struct targets *t, struct target *one, const char *text)
{
    const char *why = parse(one, text);
    if (why == NULL && one->run[0] == '\0' && t->run != NULL) {
        text_copy(one->run, sizeof one->run, t->run);
    }
    return why;
}

int targets_add(struct targets *t, const char *text, const char **why)
{
    struct target one;
    if (t->item == NULL) {
        t->item = calloc(TARGET_MAX, sizeof *t->item);
        if (t->item == NULL) {
            *why = strerror(ENOMEM);
            return -ENOMEM;
        }
    }
    *why = parse_for(t, &one, text);
    if (*why == NULL) {
        *why = insert(t->item, &t->count, &one);
    }
    return *why == NULL ? 0 : -EINVAL;
}

/* ---- The process behind it ---- */

static void detach(struct target *t)
{
    if (t->attached) {
        proc_close(&t->proc);
        if (t->cgroup >= 0) {
            close(t->cgroup);
            t->cgroup = -1;
        }
        t->attached = false;
    }
}

/* A daemon writes its file after it has started: a process that is younger than the file has got
 * the number since. */
static pid_t read_pidfile(const char *path, double *written)
{
    char buf[32];
    pid_t pid;
    struct stat st;
    if (stat(path, &st) != 0 || file_read(AT_FDCWD, path, buf, sizeof buf) <= 0) {
        return -ENOENT;
    }
    buf[strcspn(buf, " \t\r\n")] = '\0';
    *written = (double)st.st_mtim.tv_sec + (double)st.st_mtim.tv_nsec / 1e9;
    return parse_pid(buf, &pid) ? pid : -EINVAL;
}

static void attach(struct target *t, pid_t pid, double written)
{
    enum {
        CLOCK_SLACK_S = 1
    }; /* start times are in ticks, file times in the kernel's coarse clock */
    if (proc_open(&t->proc, pid) < 0) {
        return;
    }
    if (written > 0 && proc_start_time(&t->proc) > written + CLOCK_SLACK_S) {
        proc_close(&t->proc);
        return;
    }
    t->attached = true;
    t->has_before = machine_memory_read(&t->before) == 0;
    t->cgroup = cgroup_memory_open(pid);
    if (t->cgroup < 0) {
        t->cgroup = -1;
    }
}

static void refresh(struct target *t)
{
    double written = 0;
    pid_t pid = -ESRCH;
    switch (t->kind) {
    case TARGET_PID:
        pid = t->ended ? -ESRCH : t->pid;
        break;
    case TARGET_PIDFILE:
        pid = read_pidfile(t->value, &written);
        break;
    case TARGET_COMM:
        pid = t->attached ? t->proc.pid : proc_find(t->value);
        break;
    }
    if (t->attached && t->proc.pid != pid) {
        detach(t);
    }
    if (!t->attached && pid > 0) {
        attach(t, pid, written);
    }
    /* A number that was nobody's when it was given may be anybody's later. */
    t->ended = t->kind == TARGET_PID && !t->attached;
}

int target_read(struct target *t, const struct proc_options *options,
                const struct machine_memory *machine, struct proc_sample *s)
{
    if (!t->attached) {
        return -ESRCH;
    }
    int result = proc_read(&t->proc, options, s);
    if (result < 0) {
        detach(t);
        t->ended = t->kind == TARGET_PID;
        return result;
    }
    if (t->cgroup >= 0 && cgroup_memory_read(t->cgroup, &s->kernel_cgroup) == 0) {
        s->has |= PROC_KERNEL_CGROUP;
    } else if (machine != NULL && t->has_before) {
        s->kernel_change = (int64_t)(machine_memory_sum(machine) - machine_memory_sum(&t->before));
        s->has |= PROC_KERNEL_CHANGE;
    }
    return 0;
}

/* ---- The file ---- */

static bool same(const struct target *a, const struct target *b)
{
    return a->from_file && a->kind == b->kind && strcmp(a->value, b->value) == 0 &&
           strcmp(a->run, b->run) == 0;
}

/* Takes one line into ITEM. A target that says what it said before is moved over, with its
 * process. */
static const char *take_line(struct targets *t, struct target *item, size_t *count,
                             const char *line)
{
    struct target one;
    const char *why = parse_for(t, &one, line);
    if (why != NULL) {
        return why;
    }
    one.from_file = true;
    struct target *old = find_server(t->item, t->count, one.server);
    bool moves = old != NULL && same(old, &one);
    why = insert(item, count, moves ? old : &one);
    if (why == NULL && moves) {
        old->attached = false;
        old->from_file = false;
    }
    return why;
}

/* Makes a new list: those of the command line, then one for each good line. */
static int take_text(struct targets *t, char *text)
{
    struct target *item = calloc(TARGET_MAX, sizeof *item);
    size_t count = 0;
    if (item == NULL) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < t->count; i++) {
        if (!t->item[i].from_file) {
            item[count++] = t->item[i];
            t->item[i].attached = false;
        }
    }
    t->bad_lines = 0;
    char *rest = text;
    size_t number = 0;
    for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
        number++;
        line += strspn(line, " \t");
        line[strcspn(line, "\r")] = '\0';
        const char *why = *line == '\0' || *line == '#' ? NULL : take_line(t, item, &count, line);
        if (why != NULL) {
            t->bad_lines++;
            fprintf(stderr, "%s: %s:%zu: %s\n", program_invocation_short_name, t->file, number,
                    why);
        }
    }
    for (size_t i = 0; i < t->count; i++) {
        detach(&t->item[i]); /* what has not moved over */
    }
    free(t->item);
    t->item = item;
    t->count = count;
    return 0;
}

/* A file that is not there names nobody; one that says what it said is not taken again. */
static void read_file(struct targets *t)
{
    enum { FILE_BYTES = 64 * 1024 };
    char *text = malloc(FILE_BYTES);
    char *copy = NULL;
    if (text == NULL) {
        return;
    }
    if (file_read(AT_FDCWD, t->file, text, FILE_BYTES) < 0) {
        text[0] = '\0';
    }
    if (t->file_text == NULL || strcmp(t->file_text, text) != 0) {
        copy = strdup(text);
        if (copy != NULL && take_text(t, text) == 0) {
            free(t->file_text);
            t->file_text = copy;
            copy = NULL;
        }
    }
    free(copy);
    free(text);
}

void targets_refresh(struct targets *t)
{
    if (t->file != NULL) {
        read_file(t);
    }
    for (size_t i = 0; i < t->count; i++) {
        refresh(&t->item[i]);
    }
}

void targets_free(struct targets *t)
{
    for (size_t i = 0; i < t->count; i++) {
        detach(&t->item[i]);
    }
    free(t->item);
    t->item = NULL;
    t->count = 0;
    free(t->file_text);
    t->file_text = NULL;
}
