/* Dials whose connection is run by events, on a thread of its own. */
#include "client/dial.h"

#include "base/fault.h"
#include "event/event.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <tws/thread.h>

/* What the thread needs; on the stack of the call that waits for it to begin. */
struct dial_job {
    const char *url;
    tws_dial_options o;
    tws_events events;
    tws_response **response;
    tws_error *error;
    bool give;            /* the caller wants the connection */
    tws_conn *conn;       /* dialled; NULL: to be dialled by the thread */
    struct task_park end; /* of what the caller waits for */
};

/* ---- The thread ---- */

/* Apart, so that the dial's stack frames are gone before the handlers' begin. */
__attribute__((noinline)) static tws_conn *begin(struct dial_job *job)
{
    if (!job->conn &&
        dial_run(&job->conn, job->url, &job->o, job->response, job->error, NULL) != TWS_OK)
        return NULL;
    event_claim(job->conn);
    return job->give ? tws_conn_ref(job->conn) : job->conn;
}

static void thread_main(void *arg)
{
    struct dial_job *job = arg;
    tws_events events = job->events;
    void *events_arg = job->o.events_arg;
    tws_conn *c = begin(job);

    task_unpark(&job->end); /* the job is gone from here on */
    if (!c)
        return;
    task_set_label(tws_conn_id(c));
    event_run(c, &events, events_arg);
    tws_conn_unref(c);
}

/* ---- The caller ---- */

static tws_err run_in_group(struct dial_job *job)
{
    tws_err err = tws_group_spawn(job->o.group, thread_main, job);

    if (err) {
        if (job->o.fd >= 0)
            close(job->o.fd);
        return base_fault(job->error, err, TWS_PHASE_NONE, 0, "no thread of the group to dial on",
                          NULL);
    }
    task_park(&job->end, TASK_FOREVER);
    return job->error->code;
}

static tws_err run_anywhere(struct dial_job *job)
{
    tws_err err = dial_run(&job->conn, job->url, &job->o, job->response, job->error, NULL);
    struct conn_env *env;
    int r;

    if (err)
        return err;
    /* The thread may end, with all it has, before we are back. */
    env = conn_env_ref(job->conn->env);
    r = conn_spawn(job->conn, thread_main, job);
    conn_env_unref(env);
    if (r == 0) {
        task_park(&job->end, TASK_FOREVER);
        return TWS_OK;
    }
    tws_conn_unref(job->conn);
    job->conn = NULL;
    return base_fault(job->error, r == -ENOMEM ? TWS_ERR_MEMORY : TWS_ERR_SYSTEM, TWS_PHASE_NONE, 0,
                      "no thread to run the events on", NULL);
}

static tws_err refuse(const tws_dial_options *o, tws_error *e, const char *what)
{
    if (o->fd >= 0)
        close(o->fd);
    return base_fault(e, TWS_ERR_ARGUMENT, TWS_PHASE_NONE, 0, what, NULL);
}

static tws_err dial(tws_conn **out, struct dial_job *job)
{
    const char *what = NULL;
    tws_err err;

    if (job->o.events)
        what = event_take(&job->events, job->o.events);
    else if (job->o.group)
        what = "group without events";
    else if (!out)
        what = "out is NULL without events";
    if (what)
        return refuse(&job->o, job->error, what);
    if (!job->o.events)
        return dial_run(out, job->url, &job->o, job->response, job->error, NULL);
    job->give = out != NULL;
    task_park_init(&job->end);
    err = job->o.group ? run_in_group(job) : run_anywhere(job);
    if (out)
        *out = job->conn;
    return err;
}

tws_err tws_dial(tws_conn **out, const char *url, const tws_dial_options *opt,
                 tws_response **response, tws_error *error)
{
    tws_error local = {.code = TWS_OK};
    struct dial_job job = {.url = url, .response = response, .error = error ? error : &local};

    if (out)
        *out = NULL;
    if (response)
        *response = NULL;
    if (!dial_options_take(&job.o, opt))
        return base_fault(job.error, TWS_ERR_ARGUMENT, TWS_PHASE_NONE, 0,
                          "options were not initialised", NULL);
    return dial(out, &job);
}
