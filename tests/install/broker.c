/* A program that is linked with an adapter for a broker: options that it refuses. Prints the version. */
#include <stdio.h>
#include <string.h>

#include <tws/tws.h>

#ifdef WITH_redis
#include <tws/redis.h>
typedef tws_redis_options broker_options;
#define broker_options_init(opt) tws_redis_options_init(opt)
#define broker_open tws_redis_open
#else
#include <tws/nats.h>
typedef tws_nats_options broker_options;
#define broker_options_init(opt) tws_nats_options_init(opt)
#define broker_open tws_nats_open
#endif

static int faults;

/* They must be refused, with a text that has this in it. */
static void refused(const broker_options *opt, const char *part)
{
    tws_broker broker;
    tws_error e = {0};

    if (broker_open(&broker, opt, &e) != TWS_ERR_ARGUMENT || !strstr(e.text, part)) {
        fprintf(stderr, "not refused with \"%s\": \"%s\"\n", part, e.text);
        faults++;
    }
}

#ifdef WITH_redis
static void identities(void)
{
    broker_options opt;

    broker_options_init(&opt);
    opt.user = "me";
    refused(&opt, "a user needs a password");
    broker_options_init(&opt);
    opt.address = "redis://127.0.0.1";
    refused(&opt, "HOST:PORT");
}
#else
static void identities(void)
{
    broker_options opt;

    broker_options_init(&opt);
    opt.user = "me", opt.credentials = "/nowhere/me.creds";
    refused(&opt, "one of user, token, credentials and nkey");
    broker_options_init(&opt);
    opt.nkey = "UABC";
    refused(&opt, "nkey and seed, go together");
    broker_options_init(&opt);
    opt.nkey = "UABC", opt.nkey_seed = "/nowhere/seed", opt.token = "t";
    refused(&opt, "one of user, token, credentials and nkey");
    broker_options_init(&opt);
    opt.max_pending = 0;
    refused(&opt, "max_pending is");
    broker_options_init(&opt);
    opt.max_pending_bytes = (size_t)1 << 31;
    refused(&opt, "max_pending_bytes is");
}
#endif

int main(void)
{
    broker_options opt = {0};

    refused(&opt, "initialise");
    broker_options_init(&opt);
    if (opt.size != sizeof opt)
        return 1;
    opt.ping_interval = 0;
    refused(&opt, "times are");
    broker_options_init(&opt);
    opt.retry_most = opt.retry_first - 1;
    refused(&opt, "retry_most is below retry_first");
    identities();
    if (faults > 0)
        return 1;
    puts(tws_version());
    return 0;
}
