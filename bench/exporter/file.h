/* Reading small files whole, as those of /proc and a pid file are. */
#ifndef EXPORTER_FILE_H
#define EXPORTER_FILE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Reads PATH (relative to the open folder DIR, or AT_FDCWD) into BUF and ends it with a zero
 * byte. Returns the number of bytes, at most SIZE - 1 (the rest is not read), or a negative
 * errno. */
ssize_t file_read(int dir, const char *path, char *buf, size_t size);

/* Reads the decimal number at *AT, behind blanks, and moves *AT behind it. */
bool file_number(const char **at, uint64_t *value);

/* Finds the line of TEXT that begins with NAME and returns the number after it in *VALUE,
 * multiplied by 1,024 when "kB" follows. Returns 0, or -ENOENT. */
int file_field(const char *text, const char *name, uint64_t *value);

#endif
