/* What the exporter watches: servers under test, and for each the process that is the server at
 * the moment. */
#ifndef EXPORTER_TARGET_H
#define EXPORTER_TARGET_H

#include "kernel_memory.h"
#include "proc.h"

#include <stdbool.h>
#include <stddef.h>

enum {
    TARGET_MAX = 64, /* servers at a time */
    LABEL_MAX = 64,  /* bytes of a label's value */
    VALUE_MAX = 1024,
};

enum target_kind { TARGET_PID, TARGET_PIDFILE, TARGET_COMM };

struct target {
    char server[LABEL_MAX + 1];
    char run[LABEL_MAX + 1]; /* empty: not part of a run */
    enum target_kind kind;
    char value[VALUE_MAX];
    pid_t pid; /* of TARGET_PID */
    bool from_file;
    bool ended; /* a TARGET_PID whose process has ended: never attached again */

    bool attached;
    struct proc proc;
    struct machine_memory before; /* the machine's when the process was first seen */
    bool has_before;
    int cgroup; /* descriptor, or -1 */
};

struct targets {
    struct target *item; /* room for TARGET_MAX, or NULL before the first */
    size_t count;
    const char *run;  /* for those that name none; may be NULL */
    const char *file; /* may be NULL */
    size_t bad_lines; /* in the file when it was last read */
    char *file_text;  /* as last read, so that a fault is reported once */
};

/* Adds `server=NAME,(pid=N|pidfile=PATH|comm=NAME)[,run=ID]`. Returns 0, or a negative errno
 * with *WHY set to a text that says what is wrong. */
int targets_add(struct targets *t, const char *text, const char **why);

/* Reads the file again, lets go of processes that have ended, and looks for those that are not
 * there yet. */
void targets_refresh(struct targets *t);

/* Reads the process of a target. Returns 0, or a negative errno; then the target is attached no
 * more. */
int target_read(struct target *t, const struct proc_options *options,
                const struct machine_memory *machine, struct proc_sample *s);

void targets_free(struct targets *t);

#endif
