/* Connected pairs: hub, queues, streams, files, waiting; and two servers between which one goes. */
#include "scene.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <tws/tws.h>

static bool pair_open(tws_conn **server, tws_conn **client, const tws_queue_options *queue)
{
    tws_pair_options opt;

    tws_pair_options_init(&opt);
    opt.allocator = fault_allocator();
    conn_times(&opt.server);
    conn_times(&opt.client);
    if (queue)
        opt.server.queue = *queue;
    if (!note(tws_pair(server, client, &opt)))
        return true;
    if (*server || *client)
        die("half a pair was made");
    return false;
}

/* What a fault has taken away is not waited for for long. */
static tws_ms patience(void)
{
    return fault_struck() && !fault_is_mild() ? 250 : SCENE_MS;
}

/* Both ends, from one thread. */
static void pair_close(tws_conn *server, tws_conn *client)
{
    tws_message m;

    if (server && client) {
        note(tws_close_start(server, 1000, NULL));
        while (tws_read_message_within(client, &m, patience()) == TWS_OK) {
        }
        while (tws_read_message_within(server, &m, patience()) == TWS_OK) {
        }
    }
    tws_conn_unref(server);
    tws_conn_unref(client);
}

/* ---- Queued messages ---- */

static _Atomic unsigned told;

static void on_told(tws_conn *c, tws_err result, void *arg)
{
    (void)c;
    (void)arg;
    if (result)
        note_loss();
    atomic_fetch_add(&told, 1);
}

/* What has come is what was sent, in order. What was dropped is not waited for for long. */
static unsigned read_all(tws_conn *c, unsigned expected)
{
    uint32_t n = 0, number, last = 0;
    tws_message m;

    while (n < expected && tws_read_message_within(c, &m, patience()) == TWS_OK) {
        if (m.len != 9000 || !support_filled(m.data + 4, m.len - 4, 1))
            die("a queued message came torn");
        memcpy(&number, m.data, sizeof number);
        if (n > 0 && number <= last)
            die("queued messages changed places");
        last = number;
        n++;
    }
    return n;
}

static void queue_many(void *unused)
{
    tws_conn *server = NULL, *client = NULL;
    unsigned accepted = 0;
    char data[9000];

    (void)unused;
    atomic_store(&told, 0);
    support_fill(data + 4, sizeof data - 4, 1);
    if (pair_open(&server, &client, NULL)) {
        for (unsigned i = 0; i < 80; i++) { /* more than fits into the socket */
            memcpy(data, &i, 4);
            accepted +=
                !note(tws_write_async(server, TWS_BINARY, data, sizeof data, on_told, NULL));
        }
        if (read_all(client, accepted) == accepted)
            note(tws_queue_wait(server, SCENE_MS));
        else
            note_loss();
    }
    pair_close(server, client);
    AWAIT(atomic_load(&told) == accepted);
}

void scene_queue(bool light)
{
    on_thread(light, queue_many, NULL);
}

/* ---- A hub ---- */

enum { MEMBERS = 3, POSTS = 40 };

static void hub_main(void *unused)
{
    tws_conn *server[MEMBERS] = {NULL}, *client[MEMBERS] = {NULL};
    unsigned expected[MEMBERS] = {0};
    tws_publish_result r;
    tws_hub_options opt;
    tws_hub *h = NULL;
    char data[9000];

    (void)unused;
    support_fill(data + 4, sizeof data - 4, 1);
    tws_hub_options_init(&opt);
    opt.allocator = fault_allocator();
    opt.spread = 1;
    opt.workers = 1;
    if (note(tws_hub_new(&h, &opt)))
        return;
    for (int i = 0; i < MEMBERS; i++)
        if (pair_open(&server[i], &client[i], NULL) && !note(tws_hub_join(h, server[i], "room")) &&
            !note(tws_hub_join(h, server[i], "another")))
            expected[i] = POSTS;
    for (unsigned n = 0; n < POSTS; n++) {
        memcpy(data, &n, 4);
        if (!note(tws_hub_publish_message(h, "room", TWS_BINARY, data, sizeof data, NULL, &r)) &&
            (r.failed || r.dropped))
            note_loss();
    }
    for (int i = 0; i < MEMBERS; i++)
        if (client[i] && read_all(client[i], expected[i]) < expected[i])
            note_loss();
    for (int i = 0; i < MEMBERS; i++)
        pair_close(server[i], client[i]);
    tws_hub_free(h);
}

void scene_hub(bool light)
{
    on_thread(light, hub_main, NULL);
}

/* ---- Streams, files, waiting ---- */

