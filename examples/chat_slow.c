/* chat_slow.c: see chat_slow.h. */
#include "chat_slow.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static tws_ms now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (tws_ms)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

bool slow_policy(const char *name, tws_queue_policy *policy)
{
    static const struct {
        const char *name;
        tws_queue_policy policy;
    } policies[] = {{"close", TWS_QUEUE_CLOSE},
                    {"drop-newest", TWS_QUEUE_DROP_NEWEST},
                    {"drop-oldest", TWS_QUEUE_DROP_OLDEST}};
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        if (strcmp(name, policies[i].name) == 0) {
            *policy = policies[i].policy;
            return true;
        }
    }
    return false;
}

static bool open_gate(struct slow *s)
{
    s->since = now_ms();
    s->gate = NULL;
    return tws_next_writer(s->conn, TWS_TEXT, &s->gate) == TWS_OK;
}

bool slow_begin(struct slow *s, tws_conn *c, tws_queue_policy policy)
{
    tws_queue_options queue;
    tws_get_queue(c, &queue);
    queue.policy = policy;
    queue.max_messages = SLOW_MESSAGES;
    s->conn = c;
    tws_set_timeout(c, TWS_TIMEOUT_READ, SLOW_MS);
    return tws_set_queue(c, &queue) == TWS_OK && open_gate(s);
}

bool slow_look(struct slow *s)
{
    if (now_ms() - s->since < SLOW_MS) {
        return true;
    }
    char text[128];
    tws_queue_stats st;
    tws_queue_get_stats(s->conn, &st);
    int len = snprintf(text, sizeof text,
                       "{\"type\":\"slow\",\"waiting\":%" PRIu64 ",\"dropped\":%" PRIu64 "}",
                       st.messages, st.dropped_newest + st.dropped_oldest);
    tws_writer_write(s->gate, text, (size_t)len);
    tws_err err = tws_writer_close(s->gate);
    s->gate = NULL;
    /* What waited leaves now: the next message is begun behind it. */
    return err == TWS_OK && open_gate(s);
}

void slow_end(struct slow *s)
{
    if (s->gate != NULL) {
        tws_writer_close(s->gate);
        s->gate = NULL;
    }
}
