/*
 * chat_room.h: rooms of the chat: who is in them and what was said last.
 *
 * A member is a variable on the stack of its connection's thread: it is in a room's list from
 * room_join() to room_leave(), both called by that thread.
 */
#ifndef CHAT_ROOM_H
#define CHAT_ROOM_H

#include <tws/hub.h>

enum {
    ROOM_NAME_BYTES = 48,   /* longest name of a room or a member */
    ROOM_TEXT_BYTES = 1000, /* longest text */
    ROOM_HISTORY = 50,      /* texts that a newcomer is shown */
    ROOM_MEMBERS = 50,
    ROOM_COUNT = 32
};

struct member {
    tws_conn *conn;
    char name[ROOM_NAME_BYTES + 1];
    struct room *room; /* set by room_join() */
    bool live;         /* has seen the history; guarded by the rooms' lock, like next */
    struct member *next;
};

enum join_result { JOIN_OK, JOIN_NAME_TAKEN, JOIN_FULL, JOIN_BROKEN };

/*
 * Puts a member with a connection and a name into the room of that name, shows it what was said
 * before, and tells all. Names are valid UTF-8, 1 to ROOM_NAME_BYTES. Anything but JOIN_OK: it is
 * not in the room. JOIN_BROKEN: its connection has ended.
 */
enum join_result room_join(struct member *m, const char *room_name);

/*
 * Sends a text (valid UTF-8, at most ROOM_TEXT_BYTES) to everyone in the member's room, the member
 * included.
 */
void room_say(struct member *m, const char *text, size_t len);

/* Takes a member out of its room and tells the others. */
void room_leave(struct member *m);

/* Before the first member and after the last. */
bool rooms_open(void);
void rooms_close(void);
/* For its counters. */
tws_hub *rooms_hub(void);

#endif
