/*
 * upgrade.h: one opening handshake on one socket, from the first byte to a connection or an answer.
 */
#ifndef SERVER_UPGRADE_H
#define SERVER_UPGRADE_H

#include <tws/upgrade.h>

#include "conn/conn.h"
#include "net/tls.h"
#include "server/request.h"

/* Options with strings of our own, and what handshakes share. */
struct upgrade_config {
    tws_upgrade_options opt;   /* pointers lead into our copies */
    tws_parsed_request parsed; /* opt.parsed, if there is one; its strings are the caller's */
    struct conn_env *env;
    struct base_pool heads; /* a request head being received, with its field table */
    char *server_name;      /* NULL: no Server header */
};

/* For connections of light threads or of kernel threads. TWS_ERR_ARGUMENT for an option that is not
 * allowed, with *what; TWS_ERR_MEMORY. */
tws_err upgrade_config_new(struct upgrade_config **out, const tws_upgrade_options *opt, bool light,
                           const char **what);
/* NULL is fine. Connections outlive it: they hold `env`. */
void upgrade_config_free(struct upgrade_config *cfg);

/* Why a socket did not become a connection; also the label of the counters. */
enum upgrade_end {
    UPGRADE_DONE = 0,
    UPGRADE_PAGE,         /* a plain request, answered by the page hook */
    UPGRADE_REQUIRED,     /* a plain request, answered with 426; no or wrong upgrade fields */
    UPGRADE_BAD_REQUEST,  /* 400 */
    UPGRADE_BAD_METHOD,   /* 405 */
    UPGRADE_BAD_VERSION,  /* 505, or 426 for another WebSocket version */
    UPGRADE_TOO_LARGE,    /* 414, 431 */
    UPGRADE_BAD_ORIGIN,   /* 403 */
    UPGRADE_HOOK_REFUSED, /* what the hook said */
    UPGRADE_TIMED_OUT,
    UPGRADE_DISCONNECTED, /* the peer went away, or the network failed */
    UPGRADE_INTERNAL,     /* no memory */
    UPGRADE_CUT,          /* the server was stopped */
    UPGRADE_TLS,          /* the TLS handshake failed */
    UPGRADE_ENDS
};

const char *upgrade_end_name(enum upgrade_end end);

struct upgrade_input {
    struct task_runtime *runtime; /* NULL: kernel threads */
    int fd;                       /* taken over */
    union net_peer peer;
    const void *buffered;
    size_t buffered_len;
    /* The head, and `buffered` is what follows it; NULL: to be read. */
    const tws_parsed_request *parsed;
    bool plain;         /* no TLS, whatever the options say */
    struct ssl_st *ssl; /* TLS that somebody else has set up; taken over; NULL */
    /* Told what the TLS handshake agreed on; NULL: not. */
    void (*secured)(void *arg, int version, bool resumed);
    void *secured_arg;
    void *block; /* from env->blocks; taken over */
    /* Called right before fd is closed, if no connection came of it; NULL: not. */
    void (*closing)(void *arg);
    void *closing_arg;
    /* Whether somebody has shut fd down to end the handshake; NULL: nobody does. */
    bool (*was_cut)(void *arg);
    void *was_cut_arg;
};

/* Blocks until it is over. Fills *error (code TWS_OK on success) and tells the hook about ends. */
enum upgrade_end upgrade_run(struct upgrade_config *cfg, const struct upgrade_input *in,
                             tws_conn **out, tws_error *error);

/* Frees a request that stands on the heap: for tws_conn.request_free. */
void upgrade_request_free(tws_conn *c);

/* ---- upgrade_socket.c: what callers hand in ---- */

/* Closes fd, if there is one, and says why. Returns err. */
tws_err upgrade_refuse_input(int fd, tws_err err, const char *what, tws_error *error);
/* in: what is known: descriptor, bytes, SSL. As tws_upgrade(). */
tws_err upgrade_socket(tws_conn **out, struct upgrade_input *in, const tws_upgrade_options *opt,
                       tws_error *error);
/* A full copy of a structure that may be shorter or longer. False: it was not initialised. */
bool upgrade_take_parsed(tws_parsed_request *out, const tws_parsed_request *in);
/* The address given with a request, or that of fd's peer. */
void upgrade_peer_of_parsed(union net_peer *peer, int fd, const tws_parsed_request *parsed);

#endif
