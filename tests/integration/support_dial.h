/*
 * Dialling, with the test in the place of the server: a thread of a group dials, of the kind that
 * TWS_TEST_THREADS names, while the test accepts, reads the request and answers byte by byte.
 */
#ifndef TESTS_INTEGRATION_SUPPORT_DIAL_H
#define TESTS_INTEGRATION_SUPPORT_DIAL_H

#include "support.h"

/* ---- The server's place ---- */

struct fake {
    int fd;         /* listens; -1: closed */
    int fillers[8]; /* connections that fill the queue of a deaf one */
    int nfillers;
    uint16_t port;
    char host[128]; /* "127.0.0.1:PORT", "[::1]:PORT", or the path of a Unix socket */
};
/* family AF_INET, AF_INET6 or AF_UNIX; any port. */
void fake_listen(struct fake *f, int family);
/* Listens with so short a queue, and that full, that further connections get no answer. */
void fake_listen_deaf(struct fake *f, int family);
/* Both families on one port: the first deaf, the second as told. */
void fake_listen_dual(struct fake *six, struct fake *four, bool four_deaf);
void fake_close(struct fake *f);
/* One for all tests of a program: fixtures for cmocka_run_group_tests_name(). */
extern struct fake group_fake;
int group_fake_listen(void **state);
int group_fake_close(void **state);
/* The next connection; the test fails when none comes. */
int fake_accept(struct fake *f);
bool fake_has_caller(struct fake *f);

struct fake_request {
    char text[8192]; /* the head, zero-terminated */
    char target[1024], host[256], key[64];
};
/* Reads a request's head. False when the connection ends first. */
bool fake_read_request(int fd, struct fake_request *r);
/* The value of a header in a head, zero-terminated; NULL when there is none. In a static buffer. */
const char *fake_header(const char *head, const char *name);
void fake_say(int fd, const char *text);
/* Answers 101 with the right accept key, more header lines ("A: b\r\n" each), and bytes behind. */
void fake_upgrade(int fd, const struct fake_request *r, const char *headers, const void *behind,
                  size_t len);
/* The same without the lines Upgrade and Connection, for those who write their own. */
void fake_upgrade_bare(int fd, const struct fake_request *r, const char *headers);

struct fake_frame {
    uint8_t first; /* FIN, reserved bits, opcode */
    uint8_t key[4];
    size_t len;
    uint8_t data[70000]; /* unmasked */
};
/* A client's frame; false when the stream ends, or the frame is not masked. */
bool fake_read_frame(int fd, struct fake_frame *f);
/* A server's frame. */
void fake_send_frame(int fd, unsigned first, const void *data, size_t len);
/* Answers the close frame that comes, after whatever else, and closes the socket. */
unsigned fake_finish(int fd);

/* ---- The client's ---- */

struct dialing {
    tws_group *group; /* NULL: the caller's */
    const char *url;
    char url_text[512];
    const tws_dial_options *opt;
    _Atomic bool done;
    tws_err err;
    tws_error error;
    tws_conn *conn;
    tws_response *response;
};
/* Begins to dial; opt as for tws_dial(). The URL is copied. */
void dialing_start(struct dialing *d, const char *url, const tws_dial_options *opt);
/* The same to a fake server: ws:// its host and a path. */
void dialing_start_fake(struct dialing *d, const struct fake *f, const char *path,
                        const tws_dial_options *opt);
/* On a thread of a group of the caller's, which several may share. */
void dialing_start_in(struct dialing *d, tws_group *g, const char *url,
                      const tws_dial_options *opt);
tws_group *dialing_group(void);
/* Waits for it, and expects this. */
void dialing_join(struct dialing *d, tws_err wanted);
/* Gives everything back. */
void dialing_end(struct dialing *d);
/* A whole handshake: the server's end of it. */
int dialing_open(struct dialing *d, struct fake *f, const tws_dial_options *opt);

#endif
