/* A small HTTP/1.1 server for one page: one thread, never waits for one client, bounded in
 * clients, bytes and time. */
#ifndef EXPORTER_HTTP_H
#define EXPORTER_HTTP_H

#include "text.h"

#include <signal.h>

/* Writes the body of GET /metrics. Returns 0, or a negative errno: then the client gets 500. */
typedef int (*http_page)(void *arg, struct text *body);

struct http_server;

/* Listens on HOST:PORT; port 0 takes any. Returns 0, or a negative errno with *WHY set: -EINVAL
 * when the address is malformed. */
int http_open(struct http_server **out, const char *address, http_page page, const char *type,
              void *arg, const char **why);

/* Writes the address that it listens on, as HOST:PORT. */
void http_address(const struct http_server *s, char *buf, size_t size);

/* Serves until *STOP; signals in MASK (blocked elsewhere) are let in only while it waits.
 * Returns 0 or a negative errno. */
int http_serve(struct http_server *s, const volatile sig_atomic_t *stop, const sigset_t *mask);

void http_close(struct http_server *s);

#endif
