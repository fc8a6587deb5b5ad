#include "task/light/context.h"

#include <stdint.h>
#include <string.h>

#if defined(LIGHT_ASAN)
#include <pthread.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(LIGHT_TSAN)
#include <sanitizer/tsan_interface.h>
#endif

#if !defined(LIGHT_UCONTEXT)
/* switch_*.S: pushes what the calling convention preserves, stores the stack pointer in *from, takes
 * `to` as the stack pointer, pops, returns. */
extern void light_switch(void **from, void *to);
/* Where a new context begins: calls the function that light_context_make left for it. */
extern void light_trampoline(void);

#if defined(__x86_64__)
enum { FRAME_WORDS = 8 }; /* control words, r15 r14 r13 r12 rbx rbp, return address */

static void *first_frame(uintptr_t top, void (*entry)(void))
{
    uint64_t *sp = (uint64_t *)(top & ~(uintptr_t)15) - FRAME_WORDS;
    uint32_t mxcsr;
    uint16_t fpu;

    /* The floating-point control words are those of the thread that makes the context. */
    __asm__ volatile("stmxcsr %0" : "=m"(mxcsr));
    __asm__ volatile("fnstcw %0" : "=m"(fpu));
    memset(sp, 0, FRAME_WORDS * sizeof *sp);
    sp[0] = (uint64_t)mxcsr | (uint64_t)fpu << 32;
    sp[4] = (uint64_t)(uintptr_t)entry; /* r12 */
    sp[7] = (uint64_t)(uintptr_t)light_trampoline;
    return sp;
}
#else
enum { FRAME_WORDS = 22 }; /* x19-x28, x29, x30, d8-d15, fpcr, pad */

static void *first_frame(uintptr_t top, void (*entry)(void))
{
    uint64_t *sp = (uint64_t *)(top & ~(uintptr_t)15) - FRAME_WORDS;
    uint64_t fpcr;

    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    memset(sp, 0, FRAME_WORDS * sizeof *sp);
    sp[0] = (uint64_t)(uintptr_t)entry;             /* x19 */
    sp[11] = (uint64_t)(uintptr_t)light_trampoline; /* x30 */
    sp[20] = fpcr;
    return sp;
}
#endif
#endif

void light_context_make(struct light_context *c, void *stack_low, size_t stack_size,
                        void (*entry)(void))
{
    memset(c, 0, sizeof *c);
#if defined(LIGHT_UCONTEXT)
    getcontext(&c->uc);
    c->uc.uc_stack.ss_sp = stack_low;
    c->uc.uc_stack.ss_size = stack_size;
    c->uc.uc_link = NULL;
    makecontext(&c->uc, entry, 0);
#else
    c->sp = first_frame((uintptr_t)stack_low + stack_size, entry);
#endif
#if defined(LIGHT_ASAN)
    c->stack_low = stack_low;
    c->stack_size = stack_size;
#endif
#if defined(LIGHT_TSAN)
    c->fiber = __tsan_create_fiber(0);
#endif
}

void light_context_adopt(struct light_context *c)
{
    memset(c, 0, sizeof *c);
#if defined(LIGHT_ASAN)
    pthread_attr_t attr;
    void *low;

    pthread_getattr_np(pthread_self(), &attr);
    pthread_attr_getstack(&attr, &low, &c->stack_size);
    pthread_attr_destroy(&attr);
    c->stack_low = low;
#endif
#if defined(LIGHT_TSAN)
    c->fiber = __tsan_get_current_fiber();
#endif
}

void light_context_free(struct light_context *c)
{
#if defined(LIGHT_TSAN)
    __tsan_destroy_fiber(c->fiber);
#endif
    (void)c;
}

void light_context_entered(struct light_context *self)
{
#if defined(LIGHT_ASAN)
    __sanitizer_finish_switch_fiber(self->fake_stack, NULL, NULL);
#endif
    (void)self;
}

void light_context_switch(struct light_context *from, struct light_context *to, int last)
{
#if defined(LIGHT_ASAN)
    __sanitizer_start_switch_fiber(last ? NULL : &from->fake_stack, to->stack_low, to->stack_size);
#endif
#if defined(LIGHT_TSAN)
    __tsan_switch_to_fiber(to->fiber, 0);
#endif
#if defined(LIGHT_UCONTEXT)
    swapcontext(&from->uc, &to->uc);
#else
    light_switch(&from->sp, to->sp);
#endif
    light_context_entered(from);
    (void)last;
}
