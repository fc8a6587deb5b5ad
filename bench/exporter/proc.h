/* One process, read from /proc at a cost that does not grow with a walk over its threads. */
#ifndef EXPORTER_PROC_H
#define EXPORTER_PROC_H

#include "taskstats.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* An open /proc/PID keeps naming the same process: when that has ended, reading fails, whoever
 * got its number. */
struct proc {
    pid_t pid;
    int dir;
    uint64_t start_ticks; /* since boot */
};

/* What could be read besides the values that are always there. */
enum proc_has {
    PROC_ALWAYS = 0,
    PROC_FDS = 1,
    PROC_PROPORTIONAL = 2,
    PROC_SWITCHES = 4,
    PROC_KERNEL_CGROUP = 8, /* filled by the owner of the sample, see target.h */
    PROC_KERNEL_CHANGE = 16,
};

struct proc_sample {
    unsigned has;
    double cpu_seconds;
    double user_seconds;
    double system_seconds;
    double start_seconds; /* since the epoch */
    uint64_t resident;
    uint64_t virtual_memory;
    uint64_t proportional;
    uint64_t threads;
    uint64_t fds;
    uint64_t voluntary;
    uint64_t involuntary;
    uint64_t kernel_cgroup;
    int64_t kernel_change;
};

struct proc_options {
    bool proportional;
    struct taskstats_reader taskstats;
};

/* Returns 0, or a negative errno: -ESRCH when there is no such process or it is a zombie. */
int proc_open(struct proc *p, pid_t pid);
void proc_close(struct proc *p);

/* Returns 0, or a negative errno: -ESRCH when the process has ended. */
int proc_read(const struct proc *p, const struct proc_options *options, struct proc_sample *s);

/* The moment when the process was started, in seconds since the epoch. */
double proc_start_time(const struct proc *p);

/* Finds the process whose name (/proc/PID/comm) is COMM and which has run longest; the exporter
 * itself is not it. Returns its pid, or a negative errno: -ESRCH when there is none. */
pid_t proc_find(const char *comm);

#endif
