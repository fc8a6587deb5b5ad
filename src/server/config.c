/* Options: defaults, checks, copies. */
#include "server/upgrade.h"

#include "base/sized.h"
#include "conn/deflate.h"
#include "conn/queue.h"

#include <string.h>

void tws_upgrade_options_init_sized(tws_upgrade_options *opt, size_t size)
{
    tws_upgrade_options o;

    memset(&o, 0, sizeof o);
    o.size = size;
    o.handshake_timeout = 10000;
    o.max_head_bytes = HTTP_DEFAULT_BYTES;
    o.max_head_fields = HTTP_DEFAULT_FIELDS;
    o.server_name = "libtws";
    conn_options_init(&o.conn);
    base_sized_give(opt, size, &o, sizeof o);
}

/* What is not allowed in the options; NULL when all is well. */
static const char *check(const tws_upgrade_options *o)
{
    if (o->handshake_timeout < 0)
        return "handshake_timeout is negative";
    if (conn_options_fault(&o->conn))
        return conn_options_fault(&o->conn);
    if (http_limits_fault(o->max_head_bytes, o->max_head_fields))
        return http_limits_fault(o->max_head_bytes, o->max_head_fields);
    if ((o->origin_count > 0 && !o->origins) || (o->subprotocol_count > 0 && !o->subprotocols))
        return "a list is missing";
    for (size_t i = 0; i < o->origin_count; i++)
        if (!o->origins[i] || !wire_origin_pattern_valid(wire_text_of(o->origins[i])))
            return "an entry of origins is not an origin";
    for (size_t i = 0; i < o->subprotocol_count; i++)
        if (!o->subprotocols[i] || !token_valid(wire_text_of(o->subprotocols[i])))
            return "an entry of subprotocols is not a token";
    if (o->server_name && !token_value_valid(wire_text_of(o->server_name)))
        return "server_name holds control characters";
    return NULL;
}

static void free_list(const tws_allocator *a, const char *const *list, size_t n)
{
    for (size_t i = 0; list && i < n; i++)
        base_free(a, (char *)(uintptr_t)list[i]);
    base_free(a, (void *)(uintptr_t)list);
}

/* A copy of a list of strings; *ok becomes false when there is no memory. */
static const char *const *copy_list(const tws_allocator *a, const char *const *list, size_t n,
                                    bool *ok)
{
    char **copy;

    if (n == 0)
        return NULL;
    copy = base_calloc(a, n * sizeof *copy);
    if (!copy) {
        *ok = false;
        return NULL;
    }
    for (size_t i = 0; i < n; i++) {
        copy[i] = base_strdup(a, list[i]);
        if (!copy[i])
            *ok = false;
    }
    return (const char *const *)copy;
}

void upgrade_config_free(struct upgrade_config *cfg)
{
    const tws_allocator *a;

    if (!cfg)
        return;
    a = cfg->opt.allocator;

    free_list(a, cfg->opt.origins, cfg->opt.origin_count);
    free_list(a, cfg->opt.subprotocols, cfg->opt.subprotocol_count);
    base_free(a, cfg->server_name);
    tws_tls_unref(cfg->opt.tls);
    if (cfg->env) {
        base_pool_destroy(&cfg->heads);
        conn_env_unref(cfg->env);
    }
    base_free(a, cfg);
}

static bool config_fill(struct upgrade_config *cfg, const tws_upgrade_options *o,
                        const tws_deflate_options *deflate, bool light)
{
    const tws_allocator *a = o->allocator;
    bool ok = true;

    cfg->opt.origins = copy_list(a, o->origins, o->origin_count, &ok);
    cfg->opt.subprotocols = copy_list(a, o->subprotocols, o->subprotocol_count, &ok);
    if (o->server_name && o->server_name[0]) {
        cfg->server_name = base_strdup(a, o->server_name);
        ok = ok && cfg->server_name;
    }
    cfg->opt.server_name = cfg->server_name;
    cfg->env = conn_env_new(a, light);
    if (!cfg->env || (o->deflate && !conn_env_deflate(cfg->env, deflate)))
        return false;
    cfg->opt.deflate = NULL; /* the caller's */
    base_pool_init(&cfg->heads, a,
                   HTTP_TABLE_AT(cfg->opt.max_head_bytes) +
                       cfg->opt.max_head_fields * sizeof(struct http_field),
                   16);
    return ok;
}

tws_err upgrade_config_new(struct upgrade_config **out, const tws_upgrade_options *opt, bool light,
                           const char **what)
{
    tws_upgrade_options o;
    tws_deflate_options deflate;
    tws_parsed_request parsed;
    struct upgrade_config *cfg;
    tws_err err;

    *out = NULL;
    tws_upgrade_options_init(&o);
    if (opt) {
        if (opt->size < sizeof opt->size + sizeof opt->handshake_timeout) {
            *what = "options were not initialised";
            return TWS_ERR_ARGUMENT;
        }
        base_sized_take(&o, sizeof o, opt, opt->size);
    }
    *what = check(&o);
    if (!*what && o.parsed && !upgrade_take_parsed(&parsed, o.parsed))
        *what = "the parsed request was not initialised";
    if (*what)
        return TWS_ERR_ARGUMENT;
    err = o.deflate ? conn_deflate_options(&deflate, o.deflate, what) : TWS_OK;
    if (err)
        return err;
    cfg = base_calloc(o.allocator, sizeof *cfg);
    if (!cfg)
        return TWS_ERR_MEMORY;
    cfg->opt = o;
    if (o.parsed) {
        cfg->parsed = parsed;
        cfg->opt.parsed = &cfg->parsed;
    }
    if (o.tls)
        tws_tls_ref(o.tls);
    if (!config_fill(cfg, &o, &deflate, light)) {
        upgrade_config_free(cfg);
        return TWS_ERR_MEMORY;
    }
    *out = cfg;
    return TWS_OK;
}
