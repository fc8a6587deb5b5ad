/*
 * bridge_program.h: a program with three pipes, which ends together with whoever started it.
 */
#ifndef BRIDGE_PROGRAM_H
#define BRIDGE_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct program {
    pid_t pid;  /* leads a process group of its own */
    int exited; /* a pidfd: readable when the program has ended */
    int in;     /* its standard input, does not block; -1 once closed */
    int out;    /* its standard output and error, do not block either */
    int err;
};

/* Starts argv[0], found in PATH, with these variables of the environment. 0, or what errno says. */
int program_start(struct program *p, char *const *argv, char *const *variables);

/*
 * Writes all of it to the program's standard input. Waits while the program does not read, at most
 * so long; with light threads, inside tws_blocking(). False: it did not take it, see errno.
 */
bool program_write(struct program *p, const void *data, size_t len, int wait_ms);

/*
 * Closes its standard input and waits for its end; then asks its process group with SIGTERM, then
 * orders it with SIGKILL. The program stays a zombie until program_forget(), so that nobody else
 * gets its number.
 */
void program_end(struct program *p, int wait_ms);

/* Kills what a program that has ended has left running in its process group. */
void program_sweep(const struct program *p);

/* How it ended, in words. True: with status 0. Only after it has ended. */
bool program_result(const struct program *p, char *text, size_t size);

/* Reaps it and closes the pipes. */
void program_forget(struct program *p);

#endif
