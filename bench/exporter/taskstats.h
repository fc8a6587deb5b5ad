/* Context switches of a whole process, without a walk over its threads: the kernel's taskstats
 * interface adds them up. (/proc/PID/status has those of the main thread only.) Needs
 * CAP_NET_ADMIN and the host's namespaces. */
#ifndef EXPORTER_TASKSTATS_H
#define EXPORTER_TASKSTATS_H

#include <stdint.h>
#include <sys/types.h>

struct taskstats_reader {
    int fd;          /* -1: not to be had here */
    uint16_t family; /* the number that the kernel gave to "TASKSTATS" */
};

/* Returns 0, or a negative errno; then the reader answers every question with that. */
int taskstats_open(struct taskstats_reader *r);

/* Threads that have ended are counted too. Returns 0, or a negative errno. */
int taskstats_switches(const struct taskstats_reader *r, pid_t pid, uint64_t *voluntary,
                       uint64_t *involuntary);

void taskstats_close(struct taskstats_reader *r);

#endif
