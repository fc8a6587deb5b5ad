/*
 * receiver: files of any size through constant memory, both ways.
 *
 *     receiver --listen 127.0.0.1:9006 [--save DIR] [--offer FILE]
 *     receiver --send FILE ws://127.0.0.1:9006/       a file to the receiver; "-": standard input
 *     receiver --fetch FILE ws://127.0.0.1:9006/get   the offered file from it; "-": standard output
 *
 * A message is never in memory as a whole: the reading side takes it in pieces (tws_next_reader()), the
 * writing side has the library send it from the file (tws_write_file()).
 */
#include <tws/tws.h>

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

enum { PIECE = 65536, FRAGMENT = 65536, PATH_SIZE = 4096, EXIT_USAGE = 2 };

static struct {
    const char *save;  /* folder; NULL: files are counted and dropped */
    const char *offer; /* file; NULL: none */
    uint64_t max;
    bool memory; /* say at the end how much was used */
} settings = {.max = (uint64_t)1 << 40};

static tws_server *server;
static long memory_at_rest;

/* ---- Memory, to show that it is constant ---- */

/* A line of /proc/self/status in KiB: VmRSS is what is resident now, VmHWM the most there was. */
static long memory_kib(const char *name)
{
    char line[128];
    long kib = 0;
    FILE *file = fopen("/proc/self/status", "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, name, strlen(name)) == 0) {
            kib = strtol(line + strlen(name) + 1, NULL, 10);
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return kib;
}

static void show_memory(void)
{
    if (settings.memory) {
        long more = memory_kib("VmHWM") - memory_at_rest; /* Linux counts roughly: it may be less */
        printf("memory: %ld KiB at rest, at most %ld KiB more\n", memory_at_rest,
               more > 0 ? more : 0);
    }
}

/* ---- One message, from a connection into a file ---- */

struct received {
    uint64_t bytes;
    unsigned long crc;
};

static bool write_all(int fd, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, data, len);
        if (n < 0 && errno != EINTR) {
            return false;
        }
        data += n > 0 ? n : 0;
        len -= n > 0 ? (size_t)n : 0;
    }
    return true;
}

/* Reads the message that tws_next_reader() has begun. fd below 0: it is only counted. */
static tws_err receive_into(tws_conn *c, int fd, struct received *r)
{
    char *buf = malloc(PIECE);
    tws_err err = buf != NULL ? TWS_OK : TWS_ERR_MEMORY;
    size_t n;
    r->bytes = 0;
    r->crc = crc32(0, NULL, 0);
    while (err == TWS_OK && (err = tws_reader_read(c, buf, PIECE, &n)) == TWS_OK && n > 0) {
        r->crc = crc32(r->crc, (const Bytef *)buf, (uInt)n);
        r->bytes += n;
        if (fd >= 0 && !write_all(fd, buf, n)) {
            fprintf(stderr, "receiver: %s\n", strerror(errno));
            err = TWS_ERR_SYSTEM;
        }
    }
    free(buf);
    return err;
}

/* ---- The server ---- */

/* Files get their name when they are whole. */
static tws_err receive_file(tws_conn *c, unsigned number, struct received *r)
{
    if (settings.save == NULL) {
        return receive_into(c, -1, r);
    }
    char part[PATH_SIZE], whole[PATH_SIZE];
    unsigned long long id = tws_conn_id(c);
    snprintf(part, sizeof part, "%s/%llu-%u.part", settings.save, id, number);
    snprintf(whole, sizeof whole, "%s/%llu-%u", settings.save, id, number);
    int fd = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) {
        fprintf(stderr, "receiver: %s: %s\n", part, strerror(errno));
        return TWS_ERR_SYSTEM;
    }
    tws_err err = receive_into(c, fd, r);
    if (close(fd) != 0 && err == TWS_OK) {
        err = TWS_ERR_SYSTEM;
    }
    if (err != TWS_OK) {
        unlink(part);
    } else if (rename(part, whole) != 0) {
        err = TWS_ERR_SYSTEM;
    }
    return err;
}

