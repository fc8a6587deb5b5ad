/* Memory that the kernel holds for a process (stacks of threads, socket objects, page tables):
 * not part of RSS. Only a control group of its own tells it for one process; the machine's sum
 * tells it roughly, as growth since the process was first seen, and whatever else runs is in it
 * too. */
#ifndef EXPORTER_KERNEL_MEMORY_H
#define EXPORTER_KERNEL_MEMORY_H

#include <stdint.h>
#include <sys/types.h>

struct machine_memory {
    uint64_t kernel_stack;
    uint64_t slab;
    uint64_t page_tables;
};

/* Returns 0, or a negative errno. */
int machine_memory_read(struct machine_memory *m);

/* What grows with threads and sockets. Page tables are left out: those of every program on the
 * machine come and go. */
static inline uint64_t machine_memory_sum(const struct machine_memory *m)
{
    return m->kernel_stack + m->slab;
}

/* Opens the file with the kernel memory of the control group that PID has to itself. Returns a
 * descriptor to be closed, or a negative errno: -ENOENT when it has none. */
int cgroup_memory_open(pid_t pid);

/* Returns 0, or a negative errno. */
int cgroup_memory_read(int fd, uint64_t *bytes);

#endif
