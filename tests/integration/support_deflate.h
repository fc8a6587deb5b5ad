/*
 * The peer's side of permessage-deflate, with zlib and by hand: shares no code with the library.
 */
#ifndef TESTS_INTEGRATION_SUPPORT_DEFLATE_H
#define TESTS_INTEGRATION_SUPPORT_DEFLATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rig;
struct client;
struct tws_deflate_options;

#define DEFLATE_OFFER "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n"
#define CLIENT_RSV1 0x40u

/* A compressor and a decompressor that keep their contexts. */
struct peer_deflate {
    void *out, *in; /* z_stream */
    bool out_takeover, in_takeover;
};
void peer_deflate_init(struct peer_deflate *p, int level, int bits, bool takeover);
void peer_deflate_end(struct peer_deflate *p);
/* A message's payload as it goes on the wire; its length. `out` has room for len + len / 8 + 64. */
size_t peer_deflate(struct peer_deflate *p, uint8_t *out, const void *data, size_t len);
/* The other way; the original's length, -1 when it does not inflate or does not fit. */
long peer_inflate(struct peer_deflate *p, uint8_t *out, size_t room, const void *data, size_t len);

/* A rig whose connection compresses; opt NULL: the defaults of deflate. */
void rig_open_deflate(struct rig *r, const struct tws_deflate_options *deflate);

/* Sends a compressed message as `frames` fragments. */
void client_send_deflated(struct client *c, struct peer_deflate *p, unsigned opcode,
                          const void *data, size_t len, size_t frames);
/* The next message, which may be in fragments, inflated when it is compressed. Its length. */
size_t client_next_inflated(struct client *c, struct peer_deflate *p, uint8_t *out, size_t room,
                            bool *compressed, unsigned *fragments);

#endif
