/*
 * A connected pair, and threads of the kind that TWS_TEST_THREADS names to use it on. What runs there
 * notes what happened, see support.h.
 */
#ifndef TESTS_INTEGRATION_SUPPORT_PAIR_H
#define TESTS_INTEGRATION_SUPPORT_PAIR_H

#include "support.h"

struct couple {
    struct support_census before;
    tws_group *group;
    tws_conn *server, *client;
};
/* opt->group is set here; NULL: the defaults. */
void couple_open(struct couple *p, const tws_pair_options *opt);
/* Cuts what is still open, and sees that nothing is left behind. */
void couple_close(struct couple *p);

/* A function on a thread of the group. */
struct job {
    void (*fn)(void *arg);
    void *arg;
    _Atomic bool done;
};
void job_start(struct job *j, struct couple *p, void (*fn)(void *), void *arg);
void job_join(struct job *j);
/* Both. */
void job_run(struct couple *p, void (*fn)(void *), void *arg);

/* Reads a connection to its end. */
struct drain {
    struct job job;
    tws_conn *conn;
    _Atomic uint64_t messages;
    tws_err err;
};
void drain_start(struct drain *d, struct couple *p, tws_conn *c);
tws_err drain_join(struct drain *d);

#endif
