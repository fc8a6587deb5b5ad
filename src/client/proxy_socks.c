/* Through a SOCKS5 proxy: RFC 1928, with user and password of RFC 1929. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>

#include "client/proxy.h"

enum {
    VERSION = 5,
    AUTH_VERSION = 1, /* RFC 1929 */
    METHOD_NONE = 0,
    METHOD_PASSWORD = 2,
    METHOD_REFUSED = 0xff,
    COMMAND_CONNECT = 1,
    REPLY_NOT_ALLOWED = 2,
    REPLY_NO_SUCH_COMMAND = 7,
    ADDRESS_IPV4 = 1,
    ADDRESS_NAME = 3,
    ADDRESS_IPV6 = 4,
    FIELD_MAX = 255 /* bytes of a name, a user, a password */
};

struct socks {
    struct net_stream *st;
    const struct proxy *p;
    const struct proxy_target *target;
    int64_t deadline;
    struct proxy_error *err;
};

/* Exactly n bytes, and none of those that follow: they may be the server's. */
static int receive(struct socks *s, uint8_t *buf, size_t n)
{
    while (n > 0) {
        ssize_t got = proxy_recv(s->st, buf, n, s->deadline, s->err);

        if (got < 0)
            return (int)got;
        buf += got;
        n -= (size_t)got;
    }
    return 0;
}

static int send_bytes(struct socks *s, const uint8_t *data, size_t n)
{
    return proxy_send(s->st, data, n, s->deadline, s->err);
}

static int not_socks(struct socks *s, unsigned first)
{
    return proxy_say(s->err, -EPROTO, "the proxy does not speak SOCKS5 (first byte 0x%02x)", first);
}

/* A length and as many bytes, percent-decoded. How many; 0: too long. */
static size_t put_field(uint8_t *out, struct wire_text text)
{
    size_t n = wire_url_decode(text, NULL, 0);

    if (n > FIELD_MAX)
        return 0;
    out[0] = (uint8_t)n;
    wire_url_decode(text, (char *)out + 1, n);
    return n + 1;
}

static int authenticate(struct socks *s)
{
    uint8_t message[1 + 2 * (1 + FIELD_MAX)] = {AUTH_VERSION}, answer[2] = {0};
    size_t user = put_field(message + 1, s->p->user);
    size_t password = user > 0 ? put_field(message + 1 + user, s->p->password) : 0;
    int r;

    if (password == 0)
        return proxy_say(s->err, -EINVAL, "user or password for the proxy has over %d bytes",
                         FIELD_MAX);
    r = send_bytes(s, message, 1 + user + password);
    if (r == 0)
        r = receive(s, answer, sizeof answer);
    if (r < 0)
        return r;
    if (answer[1] != 0)
        return proxy_say(s->err, -EPROTO, "the proxy did not accept user and password");
    return answer[0] == AUTH_VERSION ? 0 : not_socks(s, answer[0]);
}

static int greet(struct socks *s)
{
    uint8_t answer[2] = {0};
    const uint8_t with[] = {VERSION, 2, METHOD_NONE, METHOD_PASSWORD};
    const uint8_t without[] = {VERSION, 1, METHOD_NONE};
    int r = s->p->has_userinfo ? send_bytes(s, with, sizeof with)
                               : send_bytes(s, without, sizeof without);

    if (r == 0)
        r = receive(s, answer, 1);
    if (r < 0)
        return r;
    if (answer[0] != VERSION)
        return not_socks(s, answer[0]);
    r = receive(s, answer + 1, 1);
    if (r < 0)
        return r;
    if (answer[1] == METHOD_NONE)
        return 0;
    if (answer[1] == METHOD_PASSWORD && s->p->has_userinfo)
        return authenticate(s);
    if (answer[1] != METHOD_REFUSED)
        return proxy_say(s->err, -EPROTO, "the proxy chose an authentication method not offered");
    return proxy_say(s->err, -EPROTO,
                     s->p->has_userinfo ? "the proxy takes no user and password"
                                        : "the proxy wants authorisation, or refuses this client");
}

static size_t put_bytes(uint8_t *out, uint8_t type, const void *address, size_t len)
{
    out[0] = type;
    memcpy(out + 1, address, len);
    return 1 + len;
}

