#include "proc.h"

#include "file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* The fields of /proc/PID/stat that matter, see proc(5). */
struct stat_fields {
    char state;
    uint64_t user_ticks;
    uint64_t system_ticks;
    uint64_t threads;
    uint64_t start_ticks;
};

static bool parse_stat(const char *text, struct stat_fields *f)
{
    enum { STATE = 3, USER = 14, SYSTEM = 15, THREADS = 20, START = 22 };
    const char *at = text;
    for (int field = STATE; field <= START; field++) {
        at += strspn(at, " ");
        const char *begin = at;
        uint64_t *number = field == USER      ? &f->user_ticks
                           : field == SYSTEM  ? &f->system_ticks
                           : field == THREADS ? &f->threads
                           : field == START   ? &f->start_ticks
                                              : NULL;
        if (field == STATE) {
            f->state = *at;
        }
        if (*at == '\0' || (number != NULL && !file_number(&at, number))) {
            return false;
        }
        at = begin + strcspn(begin, " ");
    }
    return true;
}

static int read_stat(int dir, struct stat_fields *f)
{
    char buf[1024];
    ssize_t n = file_read(dir, "stat", buf, sizeof buf);
    if (n < 0) {
        return (int)n;
    }
    /* The name stands in parentheses and may hold anything, also parentheses. */
    const char *after = strrchr(buf, ')');
    if (after == NULL || !parse_stat(after + 1, f)) {
        return -EPROTO;
    }
    /* A leader that has ended stays a zombie while other threads of its process run. */
    bool ended = f->state == 'X' || (f->state == 'Z' && f->threads <= 1);
    return ended ? -ESRCH : 0;
}

int proc_open(struct proc *p, pid_t pid)
{
    char path[32];
    snprintf(path, sizeof path, "/proc/%d", (int)pid);
    *p = (struct proc){.pid = pid, .dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC)};
    if (p->dir < 0) {
        return errno == ENOENT ? -ESRCH : -errno;
    }
    struct stat_fields f;
    int result = read_stat(p->dir, &f);
    if (result < 0) {
        proc_close(p);
        return result == -ENOENT ? -ESRCH : result;
    }
    p->start_ticks = f.start_ticks;
    return 0;
}

void proc_close(struct proc *p)
{
    if (p->dir >= 0) {
        close(p->dir);
    }
    p->dir = -1;
}

static double ticks_to_seconds(uint64_t ticks)
{
    static long per_second;
    if (per_second == 0) {
        per_second = sysconf(_SC_CLK_TCK);
    }
    return (double)ticks / (double)per_second;
}

static double seconds(const struct timespec *t)
{
    return (double)t->tv_sec + (double)t->tv_nsec / 1e9;
}

double proc_start_time(const struct proc *p)
{
    /* Taken once: a clock that is set while the exporter runs must not move the start of a
     * process. */
    static double boot;
    if (boot == 0) {
        struct timespec now;
        struct timespec up;
        clock_gettime(CLOCK_REALTIME, &now);
        clock_gettime(CLOCK_BOOTTIME, &up);
        boot = seconds(&now) - seconds(&up);
    }
    return boot + ticks_to_seconds(p->start_ticks);
}

static int read_memory(int dir, struct proc_sample *s)
{
    char buf[128];
    ssize_t n = file_read(dir, "statm", buf, sizeof buf);
    if (n < 0) {
        return (int)n;
    }
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t size;
    uint64_t resident;
    const char *at = buf;
    if (!file_number(&at, &size) || !file_number(&at, &resident)) {
        return -EPROTO;
    }
    s->virtual_memory = size * page;
    s->resident = resident * page;
    return 0;
}

static bool count_entries(int dir, uint64_t *count)
{
    int fd = openat(dir, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = fd < 0 ? NULL : fdopendir(fd);
    if (stream == NULL) {
        if (fd >= 0) {
            close(fd);
        }
        return false;
    }
    *count = 0;
    for (const struct dirent *e; (e = readdir(stream)) != NULL;) {
        *count += e->d_name[0] != '.';
    }
    closedir(stream);
    return true;
}

/* Since Linux 6.2 the size of /proc/PID/fd is the number of descriptors; before, it is 0 and
 * they must be listed. */
static bool read_fds(int dir, uint64_t *count)
{
    struct stat st;
    if (faccessat(dir, "fd", R_OK | X_OK, AT_EACCESS) != 0 || fstatat(dir, "fd", &st, 0) != 0) {
        return false;
    }
    if (st.st_size > 0) {
        *count = (uint64_t)st.st_size;
        return true;
    }
    return count_entries(dir, count);
}

static bool read_proportional(int dir, uint64_t *bytes)
{
    char buf[4096];
    return file_read(dir, "smaps_rollup", buf, sizeof buf) > 0 &&
           file_field(buf, "Pss:", bytes) == 0;
}

int proc_read(const struct proc *p, const struct proc_options *options, struct proc_sample *s)
{
    *s = (struct proc_sample){.has = PROC_ALWAYS};
    if (taskstats_switches(&options->taskstats, p->pid, &s->voluntary, &s->involuntary) == 0) {
        s->has |= PROC_SWITCHES;
    }
    int result = read_memory(p->dir, s);
    if (result < 0) {
        return result;
    }
    if (read_fds(p->dir, &s->fds)) {
        s->has |= PROC_FDS;
    }
    if (options->proportional && read_proportional(p->dir, &s->proportional)) {
        s->has |= PROC_PROPORTIONAL;
    }
    /* Read last: as long as this works the pid had not gone to another process when it was asked
     * above. */
    struct stat_fields f;
    result = read_stat(p->dir, &f);
    if (result < 0) {
        return result;
    }
    s->user_seconds = ticks_to_seconds(f.user_ticks);
    s->system_seconds = ticks_to_seconds(f.system_ticks);
    /* In ticks of 10 ms. The process's CPU clock has nanoseconds, but costs another pass of the
     * kernel over all threads, and a counter must not change its source. */
    s->cpu_seconds = s->user_seconds + s->system_seconds;
    s->threads = f.threads;
    s->start_seconds = proc_start_time(p);
    return 0;
}

static bool has_name(pid_t pid, const char *comm)
{
    char path[48];
    char name[64];
    snprintf(path, sizeof path, "/proc/%d/comm", (int)pid);
    ssize_t n = file_read(AT_FDCWD, path, name, sizeof name);
    if (n <= 0) {
        return false;
    }
    name[n - 1] = '\0'; /* the newline */
    return strcmp(name, comm) == 0;
}

pid_t proc_find(const char *comm)
{
    DIR *stream = opendir("/proc");
    if (stream == NULL) {
        return -errno;
    }
    pid_t found = -ESRCH;
    uint64_t oldest = UINT64_MAX;
    for (const struct dirent *e; (e = readdir(stream)) != NULL;) {
        const char *name = e->d_name;
        uint64_t number;
        struct proc p;
        if (!file_number(&name, &number)) {
            continue;
        }
        pid_t pid = (pid_t)number;
        if (pid == getpid() || !has_name(pid, comm) || proc_open(&p, pid) < 0) {
            continue;
        }
        if (p.start_ticks < oldest) {
            oldest = p.start_ticks;
            found = pid;
        }
        proc_close(&p);
    }
    closedir(stream);
    return found;
}
