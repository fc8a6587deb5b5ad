/*
 * Bytes that are taken for one compressed message after another, cut into fragments, by a server or
 * a client; see lib/session.h for what is compared.
 *
 * Input: the settings of a session, a byte for the fragments, then the compressed bytes of all
 * messages; 0xff 0x00 ends one, and 0xff 0xff is one 0xff.
 */
#include "lib/session.h"

#define WIRE (3 * 4096 + 64)

struct wire {
    uint8_t bytes[WIRE];
    size_t len;
    bool masked, begun;
};

static void put_frame(struct wire *w, const uint8_t *data, size_t len, bool last)
{
    uint8_t *p = w->bytes + w->len;

    if (len > 125 || w->len + len + 6 > WIRE)
        return;
    *p++ = (uint8_t)((last ? 0x80 : 0) | (w->begun ? 0 : 0x41));
    *p++ = (uint8_t)((w->masked ? 0x80 : 0) | len);
    memset(p, 0, 4);
    p += w->masked ? 4 : 0;
    memcpy(p, data, len);
    w->len = (size_t)(p + len - w->bytes);
    w->begun = !last;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct wire w;
    uint8_t settings[SESSION_SETTINGS], piece[125], byte;
    struct fuzz_input in = {data, size};
    struct fuzz_cuts cuts;
    size_t len = 0, cut;

    for (size_t i = 0; i < sizeof settings; i++)
        settings[i] = fuzz_byte(&in);
    byte = fuzz_byte(&in);
    cuts = fuzz_cuts_of(byte);
    w.len = 0;
    w.begun = false;
    w.masked = (byte & 128) != 0;
    cut = fuzz_next_cut(&cuts);
    while (in.left > 0) {
        uint8_t c = fuzz_byte(&in);
        bool ends = c == 0xff && fuzz_byte(&in) == 0;

        if (!ends)
            piece[len++] = c;
        if (ends || len == cut || len == sizeof piece) {
            put_frame(&w, piece, len, ends);
            len = 0;
            cut = fuzz_next_cut(&cuts);
        }
    }
    put_frame(&w, piece, len, true);
    session_run(w.masked, true, settings, w.bytes, w.len);
    return 0;
}