static void receive(tws_conn *c)
{
    tws_opcode opcode;
    struct received r;
    char text[64];
    for (unsigned number = 1; tws_next_reader(c, &opcode) == TWS_OK; number++) {
        tws_err err = receive_file(c, number, &r);
        if (err != TWS_OK) { /* the connection's end, or this side's trouble: then it is told */
            tws_close(c, TWS_CLOSE_INTERNAL_ERROR, "the file could not be kept");
            return;
        }
        snprintf(text, sizeof text, "%" PRIu64 " bytes, crc32 %08lx", r.bytes, r.crc);
        printf("%s\n", text);
        if (tws_write_text(c, text) != TWS_OK) {
            return;
        }
    }
}

static void give(tws_conn *c)
{
    int fd = open(settings.offer, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || tws_write_file(c, TWS_BINARY, fd, 0, TWS_FILE_REST, 0) != TWS_OK) {
        tws_close(c, TWS_CLOSE_INTERNAL_ERROR, "the file cannot be sent");
    }
    if (fd >= 0) {
        close(fd);
    }
}

static void serve(tws_conn *c, void *arg)
{
    (void)arg;
    if (settings.offer != NULL && strcmp(tws_request_path(tws_conn_request(c)), "/get") == 0) {
        give(c);
    } else {
        receive(c);
    }
}

static void stop(int signal_number)
{
    (void)signal_number;
    tws_server_stop(server);
}

static int run_server(const char *listen, tws_threads threads)
{
    tws_server_options opt;
    tws_error e;
    tws_server_options_init(&opt);
    opt.listen = &listen;
    opt.listen_count = 1;
    opt.on_connection = serve;
    opt.threads = threads;
    opt.upgrade.conn.max_message = settings.max;
    if (tws_server_start(&server, &opt, &e) != TWS_OK) {
        fprintf(stderr, "receiver: %s\n", e.text);
        return EXIT_FAILURE;
    }
    char address[128];
    tws_server_address(server, 0, address, sizeof address);
    printf("listening on %s\n", address);
    memory_at_rest = memory_kib("VmRSS");
    signal(SIGINT, stop);
    signal(SIGTERM, stop);
    tws_server_wait(server);
    tws_server_drain(server, 5000);
    tws_server_free(server);
    show_memory();
    return EXIT_SUCCESS;
}

/* ---- The client ---- */

static tws_err send_file(tws_conn *c, const char *name)
{
    int fd = strcmp(name, "-") == 0 ? STDIN_FILENO : open(name, O_RDONLY | O_CLOEXEC);
    tws_message m;
    tws_err err = TWS_ERR_SYSTEM;
    if (fd < 0) {
        fprintf(stderr, "receiver: %s: %s\n", name, strerror(errno));
        return err;
    }
    err = tws_write_file(c, TWS_BINARY, fd, 0, TWS_FILE_REST, FRAGMENT);
    if (err == TWS_OK) {
        err = tws_read_message(c, &m); /* what the receiver has counted */
    }
    if (err == TWS_OK) {
        printf("%s\n", m.data);
    }
    if (fd != STDIN_FILENO) {
        close(fd);
    }
    return err;
}

static tws_err fetch_file(tws_conn *c, const char *name)
{
    tws_opcode opcode;
    struct received r;
    int fd = strcmp(name, "-") == 0 ? STDOUT_FILENO
                                    : open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    tws_err err = TWS_ERR_SYSTEM;
    if (fd < 0) {
        fprintf(stderr, "receiver: %s: %s\n", name, strerror(errno));
        return err;
    }
    err = tws_next_reader(c, &opcode);
    if (err == TWS_OK) {
        err = receive_into(c, fd, &r);
    }
    if (fd != STDOUT_FILENO) {
        close(fd);
        if (err == TWS_OK) {
            printf("%" PRIu64 " bytes, crc32 %08lx\n", r.bytes, r.crc);
        }
    }
    return err;
}

