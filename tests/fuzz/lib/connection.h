/* A connection over the memory stream, after a handshake that never was. */
#ifndef TESTS_FUZZ_LIB_CONNECTION_H
#define TESTS_FUZZ_LIB_CONNECTION_H

#include <tws/deflate.h>
#include <tws/tws.h>

#include "wire/deflate.h"

struct fuzz_connection {
    bool server;
    bool light; /* as those of light threads */
    const tws_conn_options *options;
    const tws_deflate_options *deflate; /* NULL: messages are not compressed */
    struct deflate_params agreed;
    size_t fed; /* bytes of the stream that have come with the handshake */
};

/* memory_begin() has been called. The caller's; tws_conn_unref(). */
tws_conn *fuzz_connect(const struct fuzz_connection *f);

#endif
