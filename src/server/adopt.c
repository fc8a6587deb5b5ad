/* Connections that were opened elsewhere, and get a thread of the server's. */
#include "server/server.h"

/* On the new thread's stack. */
struct adopted {
    struct task_park decided;
    bool go;
};

static void uncount(tws_server *s, const union net_peer *address)
{
    pthread_mutex_lock(&s->mu);
    s->handshaking--;
    pthread_mutex_unlock(&s->mu);
    server_forget_socket(s, address);
}

static void adopt_main(void *adoption)
{
    struct server_adoption *a = adoption; /* until `made` has been told */
    union net_peer address = a->address;
    struct server_peer p = {.server = a->server, .fd = -1};
    struct adopted t = {.go = false};
    tws_conn *c = a->make(a);

    task_park_init(&t.decided);
    a->conn = c;
    a->thread = &t;
    task_unpark(&a->made);
    if (c)
        task_park(&t.decided, TASK_FOREVER);
    if (!t.go) {
        if (c) {
            conn_disown(c);
            tws_conn_unref(c);
        }
        uncount(p.server, &address);
        return;
    }
    server_peer_link(&p);
    server_peer_opened(&p, c);
    server_peer_run(&p);
    server_forget_socket(p.server, &address);
}

const char *server_adopt(tws_server *s, struct server_adoption *a)
{
    struct server_refusal r = {.why = "the server is stopping"};
    bool fits;

    a->server = s;
    a->conn = NULL;
    task_park_init(&a->made);
    pthread_mutex_lock(&s->mu);
    fits = !s->draining && server_admit_locked(s, &a->address, &r);
    if (!fits && r.counter)
        ++*r.counter;
    pthread_mutex_unlock(&s->mu);
    if (!fits)
        return r.why;
    if (task_spawn(s->runtime, adopt_main, a) < 0) {
        uncount(s, &a->address);
        return "no thread";
    }
    task_park(&a->made, TASK_FOREVER);
    return a->conn ? NULL : "no memory or descriptor for the connection";
}

void server_adopt_decide(struct server_adoption *a, bool go)
{
    a->thread->go = go;
    task_unpark(&a->thread->decided);
}
