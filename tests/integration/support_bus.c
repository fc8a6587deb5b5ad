#include "support_bus.h"

#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define SUBSCRIPTIONS 256
#define KIND_AT 5 /* in a message's head */
#define DATA 1

struct letter {
    struct letter *next;
    char subject[256];
    bool state, up; /* no message: the connection's state */
    size_t len;
    uint8_t bytes[];
};

struct bus_node {
    struct bus *bus;
    size_t number;
    tws_cluster *cluster;
    pthread_t thread;
    /* All below: bus->mu. */
    bool running, stop, keeps, up, cut, hold, busy;
    tws_err answer;
    unsigned refuse;
    char *subscriptions[SUBSCRIPTIONS];
    struct letter *head, **tail;
};

struct bus {
    pthread_mutex_t mu;
    pthread_cond_t changed;
    struct bus_node nodes[BUS_NODES];
    unsigned drop, duplicate, data;
    bool swap;
    struct letter *swapped, *last;
};

static struct letter *letter_new(const char *subject, const void *data, size_t len)
{
    struct letter *l = support_alloc(sizeof *l + len);

    memset(l, 0, sizeof *l);
    snprintf(l->subject, sizeof l->subject, "%s", subject);
    l->len = len;
    if (len > 0)
        memcpy(l->bytes, data, len);
    return l;
}

static void put_locked(struct bus_node *n, struct letter *l)
{
    *n->tail = l;
    n->tail = &l->next;
    pthread_cond_broadcast(&n->bus->changed);
}

static void empty_locked(struct bus_node *n)
{
    struct letter **at = &n->head;

    while (*at) {
        struct letter *l = *at;

        if (l->state) { /* what was told of the connection still counts */
            at = &l->next;
            continue;
        }
        *at = l->next;
        free(l);
    }
    n->tail = at;
}

/* ---- The node's thread ---- */

static void hand_over(struct bus_node *n, const struct letter *l)
{
    if (!l->state)
        tws_broker_received(n->cluster, l->subject, l->bytes, l->len);
    else if (l->up)
        tws_broker_up(n->cluster, n->keeps, "the bus");
    else
        tws_broker_down(n->cluster, "the bus");
}

static void *run(void *arg)
{
    struct bus_node *n = arg;
    struct bus *b = n->bus;

    pthread_mutex_lock(&b->mu);
    while (!n->stop) {
        struct letter *l = n->head;

        if (!l || n->hold) {
            pthread_cond_wait(&b->changed, &b->mu);
            continue;
        }
        n->head = l->next;
        if (!n->head)
            n->tail = &n->head;
        n->busy = true;
        pthread_mutex_unlock(&b->mu);
        hand_over(n, l);
        free(l);
        pthread_mutex_lock(&b->mu);
        n->busy = false;
    }
    pthread_mutex_unlock(&b->mu);
    return NULL;
}

/* ---- The adapter ---- */

static tws_err node_start(void *state, tws_cluster *c, tws_error *error)
{
    struct bus_node *n = state;

    (void)error;
    if (n->answer == TWS_ERR_SYSTEM)
        return TWS_ERR_SYSTEM;
    n->cluster = c;
    n->stop = false;
    n->running = pthread_create(&n->thread, NULL, run, n) == 0;
    return n->running ? TWS_OK : TWS_ERR_SYSTEM;
}

static void forget_locked(struct bus_node *n)
{
    for (size_t i = 0; i < SUBSCRIPTIONS; i++) {
        free(n->subscriptions[i]);
        n->subscriptions[i] = NULL;
    }
}

static void node_stop(void *state)
{
    struct bus_node *n = state;

    pthread_mutex_lock(&n->bus->mu);
    n->stop = true;
    pthread_cond_broadcast(&n->bus->changed);
    pthread_mutex_unlock(&n->bus->mu);
    pthread_join(n->thread, NULL);
    pthread_mutex_lock(&n->bus->mu);
    n->up = n->running = false;
    forget_locked(n);
    pthread_mutex_unlock(&n->bus->mu);
}

static char **find_locked(struct bus_node *n, const char *subject)
{
    for (size_t i = 0; i < SUBSCRIPTIONS; i++)
        if (n->subscriptions[i] && strcmp(n->subscriptions[i], subject) == 0)
            return &n->subscriptions[i];
    return NULL;
}