static void echo_stream(void *arg)
{
    tws_conn *c = arg;
    char buf[4096];
    tws_err err;
    size_t n;

    while ((err = tws_stream_read(c, buf, sizeof buf, &n)) == TWS_OK && n > 0)
        if (note(tws_stream_write(c, buf, n, NULL)))
            break;
    if (err && err != TWS_ERR_PEER_CLOSED)
        note(err);
    tws_close(c, 1000, NULL); /* the other side waits for that */
    tws_conn_unref(c);
}

static bool stream_expect(tws_conn *c, const char *data, size_t len)
{
    char buf[4096];

    for (size_t done = 0, n; done < len; done += n) {
        if (note(tws_stream_read(c, buf, sizeof buf < len - done ? sizeof buf : len - done, &n)))
            return false;
        if (n == 0) {
            note_loss();
            return false;
        }
        if (memcmp(buf, data + done, n) != 0)
            die("a stream came back torn");
    }
    return true;
}

enum { FILE_SIZE = 70000 };
static char file_data[FILE_SIZE];

static void stream_main(void *group)
{
    int fd = memfd_create("file", MFD_CLOEXEC);
    tws_conn *server = NULL, *client = NULL;
    tws_wait_item item = {.fd = -1};
    size_t ready;

    support_fill(file_data, FILE_SIZE, 2);
    if (fd < 0 || write(fd, file_data, FILE_SIZE) != FILE_SIZE)
        die("no file");
    if (pair_open(&server, &client, NULL)) {
        if (note(tws_group_spawn(group, echo_stream, tws_conn_ref(client))))
            tws_conn_unref(client);
        else if (!note(tws_ping_wait(server, "p", 1, SCENE_MS, NULL)) &&
                 !note(tws_stream_write(server, file_data, 100, NULL))) {
            item.conn = server;
            note(tws_wait_any(&item, 1, SCENE_MS, &ready));
            if (stream_expect(server, file_data, 100) &&
                !note(tws_write_file(server, TWS_BINARY, fd, 0, FILE_SIZE, 0)) &&
                stream_expect(server, file_data, FILE_SIZE) &&
                !note(tws_write_file(server, TWS_TEXT, fd, 0, 3000, 1000)))
                stream_expect(server, file_data, 3000);
        }
    }
    if (server)
        note(tws_close(server, 1000, NULL));
    tws_conn_unref(server);
    tws_conn_unref(client);
    close(fd);
}

void scene_stream(bool light)
{
    tws_group_options opt;
    tws_group *g;

    tws_group_options_init(&opt);
    opt.threads = light ? TWS_THREADS_LIGHT : TWS_THREADS_KERNEL;
    opt.carriers = light ? 1 : 0;
    opt.allocator = fault_allocator();
    if (note(tws_group_new(&g, &opt)))
        return;
    note(tws_group_spawn(g, stream_main, g));
    tws_group_free(g);
}

/* ---- From one server to another ---- */

static void *take_all(void *arg)
{
    void **both = arg;
    tws_error e;
    tws_err err;

    do {
        err = tws_handoff_serve(both[0], both[1], 0, &e);
        if (err != TWS_ERR_EOF)
            note_error(err, &e);
    } while (err == TWS_OK || err == TWS_ERR_REFUSED);
    return NULL;
}

static bool send_one(tws_conn *c, void *h)
{
    tws_error e;

    note_error(tws_handoff_send(h, c, "data", 4, SCENE_MS, &e), &e);
    return true;
}

static void hand_over(struct stand *from, struct stand *to)
{
    tws_handoff *h[2] = {NULL, NULL};
    void *both[2];
    pthread_t t;
    int fd[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd) != 0)
        die("no sockets");
    for (int i = 0; i < 2; i++)
        if (note(tws_handoff_new(&h[i], fd[i])))
            close(fd[i]);
    both[0] = h[0];
    both[1] = to->server;
    if (h[0] && h[1]) {
        support_thread(&t, take_all, both);
        tws_server_each(from->server, send_one, h[1]);
        tws_handoff_free(h[1]);
        pthread_join(t, NULL);
        h[1] = NULL;
    }
    tws_handoff_free(h[0]);
    tws_handoff_free(h[1]);
}

/* The client of the first server is the one beside of it: it goes on echoing wherever it is. */
void scene_handoff(bool light)
{
    tws_server_options opt;
    struct stand a, b;

    stand_options(&opt, light);
    opt.upgrade.conn.handoff = true;
    if (!stand_open(&a, &opt, true) || !stand_open(&b, &opt, true))
        die("a server does not start");
    hand_over(&a, &b);
    stand_echo(&b);
    tws_conn_unref(NULL);
    stand_close(&a);
    stand_close(&b);
}
