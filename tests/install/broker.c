/* A program that is linked with an adapter for a broker. Prints the version. */
#include <stdio.h>

#include <tws/tws.h>

#ifdef WITH_redis
#include <tws/redis.h>
typedef tws_redis_options broker_options;
#define broker_options_init(opt) tws_redis_options_init(opt)
#else
#include <tws/nats.h>
typedef tws_nats_options broker_options;
#define broker_options_init(opt) tws_nats_options_init(opt)
#endif

int main(void)
{
    broker_options opt = {0};

    broker_options_init(&opt);
    if (opt.size != sizeof opt)
        return 1;
    puts(tws_version());
    return 0;
}
