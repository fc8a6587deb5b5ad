/* Threads of either kind for the application. */
#include <tws/thread.h>

#include "base/alloc.h"
#include "base/sized.h"
#include "task/task.h"

#include <errno.h>
#include <string.h>

struct tws_group {
    const tws_allocator *allocator;
    struct task_runtime *runtime;
};

void tws_group_options_init_sized(tws_group_options *opt, size_t size)
{
    tws_group_options o;

    memset(&o, 0, sizeof o);
    o.size = size;
    base_sized_give(opt, size, &o, sizeof o);
}

static tws_err error_of(int r)
{
    switch (r) {
    case 0:
        return TWS_OK;
    case -ENOMEM:
        return TWS_ERR_MEMORY;
    case -ENOTSUP:
        return TWS_ERR_UNSUPPORTED;
    default:
        return TWS_ERR_SYSTEM;
    }
}

tws_err tws_group_new(tws_group **out, const tws_group_options *opt)
{
    tws_group_options o;
    tws_group *g;
    bool light;
    int r;

    *out = NULL;
    tws_group_options_init(&o);
    if (opt && opt->size < sizeof opt->size + sizeof opt->threads)
        return TWS_ERR_ARGUMENT;
    if (opt)
        base_sized_take(&o, sizeof o, opt, opt->size);
    light = o.threads == TWS_THREADS_LIGHT;
    if ((!light && o.threads != TWS_THREADS_KERNEL) || o.carriers > TASK_CARRIERS_MAX ||
        (o.stack_size && o.stack_size < TASK_STACK_MIN))
        return TWS_ERR_ARGUMENT;
    g = base_calloc(o.allocator, sizeof *g);
    if (!g)
        return TWS_ERR_MEMORY;
    g->allocator = o.allocator;
    struct task_options task = {.kind = light ? TASK_LIGHT : TASK_KERNEL,
                                .stack_size = o.stack_size,
                                .spread = !o.no_spread,
                                .no_pause = o.no_pause,
                                .carriers = o.carriers,
                                .name = "tws-group",
                                .allocator = o.allocator};
    r = task_runtime_new(&g->runtime, &task);
    if (r < 0) {
        base_free(g->allocator, g);
        return error_of(r);
    }
    *out = g;
    return TWS_OK;
}

struct task_runtime *task_group_runtime(struct tws_group *g)
{
    return g->runtime;
}

tws_err tws_group_spawn(tws_group *g, void (*fn)(void *arg), void *arg)
{
    return error_of(task_spawn(g->runtime, fn, arg));
}

uint32_t tws_group_count(tws_group *g)
{
    return task_runtime_count(g->runtime);
}

tws_err tws_group_wait(tws_group *g, tws_ms ms)
{
    if (ms < TWS_NOWAIT)
        return TWS_ERR_ARGUMENT;
    if (task_runtime_here(g->runtime))
        return TWS_ERR_STATE;
    return task_runtime_wait(g->runtime, task_deadline(ms)) < 0 ? TWS_ERR_TIMEOUT : TWS_OK;
}

void tws_group_free(tws_group *g)
{
    if (!g)
        return;
    task_runtime_free(g->runtime);
    base_free(g->allocator, g);
}
