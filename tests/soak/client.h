/* client.h: the parts of a soak's client. */
#ifndef SOAK_CLIENT_H
#define SOAK_CLIENT_H

#include "kit.h"

#include <tws/tws.h>

enum { BIG_MAX = 10 * 1024 * 1024, PATIENCE_MS = 120000, REPORT_S = 5 };

enum deflate_kind { DEFLATE_NONE, DEFLATE_PLAIN, DEFLATE_TAKEOVER, DEFLATE_KINDS };

/* One that does the same thing over and over, on a thread of its own. */
struct actor {
    const struct role *role;
    unsigned number;
    unsigned dials; /* rounds of ways: TLS or not, what compression */
    struct dice dice;
    uint64_t seen; /* room: the last number */
    bool failed;
};

struct role {
    const char *name;
    unsigned count;
    void (*run)(struct actor *a);
};

/* What all actors share; set before the first one runs. */
struct client {
    const char *address[2]; /* plain, TLS */
    tws_tls *tls;
    tws_cancel *stop;
    tws_allocator memory;
    struct heap heap;
    struct pool pool;
    _Atomic uint64_t messages, bytes, connections, failures;
    _Atomic uint64_t cuts; /* closings of a flood that the server answered with a cut */
};
extern struct client client;

bool stopping(void);
/* Waits up to ms by chance, at least half of it; false when it is time to stop. */
bool pause_for(struct actor *a, tws_ms ms);
/* Something is wrong: says what. The actor should return. */
__attribute__((format(printf, 2, 3))) void fail(struct actor *a, const char *format, ...);

/* The next way: every second dial with TLS, each kind of compression in turn. */
void set_way(struct actor *a, tws_dial_options *opt, tws_deflate_options *deflate, const char *path,
             char *url, size_t size);
tws_conn *dial(struct actor *a, const char *path);
/* Closes and gives back; anything but a clean end is a failure. */
void hang_up(struct actor *a, tws_conn *c);
/* One message of about that size there and back, every byte looked at. False: an ending or a fault. */
bool round_trip(struct actor *a, tws_conn *c, size_t size);
/* So many small ones sent before the first is read. */
bool burst(struct actor *a, tws_conn *c, unsigned count);

extern const struct role roles[];

#endif
