/*
 * Close codes and the payload of a close frame (RFC 6455 sections 5.5.1 and 7.4).
 */
#ifndef WIRE_CLOSE_H
#define WIRE_CLOSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum wire_close_code {
    WIRE_CLOSE_NORMAL = 1000,
    WIRE_CLOSE_GOING_AWAY = 1001,
    WIRE_CLOSE_PROTOCOL_ERROR = 1002,
    WIRE_CLOSE_UNSUPPORTED_DATA = 1003,
    WIRE_CLOSE_NO_STATUS = 1005, /* never on the wire: the peer's close frame was empty */
    WIRE_CLOSE_ABNORMAL = 1006,  /* never on the wire: there was no close frame */
    WIRE_CLOSE_INVALID_DATA = 1007,
    WIRE_CLOSE_POLICY_VIOLATION = 1008,
    WIRE_CLOSE_TOO_BIG = 1009,
    WIRE_CLOSE_MISSING_EXTENSION = 1010,
    WIRE_CLOSE_INTERNAL_ERROR = 1011,
    WIRE_CLOSE_SERVICE_RESTART = 1012,
    WIRE_CLOSE_TRY_AGAIN_LATER = 1013,
    WIRE_CLOSE_BAD_GATEWAY = 1014,
    WIRE_CLOSE_TLS_HANDSHAKE = 1015 /* never on the wire */
};

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
 * *code is the code as received, WIRE_CLOSE_NO_STATUS for an empty payload, 0 when there were not
 * enough bytes for one; on a fault it is only good for a log. *reason points into payload and is
 * not terminated; with a fault it is empty.
 */
int wire_close_parse(const uint8_t *payload, size_t len, uint16_t *code, const uint8_t **reason,
                     size_t *reason_len);

/*
 * Writes the payload of a close frame and returns its size. WIRE_CLOSE_NO_STATUS makes the empty
 * payload, whatever the reason. The caller has checked the code, and that the reason is UTF-8 of
 * at most WIRE_CLOSE_REASON_MAX bytes; a longer one is cut at a character.
 */
size_t wire_close_write(uint8_t out[WIRE_CLOSE_PAYLOAD_MAX], uint16_t code, const char *reason,
                        size_t reason_len);

#endif
