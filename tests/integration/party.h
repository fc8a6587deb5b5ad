/*
 * party.h: a server, a hub and a crowd of clients, for the tests of the hub. Every client keeps a log
 * of what it was sent; messages begin with two numbers: who published, and the how manieth it was.
 */
#ifndef TESTS_INTEGRATION_PARTY_H
#define TESTS_INTEGRATION_PARTY_H

#include "support.h"

#include "support/crowd.h"

struct party_note {
    uint32_t publisher, number;
};

struct party_log {
    struct party_note *notes;
    size_t cap;
    _Atomic size_t count;
    bool torn; /* a message was not what was sent */
};

struct party {
    struct support_census before;
    struct support_server s;
    tws_hub *hub;
    struct crowd *crowd;
    size_t count;
    _Atomic(tws_conn *) *conns; /* by the number of their client; with a reference */
    _Atomic size_t arrived;
    struct party_log *logs;
};

/* Options that party_open() begins with; the handler reads until the end. */
void party_options(tws_server_options *opt, struct party *p);
/* NULL: the defaults. Everybody has arrived, nobody is in a room. */
void party_open(struct party *p, size_t count, const tws_server_options *opt,
                const tws_hub_options *hub);
/* In any order; each may be done before by the test itself. */
void party_end_server(struct party *p);
void party_end_hub(struct party *p);
/* Ends what is left, and sees that nothing stays behind. */
void party_close(struct party *p);

void party_join_all(struct party *p, const char *room);
/* Publishes a message of that size, at least 8. */
tws_err party_publish(struct party *p, const char *room, struct party_note note, size_t len,
                      tws_publish_result *result);
/* Whether that client's log is whole: so many messages of each publisher, each in order. */
bool party_complete(const struct party *p, size_t client, uint32_t publishers, uint32_t each);
bool party_same_order(const struct party *p, size_t a, size_t b);

#endif
