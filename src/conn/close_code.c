/* Close codes, for who has an error record or makes frames of their own. */
#include "conn/conn.h"

#include "wire/close.h"

#include <string.h>

static bool among(uint16_t code, const uint16_t *codes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (codes[i] == code)
            return true;
    return false;
}

/* By a close frame, or by leaving without one. */
static bool ended_by_peer(const tws_error *e)
{
    return e->code == TWS_ERR_PEER_CLOSED || e->code == TWS_ERR_EOF || e->code == TWS_ERR_TRUNCATED;
}

bool tws_is_close_error(const tws_error *e, const uint16_t *codes, size_t count)
{
    if (!ended_by_peer(e) && !(e->code == TWS_ERR_CLOSED && e->clean))
        return false;
    return among(e->close_code, codes, count);
}

bool tws_is_unexpected_close(const tws_error *e, const uint16_t *codes, size_t count)
{
    return ended_by_peer(e) && !among(e->close_code, codes, count);
}

tws_err conn_check_close(uint16_t *code, const char *reason, size_t *len)
{
    *len = reason ? strlen(reason) : 0;
    if (*code == 0)
        *code = TWS_CLOSE_NO_STATUS;
    if (*code != TWS_CLOSE_NO_STATUS && !wire_close_code_sendable(*code))
        return TWS_ERR_CLOSE_CODE;
    if (*len > WIRE_CLOSE_REASON_MAX)
        return TWS_ERR_CONTROL_SIZE;
    if (!wire_utf8_valid((const uint8_t *)reason, *len))
        return TWS_ERR_TEXT;
    return TWS_OK;
}

tws_err tws_format_close(void *buf, size_t size, uint16_t code, const char *reason, size_t *len)
{
    uint8_t payload[WIRE_CLOSE_PAYLOAD_MAX];
    size_t n;
    tws_err err = conn_check_close(&code, reason, &n);

    *len = 0;
    if (err)
        return err;
    n = wire_close_write(payload, code, reason, n);
    if (n > size)
        return TWS_ERR_CONTROL_SIZE;
    if (n > 0)
        memcpy(buf, payload, n);
    *len = n;
    return TWS_OK;
}
