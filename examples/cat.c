/*
 * cat: a line client. Lines of standard input become messages, messages become lines.
 *
 * Two threads, as is natural: one reads the connection, the other reads standard input and writes.
 * `cat --help` lists the options; cat_options.c reads them.
 */
#include "cat_options.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* At the end of input, a server that answers pings in order gets so long to answer everything. */
enum { LAST_ANSWERS_MS = 2000, INPUT_STEP = 65536 };

struct session {
    const struct settings *s;
    tws_conn *conn;
    pthread_t input;
    int over[2]; /* a pipe: its writing end is closed when the connection has ended */
    pthread_mutex_t mu;
    pthread_cond_t answered; /* the last ping was */
    bool last_answer;        /* mu */
};

static const char last_ping[] = "cat: end of input";

/* ---- Standard input ---- */

struct input {
    char *text;
    size_t len, size; /* one byte more is there */
    bool over;        /* the connection is */
};

static void send_ping(struct session *x, const char *text)
{
    tws_err err = tws_ping(x->conn, text, strlen(text));
    if (err == TWS_ERR_CONTROL_SIZE) {
        fprintf(stderr, "%s: %s\n", program_invocation_short_name, tws_err_text(err));
    }
}

static void close_now(struct session *x, uint16_t code, const char *reason)
{
    tws_err err = tws_close_start(x->conn, code, reason);
    if (err != TWS_OK && !tws_err_is_final(err)) {
        fprintf(stderr, "%s: %s\n", program_invocation_short_name, tws_err_text(err));
    }
}

static void run_close(struct session *x, const char *rest)
{
    char *end;
    unsigned long code = strtoul(rest, &end, 10);
    if (end == rest) {
        code = x->s->close_code;
    }
    end += strspn(end, " ");
    close_now(x, code > UINT16_MAX ? 0xffff : (uint16_t)code, end[0] ? end : NULL);
}

/* What follows the word, when the line is that command. */
static const char *command(const char *line, const char *word)
{
    size_t len = strlen(word);
    if (strncmp(line, word, len) != 0 || (line[len] != '\0' && line[len] != ' ')) {
        return NULL;
    }
    return line[len] == ' ' ? line + len + 1 : line + len;
}

/* False: the connection is over. */
static bool send_line(struct session *x, const char *line, size_t len)
{
    tws_opcode opcode = x->s->binary ? TWS_BINARY : TWS_TEXT;
    const char *data = line, *rest;
    if (x->s->commands && (rest = command(line, "/ping")) != NULL) {
        send_ping(x, rest);
        return true;
    }
    if (x->s->commands && (rest = command(line, "/close")) != NULL) {
        run_close(x, rest);
        return true;
    }
    if (x->s->commands && (rest = command(line, "/text")) != NULL) {
        opcode = TWS_TEXT;
        data = rest;
    } else if (x->s->commands && (rest = command(line, "/binary")) != NULL) {
        opcode = TWS_BINARY;
        data = rest;
    }
    tws_err err = tws_write_message(x->conn, opcode, data, len - (size_t)(data - line));
    if (err != TWS_OK && !tws_err_is_final(err)) { /* this line was not fit to be sent */
        fprintf(stderr, "%s: %s\n", program_invocation_short_name, tws_err_text(err));
    }
    return !tws_err_is_final(err);
}

/* Most servers answer a ping after what came before it, so its pong means that all is answered. */
static void await_last_answers(struct session *x)
{
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += LAST_ANSWERS_MS / 1000;
    if (tws_ping(x->conn, last_ping, sizeof last_ping - 1) != TWS_OK) {
        return;
    }
    pthread_mutex_lock(&x->mu);
    while (!x->last_answer) {
        if (pthread_cond_timedwait(&x->answered, &x->mu, &end) != 0) {
            break;
        }
    }
    pthread_mutex_unlock(&x->mu);
}