static tws_err node_subscribe(void *state, const char *subject)
{
    struct bus_node *n = state;
    tws_err err = TWS_ERR_MEMORY;

    pthread_mutex_lock(&n->bus->mu);
    if (n->refuse > 0) {
        n->refuse--;
        pthread_mutex_unlock(&n->bus->mu);
        return TWS_ERR_NETWORK;
    }
    if (find_locked(n, subject))
        err = TWS_OK;
    for (size_t i = 0; err && i < SUBSCRIPTIONS; i++) {
        if (n->subscriptions[i])
            continue;
        n->subscriptions[i] = strdup(subject);
        err = TWS_OK;
    }
    pthread_mutex_unlock(&n->bus->mu);
    return err;
}

static void node_unsubscribe(void *state, const char *subject)
{
    struct bus_node *n = state;
    char **at;

    pthread_mutex_lock(&n->bus->mu);
    at = find_locked(n, subject);
    if (at) {
        free(*at);
        *at = NULL;
    }
    pthread_mutex_unlock(&n->bus->mu);
}

/* Once for each subscription, as real brokers do. */
static void spread_locked(struct bus *b, const struct bus_node *from, const struct letter *l)
{
    for (size_t i = 0; i < BUS_NODES; i++) {
        struct bus_node *to = &b->nodes[i];

        if (to == from || !to->up || to->cut)
            continue;
        for (size_t s = 0; s < SUBSCRIPTIONS; s++)
            if (to->subscriptions[s] && strcmp(to->subscriptions[s], l->subject) == 0)
                put_locked(to, letter_new(l->subject, l->bytes, l->len));
    }
}

static void data_locked(struct bus *b, const struct bus_node *from, struct letter *l)
{
    free(b->last);
    b->last = letter_new(l->subject, l->bytes, l->len);
    b->data++;
    if (b->drop > 0) {
        b->drop--;
        free(l);
        return;
    }
    if (b->swap) {
        b->swap = false;
        b->swapped = l;
        return;
    }
    spread_locked(b, from, l);
    if (b->duplicate > 0) {
        b->duplicate--;
        spread_locked(b, from, l);
    }
    if (b->swapped)
        spread_locked(b, from, b->swapped);
    free(b->swapped);
    b->swapped = NULL;
    free(l);
}

static tws_err node_publish(void *state, const char *subject, const void *data, size_t len,
                            tws_ms ms)
{
    struct bus_node *n = state;
    struct letter *l;
    tws_err err;

    (void)ms;
    pthread_mutex_lock(&n->bus->mu);
    err = n->answer ? n->answer : n->up ? TWS_OK : TWS_ERR_CLOSED;
    if (!err && !n->cut) {
        l = letter_new(subject, data, len);
        if (len > KIND_AT && l->bytes[KIND_AT] == DATA) {
            data_locked(n->bus, n, l);
        } else {
            spread_locked(n->bus, n, l);
            free(l);
        }
    }
    pthread_mutex_unlock(&n->bus->mu);
    if (err == TWS_ERR_TIMEOUT)
        support_pause_ms(1);
    return err;
}

static void node_look(void *state, tws_broker_stats *out)
{
    (void)state;
    out->pending_bytes = 7;
    out->pending_in = 5;
    out->dropped = 3;
    out->errors = 2;
}

static void node_release(void *state)
{
    struct bus_node *n = state;

    pthread_mutex_lock(&n->bus->mu);
    while (n->head) {
        struct letter *l = n->head;

        n->head = l->next;
        free(l);
    }
    n->tail = &n->head;
    pthread_mutex_unlock(&n->bus->mu);
}

/* ---- The bus ---- */

struct bus *bus_new(void)
{
    struct bus *b = support_alloc(sizeof *b);

    memset(b, 0, sizeof *b);
    pthread_mutex_init(&b->mu, NULL);
    pthread_cond_init(&b->changed, NULL);
    for (size_t i = 0; i < BUS_NODES; i++) {
        b->nodes[i].bus = b;
        b->nodes[i].number = i;
        b->nodes[i].tail = &b->nodes[i].head;
    }
    return b;
}

void bus_free(struct bus *b)
{
    free(b->swapped);
    free(b->last);
    pthread_cond_destroy(&b->changed);
    pthread_mutex_destroy(&b->mu);
    free(b);
}

