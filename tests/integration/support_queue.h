/* For tests of queued writes: slow peers, messages with a number in them, callbacks that count. */
#ifndef TESTS_INTEGRATION_SUPPORT_QUEUE_H
#define TESTS_INTEGRATION_SUPPORT_QUEUE_H

#include "support.h"

/* ---- Slow peers ---- */

/* The socket between the two takes only some KiB from now on. */
void rig_narrow(struct rig *r);
/* A rig whose connection has that queue, narrowed. */
void rig_open_queue(struct rig *r, const tws_queue_options *queue);
/* Queues messages until a writer waits for the peer; how many. */
int rig_fill(struct rig *r, size_t len);
tws_queue_stats queue_stats(tws_conn *c);

/* ---- Messages: a number and a pattern ---- */

void numbered_fill(uint8_t *buf, size_t len, uint32_t number);
/* The number in it; the test fails when the rest is not the pattern. */
uint32_t numbered_check(const uint8_t *data, size_t len);

/* ---- Callbacks ---- */

/* Counts the calls for each message, and their order. */
struct tally {
    size_t count;            /* of messages */
    _Atomic uint32_t *calls; /* by message */
    _Atomic int *results;
    _Atomic uint32_t total, out_of_order, results_ok;
    _Atomic uint32_t next; /* lowest message that may come */
    pthread_mutex_t lock;  /* taken by every callback */
    struct ticket *tickets;
};
struct ticket {
    struct tally *tally;
    uint32_t number;
};

void tally_init(struct tally *t, size_t count);
/* The test fails unless each of the first n messages was told once, and no other. */
void tally_assert_once(struct tally *t, size_t n);
void tally_free(struct tally *t);
/* For tws_write_async(): tally_done with the ticket of a message. */
void tally_done(tws_conn *c, tws_err result, void *ticket);

/* Queues one, with its ticket; t NULL: without a callback. */
void numbered_send(tws_conn *c, struct tally *t, uint32_t number, size_t len);
/* It is the next frame. */
void numbered_expect(struct client *c, uint32_t number, size_t len);

#endif
