/* Frames into a server's connection, without compression, and their echo; see lib/session.h. */
#include "lib/frame_mutator.h"
#include "lib/session.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    session_run_input(true, false, data, size);
    return 0;
}

FRAME_MUTATOR(SESSION_SETTINGS, true, false)
