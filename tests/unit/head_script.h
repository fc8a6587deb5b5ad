/*
 * Runs one HTTP head through the parser in every way it can arrive, and keeps the result: in one
 * piece, cut in two at every boundary, and byte by byte. Bytes that were fed before are wiped out
 * before the next feed, so that a parser that looks back gives another answer. Every piece ends at
 * a guard page.
 */
#ifndef TESTS_UNIT_HEAD_SCRIPT_H
#define TESTS_UNIT_HEAD_SCRIPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "guard.h"
#include "wire/http.h"

#define HEAD_SCRIPT_FIELDS 128

struct head_script {
    struct guard guard;
    const uint8_t *buf; /* where the head stands; slices count from here */
    struct http_field fields[HEAD_SCRIPT_FIELDS];
    struct http_head head;
    enum http_result result;
};

extern const struct http_limits head_script_limits; /* 16,384 bytes, 100 fields */

/* Fails the running test when the ways do not agree. */
void head_script_run(struct head_script *s, bool is_response, const char *text, size_t len,
                     const struct http_limits *limits);
void head_script_end(struct head_script *s);

/* A terminated request or response, with the usual limits; must parse. */
void head_script_request(struct head_script *s, const char *text);
void head_script_response(struct head_script *s, const char *text);

#endif
