/*
 * json: questions and answers in JSON, with a library for it: jansson. libtws knows nothing of JSON; a
 * message is a string that ends with a zero byte, and that is all a JSON library wants.
 *
 *     {"id": 1, "op": "add", "a": 2, "b": 3}     {"id": 1, "result": 5}
 *     {"id": 2, "op": "fly"}                     {"id": 2, "error": "no such op"}
 *
 * Built only where jansson.h is (Debian: libjansson-dev).
 */
#include <tws/tws.h>

#include <jansson.h>

#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_MESSAGE = 65536, EXIT_USAGE = 2 };

static tws_server *server;

/* ---- The two functions that gorilla/websocket has as ReadJSON and WriteJSON ---- */

/* Reads one message. *value is NULL when it is no JSON, for which the connection need not end. */
static tws_err read_json(tws_conn *c, json_t **value)
{
    tws_message m;
    tws_err err = tws_read_message(c, &m);
    *value = err == TWS_OK ? json_loadb(m.data, m.len, JSON_REJECT_DUPLICATES, NULL) : NULL;
    return err;
}

/* Sends a value, and gives it up. */
static tws_err write_json(tws_conn *c, json_t *value)
{
    char *text = json_dumps(value, JSON_COMPACT);
    tws_err err = text != NULL ? tws_write_text(c, text) : TWS_ERR_MEMORY;
    free(text);
    json_decref(value);
    return err;
}

/* ---- What is asked ---- */

/* The id comes back as it was sent, so that a client may ask much at once. */
static json_t *answer(const json_t *question)
{
    json_t *id = json_object_get(question, "id");
    const char *op = json_string_value(json_object_get(question, "op"));
    json_t *a = json_object_get(question, "a"), *b = json_object_get(question, "b");
    const char *error = NULL;
    double result = 0;
    if (op == NULL) {
        error = "a question is an object with \"op\"";
    } else if (!json_is_number(a) || !json_is_number(b)) {
        error = "\"a\" and \"b\" are to be numbers";
    } else if (strcmp(op, "add") == 0) {
        result = json_number_value(a) + json_number_value(b);
    } else if (strcmp(op, "multiply") == 0) {
        result = json_number_value(a) * json_number_value(b);
    } else {
        error = "no such op";
    }
    if (error != NULL) {
        return json_pack("{s:O*, s:s}", "id", id, "error", error);
    }
    return json_pack("{s:O*, s:f}", "id", id, "result", result);
}

static void serve(tws_conn *c, void *arg)
{
    json_t *question;
    (void)arg;
    while (read_json(c, &question) == TWS_OK) {
        tws_err err = write_json(c, answer(question));
        json_decref(question);
        if (err != TWS_OK) {
            break;
        }
    }
}

/* ---- Start and end ---- */

static const char usage[] =
    "usage: json [--listen HOST:PORT] [--threads kernel|light]\n"
    "Answers {\"id\": 1, \"op\": \"add\", \"a\": 2, \"b\": 3}; knows add and "
    "multiply (default address: 127.0.0.1:9004).\n";

static void stop(int signal_number)
{
    (void)signal_number;
    tws_server_stop(server);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"listen", required_argument, NULL, 'l'},
                                            {"threads", required_argument, NULL, 't'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    const char *listen = "127.0.0.1:9004";
    tws_server_options opt;
    tws_error e;
    int option;
    tws_server_options_init(&opt);
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option == 'l') {
            listen = optarg;
        } else if (option == 't' && strcmp(optarg, "light") == 0) {
            opt.threads = TWS_THREADS_LIGHT;
        } else if (option != 't' || strcmp(optarg, "kernel") != 0) {
            fputs(usage, option == 'h' ? stdout : stderr);
            return option == 'h' ? EXIT_SUCCESS : EXIT_USAGE;
        }
    }
    opt.listen = &listen;
    opt.listen_count = 1;
    opt.on_connection = serve;
    opt.upgrade.conn.max_message = MAX_MESSAGE;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (tws_server_start(&server, &opt, &e) != TWS_OK) {
        fprintf(stderr, "json: %s\n", e.text);
        return EXIT_FAILURE;
    }
    char address[128];
    tws_server_address(server, 0, address, sizeof address);
    printf("listening on %s\n", address);
    signal(SIGINT, stop);
    signal(SIGTERM, stop);
    tws_server_wait(server);
    tws_server_drain(server, 5000);
    tws_server_free(server);
    return EXIT_SUCCESS;
}
