/*
 * hold.h: a board of slots that says which connections hold replies back, and since when.
 *
 * A reply may be held until the reader waits again, but no longer than some milliseconds when the
 * handler does something else first. The server's watch thread looks at the board: a slot is one
 * word, so that looking at a thousand connections costs a few microseconds, and holding a reply
 * costs two plain stores.
 */
#ifndef CONN_HOLD_H
#define CONN_HOLD_H

#include "base/alloc.h"
#include "task/task.h"

struct hold_slot {
    _Atomic uint32_t since; /* tick of the board at which bytes were first held; 0: none */
};

struct hold_board;

struct hold_board *hold_board_new(const tws_allocator *a);
void hold_board_free(struct hold_board *b);

/* A slot for a connection, which the watcher calls kick(owner) for. NULL: no memory. */
struct hold_slot *hold_slot_get(struct hold_board *b, void *owner);
/* The watcher will not touch the owner any more once this returns. */
void hold_slot_put(struct hold_board *b, struct hold_slot *slot);

void hold_begin(struct hold_board *b, struct hold_slot *slot);
static inline void hold_end(struct hold_slot *slot)
{
    atomic_store_explicit(&slot->since, 0, memory_order_relaxed);
}

/* The watch thread's body: until hold_board_stop(). kick must not wait. */
void hold_board_run(struct hold_board *b, void (*kick)(void *owner));
void hold_board_stop(struct hold_board *b);

#endif
