/*
 * The mutations of frames for AFL++, which loads them: AFL_CUSTOM_MUTATOR_LIBRARY. TWS_FUZZ_FRAMES says
 * how inputs are laid out, "8 1 0" for 8 bytes of settings, masked frames, no compression.
 */
#include "lib/frame_mutator.h"

struct afl_mutator {
    struct frame_format format;
    uint32_t random;
    uint8_t *out;
    size_t room;
};

/* What AFL++ asks for by name. */
void *afl_custom_init(void *afl, unsigned seed);
void afl_custom_deinit(void *data);
size_t afl_custom_fuzz(void *data, uint8_t *in, size_t size, uint8_t **out, uint8_t *other,
                       size_t other_size, size_t most);

#define EXPORT __attribute__((visibility("default")))

EXPORT void *afl_custom_init(void *afl, unsigned seed)
{
    struct afl_mutator *m = calloc(1, sizeof *m);
    const char *frames = getenv("TWS_FUZZ_FRAMES");
    unsigned settings = 0, masked = 1, deflate = 0;

    (void)afl;
    if (m && frames && sscanf(frames, "%u %u %u", &settings, &masked, &deflate) == 3) {
        m->format = (struct frame_format){settings, masked != 0, deflate != 0};
        m->random = seed | 1;
    }
    return m;
}

EXPORT void afl_custom_deinit(void *data)
{
    struct afl_mutator *m = data;

    free(m->out);
    free(m);
}

EXPORT size_t afl_custom_fuzz(void *data, uint8_t *in, size_t size, uint8_t **out, uint8_t *other,
                              size_t other_size, size_t most)
{
    struct afl_mutator *m = data;
    size_t n = 0;

    if (m->room < most) {
        free(m->out);
        m->out = malloc(most);
        m->room = m->out ? most : 0;
    }
    if (!m->out || size > most) {
        *out = in;
        return size;
    }
    *out = m->out;
    if (other && fuzz_random(&m->random, 8) == 0)
        n = frame_cross(&m->format, in, size, other, other_size, m->out, most, m->random);
    if (n == 0) {
        memcpy(m->out, in, size);
        n = frame_mutate(&m->format, m->out, size, most, m->random);
    }
    fuzz_random(&m->random, 2);
    return n;
}
