/*
 * What the integration tests share: a server on a free port, one connection of it in the test's own
 * hands, waiting for conditions, and counting what a test leaves behind.
 *
 * cmocka's assertions leave by longjmp, so only the test's own thread may use them: threads made
 * here note what happened, and the test looks at it when it has joined them.
 */
#ifndef TESTS_INTEGRATION_SUPPORT_H
#define TESTS_INTEGRATION_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include <tws/tws.h>

#include "support_client.h"

/* ---- Time and conditions ---- */

/* Nothing takes so long unless it hangs. */
#define SUPPORT_HANG_MS 30000

int64_t support_now_ms(void);
void support_pause_ms(int ms);

/* Waits until a condition holds; the test fails when it never does. Test's thread only. */
#define WAIT_FOR(condition)                                                                        \
    do {                                                                                           \
        int64_t wait_end_ = support_now_ms() + SUPPORT_HANG_MS;                                    \
        while (!(condition)) {                                                                     \
            if (support_now_ms() > wait_end_)                                                      \
                fail_msg("never came true: %s", #condition);                                       \
            support_pause_ms(1);                                                                   \
        }                                                                                          \
    } while (0)

#define assert_err(call, wanted)                                                                   \
    do {                                                                                           \
        tws_err err_got_ = (call);                                                                 \
        if (err_got_ != (wanted))                                                                  \
            fail_msg("%s: %s instead of %s", #call, tws_err_name(err_got_), tws_err_name(wanted)); \
    } while (0)
#define assert_ok(call) assert_err(call, TWS_OK)

/* ---- What is left behind ---- */

struct support_census {
    unsigned threads, descriptors;
};
struct support_census support_census(void);
/* Waits until no more threads and descriptors are there than at an earlier census. */
void support_assert_census(struct support_census before);

/* ---- Servers ---- */

/*
 * Defaults for a server of the tests: 127.0.0.1, any port. The kind of thread is that of the
 * environment variable TWS_TEST_THREADS, kernel threads if it is not set. Every server of the
 * integration tests is made here, so that all of them run with both kinds.
 */
void support_server_options(tws_server_options *opt, tws_connection_fn fn, void *arg);
/* Whether that is the light kind. */
bool support_light(void);

/* An abstract Unix socket's address that no other program that runs has. Valid until the next call. */
const char *support_unix_address(const char *name);

struct support_server {
    tws_server *server;
    char address[160]; /* of its first listener */
};
void support_server_start(struct support_server *s, const tws_server_options *opt);
/* One whose connections can be handed over while a thread waits to read them, or not. */
void support_handoff_server(struct support_server *s, tws_connection_fn fn, bool handoff);
/* One end of a way; the other end is a plain socket, on which the test speaks itself. */
tws_handoff *support_handoff_half(int *fd);
/* How a connection has ended; TWS_OK: it has not. */
tws_err support_ending(tws_conn *c);
/* Writes back what it reads, until the end. */
void support_echo(tws_conn *c, void *arg);
/* The same as on_message of events. */
void support_echo_event(tws_conn *c, tws_message *m, void *arg);

/* ---- A rig: one server, one raw client, and the connection between them ---- */

struct rig_park;
struct rig {
    struct support_census before;
    struct support_server s;
    struct client client;
    tws_conn *conn; /* with a reference; its handler only waits, so that the test may use it */
    struct rig_park *park; /* on the heap: after a failed test its threads are still there */
};

void rig_options(tws_server_options *opt);
/* opt from rig_options(), or NULL for just that. */
void rig_open(struct rig *r, const tws_server_options *opt);
/* With more header lines of the client's ("A: b\r\n" each). */
void rig_open_asking(struct rig *r, const tws_server_options *opt, const char *headers);
/* Lets the handler return, so that the library finishes the connection. */
void rig_release(struct rig *r);
/* Ends everything. */
void rig_end(struct rig *r);
/* The same, and sees that nothing is left behind. */
void rig_close(struct rig *r);

/* A thread that reads a connection to its end and keeps count. */
struct reader {
    pthread_t thread;
    tws_conn *conn;
    _Atomic uint64_t messages, bytes, timeouts;
    _Atomic bool reading; /* has begun */
    _Atomic bool done;
    tws_err err; /* of the last read; once joined */
};
void reader_start(struct reader *rd, tws_conn *c);
tws_err reader_join(struct reader *rd);
/* Waits until its thread is inside a read call. */
void reader_await(struct reader *rd);

/* A thread that writes one message. */
struct writer_thread {
    pthread_t thread;
    tws_conn *conn;
    const void *data;
    size_t len;
    _Atomic bool done;
    tws_err err;
};
void writer_thread_start(struct writer_thread *w, tws_conn *c, const void *data, size_t len);
tws_err writer_thread_join(struct writer_thread *w);
/* Waits until some thread waits for the peer to take data. */
void support_await_blocked_write(tws_conn *c);

/* Whether a thread waits for more than this connection, or reads no more than control frames. */
bool support_watched(tws_conn *c);
bool support_pumping(tws_conn *c);
/* Threads that wait for the reader's role. */
unsigned support_behind(tws_conn *c);

void support_thread(pthread_t *t, void *(*fn)(void *), void *arg);

/* ---- Bytes ---- */

/* A pattern in which a lost, doubled or exchanged byte shows. Letters, so that it is text too. */
void support_fill(void *buf, size_t len, unsigned seed);
bool support_filled(const void *buf, size_t len, unsigned seed);
void *support_alloc(size_t size);

#endif
