/* reconnect.h: how long tws_reconnect() waits. */
#ifndef CLIENT_RECONNECT_H
#define CLIENT_RECONNECT_H

#include <tws/client.h>

/*
 * Milliseconds to wait after the n-th attempt in a row that came to nothing: a share of
 * min(max_delay, min_delay * 2^(n - 1)) that `random` chooses evenly, both ends included. n 0 is the
 * same as 1.
 */
tws_ms reconnect_delay(const tws_reconnect_options *o, uint32_t n, uint64_t random);

#endif
