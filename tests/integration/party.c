#include "party.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "conn/conn.h"

static void sit(tws_conn *c, void *arg)
{
    struct party *p = arg;
    size_t number = strtoul(tws_request_path(tws_conn_request(c)) + 1, NULL, 10);
    int small = 32768;
    tws_message m;

    /* The system would take megabytes for a peer that does not read. */
    setsockopt(c->stream.sock.fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    atomic_store(&p->conns[number], tws_conn_ref(c));
    atomic_fetch_add(&p->arrived, 1);
    while (!tws_err_is_final(tws_read_message(c, &m))) {
    }
}

static void note(void *arg, size_t client, const uint8_t *data, size_t len)
{
    struct party *p = arg;
    struct party_log *l = &p->logs[client];
    struct party_note *n;

    if (l->count == l->cap) {
        l->cap = 2 * l->cap + 64;
        l->notes = realloc(l->notes, l->cap * sizeof *l->notes);
    }
    n = &l->notes[l->count];
    if (len >= sizeof *n)
        memcpy(n, data, sizeof *n);
    l->torn = l->torn || len < sizeof *n ||
              !support_filled(data + sizeof *n, len - sizeof *n, n->publisher + n->number);
    atomic_fetch_add(&l->count, 1);
}

void party_options(tws_server_options *opt, struct party *p)
{
    support_server_options(opt, sit, p);
    opt->upgrade.any_origin = true;
}

void party_open(struct party *p, size_t count, const tws_server_options *opt,
                const tws_hub_options *hub)
{
    tws_server_options o;
    struct crowd_options crowd = {
        .count = count, .receive_buffer = 32768, .on_message = note, .arg = p};

    memset(p, 0, sizeof *p);
    p->before = support_census();
    p->count = count;
    p->conns = support_alloc(count * sizeof *p->conns);
    p->logs = support_alloc(count * sizeof *p->logs);
    memset(p->conns, 0, count * sizeof *p->conns);
    memset(p->logs, 0, count * sizeof *p->logs);
    party_options(&o, p);
    support_server_start(&p->s, opt ? opt : &o);
    assert_ok(tws_hub_new(&p->hub, hub));
    crowd.address = p->s.address;
    p->crowd = crowd_new(&crowd);
    if (!p->crowd)
        fail_msg("a client could not connect: %s", strerror(errno));
    WAIT_FOR(atomic_load(&p->arrived) == count);
}

void party_end_server(struct party *p)
{
    tws_server_free(p->s.server);
    p->s.server = NULL;
}

void party_end_hub(struct party *p)
{
    tws_hub_free(p->hub);
    p->hub = NULL;
}

void party_close(struct party *p)
{
    crowd_free(p->crowd);
    for (size_t i = 0; i < p->count; i++)
        tws_conn_unref(p->conns[i]);
    party_end_server(p);
    party_end_hub(p);
    for (size_t i = 0; i < p->count; i++)
        free(p->logs[i].notes);
    free(p->conns);
    free(p->logs);
    support_assert_census(p->before);
}

void party_join_all(struct party *p, const char *room)
{
    for (size_t i = 0; i < p->count; i++)
        assert_ok(tws_hub_join(p->hub, p->conns[i], room));
}

tws_err party_publish(struct party *p, const char *room, struct party_note n, size_t len,
                      tws_publish_result *result)
{
    uint8_t data[8192];

    if (len < sizeof n || len > sizeof data)
        return TWS_ERR_ARGUMENT;
    memcpy(data, &n, sizeof n);
    support_fill(data + sizeof n, len - sizeof n, n.publisher + n.number);
    return tws_hub_publish_message(p->hub, room, TWS_BINARY, data, len, NULL, result);
}

bool party_complete(const struct party *p, size_t client, uint32_t publishers, uint32_t each)
{
    const struct party_log *l = &p->logs[client];
    uint32_t *next = calloc(publishers, sizeof *next);
    /* The count first: what was noted before it was raised can be looked at. */
    bool complete = next && atomic_load(&l->count) == (size_t)publishers * each && !l->torn;

    for (size_t i = 0; complete && i < l->count; i++) {
        struct party_note n = l->notes[i];

        complete = n.publisher < publishers && n.number == next[n.publisher]++;
    }
    free(next);
    return complete;
}

bool party_same_order(const struct party *p, size_t a, size_t b)
{
    const struct party_log *x = &p->logs[a], *y = &p->logs[b];

    return x->count == y->count && memcmp(x->notes, y->notes, x->count * sizeof *x->notes) == 0;
}