/* The target as type and address; what is an address by itself never travels as a name. Its
 * length; 0 when it cannot be written. */
static size_t put_target(uint8_t *out, const struct proxy_target *target)
{
    const struct wire_host *host = &target->url->host;
    const struct sockaddr *sa = target->address;
    unsigned char address[sizeof(struct in6_addr)];
    char name[FIELD_MAX + 1];

    if (host->name.len > FIELD_MAX)
        return 0;
    memcpy(name, host->name.at, host->name.len);
    name[host->name.len] = '\0';
    if (!host->ipv6 && inet_pton(AF_INET, name, address) == 1)
        return put_bytes(out, ADDRESS_IPV4, address, sizeof(struct in_addr));
    if (host->ipv6 && inet_pton(AF_INET6, name, address) == 1)
        return put_bytes(out, ADDRESS_IPV6, address, sizeof(struct in6_addr));
    if (sa == NULL) {
        out[0] = ADDRESS_NAME;
        out[1] = (uint8_t)host->name.len;
        memcpy(out + 2, host->name.at, host->name.len);
        return 2 + host->name.len;
    }
    if (sa->sa_family == AF_INET)
        return put_bytes(out, ADDRESS_IPV4, &((const struct sockaddr_in *)sa)->sin_addr,
                         sizeof(struct in_addr));
    if (sa->sa_family == AF_INET6)
        return put_bytes(out, ADDRESS_IPV6, &((const struct sockaddr_in6 *)sa)->sin6_addr,
                         sizeof(struct in6_addr));
    return 0;
}

static const char *reply_text(unsigned code)
{
    static const char *const texts[] = {
        [1] = "general failure",
        [REPLY_NOT_ALLOWED] = "not allowed by its rules",
        [3] = "network unreachable",
        [4] = "host unreachable or its name unknown",
        [5] = "connection refused",
        [6] = "connecting took too long",
        [REPLY_NO_SUCH_COMMAND] = "command not supported",
        [8] = "address type not supported",
    };

    return code > 0 && code < sizeof texts / sizeof texts[0] ? texts[code] : "unknown reply";
}

static int request(struct socks *s)
{
    uint8_t message[3 + 2 + FIELD_MAX + 2] = {VERSION, COMMAND_CONNECT, 0};
    size_t n = put_target(message + 3, s->target);

    if (n == 0)
        return proxy_say(s->err, -EINVAL, "the server's address cannot be told to a SOCKS proxy");
    n += 3;
    message[n++] = (uint8_t)(s->target->url->host.port >> 8);
    message[n++] = (uint8_t)(s->target->url->host.port & 0xff);
    return send_bytes(s, message, n);
}

/* The address that the proxy used, which says nothing to us. */
static int skip_address(struct socks *s, uint8_t type)
{
    uint8_t rest[FIELD_MAX + 2];
    size_t n = 0;
    uint8_t length = 0;
    int r = 0;

    if (type == ADDRESS_IPV4)
        n = sizeof(struct in_addr);
    else if (type == ADDRESS_IPV6)
        n = sizeof(struct in6_addr);
    else if (type == ADDRESS_NAME) {
        r = receive(s, &length, 1);
        n = r == 0 ? length : 0;
    } else
        return proxy_say(s->err, -EPROTO, "the proxy's answer has an unknown address type");
    return r < 0 ? r : receive(s, rest, n + 2);
}

int proxy_socks5(struct net_stream *st, const struct proxy *p, const struct proxy_target *target,
                 int64_t deadline, struct proxy_error *err)
{
    struct socks s = {st, p, target, deadline, err};
    uint8_t head[4] = {0};
    int r = greet(&s);

    if (r == 0)
        r = request(&s);
    if (r == 0)
        r = receive(&s, head, 2);
    if (r < 0)
        return r;
    if (head[0] != VERSION)
        return not_socks(&s, head[0]);
    if (head[1] != 0) { /* it closes now, and some do before the rest of this answer */
        err->elsewhere = head[1] != REPLY_NOT_ALLOWED && head[1] != REPLY_NO_SUCH_COMMAND;
        return proxy_say(err, -EPROTO, "the proxy answered %u: %s", head[1], reply_text(head[1]));
    }
    r = receive(&s, head + 2, 2);
    return r < 0 ? r : skip_address(&s, head[3]);
}
