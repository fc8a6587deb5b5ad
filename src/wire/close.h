/*
 * Close codes and the payload of a close frame (RFC 6455 sections 5.5.1 and 7.4).
 */
#ifndef WIRE_CLOSE_H
#define WIRE_CLOSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tws/types.h>

#define WIRE_CLOSE_PAYLOAD_MAX 125
#define WIRE_CLOSE_REASON_MAX 123

/* True for the codes that a peer may send: 1000-1003, 1007-1014, 3000-4999. */
bool wire_close_code_receivable(uint16_t code);

/* True for the codes that we may send: the same set, in both directions. */
bool wire_close_code_sendable(uint16_t code);

/*
 * Reads the (unmasked) payload of a close frame. Returns 0, or the code to fail the connection
 * with: 1002 for a one byte or too long body or a code that may not be sent, 1007 for a reason
 * that is not UTF-8.
 * *code is the code as received, TWS_CLOSE_NO_STATUS for an empty payload, 0 when there were not
 * enough bytes for one; on a fault it is only good for a log. *reason points into payload and is
 * not terminated; with a fault it is empty.
 */
int wire_close_parse(const uint8_t *payload, size_t len, uint16_t *code, const uint8_t **reason,
                     size_t *reason_len);

/*
 * Writes the payload of a close frame and returns its size. TWS_CLOSE_NO_STATUS makes the empty
 * payload, whatever the reason. The caller has checked the code, and that the reason is UTF-8 of
 * at most WIRE_CLOSE_REASON_MAX bytes; a longer one is cut at a character.
 */
size_t wire_close_write(uint8_t out[WIRE_CLOSE_PAYLOAD_MAX], uint16_t code, const char *reason,
                        size_t reason_len);

#endif
