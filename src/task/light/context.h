/* context.h: saving and switching contexts, with what sanitizers have to be told. */
#ifndef TASK_LIGHT_CONTEXT_H
#define TASK_LIGHT_CONTEXT_H

#include <stddef.h>

#if defined(__SANITIZE_ADDRESS__)
#define LIGHT_ASAN 1
#endif
#if defined(__SANITIZE_THREAD__)
#define LIGHT_TSAN 1
#endif
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define LIGHT_ASAN 1
#endif
#if __has_feature(thread_sanitizer)
#define LIGHT_TSAN 1
#endif
#endif

/* LIGHT_UCONTEXT: the way for other processors, which -DLIGHT_UCONTEXT takes on these too. */
#if !defined(__x86_64__) && !defined(__aarch64__) && !defined(LIGHT_UCONTEXT)
#define LIGHT_UCONTEXT 1
#endif
#if defined(LIGHT_UCONTEXT)
#include <ucontext.h>
#endif

struct light_context {
    void *sp; /* where the registers have been pushed */
#if defined(LIGHT_UCONTEXT)
    ucontext_t uc;
#endif
#if defined(LIGHT_ASAN)
    void *fake_stack;
    const void *stack_low;
    size_t stack_size;
#endif
#if defined(LIGHT_TSAN)
    void *fiber;
#endif
};

/* A context that calls entry() on a new stack when it is switched to first. entry never returns. */
void light_context_make(struct light_context *c, void *stack_low, size_t stack_size,
                        void (*entry)(void));
/* The context of the calling pthread's own stack. */
void light_context_adopt(struct light_context *c);
void light_context_free(struct light_context *c);
/* Saves the present one in `from` and goes on in `to`. `last`: from will never be resumed. */
void light_context_switch(struct light_context *from, struct light_context *to, int last);
/* Fetches what a context touches first when it goes on, while others run. */
static inline void light_context_prefetch(const struct light_context *c)
{
#if defined(LIGHT_UCONTEXT)
    (void)c;
#else
    for (int line = 0; line < 12; line++)
        __builtin_prefetch((const char *)c->sp + line * 64, 1);
#endif
}
/* First thing in entry(): completes the switch that led here. */
void light_context_entered(struct light_context *self);

#endif
