#include "net/address.h"

#include "base/text.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>

static size_t unix_text(const struct sockaddr_un *un, socklen_t len, char *buf, size_t size)
{
    size_t path_len = len > offsetof(struct sockaddr_un, sun_path)
                          ? len - offsetof(struct sockaddr_un, sun_path)
                          : 0;
    char text[sizeof un->sun_path + 8];
    int n;

    if (path_len == 0)
        return base_text_copy(buf, size, "unix", 4);
    if (un->sun_path[0] == 0)
        n = snprintf(text, sizeof text, "unix:@%.*s", (int)path_len - 1, un->sun_path + 1);
    else
        n = snprintf(text, sizeof text, "unix:%.*s", (int)path_len, un->sun_path);
    return base_text_copy(buf, size, text, (size_t)n);
}

size_t net_address_text(const struct sockaddr *addr, socklen_t len, char *buf, size_t size)
{
    char host[INET6_ADDRSTRLEN] = "";
    char text[INET6_ADDRSTRLEN + 16];
    int n;

    switch (addr->sa_family) {
    case AF_INET: {
        const struct sockaddr_in *in = (const void *)addr;

        inet_ntop(AF_INET, &in->sin_addr, host, sizeof host);
        n = snprintf(text, sizeof text, "%s:%u", host, ntohs(in->sin_port));
        return base_text_copy(buf, size, text, (size_t)n);
    }
    case AF_INET6: {
        const struct sockaddr_in6 *in6 = (const void *)addr;

        inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof host);
        n = snprintf(text, sizeof text, "[%s]:%u", host, ntohs(in6->sin6_port));
        return base_text_copy(buf, size, text, (size_t)n);
    }
    case AF_UNIX:
        return unix_text((const void *)addr, len, buf, size);
    default:
        return base_text_copy(buf, size, "", 0);
    }
}

void net_peer_save(union net_peer *peer, const struct sockaddr *addr)
{
    memset(peer, 0, sizeof *peer);
    if (addr->sa_family == AF_INET)
        memcpy(&peer->in, addr, sizeof peer->in);
    else if (addr->sa_family == AF_INET6)
        memcpy(&peer->in6, addr, sizeof peer->in6);
    else
        peer->family = addr->sa_family;
}

void net_peer_of(union net_peer *peer, int fd)
{
    struct sockaddr_storage addr = {.ss_family = AF_UNSPEC};
    socklen_t len = sizeof addr;

    memset(peer, 0, sizeof *peer);
    if (getpeername(fd, (struct sockaddr *)&addr, &len) == 0)
        net_peer_save(peer, (struct sockaddr *)&addr);
}

size_t net_peer_text(const union net_peer *peer, char *buf, size_t size)
{
    /* Unix peers have no name worth keeping: clients do not bind. */
    return net_address_text((const struct sockaddr *)peer, offsetof(struct sockaddr_un, sun_path),
                            buf, size);
}

size_t net_local_text(int fd, char *buf, size_t size)
{
    struct sockaddr_storage addr;
    socklen_t len = sizeof addr;

    if (getsockname(fd, (struct sockaddr *)&addr, &len) < 0)
        return base_text_copy(buf, size, "", 0);
    return net_address_text((struct sockaddr *)&addr, len, buf, size);
}

bool net_peer_key(const union net_peer *peer, struct net_peer_key *key)
{
    memset(key, 0, sizeof *key);
    if (peer->family == AF_INET) {
        key->bytes[10] = key->bytes[11] = 0xff;
        memcpy(key->bytes + 12, &peer->in.sin_addr, 4);
        return true;
    }
    if (peer->family == AF_INET6) {
        /* One customer is usually given a whole /64. A mapped IPv4 address is one address. */
        memcpy(key->bytes, &peer->in6.sin6_addr,
               IN6_IS_ADDR_V4MAPPED(&peer->in6.sin6_addr) ? 16 : 8);
        return true;
    }
    return false;
}