static int run_client(const char *url, const char *name,
                      tws_err (*transfer)(tws_conn *, const char *))
{
    tws_conn *c;
    tws_error e;
    tws_dial_options dial;
    tws_dial_options_init(&dial);
    dial.conn.max_message = settings.max;
    if (tws_dial(&c, url, &dial, NULL, &e) != TWS_OK) {
        fprintf(stderr, "receiver: %s\n", e.text);
        return EXIT_FAILURE;
    }
    memory_at_rest = memory_kib("VmRSS");
    tws_err err = transfer(c, name);
    tws_close(c, TWS_CLOSE_NORMAL, NULL);
    if (err != TWS_OK) {
        tws_conn_error(c, &e);
        fprintf(stderr, "receiver: %s; %s\n", tws_err_text(err), e.text);
    }
    tws_conn_unref(c);
    show_memory();
    return err == TWS_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* ---- Start ---- */

static const char usage[] =
    "usage: receiver [--listen HOST:PORT] [--save DIR] [--offer FILE] [OPTION]...\n"
    "       receiver --send FILE URL\n"
    "       receiver --fetch FILE URL\n"
    "Receives and sends files of any size, each as one message, in constant memory.\n"
    "\n"
    "  --listen HOST:PORT  listen here (default 127.0.0.1:9006)\n"
    "  --save DIR          keep what comes in this folder (default: count it, and drop it)\n"
    "  --offer FILE        send this file to everybody who asks for the path /get\n"
    "  --max BYTES         largest file (default: 1 TiB)\n"
    "  --threads KIND      of the server: kernel (default) or light\n"
    "  --memory            say at the end how much memory was used\n"
    "  --help              print this and exit\n";

struct arguments {
    const char *listen, *send, *fetch;
    tws_threads threads;
};

static bool read_option(struct arguments *a, int option)
{
    char *end = "";
    switch (option) {
    case 'l':
        a->listen = optarg;
        break;
    case 's':
        a->send = optarg;
        break;
    case 'f':
        a->fetch = optarg;
        break;
    case 'd':
        settings.save = optarg;
        break;
    case 'o':
        settings.offer = optarg;
        break;
    case 'x':
        settings.max = strtoull(optarg, &end, 10);
        break;
    case 't':
        a->threads = strcmp(optarg, "light") == 0 ? TWS_THREADS_LIGHT : TWS_THREADS_KERNEL;
        return a->threads == TWS_THREADS_LIGHT || strcmp(optarg, "kernel") == 0;
    case 'm':
        settings.memory = true;
        break;
    case 'h':
        fputs(usage, stdout);
        exit(EXIT_SUCCESS);
    default:
        return false;
    }
    return *end == '\0' && settings.max > 0;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"listen", required_argument, NULL, 'l'},  {"send", required_argument, NULL, 's'},
        {"fetch", required_argument, NULL, 'f'},   {"save", required_argument, NULL, 'd'},
        {"offer", required_argument, NULL, 'o'},   {"max", required_argument, NULL, 'x'},
        {"threads", required_argument, NULL, 't'}, {"memory", no_argument, NULL, 'm'},
        {"help", no_argument, NULL, 'h'},          {NULL, 0, NULL, 0}};
    struct arguments a = {.listen = "127.0.0.1:9006"};
    int option;
    bool good = true;
    while (good && (option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        good = read_option(&a, option);
    }
    bool client = a.send != NULL || a.fetch != NULL;
    if (!good || argc - optind != (client ? 1 : 0) || (a.send != NULL && a.fetch != NULL)) {
        fputs(usage, stderr);
        return EXIT_USAGE;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!client) {
        return run_server(a.listen, a.threads);
    }
    return a.send != NULL ? run_client(argv[optind], a.send, send_file)
                          : run_client(argv[optind], a.fetch, fetch_file);
}
