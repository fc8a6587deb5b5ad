/*
 * cluster_crowd: clients of some cluster_nodes, which look at all that they are sent. Shares no code
 * with the library.
 *
 * usage: cluster_crowd ROOMS COUNT ADDRESS...      COUNT clients of each address
 *
 * Says "connected". For each line of input it tells, of each server, room and publishing node, how many
 * messages the clients have got, and how many of these came twice or out of order:
 *
 *     got SERVER ROOM NODE LEAST MOST
 *     wrong SERVER COUNT           messages that were no such
 *     ended SERVER COUNT           clients that are no longer connected
 *     twice SERVER COUNT
 *     late SERVER COUNT            behind a later one
 *     time KIND P50 P99 MOST       microseconds from publish to client; local: published there
 *     told
 */
#include "cluster_note.h"
#include "support/crowd.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NODES 8
#define SLOTS 65536 /* of 100 us */

struct client {
    uint32_t last[NODES];
    _Atomic uint32_t count[NODES];
};

struct server {
    size_t number;
    struct crowd *crowd;
    struct client *clients;
    _Atomic uint64_t wrong, twice, late;
    _Atomic uint32_t times[2][SLOTS]; /* local, remote */
};

static size_t rooms, each;

static int64_t now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static void note(void *arg, size_t client, const uint8_t *data, size_t len)
{
    struct server *s = arg;
    struct client *c = &s->clients[client];
    struct cluster_note n;
    int64_t slot;

    if (len >= sizeof n)
        memcpy(&n, data, sizeof n);
    if (len < sizeof n || n.node >= NODES || n.room != client % rooms) {
        s->wrong++;
        return;
    }
    if (n.number <= c->last[n.node]) {
        *(n.number == c->last[n.node] ? &s->twice : &s->late) += 1;
        return;
    }
    c->last[n.node] = n.number;
    c->count[n.node]++;
    slot = (now_ns() - n.at) / 100000;
    s->times[n.node != s->number][slot < 0 ? 0 : slot >= SLOTS ? SLOTS - 1 : slot]++;
}

static void tell_counts(const struct server *s)
{
    size_t ended = 0;

    for (size_t room = 0; room < rooms; room++) {
        for (size_t node = 0; node < NODES; node++) {
            uint32_t least = UINT32_MAX, most = 0;

            for (size_t c = room; c < each; c += rooms) {
                uint32_t count = s->clients[c].count[node];

                least = count < least ? count : least;
                most = count > most ? count : most;
            }
            if (most > 0)
                printf("got %zu %zu %zu %u %u\n", s->number, room, node, least, most);
        }
    }
    for (size_t c = 0; c < each; c++)
        ended += crowd_look(s->crowd, c).end != CROWD_OPEN;
    printf("wrong %zu %llu\nended %zu %zu\ntwice %zu %llu\nlate %zu %llu\n", s->number,
           (unsigned long long)s->wrong, s->number, ended, s->number, (unsigned long long)s->twice,
           s->number, (unsigned long long)s->late);
}

static void tell_times(const struct server *all, size_t count, size_t kind)
{
    static uint64_t sum[SLOTS];
    uint64_t total = 0, seen = 0;
    size_t p50 = 0, p99 = 0, most = 0;

    memset(sum, 0, sizeof sum);
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < SLOTS; k++) {
            sum[k] += all[i].times[kind][k];
            total += all[i].times[kind][k];
        }
    for (size_t k = 0; k < SLOTS; k++) {
        seen += sum[k];
        if (sum[k] > 0)
            most = k;
        if (seen * 2 < total)
            p50 = k + 1;
        if (seen * 100 < total * 99)
            p99 = k + 1;
    }
    printf("time %s %zu %zu %zu\n", kind ? "remote" : "local", (p50 + 1) * 100, (p99 + 1) * 100,
           (most + 1) * 100);
}

int main(int argc, char **argv)
{
    size_t count = argc > 3 ? (size_t)argc - 3 : 0;
    struct server *all;
    char line[64];

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (count == 0 || count > NODES)
        return 2;
    rooms = strtoul(argv[1], NULL, 10);
    each = strtoul(argv[2], NULL, 10);
    all = calloc(count, sizeof *all);
    for (size_t i = 0; all && i < count; i++) {
        struct crowd_options opt = {
            .address = argv[3 + i], .count = each, .on_message = note, .arg = &all[i]};

        all[i].number = i;
        all[i].clients = calloc(each, sizeof *all[i].clients);
        all[i].crowd = all[i].clients ? crowd_new(&opt) : NULL;
        if (!all[i].crowd) {
            perror(argv[3 + i]);
            return 1;
        }
    }
    puts("connected");
    while (fgets(line, sizeof line, stdin)) {
        for (size_t i = 0; i < count; i++)
            tell_counts(&all[i]);
        tell_times(all, count, 0);
        tell_times(all, count, 1);
        puts("told");
    }
    for (size_t i = 0; i < count; i++) {
        crowd_free(all[i].crowd);
        free(all[i].clients);
    }
    free(all);
    return 0;
}
