/* address.h: socket addresses as text. */
#ifndef NET_ADDRESS_H
#define NET_ADDRESS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

/* "127.0.0.1:80", "[::1]:80", "unix:PATH", "unix:@NAME", "unix" for one without a name. Counted as
 * snprintf() counts. */
size_t net_address_text(const struct sockaddr *addr, socklen_t len, char *buf, size_t size);
/* 0 when the socket has none any more. */
size_t net_local_text(int fd, char *buf, size_t size);

/* A peer's address, kept because the system forgets it when the connection ends. */
union net_peer {
    sa_family_t family; /* 0: unknown */
    struct sockaddr_in in;
    struct sockaddr_in6 in6;
};
void net_peer_save(union net_peer *peer, const struct sockaddr *addr);
/* Asks the system. */
void net_peer_of(union net_peer *peer, int fd);
size_t net_peer_text(const union net_peer *peer, char *buf, size_t size);

/* What tells one peer from another when connections are counted: the IP address without the port,
 * a /64 for IPv6. False for a Unix peer. */
struct net_peer_key {
    unsigned char bytes[16];
};
bool net_peer_key(const union net_peer *peer, struct net_peer_key *key);

#endif
