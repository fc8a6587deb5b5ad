/*
 * Sec-WebSocket-Extensions and the parameters of permessage-deflate. Two bytes say what this side
 * wishes, the rest is the field's value, as an offer to a server and as an answer to a client. The
 * text is copied to a block of its own size, so that AddressSanitizer sees one byte too many.
 */
#include <string.h>

#include "fuzz.h"
#include "wire/deflate.h"

static bool judge(struct wire_text text, struct deflate_answer *answer)
{
    struct extension_list list;
    struct extension ext;
    enum extension_result more;

    extension_list_of_text(&list, text);
    while ((more = extension_next(&list, &ext)) == EXTENSION_NEXT)
        if (!deflate_judge(answer, &ext))
            return false;
    return more == EXTENSION_END && list.count > 0;
}

static bool window_fits(unsigned bits, unsigned wanted)
{
    return bits >= DEFLATE_BITS_MIN && bits <= wanted;
}

/* Whatever is offered, the server promises no more than it wishes, and says it in a text that a
 * client without wishes of its own understands in the same way. */
static void as_server(struct wire_text text, const struct deflate_params *want)
{
    struct extension_list list;
    struct deflate_params agreed;
    struct deflate_answer answer = {.want = {15, 15, false, false}};
    char out[DEFLATE_TEXT_MAX];
    size_t len;

    extension_list_of_text(&list, text);
    memset(out, 'x', sizeof out);
    len = deflate_choose(&list, want, &agreed, out);
    if (len == 0)
        return;
    FUZZ_CHECK(len < sizeof out && strlen(out) == len);
    FUZZ_CHECK(window_fits(agreed.server_bits, want->server_bits));
    FUZZ_CHECK(agreed.server_bits >= DEFLATE_BITS_MIN_WRITTEN);
    FUZZ_CHECK(window_fits(agreed.client_bits, DEFLATE_BITS_MAX));
    FUZZ_CHECK(agreed.server_no_takeover || !want->server_no_takeover);
    FUZZ_CHECK(agreed.client_no_takeover || !want->client_no_takeover);
    FUZZ_CHECK(judge(wire_text_of(out), &answer) && answer.accepted);
    FUZZ_CHECK(answer.agreed.server_bits >= agreed.server_bits);
    FUZZ_CHECK(answer.agreed.client_bits == agreed.client_bits);
    FUZZ_CHECK(answer.agreed.server_no_takeover == agreed.server_no_takeover);
    FUZZ_CHECK(answer.agreed.client_no_takeover == agreed.client_no_takeover);
}

static void as_client(struct wire_text text, const struct deflate_params *want)
{
    struct deflate_answer answer = {.want = *want};

    if (!judge(text, &answer))
        return;
    FUZZ_CHECK(answer.accepted);
    FUZZ_CHECK(window_fits(answer.agreed.server_bits, want->server_bits));
    FUZZ_CHECK(window_fits(answer.agreed.client_bits, want->client_bits));
    FUZZ_CHECK(answer.agreed.server_no_takeover || !want->server_no_takeover);
    FUZZ_CHECK(answer.agreed.client_no_takeover || !want->client_no_takeover);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    uint8_t windows = fuzz_byte(&in);
    uint8_t flags = fuzz_byte(&in);
    struct deflate_params want = {
        .server_bits = (uint8_t)(DEFLATE_BITS_MIN_WRITTEN + (windows & 15) % 7),
        .client_bits = (uint8_t)(DEFLATE_BITS_MIN_WRITTEN + (windows >> 4) % 7),
        .server_no_takeover = (flags & 1) != 0,
        .client_no_takeover = (flags & 2) != 0,
    };
    char *copy = malloc(in.left > 0 ? in.left : 1);

    FUZZ_CHECK(copy != NULL);
    if (in.left > 0)
        memcpy(copy, in.at, in.left);
    as_server((struct wire_text){copy, in.left}, &want);
    as_client((struct wire_text){copy, in.left}, &want);
    free(copy);
    return 0;
}
