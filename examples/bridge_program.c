/* bridge_program.c: see bridge_program.h. */
#include "bridge_program.h"

#include <tws/thread.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

enum { READ = 0, WRITE = 1, PIPES = 3 };

static void close_all(int (*pipes)[2])
{
    for (int i = 0; i < PIPES; i++) {
        for (int end = READ; end <= WRITE; end++) {
            if (pipes[i][end] >= 0) {
                close(pipes[i][end]);
            }
        }
    }
}

/*
 * Threads of the library block every signal, and this program ignores SIGPIPE; a program that is
 * started inherits both unless it is told otherwise.
 */
static int spawn(struct program *p, int (*pipes)[2], char *const *argv, char *const *variables)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t how;
    sigset_t none, defaults;
    sigemptyset(&none);
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE);
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&how);
    posix_spawnattr_setsigmask(&how, &none);
    posix_spawnattr_setsigdefault(&how, &defaults);
    posix_spawnattr_setpgroup(&how, 0);
    posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                       POSIX_SPAWN_SETPGROUP);
    int error = 0;
    for (int i = 0; i < PIPES && error == 0; i++) { /* the copies stay open in the new program */
        error = posix_spawn_file_actions_adddup2(&files, pipes[i][i == 0 ? READ : WRITE], i);
    }
    if (error == 0) {
        error = posix_spawnp(&p->pid, argv[0], &files, &how, argv, variables);
    }
    posix_spawnattr_destroy(&how);
    posix_spawn_file_actions_destroy(&files);
    return error;
}

int program_start(struct program *p, char *const *argv, char *const *variables)
{
    int pipes[PIPES][2] = {{-1, -1}, {-1, -1}, {-1, -1}};
    int error = 0;
    for (int i = 0; i < PIPES && error == 0; i++) {
        int mine = i == 0 ? WRITE : READ;
        if (pipe2(pipes[i], O_CLOEXEC) != 0 || fcntl(pipes[i][mine], F_SETFL, O_NONBLOCK) != 0) {
            error = errno;
        }
    }
    if (error == 0) {
        error = spawn(p, pipes, argv, variables);
    }
    if (error == 0) {
        p->exited = pidfd_open(p->pid, 0);
        if (p->exited < 0) { /* no descriptor is left */
            error = errno;
            kill(-p->pid, SIGKILL);
            waitpid(p->pid, NULL, 0);
        }
    }
    if (error == 0) {
        p->in = pipes[0][WRITE];
        p->out = pipes[1][READ];
        p->err = pipes[2][READ];
        pipes[0][WRITE] = pipes[1][READ] = pipes[2][READ] = -1;
    }
    close_all(pipes);
    return error;
}

/* ---- Waiting, which a light thread leaves to another ---- */

struct wait {
    struct pollfd fd;
    int ms;
    int found;
};

static void poll_one(void *arg)
{
    struct wait *w = arg;
    do {
        w->found = poll(&w->fd, 1, w->ms);
    } while (w->found < 0 && errno == EINTR);
}

static bool wait_for(int fd, short events, int ms)
{
    struct wait w = {.fd = {.fd = fd, .events = events}, .ms = ms};
    return tws_blocking(poll_one, &w) == TWS_OK && w.found > 0;
}

bool program_write(struct program *p, const void *data, size_t len, int wait_ms)
{
    const char *at = data;
    while (len > 0) {
        ssize_t n = write(p->in, at, len);
        if (n >= 0) {
            at += n;
            len -= (size_t)n;
        } else if (errno == EAGAIN) {
            if (!wait_for(p->in, POLLOUT, wait_ms)) {
                errno = ETIMEDOUT;
                return false;
            }
        } else if (errno != EINTR) {
            return false;
        }
    }
    return true;
}

/* ---- The end ---- */

void program_end(struct program *p, int wait_ms)
{
    close(p->in); /* most programs need no more than that */
    p->in = -1;
    if (!wait_for(p->exited, POLLIN, wait_ms)) {
        kill(-p->pid, SIGTERM);
        if (!wait_for(p->exited, POLLIN, wait_ms)) {
            kill(-p->pid, SIGKILL);
            wait_for(p->exited, POLLIN, -1);
        }
    }
    program_sweep(p);
}

void program_sweep(const struct program *p)
{
    kill(-p->pid, SIGKILL);
}

bool program_result(const struct program *p, char *text, size_t size)
{
    siginfo_t how = {.si_pid = 0};
    waitid(P_PID, (id_t)p->pid, &how, WEXITED | WNOHANG | WNOWAIT);
    if (how.si_code == CLD_EXITED) {
        snprintf(text, size, "the program ended with status %d", how.si_status);
        return how.si_status == 0;
    }
    snprintf(text, size, "the program was ended by signal %d", how.si_status);
    return false;
}

void program_forget(struct program *p)
{
    waitpid(p->pid, NULL, 0);
    close(p->exited);
    close(p->out);
    close(p->err);
}
