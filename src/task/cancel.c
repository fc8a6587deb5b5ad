#include "task/cancel.h"

void task_cancel_init(struct task_cancel *c)
{
    pthread_mutex_init(&c->mu, NULL);
    atomic_init(&c->set, false);
    c->head = NULL;
}

void task_cancel_destroy(struct task_cancel *c)
{
    pthread_mutex_destroy(&c->mu);
}

void task_cancel_set(struct task_cancel *c)
{
    pthread_mutex_lock(&c->mu);
    if (!atomic_exchange(&c->set, true))
        for (struct task_cancel_link *l = c->head; l; l = l->next)
            l->fn(l->arg);
    pthread_mutex_unlock(&c->mu);
}

bool task_cancel_join(struct task_cancel_link *link, struct task_cancel *c, void (*fn)(void *arg),
                      void *arg)
{
    bool joined;

    *link = (struct task_cancel_link){.cancel = c, .fn = fn, .arg = arg};
    if (!c)
        return true;
    pthread_mutex_lock(&c->mu);
    joined = !atomic_load(&c->set);
    if (joined) {
        link->next = c->head;
        if (c->head)
            c->head->prev = link;
        c->head = link;
    }
    pthread_mutex_unlock(&c->mu);
    return joined;
}

void task_cancel_leave(struct task_cancel_link *link)
{
    struct task_cancel *c = link->cancel;

    if (!c)
        return;
    pthread_mutex_lock(&c->mu);
    if (link->prev)
        link->prev->next = link->next;
    else
        c->head = link->next;
    if (link->next)
        link->next->prev = link->prev;
    pthread_mutex_unlock(&c->mu);
    link->cancel = NULL;
}
