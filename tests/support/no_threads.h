/* no_threads.h: pthread_create() that fails on demand, for the one test program that includes this. */
#ifndef TESTS_SUPPORT_NO_THREADS_H
#define TESTS_SUPPORT_NO_THREADS_H

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* The sanitizers' own, where there is one. */
int sanitizer_create(pthread_t *t, const pthread_attr_t *attr, void *(*fn)(void *),
                     void *arg) __asm__("__interceptor_pthread_create") __attribute__((weak));

static _Atomic bool no_threads;

static void *next_symbol(const char *name)
{
    void *symbol = dlsym(RTLD_NEXT, name);

    if (!symbol)
        abort();
    return symbol;
}

int pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*fn)(void *), void *arg)
{
    static int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

    if (atomic_load(&no_threads))
        return EAGAIN;
    if (sanitizer_create)
        return sanitizer_create(t, attr, fn, arg);
    if (!real) {
        void *symbol = next_symbol("pthread_create");

        memcpy(&real, &symbol, sizeof real);
    }
    return real(t, attr, fn, arg);
}

#endif
