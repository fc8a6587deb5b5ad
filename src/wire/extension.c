#include "wire/extension.h"

void extension_list_of_head(struct extension_list *list, const struct http_head *head,
                            const uint8_t *buf)
{
    list->count = 0;
    token_list_of_head(&list->list, head, buf, "Sec-WebSocket-Extensions");
}

void extension_list_of_text(struct extension_list *list, struct wire_text text)
{
    list->count = 0;
    token_list_of_text(&list->list, text);
}

/* True when what stood between quotes is a token once the backslashes are gone. */
static bool unescapes_to_token(struct wire_text inside)
{
    for (size_t i = 0; i < inside.len; i++) {
        if (inside.at[i] == '\\')
            i++;
        if (i == inside.len || !token_char((uint8_t)inside.at[i]))
            return false;
    }
    return inside.len > 0;
}

/* Cuts a value off the start of `text`, token or quoted string; false when there is none. */
static bool take_value(struct wire_text *text, struct wire_text *value)
{
    size_t n;

    if (text->len > 0 && text->at[0] == '"') {
        n = token_quoted_length(*text);
        if (n == 0)
            return false;
        *value = (struct wire_text){text->at + 1, n - 2};
        *text = wire_text_trim(wire_text_skip(*text, n));
        return unescapes_to_token(*value);
    }
    n = wire_text_find(*text, ';');
    *value = wire_text_trim(wire_text_head(*text, n));
    *text = wire_text_skip(*text, n);
    return token_valid(*value);
}

enum extension_result extension_param_next(struct extension *ext, struct extension_param *param)
{
    struct wire_text rest = wire_text_trim(ext->params);
    size_t n = 0;

    if (rest.len == 0)
        return EXTENSION_END;
    if (rest.at[0] != ';' || ext->nparams == EXTENSION_PARAMS_MAX)
        return EXTENSION_BAD;
    rest = wire_text_trim(wire_text_skip(rest, 1));
    while (n < rest.len && token_char((uint8_t)rest.at[n]))
        n++;
    if (n == 0)
        return EXTENSION_BAD;
    *param = (struct extension_param){.name = wire_text_head(rest, n)};
    rest = wire_text_trim(wire_text_skip(rest, n));
    if (rest.len > 0 && rest.at[0] == '=') {
        rest = wire_text_trim(wire_text_skip(rest, 1));
        if (!take_value(&rest, &param->value))
            return EXTENSION_BAD;
        param->has_value = true;
    }
    ext->params = rest;
    ext->nparams++;
    return EXTENSION_NEXT;
}

enum extension_result extension_next(struct extension_list *list, struct extension *ext)
{
    struct wire_text element;
    struct extension_param param;
    enum extension_result more;
    int found = token_list_next(&list->list, &element);

    if (found <= 0)
        return found < 0 ? EXTENSION_BAD : EXTENSION_END;

    size_t n = wire_text_find(element, ';');

    *ext = (struct extension){.name = wire_text_trim(wire_text_head(element, n)),
                              .params = wire_text_skip(element, n)};

    struct extension walk = *ext;

    do
        more = extension_param_next(&walk, &param);
    while (more == EXTENSION_NEXT);
    if (more == EXTENSION_BAD || !token_valid(ext->name) || list->count == EXTENSION_MAX) {
        list->list.ended = -1;
        return EXTENSION_BAD;
    }
    list->count++;
    return EXTENSION_NEXT;
}

bool extension_list_valid(const struct http_head *head, const uint8_t *buf, unsigned *count)
{
    struct extension_list list;
    struct extension ext;
    enum extension_result more;

    extension_list_of_head(&list, head, buf);
    do
        more = extension_next(&list, &ext);
    while (more == EXTENSION_NEXT);
    if (count != NULL)
        *count = list.count;
    return more == EXTENSION_END;
}

size_t extension_param_value(const struct extension_param *param, char *out, size_t cap)
{
    return token_unescape(out, cap, param->value);
}

int extension_param_number(const struct extension_param *param, int min, int max)
{
    char digits[8];
    size_t n = extension_param_value(param, digits, sizeof digits);
    int number = 0;

    if (!param->has_value || n > sizeof digits || (n > 1 && digits[0] == '0'))
        return -1;
    for (size_t i = 0; i < n; i++) {
        if (!wire_is_digit((uint8_t)digits[i]))
            return -1;
        number = number * 10 + (digits[i] - '0');
    }
    return number >= min && number <= max ? number : -1;
}
