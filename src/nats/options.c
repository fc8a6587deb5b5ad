#include "nats/options.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

void tws_nats_options_init_sized(tws_nats_options *opt, size_t size)
{
    tws_nats_options o;

    memset(&o, 0, sizeof o);
    o.size = size;
    o.name = "libtws";
    o.connect_timeout = 2000;
    o.write_timeout = 2000;
    o.ping_interval = 2000;
    o.retry_first = 50;
    o.retry_most = 500;
    o.max_pending = 65536;
    o.max_pending_bytes = 64u << 20;
    memset(opt, 0, size);
    memcpy(opt, &o, size < sizeof o ? size : sizeof o);
}

tws_err nats_options_error(tws_error *error, tws_err err, const char *text)
{
    if (error) {
        memset(error, 0, sizeof *error);
        error->code = err;
        error->cause = TWS_CAUSE_LOCAL;
        snprintf(error->text, sizeof error->text, "nats: %s", text);
    }
    return err;
}

static bool is_time(tws_ms ms)
{
    return ms > 0 && ms <= 3600000;
}

static const char *refusal(const tws_nats_options *o)
{
    int identities =
        (o->user || o->password) + !!o->token + !!o->credentials + (o->nkey || o->nkey_seed);

    if (!o->urls != !o->url_count || o->url_count > 1024)
        return "a list of URLs and its length go together";
    for (size_t i = 0; i < o->url_count; i++)
        if (!o->urls[i])
            return "a URL is missing";
    if (identities > 1)
        return "one of user, token, credentials and nkey";
    if (!o->nkey != !o->nkey_seed || (o->password && !o->user))
        return "user and password, and nkey and seed, go together";
    if (!o->cert != !o->key)
        return "a certificate and its key go together";
    if (!is_time(o->connect_timeout) || !is_time(o->write_timeout) || !is_time(o->ping_interval) ||
        !is_time(o->retry_first) || !is_time(o->retry_most))
        return "times are 1 to 3,600,000 ms";
    if (o->retry_most < o->retry_first)
        return "retry_most is below retry_first";
    if (o->max_pending == 0 || o->max_pending > INT32_MAX)
        return "max_pending is 1 to 2^31 - 1";
    if (o->max_pending_bytes == 0 || o->max_pending_bytes > INT32_MAX)
        return "max_pending_bytes is 1 to 2^31 - 1";
    return NULL;
}

static natsStatus set_place(natsOptions *n, const tws_nats_options *o)
{
    static const char *const local[] = {"nats://127.0.0.1:4222"};
    const char *const *urls = o->urls ? o->urls : local;
    const char *list[1024];
    size_t count = o->urls ? o->url_count : 1;
    natsStatus s;

    for (size_t i = 0; i < count; i++)
        list[i] = urls[i];
    s = natsOptions_SetServers(n, list, (int)count);
    if (s == NATS_OK && o->name)
        s = natsOptions_SetName(n, o->name);
    return s;
}

static natsStatus set_identity(natsOptions *n, const tws_nats_options *o)
{
    if (o->user)
        return natsOptions_SetUserInfo(n, o->user, o->password ? o->password : "");
    if (o->token)
        return natsOptions_SetToken(n, o->token);
    if (o->credentials)
        return natsOptions_SetUserCredentialsFromFiles(n, o->credentials, NULL);
    if (o->nkey)
        return natsOptions_SetNKeyFromSeed(n, o->nkey, o->nkey_seed);
    return NATS_OK;
}

/* libnats takes tls:// for a name of nats://, and then speaks as the server likes. */
static bool says_tls(const tws_nats_options *o)
{
    for (size_t i = 0; i < o->url_count; i++)
        if (strncasecmp(o->urls[i] + strspn(o->urls[i], " \t"), "tls:", 4) == 0)
            return true;
    return false;
}

static natsStatus set_tls(natsOptions *n, const tws_nats_options *o)
{
    natsStatus s = NATS_OK;

    if (o->tls || o->ca || o->cert || o->host_name || says_tls(o))
        s = natsOptions_SetSecure(n, true);
    if (s == NATS_OK && o->ca)
        s = natsOptions_LoadCATrustedCertificates(n, o->ca);
    if (s == NATS_OK && o->cert)
        s = natsOptions_LoadCertificatesChain(n, o->cert, o->key);
    if (s == NATS_OK && o->host_name)
        s = natsOptions_SetExpectedHostname(n, o->host_name);
    return s;
}

static natsStatus set_ways(natsOptions *n, const tws_nats_options *o)
{
    natsStatus s = natsOptions_SetTimeout(n, o->connect_timeout);

    if (s == NATS_OK)
        s = natsOptions_SetWriteDeadline(n, o->write_timeout);
    if (s == NATS_OK)
        s = natsOptions_SetPingInterval(n, o->ping_interval);
    if (s == NATS_OK)
        s = natsOptions_SetMaxPingsOut(n, 2);
    if (s == NATS_OK)
        s = natsOptions_SetMaxReconnect(n, -1);
    if (s == NATS_OK)
        s = natsOptions_SetNoEcho(n, true);
    /* Not a thread for each room. */
    if (s == NATS_OK)
        s = natsOptions_UseGlobalMessageDelivery(n, true);
    if (s == NATS_OK)
        s = natsOptions_SetMaxPendingMsgs(n, (int)o->max_pending);
    return s;
}

static tws_err set_all(natsOptions *n, const tws_nats_options *o, tws_error *error)
{
    if (set_place(n, o) != NATS_OK)
        return nats_options_error(error, TWS_ERR_ARGUMENT, "these URLs cannot be used");
    if (set_tls(n, o) != NATS_OK)
        return nats_options_error(error, TWS_ERR_TLS, "certificates or key cannot be used");
    if (set_identity(n, o) != NATS_OK)
        return nats_options_error(error, TWS_ERR_ARGUMENT, "these credentials cannot be used");
    if (set_ways(n, o) != NATS_OK)
        return nats_options_error(error, TWS_ERR_ARGUMENT, "libnats does not take these options");
    return TWS_OK;
}

tws_err nats_options_make(natsOptions **out, tws_nats_options *times, const tws_nats_options *opt,
                          tws_error *error)
{
    const char *why;
    tws_err err;

    tws_nats_options_init(times);
    if (opt && opt->size == 0)
        return nats_options_error(error, TWS_ERR_ARGUMENT, "options without an initialiser");
    if (opt)
        memcpy(times, opt, opt->size < sizeof *times ? opt->size : sizeof *times);
    why = refusal(times);
    if (why)
        return nats_options_error(error, TWS_ERR_ARGUMENT, why);
    if (natsOptions_Create(out) != NATS_OK)
        return nats_options_error(error, TWS_ERR_MEMORY, "no memory");
    err = set_all(*out, times, error);
    if (err) {
        natsOptions_Destroy(*out);
        *out = NULL;
    }
    return err;
}
