/*
 * cancel.h: a word that one thread gives to all who wait for something in its name.
 *
 * Who is about to wait joins, with a function that ends the wait; when it has done so it leaves.
 */
#ifndef TASK_CANCEL_H
#define TASK_CANCEL_H

#include "task/task.h"

struct task_cancel {
    task_mutex mu;
    _Atomic bool set;              /* written under mu */
    struct task_cancel_link *head; /* mu */
};

struct task_cancel_link {
    struct task_cancel_link *next, *prev; /* cancel->mu */
    struct task_cancel *cancel;           /* NULL: nobody cancels */
    void (*fn)(void *arg);
    void *arg;
};

void task_cancel_init(struct task_cancel *c);
/* Nobody may have joined. */
void task_cancel_destroy(struct task_cancel *c);
/* For good. From any thread. */
void task_cancel_set(struct task_cancel *c);
static inline bool task_cancel_is_set(const struct task_cancel *c)
{
    return c && atomic_load(&c->set);
}

/*
 * fn(arg) is called, at most once, when it is set while we are joined: by another thread, with
 * c->mu held, so it must not wait and not leave. c may be NULL. False: it is set already, and we
 * have not joined.
 */
bool task_cancel_join(struct task_cancel_link *link, struct task_cancel *c, void (*fn)(void *arg),
                      void *arg);
/* fn is not running any more afterwards. Once for every time joined. */
void task_cancel_leave(struct task_cancel_link *link);

#endif
