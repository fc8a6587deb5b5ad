/*
 * What the running CPU can do. Each question is a load and a test of what the compiler's runtime
 * found out when the program was loaded (operating system support included): nothing is cached
 * here, and nothing has to be initialised.
 */
#ifndef WIRE_CPU_H
#define WIRE_CPU_H

#include <stdbool.h>

#if defined(__x86_64__)
static inline bool wire_cpu_has_ssse3(void)
{
    return __builtin_cpu_supports("ssse3") != 0;
}

static inline bool wire_cpu_has_avx2(void)
{
    return __builtin_cpu_supports("avx2") != 0;
}
#endif

#endif
