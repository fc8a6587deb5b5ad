#include "wire/mask.h"

#include <string.h>

#include "wire/cpu.h"
#include "wire/mask_key.h"

/*
 * From this length on the 32 byte code wins over the 16 byte code. Below, the call into a second
 * function costs more than the wider words save.
 */
#define AVX2_MIN 64

static uint64_t load64(const uint8_t *p)
{
    uint64_t v;

    memcpy(&v, p, sizeof(v));
    return v;
}

static void store64(uint8_t *p, uint64_t v)
{
    memcpy(p, &v, sizeof(v));
}

void wire_mask_copy_portable(uint8_t *dst, const uint8_t *src, size_t len, const uint8_t key[4],
                             uint64_t offset)
{
    uint64_t word, last;
    size_t i = 0;

    if (len < 16) {
        mask_short(dst, src, len, key, offset);
        return;
    }
    word = mask_dword(key, offset);
    /*
     * The last eight bytes are done as one word that may overlap the word before it. It is read
     * first, since the loop writes over its bytes when dst is src.
     */
    last = load64(src + len - 8) ^ mask_dword(key, offset + len - 8);
    for (; i + 32 <= len; i += 32) {
        store64(dst + i, load64(src + i) ^ word);
        store64(dst + i + 8, load64(src + i + 8) ^ word);
        store64(dst + i + 16, load64(src + i + 16) ^ word);
        store64(dst + i + 24, load64(src + i + 24) ^ word);
    }
    for (; i + 8 <= len; i += 8)
        store64(dst + i, load64(src + i) ^ word);
    store64(dst + len - 8, last);
}

void wire_mask_copy(uint8_t *dst, const uint8_t *src, size_t len, const uint8_t key[4],
                    uint64_t offset)
{
#if defined(WIRE_MASK_X86)
    if (len >= AVX2_MIN && wire_cpu_has_avx2())
        wire_mask_copy_avx2(dst, src, len, key, offset);
    else
        wire_mask_copy_sse2(dst, src, len, key, offset);
#else
    wire_mask_copy_portable(dst, src, len, key, offset);
#endif
}

void wire_mask(uint8_t *buf, size_t len, const uint8_t key[4], uint64_t offset)
{
    wire_mask_copy(buf, buf, len, key, offset);
}
