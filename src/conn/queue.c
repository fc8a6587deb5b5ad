/* Messages that wait for a slow peer. */
#include "conn/queue.h"

#include <string.h>

#define MIB (UINT64_C(1) << 20)

void tws_queue_options_init_sized(tws_queue_options *opt, size_t size)
{
    tws_queue_options o;

    memset(&o, 0, sizeof o);
    o.size = size;
    o.max_bytes = MIB;
    o.max_messages = 4096;
    o.wait = 5000;
    memset(opt, 0, size);
    memcpy(opt, &o, size < sizeof o ? size : sizeof o);
}
