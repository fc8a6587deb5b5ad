/*
 * The payload of a close frame, read and written. Input: the payload; its first two bytes are a code
 * to write, the rest a reason.
 */
#include "fuzz.h"
#include "lib/reference.h"
#include "wire/close.h"

static int expected_fault(const uint8_t *payload, size_t len)
{
    if (len == 0)
        return 0;
    if (len == 1 || len > 125 || !reference_code_valid((unsigned)payload[0] << 8 | payload[1]))
        return 1002;
    return reference_text(payload + 2, len - 2) == 0 ? 0 : 1007;
}

static void check_read(const uint8_t *payload, size_t len)
{
    uint16_t code = 1;
    const uint8_t *reason = NULL;
    size_t reason_len = 1;
    int fault = wire_close_parse(payload, len, &code, &reason, &reason_len);

    FUZZ_CHECK(fault == expected_fault(payload, len));
    if (fault) {
        FUZZ_CHECK(reason_len == 0);
        return;
    }
    FUZZ_CHECK(code == (len == 0 ? 1005 : payload[0] << 8 | payload[1]));
    FUZZ_CHECK(reason_len == (len == 0 ? 0 : len - 2));
    FUZZ_CHECK(reason_len == 0 || memcmp(reason, payload + 2, reason_len) == 0);
}

static void check_written(uint16_t code, const uint8_t *text, size_t len)
{
    uint8_t out[WIRE_CLOSE_PAYLOAD_MAX];
    uint16_t read_code;
    const uint8_t *reason;
    size_t reason_len, n;

    if (!wire_close_code_sendable(code) || reference_text(text, len) != 0)
        return;
    n = wire_close_write(out, code, (const char *)text, len);
    FUZZ_CHECK(n >= 2 && n <= sizeof out);
    FUZZ_CHECK(wire_close_parse(out, n, &read_code, &reason, &reason_len) == 0);
    FUZZ_CHECK(read_code == code && reason_len == n - 2 &&
               reason_len + 4 > (len < 123 ? len : 123));
    FUZZ_CHECK(reason_len <= len && (reason_len == 0 || memcmp(reason, text, reason_len) == 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy = fuzz_copy(data, size);

    check_read(copy, size);
    if (size >= 2) {
        uint16_t code = (uint16_t)(copy[0] << 8 | copy[1]);

        FUZZ_CHECK(wire_close_code_receivable(code) == reference_code_valid(code));
        FUZZ_CHECK(wire_close_code_sendable(code) == reference_code_valid(code));
        check_written(code, copy + 2, size - 2);
    }
    free(copy);
    return 0;
}
