#ifndef LOAD_URL_H
#define LOAD_URL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

enum { URL_ADDRESSES = 8 };

struct address {
    struct sockaddr_storage sa;
    socklen_t len;
};

struct url {
    const char *text; /* as given */
    bool tls;
    char *host; /* without brackets */
    char *authority;
    char *target; /* path and query */
    char port[6];
    struct address addr[URL_ADDRESSES];
    unsigned addrs;
    _Atomic unsigned preferred; /* the address that answered; the first ones may have refused */
};

/* Splits ws:// and wss://. On failure returns -1 and points *why to a text that need not be freed. */
int url_parse(struct url *u, const char *text, const char **why);

/* Fills addr[]. On failure returns -1 and sets *why. */
int url_resolve(struct url *u, const char **why);

void url_clear(struct url *u);

#endif
