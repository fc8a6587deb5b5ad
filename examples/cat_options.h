/* cat_options.h: what the command line of cat says. */
#ifndef CAT_OPTIONS_H
#define CAT_OPTIONS_H

#include <tws/tws.h>

enum { EXIT_ENDED_BADLY = 1, EXIT_USAGE = 2, EXIT_NOT_CONNECTED = 3, MAX_HEADERS = 64 };

struct settings {
    const char *url;
    tws_dial_options dial;
    tws_deflate_options deflate;
    tws_tls_client_options tls;
    tws_tls_certificate certificate;
    tws_header headers[MAX_HEADERS], proxy_headers[MAX_HEADERS];
    const char *subprotocols[MAX_HEADERS];
    bool binary; /* send lines as binary messages */
    bool wait;   /* at the end of input, wait for the server to close */
    bool one;    /* end after the first message */
    bool verbose;
    bool commands; /* lines that begin with a slash */
    uint16_t close_code;
    const char *close_reason;
};

/* Ends the program when the command line is wrong, or asks for help. */
void read_options(struct settings *s, int argc, char **argv);

#endif
