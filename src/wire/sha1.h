/*
 * SHA-1 (FIPS 180-4), for Sec-WebSocket-Accept only. RFC 6455 asks nothing of it that its known
 * collisions would break: it shows that the peer read the key.
 */
#ifndef WIRE_SHA1_H
#define WIRE_SHA1_H

#include <stddef.h>
#include <stdint.h>

#define WIRE_SHA1_LEN 20

void wire_sha1(const void *data, size_t len, uint8_t digest[WIRE_SHA1_LEN]);

#endif
