/*
 * A server that handles its connections by events, and writes down what happens; one raw client.
 */
#ifndef TESTS_INTEGRATION_SUPPORT_EVENTS_H
#define TESTS_INTEGRATION_SUPPORT_EVENTS_H

#include "support.h"

/* Handlers wait here until the test lets them go; the right way on both kinds of thread. */
struct gate {
    tws_mutex *mu;
    tws_cond *changed;
    int inside; /* mu: that wait */
    bool open;  /* mu */
};
void gate_make(struct gate *g);
void gate_wait(struct gate *g);
void gate_open(struct gate *g);
int gate_inside(struct gate *g);
/* Nobody may be inside. */
void gate_free(struct gate *g);

/* What happened on one connection. Its address is the handlers' argument. */
struct diary {
    _Atomic int opened, messages, pings, pongs, closed;
    _Atomic int running, most_running; /* calls of on_message at one time */
    _Atomic bool wrong;                /* something came before on_open, or after on_close */
    _Atomic(tws_conn *) conn;          /* with a reference, from on_open on */
    tws_error error;                   /* once closed */
    /* Called from on_message in place of the echo, when not NULL. */
    void (*on_message)(tws_conn *c, tws_message *m, struct diary *d);
    void (*on_open)(tws_conn *c, struct diary *d);
    void *arg;
};

/* A table that writes a diary, echoes, and answers pings by the library. */
void diary_events(tws_events *ev, uint32_t parallel);
/* Gives its reference back. */
void diary_end(struct diary *d);

struct stage {
    struct support_census before;
    struct support_server s;
    struct client client;
    struct diary diary;
};

/* opt, whose events are replaced, or NULL for the defaults. st->diary's hooks are kept. */
void stage_open(struct stage *st, uint32_t parallel, const tws_server_options *opt);
/* Until on_close has returned. */
void stage_await_close(struct stage *st);
/* Ends everything, sees that all happened once and in order, and that nothing is left behind. */
void stage_close(struct stage *st);

#endif
