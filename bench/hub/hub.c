/*
 * A room with slow members, in one process: 1,000 receivers, of which 100 read nothing and 100 read
 * 1 KB a second, and publishers that keep to a schedule. Once without the slow ones, then with them
 * under each policy. Tells, per run: whether the healthy ones got everything in order, how long it
 * took, what became of the slow ones, how much was queued at most, and what was left behind.
 */
#include <dirent.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <tws/tws.h>

#include "../../tests/support/crowd.h"

struct settings {
    size_t healthy, mute, slow, size, publishers;
    uint32_t slow_rate;
    double rate, seconds;
    tws_threads threads;
    uint64_t max_bytes;
    int workers;
};

struct stamp {
    int64_t sent;
    uint32_t publisher, number;
};

/* Latencies in steps of 1/32 of a power of two of microseconds. */
enum { STEPS = 32, BUCKETS = 40 * STEPS };

struct receiver {
    uint32_t *next; /* by publisher */
    uint64_t wrong;
};

struct run {
    const struct settings *set;
    tws_server *server;
    tws_hub *hub;
    struct crowd *crowd;
    size_t count, slow; /* receivers; the first of them are slow */
    _Atomic(tws_conn *) *conns;
    _Atomic size_t arrived;
    struct receiver *receivers;
    uint64_t histogram[BUCKETS];
    int64_t begin, end;
    _Atomic uint64_t published, late, sent, queued, dropped, failed;
    _Atomic int64_t longest; /* publish, ns */
    uint64_t peak_queue, peak_writers, peak_rss;
};

static int64_t now_ns(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static void sleep_until(int64_t when)
{
    struct timespec ts = {.tv_sec = when / 1000000000, .tv_nsec = when % 1000000000};

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) == EINTR) {
    }
}

static unsigned count_entries(const char *path)
{
    DIR *dir = opendir(path);
    unsigned n = 0;

    while (dir && readdir(dir))
        n++;
    if (dir)
        closedir(dir);
    return n;
}

static uint64_t resident_kib(void)
{
    FILE *f = fopen("/proc/self/statm", "re");
    unsigned long whole, resident = 0;

    if (f && fscanf(f, "%lu %lu", &whole, &resident) != 2)
        resident = 0;
    if (f)
        fclose(f);
    return resident * 4;
}

/* ---- Receiving ---- */

static size_t bucket_of(int64_t us)
{
    uint64_t v = us < 1 ? 1 : (uint64_t)us;
    unsigned log = 63 - (unsigned)__builtin_clzll(v);
    size_t i = (size_t)log * STEPS + (size_t)((v - (UINT64_C(1) << log)) * STEPS >> log);

    return i < BUCKETS ? i : BUCKETS - 1;
}

static double percentile_ms(const struct run *r, double share)
{
    uint64_t total = 0, seen = 0;
    size_t i = 0;

    for (size_t k = 0; k < BUCKETS; k++)
        total += r->histogram[k];
    for (; i < BUCKETS - 1; i++) {
        seen += r->histogram[i];
        if ((double)seen >= share * (double)total)
            break;
    }
    /* The upper end of the step, in microseconds. */
    return ldexp(1 + (double)(i % STEPS + 1) / STEPS, (int)(i / STEPS)) / 1000;
}

static void hear(void *arg, size_t client, const uint8_t *data, size_t len)
{
    struct run *r = arg;
    struct receiver *one = &r->receivers[client];
    struct stamp s;

    if (len < sizeof s)
        return;
    memcpy(&s, data, sizeof s);
    if (client < r->slow) {
        one->wrong += s.number < one->next[s.publisher]; /* some may be missing */
        one->next[s.publisher] = s.number + 1;
        return;
    }
    one->wrong += s.number != one->next[s.publisher];
    one->next[s.publisher] = s.number + 1;
    r->histogram[bucket_of((now_ns() - s.sent) / 1000)]++;
}

