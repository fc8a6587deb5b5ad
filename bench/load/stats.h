#ifndef LOAD_STATS_H
#define LOAD_STATS_H

#include "hist.h"

/* Kinds of error, with the names that the reports use. */
#define ERROR_KINDS(X)                                                                             \
    X(ERR_REFUSED, "refused")                                                                      \
    X(ERR_RESET, "reset")                                                                          \
    X(ERR_CONNECT_TIMEOUT, "connect_timeout")                                                      \
    X(ERR_UNREACHABLE, "unreachable")                                                              \
    X(ERR_NO_PORT, "no_port")                                                                      \
    X(ERR_TLS, "tls")                                                                              \
    X(ERR_HANDSHAKE_TIMEOUT, "handshake_timeout")                                                  \
    X(ERR_HANDSHAKE_INVALID, "handshake_invalid")                                                  \
    X(ERR_EOF, "eof")                                                                              \
    X(ERR_PROTOCOL, "protocol")                                                                    \
    X(ERR_MISMATCH, "mismatch")                                                                    \
    X(ERR_REORDERED, "reordered")                                                                  \
    X(ERR_UNEXPECTED, "unexpected")                                                                \
    X(ERR_CLOSE_TIMEOUT, "close_timeout")                                                          \
    X(ERR_IO, "io")

#define ERROR_ENUM(id, name) id,
enum error_kind { ERROR_KINDS(ERROR_ENUM) ERR_KINDS };
#undef ERROR_ENUM

enum { STATUS_CODES = 1000, CLOSE_FIRST = 1000, CLOSE_CODES = 4000 };

const char *error_name(enum error_kind kind);

/* What a failed system call on a socket is called in the report. */
enum error_kind error_from_errno(int err);

/* Messages scheduled before the steady window are kept apart from those in it. */
enum { WHEN_OUTSIDE, WHEN_STEADY, WHEN_COUNT };

struct url_stats {
    counter open, failed, lost, sent, received;
};

/* One for each load thread, which alone writes it. */
struct stats {
    counter sent, received;
    counter bytes_up, bytes_down;
    counter payload_up, payload_down;
    counter scheduled;   /* known when the drain ends */
    counter expected;    /* replies due */
    counter written_off; /* replies due on connections that are gone */
    counter in_flight;   /* known when the drain ends */
    counter censored;
    counter connecting, opened, open_now, failed, lost, muted_closed, deflated;
    counter begun;  /* messages whose sending began, without those of connections that are gone */
    counter behind; /* connections held back by a full socket, now */
    counter queued; /* connections waiting for their next due time */
    counter last_open_ns;
    counter errors[ERR_KINDS];
    counter status[STATUS_CODES];
    counter closed[CLOSE_CODES];
    struct hist latency[WHEN_COUNT];
    struct hist lag[WHEN_COUNT];
    struct hist connect, handshake;
};

/* Adds src to dst (last_open_ns: the later one). */
void stats_merge(struct stats *dst, const struct stats *src);

/* Calls fn once for each kind of error that happened, in a stable order. */
void stats_errors(const struct stats *s, void (*fn)(void *arg, const char *kind, uint64_t n),
                  void *arg);
uint64_t stats_error_total(const struct stats *s);

#endif
