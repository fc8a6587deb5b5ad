#include "kernel_memory.h"

#include "file.h"
#include "text.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int machine_memory_read(struct machine_memory *m)
{
    char buf[8192];
    ssize_t n = file_read(AT_FDCWD, "/proc/meminfo", buf, sizeof buf);
    if (n < 0) {
        return (int)n;
    }
    if (file_field(buf, "KernelStack:", &m->kernel_stack) < 0 ||
        file_field(buf, "Slab:", &m->slab) < 0 ||
        file_field(buf, "PageTables:", &m->page_tables) < 0) {
        return -EPROTO;
    }
    return 0;
}

/* Whether the list of words between commas has WORD. */
static bool has_word(const char *list, const char *word)
{
    size_t len = strlen(word);
    for (const char *p = list; p != NULL; p = strchr(p, ',')) {
        p += *p == ',';
        if (strncmp(p, word, len) == 0 && (p[len] == ',' || p[len] == '\0')) {
            return true;
        }
    }
    return false;
}

/* Finds in /proc/self/mountinfo where the unified hierarchy (OLD false) or the old memory
 * controller is mounted. */
static int find_mount(bool old, char *mount, size_t size)
{
    FILE *f = fopen("/proc/self/mountinfo", "re");
    if (f == NULL) {
        return -errno;
    }
    int result = -ENOENT;
    char *line = NULL;
    size_t cap = 0;
    while (result < 0 && getline(&line, &cap, f) > 0) {
        char point[PATH_MAX];
        char type[32];
        char options[256];
        const char *tail = strstr(line, " - ");
        if (tail == NULL || sscanf(line, "%*s %*s %*s %*s %4095s", point) != 1 ||
            sscanf(tail, " - %31s %*s %255s", type, options) != 2) {
            continue;
        }
        bool right = old ? strcmp(type, "cgroup") == 0 && has_word(options, "memory")
                         : strcmp(type, "cgroup2") == 0;
        if (right && text_copy(mount, size, point)) {
            result = 0;
        }
    }
    free(line);
    fclose(f);
    return result;
}

/* The path of PID's group in the hierarchy, from a line ID:CONTROLLERS:PATH. */
static int group_of(pid_t pid, bool old, char *group, size_t size)
{
    char path[48];
    char buf[PATH_MAX * 2];
    snprintf(path, sizeof path, "/proc/%d/cgroup", (int)pid);
    ssize_t n = file_read(AT_FDCWD, path, buf, sizeof buf);
    if (n < 0) {
        return (int)n;
    }
    char *rest = buf;
    for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
        strsep(&line, ":");
        char *controllers = line == NULL ? NULL : strsep(&line, ":");
        if (line == NULL || (old ? !has_word(controllers, "memory") : *controllers != '\0')) {
            continue;
        }
        return text_copy(group, size, line) ? 0 : -ENAMETOOLONG;
    }
    return -ENOENT;
}

/* Whether the group at PATH holds the process and no other. */
static bool alone(const char *path, pid_t pid)
{
    char procs[PATH_MAX];
    char list[64];
    char wanted[16];
    int n = snprintf(procs, sizeof procs, "%s/cgroup.procs", path);
    snprintf(wanted, sizeof wanted, "%d\n", (int)pid);
    return n > 0 && n < (int)sizeof procs && file_read(AT_FDCWD, procs, list, sizeof list) > 0 &&
           strcmp(list, wanted) == 0;
}

int cgroup_memory_open(pid_t pid)
{
    int result = -ENOENT;
    for (int old = 0; old < 2; old++) {
        char mount[PATH_MAX / 2];
        char group[PATH_MAX / 2];
        char path[PATH_MAX];
        char file[PATH_MAX];
        if (find_mount(old != 0, mount, sizeof mount) < 0 ||
            group_of(pid, old != 0, group, sizeof group) < 0 || strcmp(group, "/") == 0) {
            continue;
        }
        snprintf(path, sizeof path, "%s%s", mount, group);
        int n = snprintf(file, sizeof file, "%s/%s", path,
                         old ? "memory.kmem.usage_in_bytes" : "memory.stat");
        if (n < 0 || n >= (int)sizeof file || !alone(path, pid)) {
            continue;
        }
        int fd = open(file, O_RDONLY | O_CLOEXEC);
        if (fd >= 0) {
            return fd;
        }
        result = -errno;
    }
    return result;
}

int cgroup_memory_read(int fd, uint64_t *bytes)
{
    char buf[8192];
    ssize_t n = pread(fd, buf, sizeof buf - 1, 0);
    if (n <= 0) {
        return n < 0 ? -errno : -EPROTO;
    }
    buf[n] = '\0';
    if (isdigit((unsigned char)buf[0])) {
        *bytes = strtoull(buf, NULL, 10);
        return 0;
    }
    if (file_field(buf, "kernel ", bytes) == 0) {
        return 0;
    }
    /* Before Linux 5.18 only the parts are given. */
    static const char *const parts[] = {"kernel_stack ", "pagetables ", "percpu ", "slab "};
    *bytes = 0;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        uint64_t part = 0;
        if (file_field(buf, parts[i], &part) == 0) {
            *bytes += part;
        }
    }
    return 0;
}
