/* A raw client that sends pongs for as long as they are taken, to a server without a limit on them. */
#ifndef TESTS_INTEGRATION_SUPPORT_FLOOD_H
#define TESTS_INTEGRATION_SUPPORT_FLOOD_H

#include "support.h"

struct flood {
    struct rig rig;
    pthread_t thread;
    _Atomic bool stop;
};
void flood_open(struct flood *f);
void flood_close(struct flood *f);

#endif
