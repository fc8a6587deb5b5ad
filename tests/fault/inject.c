/* Which call fails, and memory. */
#include "inject_private.h"

#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <openssl/crypto.h>
#include <sanitizer/common_interface_defs.h>

enum { MOST_FDS = 4096, MOST_TRACE = 100000, MOST_ERRORS = 8, MOST_SHORT = 20000 };

static const int errors[CALL_COUNT][MOST_ERRORS] = {
#define ERRORS_(name, ...) [CALL_##name] = {__VA_ARGS__},
    FAULT_CALLS(ERRORS_)
#undef ERRORS_
};

static const char *const names[CALL_COUNT] = {
#define NAMES_(name, ...) [CALL_##name] = #name,
    FAULT_CALLS(NAMES_)
#undef NAMES_
};

static struct fault_plan plan;
static bool verbose; /* with stacks */
static _Atomic bool paused = true, struck, struck_openssl;
static _Atomic long seen, live, live_openssl;
static unsigned char trace[MOST_TRACE];
static _Atomic bool spared[MOST_FDS], counts[MOST_FDS], received[MOST_FDS];
static _Atomic unsigned turns[CALL_COUNT];

/* ---- Plans ---- */

const char *fault_call_name(int call)
{
    return names[call];
}

/* A thread that cannot be made is told by EAGAIN. */
static bool passing(enum fault_call call, int error)
{
    return error == EINTR || (error == EAGAIN && call != CALL_pthread_create);
}

unsigned fault_call_errors(int call)
{
    unsigned n = 0;

    while (n < MOST_ERRORS && errors[call][n])
        n++;
    return n;
}

static void clock_go_on(bool still);

void fault_arm(const struct fault_plan *p)
{
    atomic_store(&paused, true);
    clock_go_on(false);
    plan = p ? *p : (struct fault_plan){.mode = FAULT_NONE};
    for (int i = 0; i < MOST_FDS; i++)
        atomic_store(&spared[i], false);
    for (int i = 0; i < CALL_COUNT; i++)
        atomic_store(&turns[i], 0);
    atomic_store(&seen, 0);
    atomic_store(&struck, false);
    atomic_store(&struck_openssl, false);
    atomic_store(&paused, !p);
}

void fault_pause(bool on)
{
    if (!on)
        clock_go_on(true);
    atomic_store(&paused, on);
}

void fault_spare_open(void)
{
    struct sockaddr_storage ss;

    for (int fd = 0; fd < 512; fd++) {
        socklen_t len = sizeof ss;

        if (getpeername(fd, (struct sockaddr *)&ss, &len) == 0)
            atomic_store(&spared[fd], true);
    }
}

void fault_fd_new(int fd, bool counting)
{
    if (fd < 0 || fd >= MOST_FDS)
        return;
    atomic_store(&spared[fd], false);
    atomic_store(&counts[fd], counting);
    atomic_store(&received[fd], false);
}

void fault_fd_received(int fd)
{
    fault_fd_new(fd, false);
    if (fd >= 0 && fd < MOST_FDS)
        atomic_store(&received[fd], true);
}

bool fault_was_received(int fd)
{
    return fd >= 0 && fd < MOST_FDS && atomic_load(&received[fd]);
}

long fault_seen(void)
{
    return atomic_load(&seen);
}

bool fault_struck(void)
{
    return atomic_load(&struck);
}

bool fault_everywhere(void)
{
    return plan.mode == FAULT_LEAP;
}

bool fault_in_openssl(void)
{
    return plan.mode == FAULT_MEMORY;
}

bool fault_struck_openssl(void)
{
    return atomic_load(&struck_openssl);
}

bool fault_is_mild(void)
{
    return plan.mode == FAULT_NONE || plan.mode == FAULT_STILL || plan.mode == FAULT_INTERRUPT ||
           plan.mode == FAULT_SIGNALS || plan.position == FAULT_NEVER;
}

long fault_trace(unsigned char *kinds, long most)
{
    long n = fault_seen();

    n = n < most ? n : most;
    n = n < MOST_TRACE ? n : MOST_TRACE;
    memcpy(kinds, trace, (size_t)n);
    return n;
}

/* ---- Positions ---- */

