/* Options of compression, which every build knows. */
#include "conn/deflate.h"

#include "base/sized.h"

#include <string.h>

void tws_deflate_options_init_sized(tws_deflate_options *opt, size_t size)
{
    tws_deflate_options o;

    memset(&o, 0, sizeof o);
    o.size = size;
    o.level = 1;
    o.memory_level = 5;
    o.server_no_context_takeover = true;
    o.client_no_context_takeover = true;
    o.threshold = TWS_DEFLATE_AUTO;
    base_sized_give(opt, size, &o, sizeof o);
}
