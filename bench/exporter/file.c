#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

ssize_t file_read(int dir, const char *path, char *buf, size_t size)
{
    int fd = openat(dir, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return -errno;
    }
    size_t len = 0;
    ssize_t n = 0;
    while (len < size - 1 && (n = read(fd, buf + len, size - 1 - len)) != 0) {
        if (n < 0 && errno != EINTR) {
            n = -errno;
            break;
        }
        len += n > 0 ? (size_t)n : 0;
    }
    close(fd);
    if (n < 0) {
        return n;
    }
    buf[len] = '\0';
    return (ssize_t)len;
}

int file_field(const char *text, const char *name, uint64_t *value)
{
    size_t len = strlen(name);
    for (const char *line = text; line != NULL && *line != '\0'; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, len) != 0) {
            continue;
        }
        char *end;
        unsigned long long n = strtoull(line + len, &end, 10);
        if (end == line + len) {
            return -ENOENT;
        }
        *value = strncmp(end, " kB", 3) == 0 ? n * 1024 : n;
        return 0;
    }
    return -ENOENT;
}
