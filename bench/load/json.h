#ifndef LOAD_JSON_H
#define LOAD_JSON_H

#include <stdio.h>

#include "result.h"

/* Where the JSON goes. Opened before the run, so that a path that cannot be written is known early. */
struct json_file {
    const char *path; /* NULL: none; "-": stdout */
    char *temporary;
    FILE *file;
};

/* Both return 0, or -1 with errno. */
int json_open(struct json_file *j, const char *path);
int json_write(struct json_file *j, const struct result *r);

/* Removes what was begun and not finished. */
void json_discard(struct json_file *j);

/* A string in quotes; bytes that are not UTF-8 become U+FFFD. */
void json_string(FILE *f, const char *s);

#endif