/* Lines, as they become whole; those that are left stay. False: the connection is over. */
static bool send_lines(struct session *x, struct input *in, bool ended)
{
    char *begin = in->text;
    char *end;
    bool open = true;
    while (open && (end = memchr(begin, '\n', in->len)) != NULL) {
        *end = '\0';
        open = send_line(x, begin, (size_t)(end - begin));
        in->len -= (size_t)(end + 1 - begin);
        begin = end + 1;
    }
    memmove(in->text, begin, in->len);
    if (open && ended && in->len > 0) { /* the last line has no end */
        in->text[in->len] = '\0';
        open = send_line(x, in->text, in->len);
    }
    return open;
}

/* Waits for input, or for the end of the connection. Bytes; 0 at the end of either. */
static size_t read_some(struct session *x, struct input *in)
{
    struct pollfd fds[] = {{.fd = x->over[0], .events = POLLIN},
                           {.fd = STDIN_FILENO, .events = POLLIN}};
    if (in->size - in->len < INPUT_STEP) {
        char *larger = realloc(in->text, in->size + INPUT_STEP + 1);
        if (larger == NULL) {
            return 0;
        }
        in->text = larger;
        in->size += INPUT_STEP;
    }
    while (poll(fds, 2, -1) < 0 && errno == EINTR) {
    }
    in->over = fds[0].revents != 0;
    ssize_t n = in->over ? 0 : read(STDIN_FILENO, in->text + in->len, in->size - in->len);
    return n > 0 ? (size_t)n : 0;
}

static void *read_input(void *arg)
{
    struct session *x = arg;
    struct input in = {.text = NULL};
    size_t n;
    bool open;
    do {
        n = read_some(x, &in);
        in.len += n;
        open = in.text != NULL && !in.over && send_lines(x, &in, n == 0);
    } while (open && n > 0);
    free(in.text);
    if (open && !x->s->wait) {
        await_last_answers(x);
        close_now(x, x->s->close_code, x->s->close_reason);
    }
    return NULL;
}

/* ---- What comes ---- */

/* What the server chose, on a terminal: its control characters are no orders to that. */
static void show_text(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        fputc((c < ' ' && c != '\n' && c != '\t') || c == 127 ? '?' : c, stderr);
    }
}

static bool on_pong(tws_conn *c, const void *data, size_t len, void *arg)
{
    struct session *x = arg;
    if (len == sizeof last_ping - 1 && memcmp(data, last_ping, len) == 0) {
        pthread_mutex_lock(&x->mu);
        x->last_answer = true;
        pthread_cond_signal(&x->answered);
        pthread_mutex_unlock(&x->mu);
    } else if (x->s->commands) {
        fputs("* pong ", stderr);
        show_text(data, len);
        fputc('\n', stderr);
    } else if (x->s->verbose) { /* to a ping of the library's own */
        tws_stats st;
        tws_conn_stats(c, &st);
        if (st.rtt_us >= 0) { /* else nobody asked for it */
            fprintf(stderr, "* pong after %.3f ms\n", (double)st.rtt_us / 1000);
        }
    }
    return true;
}

/* Text ends with a line end; binary data stays as it is. False: nobody takes the output. */
static bool print_message(const tws_message *m)
{
    fwrite(m->data, 1, m->len, stdout);
    if (m->opcode == TWS_TEXT) {
        fputc('\n', stdout);
    }
    return fflush(stdout) == 0;
}

/* How it ended, and what the program ends with. */
static int show_end(const struct session *x)
{
    tws_error e;
    tws_conn_error(x->conn, &e);
    bool good = e.clean && (e.close_code == TWS_CLOSE_NORMAL ||
                            e.close_code == TWS_CLOSE_GOING_AWAY || e.cause == TWS_CAUSE_LOCAL);
    if (!e.clean) {
        fprintf(stderr, "%s: %s\n", program_invocation_short_name, e.text);
    } else if (x->s->verbose || !good || e.cause != TWS_CAUSE_LOCAL) {
        fprintf(stderr, "%s: closed by %s with %u%s", program_invocation_short_name,
                e.cause == TWS_CAUSE_LOCAL ? "this side" : "the server", e.close_code,
                e.reason[0] ? ": " : "");
        show_text(e.reason, strlen(e.reason));
        fputc('\n', stderr);
    }
    return good ? EXIT_SUCCESS : EXIT_ENDED_BADLY;
}

