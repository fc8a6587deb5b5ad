/*
 * support_bus.h: a broker in memory for the tests of clusters, which does to messages whatever a test
 * wants. Each node has a thread that hands over what came for it.
 */
#ifndef TESTS_INTEGRATION_SUPPORT_BUS_H
#define TESTS_INTEGRATION_SUPPORT_BUS_H

#include <tws/cluster.h>

#define BUS_NODES 4

struct bus;

struct bus *bus_new(void);
/* All clusters have been freed. */
void bus_free(struct bus *b);
/* Node number `node`'s adapter. It is down at first: bus_up(). */
void bus_open(struct bus *b, size_t node, bool keeps_subscriptions, tws_broker *out);

/* ---- A node's connection ---- */

void bus_up(struct bus *b, size_t node);
/* What is under way to the node is lost, as are its subscriptions if it does not keep them. */
void bus_down(struct bus *b, size_t node);
/* Nothing passes in either direction, and nobody is told. */
void bus_cut(struct bus *b, size_t node, bool cut);
/* What its publish says, in place of doing anything; TWS_OK: goes on. A TWS_ERR_TIMEOUT takes a
 * millisecond. */
void bus_answer(struct bus *b, size_t node, tws_err err);
/* What its next calls of subscribe say. */
void bus_refuse_subscriptions(struct bus *b, size_t node, unsigned count);
/* What came waits. */
void bus_hold(struct bus *b, size_t node, bool hold);

/* ---- Messages: faults befall data, not beats ---- */

void bus_drop(struct bus *b, unsigned count);      /* the next ones are lost */
void bus_duplicate(struct bus *b, unsigned count); /* the next ones come twice */
void bus_swap(struct bus *b);                      /* the next one comes behind the one after it */
/* Bytes from nobody, to all who have subscribed. */
void bus_inject(struct bus *b, const char *subject, const void *data, size_t len);
/* The last data message, as it was published; the number of bytes. */
size_t bus_last(struct bus *b, void *buf, size_t size, char *subject, size_t subject_size);

/* ---- Looking ---- */

unsigned bus_subscribers(struct bus *b, const char *subject); /* nodes */
unsigned bus_subscriptions(struct bus *b, size_t node);
unsigned bus_data(struct bus *b); /* data messages that were published */
bool bus_idle(struct bus *b);     /* all have been handed over */

#endif