void bus_open(struct bus *b, size_t node, bool keeps_subscriptions, tws_broker *out)
{
    tws_broker_init(out);
    out->name = "bus";
    out->state = &b->nodes[node];
    b->nodes[node].keeps = keeps_subscriptions;
    out->start = node_start;
    out->stop = node_stop;
    out->subscribe = node_subscribe;
    out->unsubscribe = node_unsubscribe;
    out->publish = node_publish;
    out->look = node_look;
    out->release = node_release;
}

static void tell_locked(struct bus_node *n, bool up)
{
    struct letter *l = letter_new("", NULL, 0);

    l->state = true;
    l->up = n->up = up;
    put_locked(n, l);
}

void bus_up(struct bus *b, size_t node)
{
    pthread_mutex_lock(&b->mu);
    tell_locked(&b->nodes[node], true);
    pthread_mutex_unlock(&b->mu);
}

void bus_down(struct bus *b, size_t node)
{
    struct bus_node *n = &b->nodes[node];

    pthread_mutex_lock(&b->mu);
    empty_locked(n);
    if (!n->keeps)
        forget_locked(n);
    tell_locked(n, false);
    pthread_mutex_unlock(&b->mu);
}

#define SETTER(name, type, field)                                                                  \
    void name(struct bus *b, size_t node, type value)                                              \
    {                                                                                              \
        pthread_mutex_lock(&b->mu);                                                                \
        b->nodes[node].field = value;                                                              \
        pthread_cond_broadcast(&b->changed);                                                       \
        pthread_mutex_unlock(&b->mu);                                                              \
    }
SETTER(bus_cut, bool, cut)
SETTER(bus_answer, tws_err, answer)
SETTER(bus_refuse_subscriptions, unsigned, refuse)
SETTER(bus_hold, bool, hold)

void bus_drop(struct bus *b, unsigned count)
{
    pthread_mutex_lock(&b->mu);
    b->drop = count;
    pthread_mutex_unlock(&b->mu);
}

void bus_duplicate(struct bus *b, unsigned count)
{
    pthread_mutex_lock(&b->mu);
    b->duplicate = count;
    pthread_mutex_unlock(&b->mu);
}

void bus_swap(struct bus *b)
{
    pthread_mutex_lock(&b->mu);
    b->swap = true;
    pthread_mutex_unlock(&b->mu);
}

void bus_inject(struct bus *b, const char *subject, const void *data, size_t len)
{
    struct letter *l = letter_new(subject, data, len);

    pthread_mutex_lock(&b->mu);
    spread_locked(b, NULL, l);
    pthread_mutex_unlock(&b->mu);
    free(l);
}

size_t bus_last(struct bus *b, void *buf, size_t size, char *subject, size_t subject_size)
{
    size_t len;

    pthread_mutex_lock(&b->mu);
    len = b->last ? b->last->len : 0;
    if (len > 0 && len <= size)
        memcpy(buf, b->last->bytes, len);
    snprintf(subject, subject_size, "%s", b->last ? b->last->subject : "");
    pthread_mutex_unlock(&b->mu);
    return len;
}

unsigned bus_subscribers(struct bus *b, const char *subject)
{
    unsigned count = 0;

    pthread_mutex_lock(&b->mu);
    for (size_t i = 0; i < BUS_NODES; i++)
        for (size_t s = 0; s < SUBSCRIPTIONS; s++)
            count +=
                b->nodes[i].subscriptions[s] && strcmp(b->nodes[i].subscriptions[s], subject) == 0;
    pthread_mutex_unlock(&b->mu);
    return count;
}

unsigned bus_subscriptions(struct bus *b, size_t node)
{
    unsigned count = 0;

    pthread_mutex_lock(&b->mu);
    for (size_t s = 0; s < SUBSCRIPTIONS; s++)
        count += b->nodes[node].subscriptions[s] != NULL;
    pthread_mutex_unlock(&b->mu);
    return count;
}

unsigned bus_data(struct bus *b)
{
    unsigned data;

    pthread_mutex_lock(&b->mu);
    data = b->data;
    pthread_mutex_unlock(&b->mu);
    return data;
}

bool bus_idle(struct bus *b)
{
    bool idle = true;

    pthread_mutex_lock(&b->mu);
    for (size_t i = 0; i < BUS_NODES; i++)
        idle = idle && !b->nodes[i].head && !b->nodes[i].busy;
    pthread_mutex_unlock(&b->mu);
    return idle;
}
