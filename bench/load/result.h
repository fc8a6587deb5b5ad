#ifndef LOAD_RESULT_H
#define LOAD_RESULT_H

#include "sample.h"

enum status { STATUS_OK, STATUS_INTERRUPTED, STATUS_FAILED };

/* What a run measured, before it is written down in one form or another. */
struct result {
    struct run *run;
    int argc;
    char **argv;
    enum status status;
    char message[256]; /* empty: nothing to say */
    double start_unix, end_unix;
    uint64_t ended; /* monotonic */
    /* Points on the way; `at` is 0 where the run did not come so far. */
    struct sample load, steady, stop;
    struct sample final;
    bool bottleneck;
    char bottleneck_reason[256];
};

const char *result_status(const struct result *r);
const char *result_matching(const struct result *r);
const char *result_mode(const struct result *r);

/* Figures between two samples. False when one of them is missing. */
struct window {
    double seconds, start_unix, end_unix;
    uint64_t bytes_up, bytes_down, payload_up, payload_down, sent, received;
    double cpu_percent;
};
bool result_window(const struct sample *from, const struct sample *to, struct window *w);

uint64_t result_lost(const struct result *r);
uint64_t result_unsent(const struct result *r);
/* Seconds from the first connect until the last connection opened; 0 when none did. */
double result_open_time(const struct result *r);
/* Percent of the window; negative = unknown. */
double result_thread_percent(const struct result *r, unsigned thread);
double result_thread_wait(const struct result *r, unsigned thread);

/* Decides whether the generator itself was the limit. */
void result_judge(struct result *r);

#endif
