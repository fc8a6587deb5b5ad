/* A proxy that follows a script, and an attempt to get through it. */
#ifndef TESTS_INTEGRATION_SUPPORT_PROXY_H
#define TESTS_INTEGRATION_SUPPORT_PROXY_H

#include "support.h"

#include "client/proxy.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* What the proxy does, one line a step. Bytes with their number, since SOCKS has zeros. */
struct step {
    enum { END, TAKE, SEND, DRIP, FLOOD, SILENCE } what;
    const char *bytes; /* of FLOOD: sent again and again */
    size_t len;        /* of FLOOD: bytes in all; of SILENCE: none */
};
#define BYTES(b) (b), sizeof(b) - 1

/* The heads that the client was shown. */
struct seen {
    char sent[2048], received[4096];
};

struct attempt {
    const char *proxy, *url;
    const tws_header *headers;
    size_t header_count;
    const struct sockaddr *address;
    tws_ms timeout;       /* 0: longer than any test */
    const char *leftover; /* what stands in the stream after success */
    struct seen *seen;
};

/* The attempt succeeds, and the proxy was asked what the script says. */
void assert_opens(const struct attempt *a, const struct step *script);
/* It fails with this result, a text that has `text` in it, and this HTTP status. */
void assert_refused(const struct attempt *a, const struct step *script, int result,
                    const char *text, int status);

#endif
