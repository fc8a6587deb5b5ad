/* One session under one plan. */
#include "session.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- Signals ---- */

static _Atomic bool storm;

static void take_signal(int sig)
{
    (void)sig;
}

/* Every thread but this one, again and again. */
static void *storm_main(void *arg)
{
    pid_t self = (pid_t)syscall(SYS_gettid);

    (void)arg;
    while (atomic_load(&storm)) {
        DIR *dir = opendir("/proc/self/task");
        const struct dirent *e;

        if (!dir)
            break;
        while ((e = readdir(dir)) != NULL) {
            pid_t tid = (pid_t)atoi(e->d_name);

            if (tid > 0 && tid != self)
                syscall(SYS_tgkill, getpid(), tid, SIGUSR1);
        }
        closedir(dir);
        usleep(100);
    }
    return NULL;
}

/* ---- A session ---- */

static void *scene_main(void *arg)
{
    const struct scene *sc = arg;

    sc->run(sc->light);
    fault_pause(true);
    return NULL;
}

static void run_scene(const struct scene *sc, bool signals)
{
    struct sigaction sa = {.sa_handler = take_signal}; /* without SA_RESTART */
    pthread_t thread, bringer;

    if (signals) {
        sigaction(SIGUSR1, &sa, NULL);
        atomic_store(&storm, true);
        if (pthread_create(&bringer, NULL, storm_main, NULL) != 0)
            die("no thread");
    }
    if (pthread_create(&thread, NULL, scene_main, (void *)(uintptr_t)sc) != 0)
        die("no thread");
    pthread_join(thread, NULL);
    if (signals) {
        atomic_store(&storm, false);
        pthread_join(bringer, NULL);
    }
}

static long openssl_growth(const struct scene *sc, const struct fault_plan *plan)
{
    long before = fault_live_openssl();

    fault_arm(plan);
    run_scene(sc, plan->mode == FAULT_SIGNALS);
    return fault_live_openssl() - before;
}

static void check_left(struct support_census census, long live)
{
    int64_t end = support_now_ms() + 10000;
    struct support_census now = support_census();

    while (now.threads > census.threads || now.descriptors > census.descriptors ||
           fault_live() != live) {
        if (support_now_ms() > end)
            die("left behind: %d threads, %d descriptors, %ld blocks",
                (int)(now.threads - census.threads), (int)(now.descriptors - census.descriptors),
                fault_live() - live);
        support_pause_ms(1);
        now = support_census();
    }
}

void session_run(const struct scene *sc, const struct fault_plan *plan)
{
    struct support_census census = support_census();
    long live = fault_live(), grown;

    notes_clear();
    grown = openssl_growth(sc, plan);
    check_left(census, live);
    if ((!fault_struck() || fault_is_mild()) && notes())
        die("%u calls failed that should not", notes());
    /* What OpenSSL keeps for later it keeps once. */
    if (grown > 0 && openssl_growth(sc, plan) > 0 && openssl_growth(sc, plan) > 0)
        die("left behind: %ld blocks of OpenSSL", grown);
}
