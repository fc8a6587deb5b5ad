/* The client's side of the opening handshake: whether the answer is right. */
#include "wire/handshake.h"

const char *handshake_fault_text(enum handshake_fault fault)
{
    static const char *const texts[] = {
        [HANDSHAKE_OK] = "no fault",
        [HANDSHAKE_FAULT_NAME] = "header name is not a token",
        [HANDSHAKE_FAULT_VALUE] = "header value has a control character, or blanks at its ends",
        [HANDSHAKE_FAULT_FORBIDDEN] = "header belongs to the handshake and cannot be set",
        [HANDSHAKE_FAULT_PROTOCOL] = "subprotocol is not a token, or is there twice",
        [HANDSHAKE_FAULT_EXTENSION] = "malformed list of extensions",
        [HANDSHAKE_FAULT_STATUS] = "status is not in 200 to 599",
        [HANDSHAKE_FAULT_HOST] = "malformed host",
        [HANDSHAKE_FAULT_KEY] = "key is not the base64 form of 16 bytes",
        [HANDSHAKE_FAULT_NOT_101] = "server did not answer 101",
        [HANDSHAKE_FAULT_HTTP] = "server answered 101 in HTTP/1.0",
        [HANDSHAKE_FAULT_UPGRADE] = "server's Upgrade header is not websocket",
        [HANDSHAKE_FAULT_CONNECTION] = "server's Connection header has no upgrade",
        [HANDSHAKE_FAULT_ACCEPT] = "server's Sec-WebSocket-Accept is missing or wrong",
        [HANDSHAKE_FAULT_ANSWERED_PROTOCOL] = "server chose a subprotocol that was not offered",
        [HANDSHAKE_FAULT_ANSWERED_EXTENSION] = "server chose an extension that was not offered",
    };

    return texts[fault];
}

/* One element in all lines of that name together, and it is `token`. */
static bool is_single_token(const struct http_head *h, const uint8_t *buf, const char *name,
                            const char *token)
{
    struct token_list list;
    struct wire_text element;

    token_list_of_head(&list, h, buf, name);
    return token_list_next(&list, &element) == 1 && wire_text_is(element, token) &&
           token_list_next(&list, &element) == 0;
}

static bool accept_is_right(const struct http_head *h, const uint8_t *buf, const char *key)
{
    const struct http_field *field = http_find(h, buf, "Sec-WebSocket-Accept", NULL);
    char expected[HANDSHAKE_ACCEPT_LEN];

    if (field == NULL || http_find(h, buf, "Sec-WebSocket-Accept", field) != NULL ||
        field->value.len != sizeof expected)
        return false;
    handshake_accept(expected, key);
    return wire_equal_secret(http_text(buf, field->value).at, expected, sizeof expected);
}

/* One line with one of the names that were offered, or no line. */
static bool protocol_is_right(const struct http_head *h, const uint8_t *buf,
                              const struct handshake_offer *offer, int *protocol)
{
    const struct http_field *field = http_find(h, buf, "Sec-WebSocket-Protocol", NULL);

    *protocol = -1;
    if (field == NULL)
        return true;
    if (http_find(h, buf, "Sec-WebSocket-Protocol", field) != NULL)
        return false;
    for (size_t i = 0; i < offer->nprotocols; i++)
        if (wire_text_equal(http_text(buf, field->value), wire_text_of(offer->protocols[i])))
            *protocol = (int)i;
    return *protocol >= 0;
}

static bool extensions_are_right(const struct http_head *h, const uint8_t *buf,
                                 handshake_extension_fn *accept_extension, void *arg)
{
    struct extension_list list;
    struct extension ext;
    enum extension_result more;

    if (http_find(h, buf, "Sec-WebSocket-Extensions", NULL) == NULL)
        return true;
    if (accept_extension == NULL)
        return false;
    extension_list_of_head(&list, h, buf);
    while ((more = extension_next(&list, &ext)) == EXTENSION_NEXT)
        if (!accept_extension(arg, &ext))
            return false;
    return more == EXTENSION_END && list.count > 0;
}

enum handshake_fault handshake_verify(const struct http_head *h, const uint8_t *buf,
                                      const struct handshake_offer *offer,
                                      handshake_extension_fn *accept_extension, void *arg,
                                      struct handshake_answer *answer)
{
    answer->protocol = -1;
    if (h->status != 101)
        return HANDSHAKE_FAULT_NOT_101;
    if (h->minor == 0)
        return HANDSHAKE_FAULT_HTTP;
    if (!is_single_token(h, buf, "Upgrade", "websocket"))
        return HANDSHAKE_FAULT_UPGRADE;
    if (!token_list_has(h, buf, "Connection", "upgrade"))
        return HANDSHAKE_FAULT_CONNECTION;
    if (!accept_is_right(h, buf, offer->key))
        return HANDSHAKE_FAULT_ACCEPT;
    if (!protocol_is_right(h, buf, offer, &answer->protocol))
        return HANDSHAKE_FAULT_ANSWERED_PROTOCOL;
    if (!extensions_are_right(h, buf, accept_extension, arg))
        return HANDSHAKE_FAULT_ANSWERED_EXTENSION;
    return HANDSHAKE_OK;
}
