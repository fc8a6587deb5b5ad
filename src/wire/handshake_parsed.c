/* Requests that somebody else has parsed. */
#include "wire/handshake.h"

/* Neither blanks nor controls, nothing beyond ASCII. */
static bool visible(struct wire_text text)
{
    for (size_t i = 0; i < text.len; i++)
        if (text.at[i] <= ' ' || text.at[i] > '~')
            return false;
    return text.len > 0;
}

static bool value_possible(struct wire_text value)
{
    for (size_t i = 0; i < value.len; i++)
        if (!token_value_char((uint8_t)value.at[i]))
            return false;
    return value.at != NULL;
}

ptrdiff_t handshake_write_parsed(char *out, size_t cap, const struct handshake_parsed *p)
{
    struct wire_out w = {out, cap, 0};

    if (!token_valid(wire_text_of(p->method)) || !visible(wire_text_of(p->target)) ||
        !visible(wire_text_of(p->version)))
        return -(ptrdiff_t)HANDSHAKE_FAULT_NAME;
    wire_put_string(&w, p->method);
    wire_put_char(&w, ' ');
    wire_put_string(&w, p->target);
    wire_put_char(&w, ' ');
    wire_put_string(&w, p->version);
    wire_put_string(&w, "\r\n");
    for (size_t i = 0; i < p->nheaders; i++) {
        if (!token_valid(wire_text_of(p->headers[i].name)))
            return -(ptrdiff_t)HANDSHAKE_FAULT_NAME;
        if (!value_possible(wire_text_of(p->headers[i].value)))
            return -(ptrdiff_t)HANDSHAKE_FAULT_VALUE;
        wire_put_string(&w, p->headers[i].name);
        wire_put_string(&w, ": ");
        wire_put_string(&w, p->headers[i].value);
        wire_put_string(&w, "\r\n");
    }
    wire_put_string(&w, "\r\n");
    return (ptrdiff_t)w.len;
}
