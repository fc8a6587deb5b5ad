/*
 * What a program outside of this tree does: finds the installed library, and echoes a message through
 * a server and a client of it. Prints the version. Compiles as C and as C++.
 *
 * WITHOUT_TLS, WITHOUT_DEFLATE: what the library was built without has to say so.
 */
#include <stdio.h>
#include <string.h>

#include <tws/tws.h>

static void echo(tws_conn *c, void *arg)
{
    tws_message m;

    (void)arg;
    while (tws_read_message(c, &m) == TWS_OK)
        if (tws_write_message(c, m.opcode, m.data, m.len) != TWS_OK)
            break;
}

static bool talk(const char *address)
{
    char url[96];
    tws_conn *c;
    tws_message m;
    tws_error e;
    bool ok;

    snprintf(url, sizeof url, "ws://%s/", address);
    if (tws_dial(&c, url, NULL, NULL, &e) != TWS_OK) {
        fprintf(stderr, "dial: %s\n", e.text);
        return false;
    }
    ok = tws_write_message(c, TWS_TEXT, "hello", 5) == TWS_OK &&
         tws_read_message(c, &m) == TWS_OK && m.len == 5 && memcmp(m.data, "hello", 5) == 0;
    tws_close(c, TWS_CLOSE_NORMAL, "");
    tws_conn_unref(c);
    return ok;
}

static bool refuses(const char *what, tws_err err, const tws_error *e)
{
    if (err == TWS_ERR_UNSUPPORTED && e->code == err && strstr(e->text, what))
        return true;
    fprintf(stderr, "%s: %s: %s\n", what, tws_err_name(err), e->text);
    return false;
}

/* What is not in the build is refused with its own error, and nothing else happens. */
static bool absent_parts(const char *address)
{
    bool ok = true;
    tws_error e;

    (void)address, (void)e, (void)refuses;
#ifdef WITHOUT_TLS
    char url[96];
    tws_conn *c;
    tws_tls *tls;
    tws_tls_certificate cert = {0};
    tws_tls_server_options t;

    snprintf(url, sizeof url, "wss://%s/", address);
    ok = refuses("no TLS", tws_dial(&c, url, NULL, NULL, &e), &e) && !c && ok;
    tws_tls_server_options_init(&t);
    t.certificates = &cert, t.certificate_count = 1;
    ok = refuses("no TLS", tws_tls_server_new(&tls, &t, &e), &e) && !tls && ok;
    ok = refuses("no TLS", tws_tls_client_new(&tls, NULL, &e), &e) && !tls && ok;
#endif
#ifdef WITHOUT_DEFLATE
    char plain[96];
    tws_conn *z;
    tws_server *s;
    tws_dial_options dial;
    tws_deflate_options deflate;
    tws_server_options opt;
    const char *listen = "127.0.0.1:0";

    tws_deflate_options_init(&deflate);
    tws_dial_options_init(&dial);
    dial.deflate = &deflate;
    snprintf(plain, sizeof plain, "ws://%s/", address);
    ok = refuses("no permessage-deflate", tws_dial(&z, plain, &dial, NULL, &e), &e) && !z && ok;
    tws_server_options_init(&opt);
    opt.listen = &listen, opt.listen_count = 1, opt.on_connection = echo;
    opt.upgrade.deflate = &deflate;
    ok = refuses("no permessage-deflate", tws_server_start(&s, &opt, &e), &e) && !s && ok;
#endif
    return ok;
}

int main(void)
{
    const char *listen = "127.0.0.1:0";
    tws_server_options opt;
    tws_server *server;
    tws_error e;
    char address[64];
    bool ok;

    if (strcmp(tws_version(), TWS_VERSION) != 0) {
        fprintf(stderr, "header %s, library %s\n", TWS_VERSION, tws_version());
        return 1;
    }
    tws_server_options_init(&opt);
    opt.listen = &listen;
    opt.listen_count = 1;
    opt.on_connection = echo;
    if (tws_server_start(&server, &opt, &e) != TWS_OK) {
        fprintf(stderr, "server: %s\n", e.text);
        return 1;
    }
    tws_server_address(server, 0, address, sizeof address);
    ok = talk(address) && absent_parts(address);
    tws_server_drain(server, 5000);
    tws_server_free(server);
    if (!ok)
        return 1;
    puts(tws_version());
    return 0;
}
