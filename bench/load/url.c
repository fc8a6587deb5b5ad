#include "url.h"

#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static char *copy(const char *s, size_t n)
{
    char *out = malloc(n + 1);
    if (out != NULL) {
        memcpy(out, s, n);
        out[n] = '\0';
    }
    return out;
}

static int fail(const char **why, const char *text)
{
    *why = text;
    return -1;
}

static int parse_port(struct url *u, const char *s, size_t n, const char **why)
{
    unsigned long port = 0;
    if (n == 0 || n > 5)
        return fail(why, "the port is not a number from 1 to 65535");
    for (size_t i = 0; i < n; i++) {
        if (s[i] < '0' || s[i] > '9')
            return fail(why, "the port is not a number from 1 to 65535");
        port = port * 10 + (unsigned long)(s[i] - '0');
    }
    if (port < 1 || port > 65535)
        return fail(why, "the port is not a number from 1 to 65535");
    snprintf(u->port, sizeof u->port, "%lu", port);
    return 0;
}

/* Splits "host", "host:port", "[v6]" and "[v6]:port". */
static int parse_authority(struct url *u, const char *s, size_t n, const char **why)
{
    const char *host = s, *colon;
    size_t host_len;
    if (n > 0 && s[0] == '[') {
        const char *end = memchr(s, ']', n);
        if (end == NULL)
            return fail(why, "the address has '[' without ']'");
        host = s + 1;
        host_len = (size_t)(end - host);
        colon = end + 1 < s + n ? end + 1 : NULL;
        if (colon != NULL && *colon != ':')
            return fail(why, "there is something between ']' and the port");
    } else {
        colon = memchr(s, ':', n);
        host_len = colon != NULL ? (size_t)(colon - s) : n;
    }
    if (host_len == 0)
        return fail(why, "there is no host");
    if (memchr(s, '@', n) != NULL)
        return fail(why, "user names in the address are not supported");
    snprintf(u->port, sizeof u->port, "%s", u->tls ? "443" : "80");
    if (colon != NULL && parse_port(u, colon + 1, n - (size_t)(colon + 1 - s), why) != 0)
        return -1;
    u->host = copy(host, host_len);
    u->authority = copy(s, n);
    return u->host != NULL && u->authority != NULL ? 0 : fail(why, "out of memory");
}

int url_parse(struct url *u, const char *text, const char **why)
{
    *u = (struct url){.text = text};
    const char *s;
    if (strncasecmp(text, "ws://", 5) == 0) {
        s = text + 5;
    } else if (strncasecmp(text, "wss://", 6) == 0) {
        u->tls = true;
        s = text + 6;
    } else {
        return fail(why, "it must begin with ws:// or wss://");
    }
    for (const char *p = s; *p != '\0'; p++)
        if ((unsigned char)*p <= ' ' || *p == 0x7f || *p == '#')
            return fail(why, "it holds a blank, a control character or a fragment");
    size_t n = strcspn(s, "/?");
    if (parse_authority(u, s, n, why) != 0)
        return -1;
    const char *rest = s + n;
    size_t len = strlen(rest);
    u->target = malloc(len + 2);
    if (u->target == NULL)
        return fail(why, "out of memory");
    snprintf(u->target, len + 2, "%s%s", *rest == '/' ? "" : "/", rest);
    return 0;
}

int url_resolve(struct url *u, const char **why)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_family = AF_UNSPEC};
    struct addrinfo *list = NULL;
    int rc = getaddrinfo(u->host, u->port, &hints, &list);
    if (rc != 0)
        return fail(why, gai_strerror(rc));
    for (struct addrinfo *a = list; a != NULL && u->addrs < URL_ADDRESSES; a = a->ai_next) {
        if (a->ai_addrlen > sizeof u->addr[0].sa)
            continue;
        memcpy(&u->addr[u->addrs].sa, a->ai_addr, a->ai_addrlen);
        u->addr[u->addrs++].len = a->ai_addrlen;
    }
    freeaddrinfo(list);
    return u->addrs != 0 ? 0 : fail(why, "no usable address");
}

void url_clear(struct url *u)
{
    free(u->host);
    free(u->authority);
    free(u->target);
    *u = (struct url){.text = NULL};
}
