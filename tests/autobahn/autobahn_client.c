/*
 * autobahn_client: the library's client before the Autobahn testsuite's fuzzing server.
 *
 *     autobahn_client [--agent NAME] [--light] URL
 *
 * Asks for the number of cases, runs each by echoing what comes, and asks for the report. Ends with
 * 0 when every case could be dialled: what the referee thinks of them stands in its report.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tws/tws.h>

#define CASE_MS 120000

struct run {
    const char *url, *agent;
    tws_dial_options opt;
    bool light;
    int status; /* of the program */
};

static void complain(const char *what, const tws_error *e)
{
    fprintf(stderr, "autobahn_client: %s: %s\n", what,
            e->text[0] ? e->text : tws_err_text(e->code));
}

/* Dials URL/path. NULL when that fails, which is told. */
static tws_conn *dial(const struct run *r, const char *path)
{
    char url[1024];
    tws_conn *c;
    tws_error e;

    snprintf(url, sizeof url, "%s%s", r->url, path);
    if (tws_dial(&c, url, &r->opt, NULL, &e) != TWS_OK) {
        complain(url, &e);
        return NULL;
    }
    return c;
}

static int ask_count(const struct run *r)
{
    tws_conn *c = dial(r, "/getCaseCount");
    tws_message m;
    int count = -1;

    if (!c)
        return -1;
    if (tws_read_message(c, &m) == TWS_OK)
        count = (int)strtol(m.data, NULL, 10);
    while (tws_read_message(c, &m) == TWS_OK) {
    }
    tws_conn_unref(c);
    return count;
}

static bool run_case(const struct run *r, int number)
{
    char path[256];
    tws_conn *c;
    tws_message m;

    snprintf(path, sizeof path, "/runCase?case=%d&agent=%s", number, r->agent);
    c = dial(r, path);
    if (!c)
        return false;
    while (tws_read_message(c, &m) == TWS_OK)
        if (tws_write_message(c, m.opcode, m.data, m.len) != TWS_OK)
            break;
    tws_close(c, TWS_CLOSE_NORMAL, NULL);
    tws_conn_unref(c);
    return true;
}

static bool ask_report(const struct run *r)
{
    char path[256];
    tws_conn *c;
    tws_message m;

    snprintf(path, sizeof path, "/updateReports?agent=%s", r->agent);
    c = dial(r, path);
    if (!c)
        return false;
    while (tws_read_message(c, &m) == TWS_OK) {
    }
    tws_conn_unref(c);
    return true;
}

static void run_all(void *arg)
{
    struct run *r = arg;
    int count = ask_count(r);
    int failed = 0;

    r->status = 1;
    if (count < 0) {
        fprintf(stderr, "autobahn_client: the referee did not say how many cases there are\n");
        return;
    }
    printf("%d cases\n", count);
    for (int i = 1; i <= count; i++)
        failed += !run_case(r, i);
    if (ask_report(r) && failed == 0)
        r->status = 0;
    printf("%d cases run, %d could not be dialled\n", count, failed);
}

static int run_light(struct run *r)
{
    tws_group_options o;
    tws_group *g;

    tws_group_options_init(&o);
    o.threads = TWS_THREADS_LIGHT;
    if (tws_group_new(&g, &o) != TWS_OK)
        return 1;
    if (tws_group_spawn(g, run_all, r) == TWS_OK)
        tws_group_wait(g, 0);
    tws_group_free(g);
    return r->status;
}

int main(int argc, char **argv)
{
    struct run r = {.agent = "libtws", .status = 1};

    tws_deflate_options deflate;

    tws_dial_options_init(&r.opt);
    tws_deflate_options_init(&deflate);
    r.opt.deflate = &deflate;
    r.opt.conn.read_timeout = CASE_MS;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--light") == 0)
            r.light = true;
        else if (strcmp(argv[i], "--agent") == 0 && i + 1 < argc)
            r.agent = argv[++i];
        else if (argv[i][0] != '-' && !r.url)
            r.url = argv[i];
        else
            r.url = NULL, i = argc;
    }
    if (!r.url) {
        fprintf(stderr, "usage: autobahn_client [--agent NAME] [--light] URL\n");
        return 2;
    }
    if (r.light)
        return run_light(&r);
    run_all(&r);
    return r.status;
}
