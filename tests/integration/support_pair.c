#include "support_pair.h"

#include "support_dial.h"

void couple_open(struct couple *p, const tws_pair_options *opt)
{
    tws_pair_options o;

    tws_pair_options_init(&o);
    if (opt)
        o = *opt;
    memset(p, 0, sizeof *p);
    p->before = support_census();
    p->group = dialing_group();
    o.group = p->group;
    assert_ok(tws_pair(&p->server, &p->client, &o));
}

void couple_close(struct couple *p)
{
    tws_abort(p->server);
    tws_abort(p->client);
    assert_ok(tws_group_wait(p->group, SUPPORT_HANG_MS));
    tws_conn_unref(p->server);
    tws_conn_unref(p->client);
    tws_group_free(p->group);
    support_assert_census(p->before);
}

static void job_main(void *arg)
{
    struct job *j = arg;

    j->fn(j->arg);
    atomic_store(&j->done, true);
}

void job_start(struct job *j, struct couple *p, void (*fn)(void *), void *arg)
{
    j->fn = fn;
    j->arg = arg;
    atomic_store(&j->done, false);
    assert_ok(tws_group_spawn(p->group, job_main, j));
}

void job_join(struct job *j)
{
    WAIT_FOR(atomic_load(&j->done));
}

void job_run(struct couple *p, void (*fn)(void *), void *arg)
{
    struct job j;

    job_start(&j, p, fn, arg);
    job_join(&j);
}

static void drain_main(void *arg)
{
    struct drain *d = arg;
    tws_message m;

    while ((d->err = tws_read_message(d->conn, &m)) == TWS_OK)
        atomic_fetch_add(&d->messages, 1);
}

void drain_start(struct drain *d, struct couple *p, tws_conn *c)
{
    d->conn = c;
    atomic_store(&d->messages, 0);
    job_start(&d->job, p, drain_main, d);
}

tws_err drain_join(struct drain *d)
{
    job_join(&d->job);
    return d->err;
}