static void sit(tws_conn *c, void *arg)
{
    struct run *r = arg;
    size_t number = strtoul(tws_request_path(tws_conn_request(c)) + 1, NULL, 10);
    tws_message m;

    if (number >= r->count)
        return;
    atomic_store(&r->conns[number], tws_conn_ref(c));
    tws_hub_join(r->hub, c, "room");
    atomic_fetch_add(&r->arrived, 1);
    while (!tws_err_is_final(tws_read_message(c, &m))) {
    }
}

/* ---- Publishing ---- */

struct publisher {
    pthread_t thread;
    struct run *run;
    uint32_t number;
};

static void publish_one(struct run *r, uint8_t *data, struct stamp s)
{
    tws_publish_result result;
    int64_t took;

    s.sent = now_ns();
    memcpy(data, &s, sizeof s);
    tws_hub_publish_message(r->hub, "room", TWS_BINARY, data, r->set->size, NULL, &result);
    took = now_ns() - s.sent;
    atomic_fetch_add(&r->published, 1);
    atomic_fetch_add(&r->sent, result.sent);
    atomic_fetch_add(&r->queued, result.queued);
    atomic_fetch_add(&r->dropped, result.dropped);
    atomic_fetch_add(&r->failed, result.failed);
    if (took > atomic_load(&r->longest))
        atomic_store(&r->longest, took);
}

static void *publish(void *arg)
{
    struct publisher *p = arg;
    struct run *r = p->run;
    double step = 1e9 * (double)r->set->publishers / r->set->rate;
    uint32_t count = (uint32_t)(r->set->seconds * 1e9 / step);
    uint8_t *data = calloc(1, r->set->size);

    for (uint32_t i = 0; data && i < count; i++) {
        int64_t due =
            r->begin + (int64_t)(step * (i + (double)p->number / (double)r->set->publishers));

        if (now_ns() > due + 100000000)
            atomic_fetch_add(&r->late, 1); /* the machine cannot keep up with the rate */
        else
            sleep_until(due);
        publish_one(r, data, (struct stamp){0, p->number, i});
    }
    free(data);
    return NULL;
}

static void watch(struct run *r)
{
    tws_server_stats st;

    tws_server_get_stats(r->server, &st);
    if (st.queue_bytes > r->peak_queue)
        r->peak_queue = st.queue_bytes;
    if (st.writers > r->peak_writers)
        r->peak_writers = st.writers;
    if (resident_kib() > r->peak_rss)
        r->peak_rss = resident_kib();
}

static void publish_all(struct run *r)
{
    size_t n = r->set->publishers;
    struct publisher *p = calloc(n, sizeof *p);
    uint64_t all = (uint64_t)(r->set->rate * r->set->seconds / (double)n) * n;

    r->begin = now_ns() + 10000000;
    for (size_t i = 0; p && i < n; i++) {
        p[i] = (struct publisher){.run = r, .number = (uint32_t)i};
        if (pthread_create(&p[i].thread, NULL, publish, &p[i]) != 0)
            exit(EXIT_FAILURE);
    }
    while (atomic_load(&r->published) < all) {
        watch(r);
        sleep_until(now_ns() + 50000000);
    }
    for (size_t i = 0; p && i < n; i++)
        pthread_join(p[i].thread, NULL);
    r->end = now_ns();
    free(p);
}

/* Until the healthy ones have everything, or for ten seconds. */
static size_t await_healthy(struct run *r)
{
    int64_t end = now_ns() + INT64_C(10000000000);
    size_t whole = 0;

    while (whole < r->count - r->slow && now_ns() < end) {
        sleep_until(now_ns() + 50000000);
        whole = 0;
        for (size_t i = r->slow; i < r->count; i++)
            whole += crowd_look(r->crowd, i).messages == atomic_load(&r->published);
    }
    return whole;
}

/* ---- A run ---- */

