#include "wire/deflate.h"

#define UNSET (-1) /* parameter is not there */
#define BARE 0     /* it is, without a value */

/* One offer or answer as it stands: UNSET, BARE or the value. */
struct parsed {
    int server_no_takeover;
    int client_no_takeover;
    int server_bits;
    int client_bits;
};

static bool is_deflate(const struct extension *ext)
{
    return wire_text_equal(ext->name, wire_text_of(DEFLATE_NAME));
}

/* Where the parameter of that name goes; NULL when there is no such parameter. */
static int *parsed_place(struct parsed *p, struct wire_text name, bool *takes_value)
{
    const struct {
        const char *name;
        int *place;
        bool takes_value;
    } known[] = {
        {"server_no_context_takeover", &p->server_no_takeover, false},
        {"client_no_context_takeover", &p->client_no_takeover, false},
        {"server_max_window_bits", &p->server_bits, true},
        {"client_max_window_bits", &p->client_bits, true},
    };

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (wire_text_equal(name, wire_text_of(known[i].name))) {
            *takes_value = known[i].takes_value;
            return known[i].place;
        }
    }
    return NULL;
}

/* Reads all parameters; false when one is unknown, repeated, or its value is at fault. Whether a
 * window may go without a value depends on who says it, and is for the caller. */
static bool parse(struct parsed *p, struct extension ext)
{
    struct extension_param param;
    enum extension_result more;

    *p = (struct parsed){UNSET, UNSET, UNSET, UNSET};
    while ((more = extension_param_next(&ext, &param)) == EXTENSION_NEXT) {
        bool takes_value = false;
        int *place = parsed_place(p, param.name, &takes_value);

        if (place == NULL || *place != UNSET || (param.has_value && !takes_value))
            return false;
        *place = BARE;
        if (param.has_value) {
            *place = extension_param_number(&param, DEFLATE_BITS_MIN, DEFLATE_BITS_MAX);
            if (*place < 0)
                return false;
        }
    }
    return more == EXTENSION_END;
}

static uint8_t smaller(int a, int b)
{
    return (uint8_t)(a < b ? a : b);
}

static void put_flag(struct wire_out *w, const char *name, bool present)
{
    if (present) {
        wire_put_string(w, "; ");
        wire_put_string(w, name);
    }
}

static void put_bits(struct wire_out *w, const char *name, uint8_t bits, bool present)
{
    put_flag(w, name, present);
    if (present) {
        wire_put_char(w, '=');
        wire_put_number(w, bits);
    }
}

static size_t terminate(struct wire_out *w)
{
    size_t len = w->len;

    wire_put_char(w, '\0');
    return len;
}

/* What the server makes of one offer; false when it has to decline it. */
static bool agree(const struct parsed *offer, const struct deflate_params *want,
                  struct deflate_params *agreed)
{
    if (offer->server_bits == BARE ||
        (offer->server_bits != UNSET && offer->server_bits < DEFLATE_BITS_MIN_WRITTEN))
        return false;
    *agreed = (struct deflate_params){
        .server_bits = want->server_bits,
        .client_bits = DEFLATE_BITS_MAX,
        .server_no_takeover = want->server_no_takeover || offer->server_no_takeover != UNSET,
        .client_no_takeover = want->client_no_takeover || offer->client_no_takeover != UNSET,
    };
    if (offer->server_bits != UNSET)
        agreed->server_bits = smaller(agreed->server_bits, offer->server_bits);
    if (offer->client_bits != UNSET)
        agreed->client_bits = want->client_bits;
    if (offer->client_bits > BARE)
        agreed->client_bits = smaller(agreed->client_bits, offer->client_bits);
    return true;
}

size_t deflate_choose(struct extension_list *offers, const struct deflate_params *want,
                      struct deflate_params *agreed, char out[DEFLATE_TEXT_MAX])
{
    struct wire_out w = {out, DEFLATE_TEXT_MAX, 0};
    struct extension ext;
    struct parsed offer;

    do {
        if (extension_next(offers, &ext) != EXTENSION_NEXT)
            return 0;
    } while (!is_deflate(&ext) || !parse(&offer, ext) || !agree(&offer, want, agreed));

    wire_put_string(&w, DEFLATE_NAME);
    put_flag(&w, "server_no_context_takeover", agreed->server_no_takeover);
    put_flag(&w, "client_no_context_takeover", agreed->client_no_takeover);
    put_bits(&w, "server_max_window_bits", agreed->server_bits, offer.server_bits != UNSET);
    /* 15 is what its absence means, so only a smaller one is worth saying. */
    put_bits(&w, "client_max_window_bits", agreed->client_bits,
             agreed->client_bits < DEFLATE_BITS_MAX);
    return terminate(&w);
}

size_t deflate_write_offer(const struct deflate_params *want, char out[DEFLATE_TEXT_MAX])
{
    struct wire_out w = {out, DEFLATE_TEXT_MAX, 0};

    wire_put_string(&w, DEFLATE_NAME);
    put_flag(&w, "server_no_context_takeover", want->server_no_takeover);
    put_flag(&w, "client_no_context_takeover", want->client_no_takeover);
    put_bits(&w, "server_max_window_bits", want->server_bits, want->server_bits < DEFLATE_BITS_MAX);
    if (want->client_bits < DEFLATE_BITS_MAX)
        put_bits(&w, "client_max_window_bits", want->client_bits, true);
    else
        put_flag(&w, "client_max_window_bits", true);
    return terminate(&w);
}

/* A window in an answer: absent where none was asked for, or a value not above the one asked. */
static bool window_answered(int answered, int offered, bool required)
{
    if (answered == UNSET)
        return !required;
    return answered != BARE && answered <= offered;
}

bool deflate_judge(void *arg, struct extension *ext)
{
    struct deflate_answer *a = arg;
    const struct deflate_params *want = &a->want;
    struct parsed p;

    if (a->accepted || !is_deflate(ext) || !parse(&p, *ext))
        return false;
    if (want->server_no_takeover && p.server_no_takeover == UNSET)
        return false;
    if (!window_answered(p.server_bits, want->server_bits, want->server_bits < DEFLATE_BITS_MAX) ||
        !window_answered(p.client_bits, want->client_bits, false))
        return false;
    a->agreed = (struct deflate_params){
        .server_bits = p.server_bits != UNSET ? (uint8_t)p.server_bits : DEFLATE_BITS_MAX,
        .client_bits = p.client_bits != UNSET ? (uint8_t)p.client_bits : want->client_bits,
        .server_no_takeover = p.server_no_takeover != UNSET,
        .client_no_takeover = want->client_no_takeover || p.client_no_takeover != UNSET,
    };
    a->accepted = true;
    return true;
}
