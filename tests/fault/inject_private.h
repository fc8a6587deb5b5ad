/* inject_private.h: between the two halves of inject.h: what decides, and what stands in for calls. */
#ifndef TESTS_FAULT_INJECT_PRIVATE_H
#define TESTS_FAULT_INJECT_PRIVATE_H

#include "inject.h"

#include <time.h>

/* The error that this call is to fail with, 0: none. fd below 0: of no descriptor. */
int fault_strike(enum fault_call call, int fd);
/* The same for calls that can move fewer bytes: *len may become 1. */
int fault_strike_transfer(enum fault_call call, int fd, size_t *len);
/* Descriptors come and go; an eventfd never fails: it counts. */
void fault_fd_new(int fd, bool counts);
/* It came from another process, whose peer must notice nothing: no use of it fails for good. */
void fault_fd_received(int fd);
bool fault_was_received(int fd);
/* Whether an allocation fails. */
bool fault_strike_memory(bool hook);
/* The clock that the library sees, and a point of it as the system's. */
void fault_clock(struct timespec *now);
void fault_clock_to_system(struct timespec *limit);

#endif
