/*
 * fleet: clients that stay, by tws_reconnect(). Each sends numbered messages to an echo, one at a
 * time with a pause between, and sends one again on its next connection if the answer did not come.
 * At a line on the standard input all leave; then it prints what each connection ended with.
 */
#include <tws/tws.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STACK = 256 * 1024, CODES = 5000, PATIENCE_MS = 20000 };

static struct {
    atomic_ulong connections, open, sent, again, acknowledged, wrong, refused;
    atomic_ulong ended[CODES]; /* connections, by close code */
    _Atomic int64_t longest;   /* ms without a connection */
} all;

static atomic_bool over;
static tws_ms pause_ms;
static const char *url;

struct client {
    pthread_t thread;
    unsigned index;
    unsigned long number; /* of the message whose answer is waited for */
    bool waits;           /* it has been sent, on an earlier connection */
    int64_t lost;         /* when the connection before ended */
    tws_cancel *cancel;
};

static int64_t now_ms(void)
{
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* One message there and back. False when the connection is over. */
static bool say(struct client *c, tws_conn *conn)
{
    char text[64];
    tws_message m;
    snprintf(text, sizeof text, "%u %lu", c->index, c->number);
    atomic_fetch_add(c->waits ? &all.again : &all.sent, 1);
    c->waits = true;
    if (tws_write_text(conn, text) != TWS_OK ||
        tws_read_message_within(conn, &m, PATIENCE_MS) != TWS_OK) {
        return false;
    }
    if (strcmp(m.data, text) != 0) {
        atomic_fetch_add(&all.wrong, 1);
    }
    atomic_fetch_add(&all.acknowledged, 1);
    c->number++;
    c->waits = false;
    return true;
}

static void note_end(tws_conn *conn)
{
    tws_error e;
    tws_conn_error(conn, &e);
    unsigned code = e.close_code < CODES ? e.close_code : CODES - 1;
    atomic_fetch_add(&all.ended[code], 1);
    if (code != TWS_CLOSE_GOING_AWAY) {
        fprintf(stderr, "fleet: %s\n", e.text);
    }
}

static void stay(tws_conn *conn, void *arg)
{
    struct client *c = arg;
    tws_message m;
    if (c->lost != 0 && now_ms() - c->lost > all.longest) {
        all.longest = now_ms() - c->lost;
    }
    atomic_fetch_add(&all.connections, 1);
    atomic_fetch_add(&all.open, 1);
    tws_err err = TWS_OK;
    while (!over && say(c, conn)) {
        /* The pause between two messages reads: a close that comes meanwhile is seen at once. */
        err = tws_read_message_within(conn, &m, pause_ms);
        if (err != TWS_ERR_TIMEOUT) {
            break;
        }
    }
    atomic_fetch_sub(&all.open, 1);
    c->lost = now_ms();
    if (over) {
        tws_cancel_now(c->cancel);
    } else {
        note_end(conn);
    }
}

static void count_refusal(const tws_error *e, uint32_t failures, tws_ms pause, void *arg)
{
    (void)pause;
    (void)arg;
    if (failures > 0 && !over) {
        atomic_fetch_add(&all.refused, 1);
        fprintf(stderr, "fleet: refused: %s\n", e->text);
    }
}

static void *live(void *arg)
{
    struct client *c = arg;
    tws_dial_options dial;
    tws_reconnect_options again;
    tws_dial_options_init(&dial);
    tws_reconnect_options_init(&again);
    dial.cancel = c->cancel;
    again.on_pause = count_refusal;
    tws_reconnect(url, &dial, &again, stay, c, NULL);
    return NULL;
}

static bool launch(struct client *clients, unsigned count)
{
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK);
    for (unsigned i = 0; i < count; i++) {
        clients[i].index = i;
        clients[i].cancel = tws_cancel_new();
        if (clients[i].cancel == NULL ||
            pthread_create(&clients[i].thread, &attr, live, &clients[i]) != 0) {
            return false;
        }
    }
    pthread_attr_destroy(&attr);
    return true;
}

/* One line of JSON. Of the messages, what is not acknowledged is what is waited for at the end. */
static void report(void)
{
    printf("{\"connections\": %lu, \"open\": %lu, \"sent\": %lu, \"again\": %lu, "
           "\"acknowledged\": %lu, \"wrong\": %lu, \"refused\": %lu, \"longest_ms\": %lld, "
           "\"ended\": {",
           all.connections, all.open, all.sent, all.again, all.acknowledged, all.wrong, all.refused,
           (long long)all.longest);
    const char *comma = "";
    for (unsigned i = 0; i < CODES; i++) {
        if (all.ended[i] > 0) {
            printf("%s\"%u\": %lu", comma, i, all.ended[i]);
            comma = ", ";
        }
    }
    printf("}}\n");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fputs("usage: fleet URL CLIENTS PAUSE_MS\n"
              "  \"?\" on the standard input: counts so far; its end: all leave\n",
              stderr);
        return 2;
    }
    url = argv[1];
    unsigned count = (unsigned)strtoul(argv[2], NULL, 10);
    pause_ms = strtol(argv[3], NULL, 10);
    struct client *clients = calloc(count, sizeof *clients);
    if (clients == NULL || !launch(clients, count)) {
        fputs("fleet: no memory\n", stderr);
        return 1;
    }
    char line[16];
    while (fgets(line, sizeof line, stdin) != NULL) {
        report();
    }
    over = true;
    for (unsigned i = 0; i < count; i++) {
        pthread_join(clients[i].thread, NULL);
        tws_cancel_free(clients[i].cancel);
    }
    report();
    free(clients);
    return 0;
}
