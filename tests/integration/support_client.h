/*
 * A raw WebSocket client: a socket, frames written and read byte by byte. It shares no code with
 * the library and lets a test send what no client should.
 */
#ifndef TESTS_INTEGRATION_SUPPORT_CLIENT_H
#define TESTS_INTEGRATION_SUPPORT_CLIENT_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CLIENT_CONT = 0,
    CLIENT_TEXT = 1,
    CLIENT_BINARY = 2,
    CLIENT_CLOSE = 8,
    CLIENT_PING = 9,
    CLIENT_PONG = 10,
    CLIENT_FIN = 0x80
};
#define CLIENT_HEAD_MAX 14

struct client {
    int fd;
    uint8_t *buf; /* received and not yet used: from rd to wr */
    size_t rd, wr, cap;
    char head[4096]; /* the answer to the handshake, zero-terminated */
};

struct client_frame {
    bool fin;
    uint8_t opcode, rsv;
    size_t len;
    const uint8_t *data; /* valid until the next receive */
};

/* A connected socket, -1 with errno when that fails. Addresses as the server prints them. */
int client_dial(const char *address);
/* Connects and performs the opening handshake; the test fails if that does not work. */
void client_open(struct client *c, const char *address);
/* The same on a connected socket, with more header lines ("A: b\r\n" each). The status. */
int client_upgrade(struct client *c, int fd, const char *headers);
/* The request that client_upgrade() sends; its length. */
size_t client_request(char *buf, size_t size, const char *headers);
/* Reads the head of an HTTP answer into c->head; the status, 0 when there is none. */
int client_read_head(struct client *c);
/* Closes the socket; again does nothing. */
void client_close(struct client *c);
/* Closes it with a reset. */
void client_reset(struct client *c);

/* Sends all bytes; false when that fails. */
bool client_send_bytes(int fd, const void *data, size_t len);
/* One masked frame: first is opcode, CLIENT_FIN and reserved bits. Its length; out has room for
 * len + CLIENT_HEAD_MAX. */
size_t client_frame(uint8_t *out, unsigned first, const void *data, size_t len);
/* Sends a frame; the test fails if that does not work. */
void client_send(struct client *c, unsigned first, const void *data, size_t len);
void client_send_text(struct client *c, const char *text);
void client_send_close(struct client *c, unsigned code, const char *reason);

/* The next frame; false when the stream has ended. Fails the test when nothing comes. */
bool client_next(struct client *c, struct client_frame *f);
/* The same for any thread: 1, 0 at the end, -1 when nothing comes or the frame is not allowed. */
int client_try_next(struct client *c, struct client_frame *f);
/* The next frame must be this. */
void client_expect(struct client *c, unsigned first, const void *data, size_t len);
void client_expect_text(struct client *c, const char *text);
/* code 0: a close frame without one. reason NULL: any. */
void client_expect_close(struct client *c, unsigned code, const char *reason);
/* The stream ends here, by end of file, not by a reset. */
void client_expect_eof(struct client *c);
/* Reads and drops everything until the stream ends in whatever way; how many bytes. */
size_t client_drain(struct client *c);
/* Nothing has come so far. */
bool client_is_quiet(struct client *c);

/* Sends a request as it is and reads until the server closes; the answer, zero-terminated, cut to
 * size. The status, 0 when there was no answer, -1 when it ended by a reset. */
int client_http(const char *address, const char *request, char *answer, size_t size);

/* A thread that sends bytes, in pieces with a pause between them. */
struct sender {
    pthread_t thread;
    int fd;
    const void *data;
    size_t len, piece; /* piece 0: all at once */
    int pause_ms;
    bool ok;
};
void sender_start(struct sender *s, int fd, const void *data, size_t len);
bool sender_join(struct sender *s);

#endif
