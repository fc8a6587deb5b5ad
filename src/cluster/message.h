/* message.h: what nodes send each other, and the subjects they send it on. Pure functions over bytes. */
#ifndef CLUSTER_MESSAGE_H
#define CLUSTER_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CLUSTER_ORIGIN 16
#define CLUSTER_HEAD 56
#define CLUSTER_NAME_MAX 65535
#define CLUSTER_PREFIX_MAX 64
#define CLUSTER_BEAT_MS_MAX 3600000
#define CLUSTER_TOKEN_MAX 128
#define CLUSTER_HASH_DIGITS 40
/* Prefix, ".r.", token, zero. */
#define CLUSTER_SUBJECT_MAX (CLUSTER_PREFIX_MAX + 3 + CLUSTER_TOKEN_MAX + 1)

enum cluster_kind { CLUSTER_DATA = 1, CLUSTER_BEAT = 2 };

/* What a beat says besides: tell me what you know; I leave this room. */
#define CLUSTER_ASK 1u
#define CLUSTER_GONE 2u

struct cluster_message {
    enum cluster_kind kind;
    uint8_t what; /* the opcode, or CLUSTER_ASK and CLUSTER_GONE */
    uint8_t origin[CLUSTER_ORIGIN];
    /*
     * A node numbers its messages in each room from 1 on. When it has forgotten a room and comes back
     * it begins anew, under a higher `stream`. A beat has the number of the last message.
     */
    uint64_t stream, seq;
    uint64_t members; /* beat */
    uint32_t beat_ms; /* beat: when to expect the next one */
    const char *name; /* of the room, not zero-terminated; empty for messages to all */
    size_t name_len;
    const uint8_t *data;
    size_t len;
};

/* Head, name and data, of which the last two are copied: CLUSTER_HEAD + name_len + len bytes. */
void cluster_message_write(uint8_t *out, const struct cluster_message *m);
/* Sets the numbers of one that has been written. */
void cluster_message_number(uint8_t *out, uint64_t stream, uint64_t seq);
/* Points into `data`. False: this is no such message. */
bool cluster_message_read(struct cluster_message *m, const void *data, size_t len);

bool cluster_prefix_valid(const char *prefix);
/* name NULL: the subject of messages to all. hash_digits: CLUSTER_HASH_DIGITS; fewer only in tests.
 * Returns the length. */
size_t cluster_subject(char out[CLUSTER_SUBJECT_MAX], const char *prefix, const char *name,
                       size_t name_len, size_t hash_digits);

#endif