static int talk(struct session *x)
{
    tws_set_pong_handler(x->conn, on_pong, x);
    if (pipe(x->over) != 0 || pthread_create(&x->input, NULL, read_input, x) != 0) {
        perror("cat");
        return EXIT_ENDED_BADLY;
    }
    tws_message m;
    while (tws_read_message(x->conn, &m) == TWS_OK) {
        if (!print_message(&m) || x->s->one) {
            break;
        }
    }
    tws_close(x->conn, x->s->close_code, x->s->close_reason);
    pthread_mutex_lock(&x->mu); /* nothing more to wait for, and nothing to read for */
    x->last_answer = true;
    pthread_cond_signal(&x->answered);
    pthread_mutex_unlock(&x->mu);
    close(x->over[1]);
    pthread_join(x->input, NULL);
    return show_end(x);
}

/* ---- Connecting ---- */

/* Each line of a head, with an arrow. */
static void show_head(bool sent, const char *text, size_t len, void *arg)
{
    (void)len;
    (void)arg;
    for (const char *end; (end = strstr(text, "\r\n")) != NULL; text = end + 2) {
        fputs(sent ? "> " : "< ", stderr);
        show_text(text, (size_t)(end - text));
        fputc('\n', stderr);
    }
}

static void show_agreement(tws_conn *c)
{
    char address[128];
    tws_tls_info tls;
    tws_deflate_info deflate;
    tws_conn_peer_address(c, address, sizeof address);
    fprintf(stderr, "* connected to %s\n", address);
    if (tws_conn_tls(c, &tls)) {
        fprintf(stderr, "* TLS 1.%d, %s, certificate of %s%s\n", tls.version == TWS_TLS_1_3 ? 3 : 2,
                tls.cipher, tls.peer_subject, tls.verified ? "" : " (not verified)");
    }
    if (tws_conn_subprotocol(c) != NULL) {
        fprintf(stderr, "* subprotocol %s\n", tws_conn_subprotocol(c));
    }
    if (tws_conn_deflate(c, &deflate)) {
        fprintf(stderr, "* compressed, windows of 2^%d and 2^%d bytes\n",
                deflate.client_max_window_bits, deflate.server_max_window_bits);
    }
}

/* A refusal says more than its status. */
static void show_refusal(const tws_error *e, const tws_response *r)
{
    size_t len = 0;
    const char *body = r != NULL ? tws_response_body(r, &len) : "";
    fprintf(stderr, "%s: %s\n", program_invocation_short_name, e->text);
    if (len > 0) {
        show_text(body, len);
        if (body[len - 1] != '\n') {
            fputc('\n', stderr);
        }
    }
}

int main(int argc, char **argv)
{
    static struct settings s;
    static struct session x = {
        .s = &s, .mu = PTHREAD_MUTEX_INITIALIZER, .answered = PTHREAD_COND_INITIALIZER};
    tws_response *response;
    tws_error e;
    read_options(&s, argc, argv);
    if (tws_tls_client_new(&s.dial.tls, &s.tls, &e) != TWS_OK) {
        fprintf(stderr, "%s: %s\n", program_invocation_short_name, e.text);
        return EXIT_USAGE;
    }
    if (s.verbose) {
        s.dial.on_head = show_head;
    }
    tws_err err = tws_dial(&x.conn, s.url, &s.dial, &response, &e);
    tws_tls_unref(s.dial.tls);
    if (err != TWS_OK) {
        show_refusal(&e, response);
        tws_response_free(response);
        return err == TWS_ERR_ARGUMENT || err == TWS_ERR_ADDRESS ? EXIT_USAGE : EXIT_NOT_CONNECTED;
    }
    tws_response_free(response);
    if (s.verbose) {
        show_agreement(x.conn);
    }
    int status = talk(&x);
    tws_conn_unref(x.conn);
    return status;
}