static void start(struct run *r, const struct settings *set, bool slow, tws_queue_policy policy)
{
    static const char *const listen[] = {"127.0.0.1:0"};
    struct crowd_options crowd = {.on_message = hear, .arg = r, .receive_buffer = 65536};
    tws_server_options opt;
    tws_hub_options hub;
    char address[64];

    memset(r, 0, sizeof *r);
    r->set = set;
    r->slow = slow ? set->mute + set->slow : 0;
    r->count = set->healthy + r->slow;
    r->conns = calloc(r->count, sizeof *r->conns);
    r->receivers = calloc(r->count, sizeof *r->receivers);
    for (size_t i = 0; i < r->count; i++)
        r->receivers[i].next = calloc(set->publishers, sizeof(uint32_t));
    tws_server_options_init(&opt);
    opt.listen = listen;
    opt.listen_count = 1;
    opt.on_connection = sit;
    opt.arg = r;
    opt.threads = set->threads;
    opt.upgrade.conn.queue.policy = policy;
    opt.upgrade.conn.queue.max_bytes = set->max_bytes;
    opt.upgrade.conn.ping_interval = 0; /* the raw clients do not answer pings */
    tws_hub_options_init(&hub);
    hub.workers = set->workers;
    if (tws_hub_new(&r->hub, &hub) || tws_server_start(&r->server, &opt, NULL))
        exit(EXIT_FAILURE);
    tws_server_address(r->server, 0, address, sizeof address);
    crowd.address = address;
    crowd.count = r->count;
    r->crowd = crowd_new(&crowd);
    if (!r->crowd) {
        perror("hub: a client could not connect");
        exit(EXIT_FAILURE);
    }
    while (atomic_load(&r->arrived) < r->count)
        sleep_until(now_ns() + 1000000);
    for (size_t i = 0; i < r->slow; i++)
        crowd_pace(r->crowd, i, i < set->mute ? 0 : set->slow_rate);
}

static void stop(struct run *r)
{
    crowd_free(r->crowd);
    tws_server_drain(r->server, 1000);
    for (size_t i = 0; i < r->count; i++) {
        tws_conn_unref(r->conns[i]);
        free(r->receivers[i].next);
    }
    tws_server_free(r->server);
    tws_hub_free(r->hub);
    free(r->conns);
    free(r->receivers);
}

static void report(struct run *r, const char *name, size_t whole)
{
    double seconds = (double)(r->end - r->begin) / 1e9;
    uint64_t wrong = 0, over = 0;
    tws_hub_stats st;

    for (size_t i = 0; i < r->count; i++) {
        tws_error e;

        wrong += r->receivers[i].wrong;
        tws_conn_error(r->conns[i], &e);
        over += e.code != TWS_OK;
    }
    tws_hub_get_stats(r->hub, &st);
    printf("| %s | %zu of %zu | %llu | %.0f | %.2f | %.2f | %.2f | %.1f | %llu | %llu | %llu | "
           "%.1f | %llu | %llu | %.0f %% |",
           name, whole, r->count - r->slow, (unsigned long long)wrong, (double)r->sent / seconds,
           percentile_ms(r, .5), percentile_ms(r, .99), percentile_ms(r, .999),
           (double)r->longest / 1e6, (unsigned long long)r->queued, (unsigned long long)r->dropped,
           (unsigned long long)over, (double)r->peak_queue / 1048576,
           (unsigned long long)r->peak_writers, (unsigned long long)r->peak_rss / 1024,
           100.0 * (double)st.together / (double)st.publishes);
    if (r->late > 0)
        printf(" %llu of %llu publishes late", (unsigned long long)r->late,
               (unsigned long long)r->published);
}

static void measure(const struct settings *set, const char *name, bool slow,
                    tws_queue_policy policy)
{
    struct run *r = malloc(sizeof *r);
    unsigned threads = count_entries("/proc/self/task"), fds = count_entries("/proc/self/fd");
    int64_t end;
    size_t whole;

    if (!r)
        exit(EXIT_FAILURE);
    start(r, set, slow, policy);
    publish_all(r);
    whole = await_healthy(r);
    watch(r);
    report(r, name, whole);
    stop(r);
    free(r);
    end = now_ns() + INT64_C(5000000000);
    while ((count_entries("/proc/self/task") > threads || count_entries("/proc/self/fd") > fds) &&
           now_ns() < end)
        sleep_until(now_ns() + 10000000);
    printf(" left behind: %d threads, %d descriptors\n",
           (int)count_entries("/proc/self/task") - (int)threads,
           (int)count_entries("/proc/self/fd") - (int)fds);
    fflush(stdout);
}

