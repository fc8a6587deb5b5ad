/* zstream_z.h: what is inside of a stream, for those who call zlib. */
#ifndef CONN_ZSTREAM_Z_H
#define CONN_ZSTREAM_Z_H

#include "conn/zstream.h"

#include <zlib.h>

struct zstream {
    struct zstream *next;
    const tws_allocator *allocator;
    z_stream z;
    uint8_t level; /* 0: inflates */
    uint8_t memory_level;
    uint8_t bits;
};

#endif
