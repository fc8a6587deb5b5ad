/* cluster_note.h: what the messages of cluster_node begin with. */
#ifndef TESTS_INTEROP_CLUSTER_NOTE_H
#define TESTS_INTEROP_CLUSTER_NOTE_H

#include <stdint.h>

struct cluster_note {
    uint32_t node, room;
    uint32_t number; /* from 1 on in each room, by each node */
    uint32_t zero;
    int64_t at; /* monotonic clock */
};

#endif
