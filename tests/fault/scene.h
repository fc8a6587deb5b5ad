/*
 * scene.h: what is done while faults strike. A scene is a whole session of the library in this
 * process. It goes as far as it gets, notes how calls have failed, and gives back all it has.
 */
#ifndef TESTS_FAULT_SCENE_H
#define TESTS_FAULT_SCENE_H

#include "inject.h"

#include "support.h"

struct scene {
    const char *name;
    void (*run)(bool light);
    bool light;
};
extern const struct scene scenes[];
extern const size_t scene_count;

void scene_server(bool light);
void scene_events(bool light);
void scene_dial(bool light);
void scene_tls(bool light);
void scene_tls_wrong(bool light);
void scene_deflate(bool light);
void scene_takeover(bool light);
void scene_hub(bool light);
void scene_queue(bool light);
void scene_stream(bool light);
void scene_handoff(bool light);
void scene_cluster(bool light);
/* Certificates, before the first session. */
void scene_tls_prepare(void);

/* ---- What went wrong ---- */

/* Ends the process: that should never happen, whatever fails. */
void die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
/* A call has failed; a code that blames the wrong one ends the process. TWS_OK does nothing. */
tws_err note(tws_err err);
/* The same, and what was written about it. */
tws_err note_error(tws_err err, const tws_error *e);
/* Something did not come about. */
void note_loss(void);
unsigned notes(void);
void notes_clear(void);

/* ---- Threads and time ---- */

/* Every time limit of a scene: long for a machine that is busy, where nothing may go wrong. */
#define SCENE_MS (fault_is_mild() ? 10000 : 2500)

/* Runs it: on this thread, which takes signals, or on a light one. */
void on_thread(bool light, void (*fn)(void *arg), void *arg);
/* Waits for a condition that must come true. */
#define AWAIT(condition)                                                                           \
    do {                                                                                           \
        int64_t await_end_ = support_now_ms() + SUPPORT_HANG_MS;                                   \
        while (!(condition)) {                                                                     \
            if (support_now_ms() > await_end_)                                                     \
                die("never came true: %s", #condition);                                            \
            support_pause_ms(1);                                                                   \
        }                                                                                          \
    } while (0)

/* ---- Those beside ---- */

/* A server, with a client whose connection is spared and that goes on echoing. */
struct stand {
    tws_server *server;
    char address[160];
    struct client beside;
};
void stand_options(tws_server_options *opt, bool light);
/* Starts it; paused: without faults. False when that failed, and noted. */
bool stand_open(struct stand *s, const tws_server_options *opt, bool paused);
/* The one beside. */
void stand_echo(struct stand *s);
/* Sees that all is well without faults, and ends it under faults. */
void stand_close(struct stand *s);
void conn_times(tws_conn_options *opt);

#endif
