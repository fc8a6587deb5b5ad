#include "wire/token.h"

#include "wire/http.h"

bool token_value_char(uint8_t c)
{
    return (c >= ' ' && c != 127) || c == '\t';
}

bool token_valid(struct wire_text text)
{
    for (size_t i = 0; i < text.len; i++)
        if (!token_char((uint8_t)text.at[i]))
            return false;
    return text.len > 0;
}

bool token_value_valid(struct wire_text text)
{
    for (size_t i = 0; i < text.len; i++)
        if (!token_value_char((uint8_t)text.at[i]))
            return false;
    return wire_text_trim(text).len == text.len;
}

size_t token_quoted_length(struct wire_text quoted)
{
    for (size_t i = 1; i < quoted.len; i++) {
        if (quoted.at[i] == '"')
            return i + 1;
        if (quoted.at[i] == '\\' && ++i == quoted.len)
            return 0;
        if (!token_value_char((uint8_t)quoted.at[i]))
            return 0;
    }
    return 0;
}

size_t token_unescape(char *out, size_t cap, struct wire_text inside)
{
    struct wire_out w = {out, cap, 0};

    for (size_t i = 0; i < inside.len; i++) {
        if (inside.at[i] == '\\' && i + 1 < inside.len)
            i++;
        wire_put_char(&w, inside.at[i]);
    }
    return w.len;
}

void token_list_of_head(struct token_list *list, const struct http_head *head, const uint8_t *buf,
                        const char *name)
{
    *list = (struct token_list){.head = head, .buf = buf, .name = name};
}

void token_list_of_text(struct token_list *list, struct wire_text text)
{
    *list = (struct token_list){.rest = text};
}

/* Length of the element that `text` starts with, up to its comma; SIZE_MAX when it is malformed. */
static size_t element_length(struct wire_text text)
{
    size_t i = 0;

    while (i < text.len && text.at[i] != ',') {
        size_t step = 1;

        if (text.at[i] == '"')
            step = token_quoted_length(wire_text_skip(text, i));
        if (step == 0)
            return SIZE_MAX;
        i += step;
    }
    return i;
}

/* Moves on to the next line of the list's name, or to the end. */
static void next_line(struct token_list *list)
{
    if (list->head != NULL)
        list->field = http_find(list->head, list->buf, list->name, list->field);
    if (list->field == NULL)
        list->ended = 1;
    else
        list->rest = http_text(list->buf, list->field->value);
}

int token_list_next(struct token_list *list, struct wire_text *element)
{
    while (list->ended == 0) {
        if (list->rest.len == 0) {
            next_line(list);
            continue;
        }

        size_t n = element_length(list->rest);

        if (n == SIZE_MAX) {
            list->ended = -1;
            break;
        }
        *element = wire_text_trim(wire_text_head(list->rest, n));
        list->rest = wire_text_skip(list->rest, n + 1);
        if (element->len > 0)
            return 1;
    }
    return list->ended < 0 ? -1 : 0;
}

bool token_list_has(const struct http_head *head, const uint8_t *buf, const char *name,
                    const char *token)
{
    struct token_list list;
    struct wire_text element;
    bool found = false;
    int more;

    token_list_of_head(&list, head, buf, name);
    while ((more = token_list_next(&list, &element)) == 1)
        found = found || wire_text_is(element, token);
    return found && more == 0;
}