/* ---- Options ---- */

static const char usage[] =
    "usage: hub [OPTION]...\n"
    "  --healthy N --mute N --slow N   receivers (800, 100, 100)\n"
    "  --slow-rate BYTES               a slow one reads per second (1024)\n"
    "  --rate N --size BYTES           messages per second, and of what size (1000, 1000)\n"
    "  --seconds N --publishers N      (60, 4)\n"
    "  --max-bytes BYTES               of a queue (1048576)\n"
    "  --workers N                     of the hub (-1: its default)\n"
    "  --threads KIND                  kernel or light (kernel)\n";

static void read_options(struct settings *set, int argc, char **argv)
{
    static const struct option options[] = {
        {"healthy", required_argument, NULL, 'h'},   {"mute", required_argument, NULL, 'm'},
        {"slow", required_argument, NULL, 's'},      {"slow-rate", required_argument, NULL, 'R'},
        {"rate", required_argument, NULL, 'r'},      {"size", required_argument, NULL, 'z'},
        {"seconds", required_argument, NULL, 'd'},   {"publishers", required_argument, NULL, 'p'},
        {"max-bytes", required_argument, NULL, 'b'}, {"workers", required_argument, NULL, 'w'},
        {"threads", required_argument, NULL, 't'},   {NULL, 0, NULL, 0}};
    int o;

    while ((o = getopt_long(argc, argv, "", options, NULL)) != -1) {
        double n = optarg ? strtod(optarg, NULL) : 0;

        switch (o) {
        case 'h':
            set->healthy = (size_t)n;
            break;
        case 'm':
            set->mute = (size_t)n;
            break;
        case 's':
            set->slow = (size_t)n;
            break;
        case 'R':
            set->slow_rate = (uint32_t)n;
            break;
        case 'r':
            set->rate = n;
            break;
        case 'z':
            set->size = (size_t)n;
            break;
        case 'd':
            set->seconds = n;
            break;
        case 'p':
            set->publishers = (size_t)n;
            break;
        case 'b':
            set->max_bytes = (uint64_t)n;
            break;
        case 'w':
            set->workers = (int)n;
            break;
        case 't':
            set->threads = strcmp(optarg, "light") == 0 ? TWS_THREADS_LIGHT : TWS_THREADS_KERNEL;
            break;
        default:
            fputs(usage, stderr);
            exit(2);
        }
    }
}

int main(int argc, char **argv)
{
    struct settings set = {.healthy = 800,
                           .mute = 100,
                           .slow = 100,
                           .slow_rate = 1024,
                           .rate = 1000,
                           .size = 1000,
                           .seconds = 60,
                           .publishers = 4,
                           .max_bytes = 1 << 20,
                           .workers = -1};

    read_options(&set, argc, argv);
    if (set.size < sizeof(struct stamp) || set.publishers == 0)
        return 2;
    puts("| slow ones | healthy complete | out of order | delivered/s | p50 ms | p99 | p99.9 | "
         "longest publish | queued | dropped | ended | peak queue MiB | writers | RSS MiB | "
         "together | |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|");
    measure(&set, "none", false, TWS_QUEUE_CLOSE);
    measure(&set, "close", true, TWS_QUEUE_CLOSE);
    measure(&set, "drop newest", true, TWS_QUEUE_DROP_NEWEST);
    measure(&set, "drop oldest", true, TWS_QUEUE_DROP_OLDEST);
    measure(&set, "wait", true, TWS_QUEUE_WAIT);
    return EXIT_SUCCESS;
}
