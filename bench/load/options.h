#ifndef LOAD_OPTIONS_H
#define LOAD_OPTIONS_H

#include "url.h"

struct label {
    const char *name, *value;
};

/* The command line, checked. Strings point into argv. */
struct options {
    struct url *urls;
    unsigned url_count;
    unsigned connections;
    double connect_rate;
    unsigned connect_parallel;
    bool early;

    double rate; /* per connection; 0 = closed loop */
    unsigned burst, pipeline, max_inflight;
    double duration, warmup, drain;
    double connect_timeout, close_timeout;

    size_t size;
    bool size_given;
    const char *file;
    bool binary, utf8, zero_mask, verify;

    bool deflate;
    const char *deflate_params;
    int deflate_level;

    bool insecure;
    const char *ca;

    struct address *sources;
    unsigned source_count;
    const char **headers;
    unsigned header_count;
    const char *subprotocol;
    int sndbuf, rcvbuf;
    unsigned threads;

    bool connect_only, broadcast, exclude_sender;
    unsigned senders, mute_percent;
    unsigned muted; /* connections, from mute_percent */
    int mute_rcvbuf;

    const char *json, *metrics, *events;
    struct label *labels;
    unsigned label_count;
    bool strict, quiet, progress;
    double lag_limit; /* milliseconds */
};

enum options_result { OPTIONS_RUN, OPTIONS_DONE, OPTIONS_BAD };

/* Fills o. Help and version print to stdout (OPTIONS_DONE); mistakes print one line to stderr (OPTIONS_BAD). */
enum options_result options_parse(struct options *o, int argc, char **argv);
void options_clear(struct options *o);

/* Cores that this process may use. */
unsigned options_cores(void);

#define LOAD_VERSION "tws-bench-load 1"

#endif
