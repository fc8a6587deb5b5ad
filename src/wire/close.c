#include "wire/close.h"

#include <string.h>

#include "wire/utf8.h"

bool wire_close_code_receivable(uint16_t code)
{
    /*
     * 1004 is reserved; 1005, 1006 and 1015 describe what happened and never travel. 1012 to 1014
     * were registered with IANA after RFC 6455. What is left below 3000 belongs to future
     * standards, 3000 to 4999 to libraries and applications (section 7.4.2).
     */
    return (code >= 1000 && code <= 1003) || (code >= 1007 && code <= 1014) ||
           (code >= 3000 && code <= 4999);
}

bool wire_close_code_sendable(uint16_t code)
{
    /*
     * 1010 is a client's code and 1011 a server's (section 7.4.1), yet both are allowed both ways:
     * an endpoint typically answers a close frame with the code that it received (section 5.5.1).
     */
    return wire_close_code_receivable(code);
}

int wire_close_parse(const uint8_t *payload, size_t len, uint16_t *code, const uint8_t **reason,
                     size_t *reason_len)
{
    *reason = payload;
    *reason_len = 0;
    *code = len == 0 ? TWS_CLOSE_NO_STATUS : 0;
    if (len == 0)
        return 0;
    if (len < 2)
        return TWS_CLOSE_PROTOCOL_ERROR;

    *code = (uint16_t)(payload[0] << 8 | payload[1]);
    if (len > WIRE_CLOSE_PAYLOAD_MAX || !wire_close_code_receivable(*code))
        return TWS_CLOSE_PROTOCOL_ERROR;
    if (!wire_utf8_valid(payload + 2, len - 2))
        return TWS_CLOSE_INVALID_PAYLOAD;
    *reason = payload + 2;
    *reason_len = len - 2;
    return 0;
}

size_t wire_close_write(uint8_t out[WIRE_CLOSE_PAYLOAD_MAX], uint16_t code, const char *reason,
                        size_t reason_len)
{
    if (code == TWS_CLOSE_NO_STATUS)
        return 0;
    out[0] = (uint8_t)(code >> 8);
    out[1] = (uint8_t)code;
    if (reason_len == 0)
        return 2;
    reason_len = wire_utf8_prefix((const uint8_t *)reason, reason_len, WIRE_CLOSE_REASON_MAX);
    memcpy(out + 2, reason, reason_len);
    return 2 + reason_len;
}
