/*
 * crowd.h: many raw WebSocket clients on one thread, each of which reads everything, so many bytes
 * a second, or nothing. Shares no code with the library.
 */
#ifndef TESTS_SUPPORT_CROWD_H
#define TESTS_SUPPORT_CROWD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct crowd;

/* A whole message, on the crowd's thread. */
typedef void (*crowd_fn)(void *arg, size_t client, const uint8_t *data, size_t len);

struct crowd_options {
    const char *address; /* 127.0.0.1:PORT */
    size_t count;
    int receive_buffer; /* SO_RCVBUF; 0: the system's choice */
    crowd_fn on_message;
    void *arg;
};

enum crowd_end {
    CROWD_OPEN,
    CROWD_CLOSED, /* by a close frame, which has been answered */
    CROWD_EOF,
    CROWD_RESET,
    CROWD_BROKEN, /* what came is no WebSocket frame of a server */
    CROWD_LEFT    /* crowd_leave() */
};

struct crowd_state {
    enum crowd_end end;
    unsigned close_code; /* of the server's close frame; 0: none */
    uint64_t messages, bytes;
};

/* Connects all, one after the other, each to the path "/" with its number. NULL with errno when one
 * cannot. All read everything at first. */
struct crowd *crowd_new(const struct crowd_options *opt);
/* Any thread, for the next moment. bytes per second: 0 reads nothing, CROWD_ALL everything. */
#define CROWD_ALL UINT32_MAX
void crowd_pace(struct crowd *c, size_t client, uint32_t bytes);
/* The client goes away: with a reset, or by closing its socket as it is. */
void crowd_leave(struct crowd *c, size_t client, bool reset);
struct crowd_state crowd_look(const struct crowd *c, size_t client);
/* Closes what is open and joins the thread. */
void crowd_free(struct crowd *c);

#endif
