/* A process for the exporter to watch: many_threads IDLE BUSY [NAME] makes IDLE threads that sleep for good and BUSY
 * threads that burn user and system time, calls itself NAME, says "ready", and ends when its standard input does. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { STACK_BYTES = 64 * 1024, USER_ROUNDS = 20000, SYSTEM_ROUNDS = 2000, MAX_THREADS = 30000 };

static void *idle(void *arg)
{
    (void)arg;
    for (;;) {
        pause();
    }
    return NULL;
}

static void *busy(void *arg)
{
    (void)arg;
    volatile unsigned sum = 0;
    const struct timespec nap = {.tv_nsec = 1000000};
    for (unsigned turn = 1;; turn++) {
        for (unsigned i = 0; i < USER_ROUNDS; i++) {
            sum += i ^ turn;
        }
        for (unsigned i = 0; i < SYSTEM_ROUNDS; i++) {
            syscall(SYS_getppid);
        }
        if (turn % 16 == 0) {
            nanosleep(&nap, NULL);
        }
    }
    return NULL;
}

static void make(long count, void *(*body)(void *))
{
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    for (long i = 0; i < count; i++) {
        pthread_t thread;
        int error = pthread_create(&thread, &attr, body, NULL);
        if (error != 0) {
            fprintf(stderr, "many_threads: thread %ld: %s\n", i, strerror(error));
            exit(EXIT_FAILURE);
        }
    }
    pthread_attr_destroy(&attr);
}

static long count_of(const char *text)
{
    char *end;
    long n = strtol(text, &end, 10);
    if (end == text || *end != '\0' || n < 0 || n > MAX_THREADS) {
        fprintf(stderr, "many_threads: not a number of threads: %s\n", text);
        exit(2);
    }
    return n;
}

int main(int argc, char **argv)
{
    if (argc < 3 || argc > 4) {
        fputs("usage: many_threads IDLE BUSY [NAME]\n", stderr);
        return 2;
    }
    if (argc == 4) {
        prctl(PR_SET_NAME, argv[3]);
    }
    make(count_of(argv[1]), idle);
    make(count_of(argv[2]), busy);
    puts("ready");
    fflush(stdout);
    char byte;
    while (read(STDIN_FILENO, &byte, 1) > 0) {
    }
    return 0;
}
