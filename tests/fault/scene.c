/* What scenes share. */
#include "scene.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static _Atomic unsigned noted;

void die(const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    vfprintf(stderr, format, ap);
    va_end(ap);
    fputc('\n', stderr);
    fflush(stderr);
    _exit(3);
}

/* Nobody has broken a rule or a limit, and nobody has asked for what cannot be. OpenSSL takes a lack of
 * its own memory for a bad certificate where it swallows it: that is let pass then, and only then. */
static bool blames(tws_err err)
{
    static const tws_err wrong[] = {TWS_ERR_ARGUMENT,   TWS_ERR_MESSAGE_SIZE, TWS_ERR_TEXT,
                                    TWS_ERR_CLOSE_CODE, TWS_ERR_BUSY,         TWS_ERR_CONTROL_SIZE,
                                    TWS_ERR_PROTOCOL,   TWS_ERR_UTF8,         TWS_ERR_TOO_BIG,
                                    TWS_ERR_FLOOD,      TWS_ERR_SLOW,         TWS_ERR_DEFLATE,
                                    TWS_ERR_CERTIFICATE};

    if (err == TWS_ERR_CERTIFICATE && fault_struck_openssl())
        return false;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (err == wrong[i])
            return true;
    return false;
}

tws_err note(tws_err err)
{
    if (blames(err) && !fault_everywhere())
        die("%s", tws_err_name(err));
    if (err)
        atomic_fetch_add(&noted, 1);
    if (err && fault_is_mild())
        fprintf(stderr, "%s\n", tws_err_name(err));
    return err;
}

tws_err note_error(tws_err err, const tws_error *e)
{
    if ((blames(err) && !fault_everywhere()) || (err && (e->code != err || !e->text[0])))
        die("%s: %s: %s", tws_err_name(err), tws_err_name(e->code), e->text);
    if (err && (fault_is_mild() || getenv("FAULT_VERBOSE")))
        fprintf(stderr, "%s: %s, errno %d\n", tws_err_name(err), e->text, e->sys_errno);
    return note(err);
}

void note_loss(void)
{
    atomic_fetch_add(&noted, 1);
}

unsigned notes(void)
{
    return atomic_load(&noted);
}

void notes_clear(void)
{
    atomic_store(&noted, 0);
}

/* ---- Threads ---- */

void on_thread(bool light, void (*fn)(void *arg), void *arg)
{
    tws_group_options opt;
    tws_group *g;

    if (!light) {
        fn(arg);
        return;
    }
    tws_group_options_init(&opt);
    opt.threads = TWS_THREADS_LIGHT;
    opt.carriers = 1;
    opt.allocator = fault_allocator();
    if (note(tws_group_new(&g, &opt)))
        return;
    note(tws_group_spawn(g, fn, arg));
    tws_group_free(g);
}

/* ---- Those beside ---- */

void conn_times(tws_conn_options *opt)
{
    opt->read_timeout = SCENE_MS;
    opt->write_timeout = SCENE_MS;
    opt->close_timeout = SCENE_MS;
}

void stand_options(tws_server_options *opt, bool light)
{
    static const char *const any_port[] = {"127.0.0.1:0"};

    tws_server_options_init(opt);
    opt->listen = any_port;
    opt->listen_count = 1;
    opt->threads = light ? TWS_THREADS_LIGHT : TWS_THREADS_KERNEL;
    opt->carriers = light ? 1 : 0;
    opt->on_connection = support_echo;
    opt->upgrade.allocator = fault_allocator();
    opt->upgrade.handshake_timeout = SCENE_MS;
    conn_times(&opt->upgrade.conn);
    opt->upgrade.conn.read_timeout = 0; /* the one beside may be silent for long */
    opt->upgrade.conn.ping_interval = 0;
}

/* Signals are not meant for the calls of the tests themselves. */
static sigset_t hold_signals(void)
{
    sigset_t set, old;

    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, &old);
    return old;
}

/* A plain client says something and hears it. */
static bool echo(struct client *c)
{
    struct client_frame f;
    uint8_t wire[64];

    return client_send_bytes(c->fd, wire,
                             client_frame(wire, CLIENT_FIN | CLIENT_TEXT, "beside", 6)) &&
           client_try_next(c, &f) == 1 && f.opcode == CLIENT_TEXT && f.len == 6 &&
           memcmp(f.data, "beside", 6) == 0;
}

bool stand_open(struct stand *s, const tws_server_options *opt, bool paused)
{
    sigset_t old;
    tws_error e;

    memset(s, 0, sizeof *s);
    s->beside.fd = -1;
    fault_pause(paused);
    if (note_error(tws_server_start(&s->server, opt, &e), &e)) {
        if (s->server)
            die("a server that did not start is there");
        return false;
    }
    fault_pause(true);
    tws_server_address(s->server, 0, s->address, sizeof s->address);
    if (!opt->tls) {
        old = hold_signals();
        if (client_upgrade(&s->beside, client_dial(s->address), NULL) != 101 || !echo(&s->beside))
            die("a first client is not served");
        pthread_sigmask(SIG_SETMASK, &old, NULL);
        fault_spare_open();
    }
    fault_pause(false);
    return true;
}

void stand_echo(struct stand *s)
{
    sigset_t old = hold_signals();

    if (s->beside.fd >= 0 && !echo(&s->beside) && !fault_everywhere())
        die("another connection was harmed");
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

void stand_close(struct stand *s)
{
    struct client c = {.fd = -1};
    sigset_t old;

    fault_pause(true);
    stand_echo(s);
    old = hold_signals();
    if (s->beside.fd >= 0) {
        if (client_upgrade(&c, client_dial(s->address), NULL) != 101 || !echo(&c))
            die("a new client is not served when the fault is over");
        client_close(&c);
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    fault_pause(false);
    tws_server_free(s->server);
    client_close(&s->beside);
}