/* Whether the plan's fault befalls this position. */
static bool due(void)
{
    long n = atomic_fetch_add(&seen, 1) + 1;
    bool yes = n == plan.position || (plan.onward && n > plan.position);

    if (yes)
        atomic_store(&struck, true);
    return yes;
}

/* What goes on for ever is no interruption. */
static int lasting(enum fault_call call)
{
    unsigned n = fault_call_errors(call), hard = 0;

    while (hard < n && !passing(call, errors[call][hard]))
        hard++;
    return hard ? errors[call][plan.variant % hard] : 0;
}

static int strike_once(enum fault_call call)
{
    long n = atomic_load(&seen);
    int error;

    if (n < MOST_TRACE)
        trace[n] = (unsigned char)call;
    if (!due())
        return 0;
    error = plan.onward ? lasting(call) : errors[call][plan.variant % fault_call_errors(call)];
    dprintf(STDERR_FILENO, "%s fails with %d\n", names[call], error);
    if (verbose)
        __sanitizer_print_stack_trace();
    return error;
}

static bool has(enum fault_call call, int error)
{
    for (unsigned i = 0; i < MOST_ERRORS; i++)
        if (errors[call][i] == error)
            return true;
    return false;
}

/* Every second one. */
static int strike_often(enum fault_call call, int error)
{
    if (!has(call, error) || atomic_fetch_add(&turns[call], 1) % 2)
        return 0;
    atomic_fetch_add(&seen, 1);
    atomic_store(&struck, true);
    return error;
}

static bool excused(enum fault_call call, int fd)
{
    if (atomic_load(&paused))
        return true;
    if (fd < 0 || fd >= MOST_FDS)
        return false;
    return atomic_load(&spared[fd]) || (atomic_load(&counts[fd]) && call != CALL_close);
}

/* What a connection that has been taken over does with its socket; what fails before refuses it. */
static bool in_use(enum fault_call call)
{
    static const enum fault_call uses[] = {CALL_recv,       CALL_sendmsg, CALL_sendfile, CALL_ppoll,
                                           CALL_setsockopt, CALL_ioctl,   CALL_shutdown};

    for (size_t i = 0; i < sizeof uses / sizeof *uses; i++)
        if (uses[i] == call)
            return true;
    return false;
}

int fault_strike(enum fault_call call, int fd)
{
    if (excused(call, fd))
        return 0;
    if (fault_was_received(fd) && in_use(call) && plan.mode != FAULT_INTERRUPT)
        return 0;
    switch (plan.mode) {
    case FAULT_CALL:
        return strike_once(call);
    case FAULT_KIND:
        return (int)call == plan.call && due() ? lasting(call) : 0;
    case FAULT_INTERRUPT:
        return strike_often(call, EINTR);
    default:
        return 0;
    }
}

int fault_strike_transfer(enum fault_call call, int fd, size_t *len)
{
    if (!excused(call, fd) && plan.mode == FAULT_AGAIN)
        return strike_often(call, EAGAIN);
    if (!excused(call, fd) && plan.mode == FAULT_SHORT && *len > 1 && fault_seen() < MOST_SHORT) {
        atomic_fetch_add(&seen, 1);
        atomic_store(&struck, true);
        *len = 1;
    }
    return fault_strike(call, fd);
}

/* ---- Time ---- */

/* It goes on for the whole process, and never back: of two threads that look, one may be late. */
static struct {
    pthread_mutex_t lock;
    struct timespec shown, frozen;
    time_t ahead;
    bool still;
} clock_now = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int64_t nanoseconds(const struct timespec *ts)
{
    return (int64_t)ts->tv_sec * 1000000000 + ts->tv_nsec;
}

static struct timespec system_now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts;
}

static void clock_look_locked(struct timespec *now)
{
    now->tv_sec += clock_now.ahead;
    if (clock_now.still && !atomic_load(&paused))
        *now = clock_now.frozen;
    else if (nanoseconds(now) < nanoseconds(&clock_now.shown))
        *now = clock_now.shown;
}

static void clock_strike_locked(const struct timespec *now)
{
    if (plan.mode == FAULT_LEAP) {
        clock_now.ahead += 3600;
        return;
    }
    clock_now.frozen = *now;
    clock_look_locked(&clock_now.frozen);
    clock_now.still = true;
}

