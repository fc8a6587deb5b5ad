/*
 * A connection of either role over a memory stream: it reads what the input holds in one of the ways
 * there are, echoes, and is compared with the reference at every step.
 *
 * Input: SESSION_SETTINGS bytes of settings, then frames as they are on the wire.
 */
#ifndef TESTS_FUZZ_LIB_SESSION_H
#define TESTS_FUZZ_LIB_SESSION_H

#include "fuzz.h"

#define SESSION_SETTINGS 8
#define SESSION_MAX_WIRE 65536

void session_run(bool server, bool deflate, const uint8_t settings[SESSION_SETTINGS],
                 const uint8_t *wire, size_t len);
/* The same with an input as above. */
void session_run_input(bool server, bool deflate, const uint8_t *data, size_t size);

#endif
