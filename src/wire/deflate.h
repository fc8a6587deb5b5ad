/*
 * permessage-deflate, RFC 7692 section 7.1: what is offered and what is agreed, on both sides.
 *
 * Names compare byte for byte. A value may be a token or a quoted string (RFC 6455 9.1), and is a
 * decimal number from 8 to 15 without leading zeros. A parameter that is unknown, repeated, out of
 * range, without the value it needs or with one it may not have makes its offer unacceptable; other
 * offers in the same request are not touched by that. In an answer it fails the connection.
 */
#ifndef WIRE_DEFLATE_H
#define WIRE_DEFLATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/extension.h"

#define DEFLATE_NAME "permessage-deflate"

/* Window sizes, as base-2 logarithms. zlib reads all of them in raw streams and writes all but 8
 * (its deflateInit2 refuses -8), so nothing here ever promises that this side writes 8. */
#define DEFLATE_BITS_MIN 8
#define DEFLATE_BITS_MIN_WRITTEN 9
#define DEFLATE_BITS_MAX 15

/* A whole offer or answer with its terminator fits. */
#define DEFLATE_TEXT_MAX 160

/* What one side wishes, and what both have agreed. */
struct deflate_params {
    uint8_t server_bits; /* window of what the server compresses */
    uint8_t client_bits; /* window of what the client compresses */
    bool server_no_takeover;
    bool client_no_takeover;
};

/* Server. */

/*
 * Takes the first acceptable offer of the list, in the client's order, and writes the value of the
 * answering field, terminated. Returns its length, or 0 when no offer is acceptable, which declines
 * the extension. Other extensions and offers behind the one taken are not looked at, except that
 * a list which turns out to be malformed before that gives 0.
 *
 * `want`: the largest windows wanted (server_bits 9..15, client_bits 8..15), and whether contexts
 * are to be dropped. Windows only ever get smaller than wanted. A client that does not
 * offer client_max_window_bits cannot be asked for a smaller window: client_bits is 15 then. A
 * server window below 15 that was not asked for is kept without being announced, and both
 * no_context_takeover parameters are answered unasked, as 7.1.1 allows. An offer with
 * server_max_window_bits=8 is not acceptable.
 */
size_t deflate_choose(struct extension_list *offers, const struct deflate_params *want,
                      struct deflate_params *agreed, char out[DEFLATE_TEXT_MAX]);

/* Client. */

/*
 * Writes the value of the field that offers the extension, terminated; returns its length.
 * `want`: server_bits 8..15 (15: no limit is asked for), client_bits 9..15 (announced as a limit
 * when below 15; the server may choose a smaller one in any case).
 */
size_t deflate_write_offer(const struct deflate_params *want, char out[DEFLATE_TEXT_MAX]);

/* Judges the answer. */
struct deflate_answer {
    struct deflate_params want;   /* what was offered; set by the caller, the rest zero */
    struct deflate_params agreed; /* result */
    bool accepted; /* false after the handshake: the server declined, nothing is compressed */
};

/*
 * For handshake_verify: `arg` is a struct deflate_answer. False for any other extension, a second
 * answer, and one that is not acceptable: a parameter at fault as above, a window that
 * is larger than the one offered, server_max_window_bits or server_no_context_takeover missing
 * though it was asked for.
 *
 * The server may demand client_max_window_bits=8, which this side cannot write with zlib.
 * agreed.client_bits is 8 then, and the client sends its messages uncompressed.
 */
bool deflate_judge(void *arg, struct extension *ext);

#endif