/* In: the system's time. */
void fault_clock(struct timespec *now)
{
    if (plan.mode != FAULT_LEAP && plan.mode != FAULT_STILL)
        return;
    pthread_mutex_lock(&clock_now.lock);
    if (!atomic_load(&paused) && due())
        clock_strike_locked(now);
    clock_look_locked(now);
    clock_now.shown = *now;
    pthread_mutex_unlock(&clock_now.lock);
}

void fault_clock_to_system(struct timespec *limit)
{
    struct timespec now = system_now(), shown = now;
    int64_t at;

    pthread_mutex_lock(&clock_now.lock);
    clock_look_locked(&shown);
    pthread_mutex_unlock(&clock_now.lock);
    at = nanoseconds(limit) - nanoseconds(&shown) + nanoseconds(&now);
    if (at < 0)
        at = 0;
    limit->tv_sec = at / 1000000000;
    limit->tv_nsec = at % 1000000000;
}

/* A clock that stands still stands where it was seen last. */
static void clock_go_on(bool still)
{
    pthread_mutex_lock(&clock_now.lock);
    clock_now.still = clock_now.still && still;
    clock_now.frozen = clock_now.shown;
    pthread_mutex_unlock(&clock_now.lock);
}

/* ---- Memory ---- */

bool fault_strike_memory(bool hook)
{
    if (atomic_load(&paused) || plan.mode != (hook ? FAULT_HOOK : FAULT_MEMORY) || !due())
        return false;
    if (verbose)
        __sanitizer_print_stack_trace();
    return true;
}

long fault_live(void)
{
    return atomic_load(&live);
}

long fault_live_openssl(void)
{
    return atomic_load(&live_openssl);
}

/* In place of the library's. */
void *fault_malloc(size_t size);
void *fault_realloc(void *block, size_t size);
void fault_free(void *block);

void *fault_malloc(size_t size)
{
    void *p = fault_strike_memory(false) ? NULL : malloc(size);

    if (p)
        atomic_fetch_add(&live, 1);
    return p;
}

void *fault_realloc(void *block, size_t size)
{
    void *p = fault_strike_memory(false) ? NULL : realloc(block, size);

    if (p && !block)
        atomic_fetch_add(&live, 1);
    return p;
}

void fault_free(void *block)
{
    if (block)
        atomic_fetch_sub(&live, 1);
    free(block);
}

static void *hook_alloc(size_t size, void *arg)
{
    void *p = fault_strike_memory(true) ? NULL : malloc(size);

    (void)arg;
    if (p)
        atomic_fetch_add(&live, 1);
    return p;
}

static void *hook_resize(void *block, size_t size, void *arg)
{
    (void)arg;
    return fault_strike_memory(true) ? NULL : realloc(block, size);
}

static void hook_release(void *block, void *arg)
{
    (void)arg;
    fault_free(block);
}

const tws_allocator *fault_allocator(void)
{
    static const tws_allocator a = {hook_alloc, hook_resize, hook_release, NULL};

    return plan.mode == FAULT_HOOK ? &a : NULL;
}

static bool strike_openssl(void)
{
    bool yes = fault_strike_memory(false);

    if (yes)
        atomic_store(&struck_openssl, true);
    return yes;
}

static void *openssl_alloc(size_t size, const char *file, int line)
{
    void *p = size == 0 || strike_openssl() ? NULL : malloc(size);

    (void)file;
    (void)line;
    if (p)
        atomic_fetch_add(&live_openssl, 1);
    return p;
}

static void openssl_free(void *block, const char *file, int line)
{
    (void)file;
    (void)line;
    if (block)
        atomic_fetch_sub(&live_openssl, 1);
    free(block);
}

static void *openssl_resize(void *block, size_t size, const char *file, int line)
{
    if (!block)
        return openssl_alloc(size, file, line);
    if (size == 0) {
        openssl_free(block, file, line);
        return NULL;
    }
    return strike_openssl() ? NULL : realloc(block, size);
}

void fault_init(void)
{
    verbose = getenv("FAULT_VERBOSE") != NULL;
    if (CRYPTO_set_mem_functions(openssl_alloc, openssl_resize, openssl_free) != 1)
        abort();
}
