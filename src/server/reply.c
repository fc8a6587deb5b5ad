/* The answer that a hook prepares. */
#include "server/request.h"

#include "base/alloc.h"

#include <string.h>

#include <tws/session.h>

#define REPLY_HEADERS_MAX 64

void reply_init(tws_reply *a, const tws_allocator *allocator)
{
    memset(a, 0, sizeof *a);
    a->allocator = allocator;
}

void reply_clear(tws_reply *a)
{
    for (size_t i = 0; i < a->nheaders; i++) {
        base_free(a->allocator, (char *)(uintptr_t)a->headers[i].name);
        base_free(a->allocator, (char *)(uintptr_t)a->headers[i].value);
    }
    base_free(a->allocator, a->headers);
    base_free(a->allocator, a->type);
    base_free(a->allocator, a->body);
    base_free(a->allocator, a->subprotocol);
    a->headers = NULL;
    a->nheaders = 0;
    a->type = NULL;
    a->body = NULL;
    a->body_len = 0;
    a->subprotocol = NULL;
    a->subprotocol_set = false;
    a->status = 0;
}

tws_err tws_reply_status(tws_reply *a, int status)
{
    if (status < 200 || status > 599) {
        a->status = 500;
        return TWS_ERR_ARGUMENT;
    }
    a->status = status;
    return TWS_OK;
}

/* Headers that the library writes itself, or that would change what the bytes after it mean. */
static bool owned_by_library(struct wire_text name)
{
    static const char *const names[] = {"Connection", "Upgrade", "Content-Length",   "Content-Type",
                                        "Date",       "Server",  "Transfer-Encoding"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (wire_text_is(name, names[i]))
            return true;
    return wire_text_starts(name, "Sec-WebSocket-");
}

tws_err tws_reply_header(tws_reply *a, const char *name, const char *value)
{
    tws_header *grown;
    tws_header h;

    if (!name || !value || !token_valid(wire_text_of(name)) ||
        !token_value_valid(wire_text_of(value)) || owned_by_library(wire_text_of(name)) ||
        a->nheaders == REPLY_HEADERS_MAX)
        return TWS_ERR_ARGUMENT;
    grown = base_resize(a->allocator, a->headers, (a->nheaders + 1) * sizeof *grown);
    if (!grown)
        return TWS_ERR_MEMORY;
    a->headers = grown;
    h.name = base_strdup(a->allocator, name);
    h.value = base_strdup(a->allocator, value);
    if (!h.name || !h.value) {
        base_free(a->allocator, (char *)(uintptr_t)h.name);
        base_free(a->allocator, (char *)(uintptr_t)h.value);
        return TWS_ERR_MEMORY;
    }
    a->headers[a->nheaders++] = h;
    return TWS_OK;
}

tws_err tws_reply_body(tws_reply *a, const char *type, const void *body, size_t len)
{
    void *copy;
    char *type_copy;

    if (!type || (!body && len > 0) || !token_value_valid(wire_text_of(type)))
        return TWS_ERR_ARGUMENT;
    copy = base_alloc(a->allocator, len + 1);
    type_copy = base_strdup(a->allocator, type);
    if (!copy || !type_copy) {
        base_free(a->allocator, copy);
        base_free(a->allocator, type_copy);
        return TWS_ERR_MEMORY;
    }
    if (len > 0)
        memcpy(copy, body, len);
    base_free(a->allocator, a->body);
    base_free(a->allocator, a->type);
    a->body = copy;
    a->body_len = len;
    a->type = type_copy;
    return TWS_OK;
}

tws_err tws_reply_subprotocol(tws_reply *a, const char *name)
{
    char *copy = NULL;

    if (name) {
        if (!a->head || !handshake_offers_protocol(a->head, a->head_buf, name))
            return TWS_ERR_ARGUMENT;
        copy = base_strdup(a->allocator, name);
        if (!copy)
            return TWS_ERR_MEMORY;
    }
    base_free(a->allocator, a->subprotocol);
    a->subprotocol = copy;
    a->subprotocol_set = true;
    return TWS_OK;
}

void tws_reply_user(tws_reply *a, void *user)
{
    a->user = user;
}

tws_err tws_reply_session_set(tws_reply *a, const char *key, void *value, tws_destroy_fn destroy)
{
    if (!key)
        return TWS_ERR_ARGUMENT;
    if (!a->session)
        a->session = base_dict_new(a->allocator);
    if (!a->session ||
        base_dict_set(a->session, key, value, destroy, NULL, NULL) == BASE_DICT_NO_MEMORY)
        return TWS_ERR_MEMORY;
    return TWS_OK;
}
