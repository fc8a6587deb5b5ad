/*
 * Sec-WebSocket-Extensions: extension-list of RFC 6455, section 9.1.
 *
 *     extension-list = 1#( token *( ";" token [ "=" ( token | quoted-string ) ] ) )
 *
 * A quoted value must be a token once its backslashes are gone. Several lines count as one list.
 * A list that does not follow the grammar fails the handshake as 9.1 demands: the server answers
 * 400, the client gives up. Order matters to offers, so names are given in the order of the list
 * and may repeat.
 */
#ifndef WIRE_EXTENSION_H
#define WIRE_EXTENSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/http.h"
#include "wire/token.h"

/* More than these is malformed: no honest peer comes near. */
#define EXTENSION_MAX 32        /* extensions in one head */
#define EXTENSION_PARAMS_MAX 16 /* parameters of one extension */

struct extension {
    struct wire_text name;
    struct wire_text params; /* what extension_param_next has still to read */
    unsigned nparams;        /* read so far */
};

struct extension_param {
    struct wire_text name;
    struct wire_text value; /* without quotes, with backslashes; empty when has_value is false */
    bool has_value;
};

struct extension_list {
    struct token_list list;
    unsigned count;
};

enum extension_result {
    EXTENSION_BAD = -1, /* malformed or too many */
    EXTENSION_END = 0,
    EXTENSION_NEXT = 1
};

void extension_list_of_head(struct extension_list *list, const struct http_head *head,
                            const uint8_t *buf);
void extension_list_of_text(struct extension_list *list, struct wire_text text);
/* Gives an extension only when it is well formed with all its parameters, so that walking the
 * parameters of one that was given cannot fail. After EXTENSION_BAD and EXTENSION_END the answer
 * stays the same. */
enum extension_result extension_next(struct extension_list *list, struct extension *ext);
/* The next parameter. Work on a copy of `ext` to walk them again. */
enum extension_result extension_param_next(struct extension *ext, struct extension_param *param);

/* Whole list of a head in one look: false when it is malformed or has too many. An absent or
 * empty field is a list of none, count 0; `count` may be NULL. */
bool extension_list_valid(const struct http_head *head, const uint8_t *buf, unsigned *count);

/* Value without backslashes into out[0..cap). Returns its length, not stored beyond `cap`. */
size_t extension_param_value(const struct extension_param *param, char *out, size_t cap);
/* Value as a decimal number without leading zeros in min..max, as RFC 7692 7.1.2 wants; -1
 * otherwise. */
int extension_param_number(const struct extension_param *param, int min, int max);

#endif
