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

bool file_number(const char **at, uint64_t *value)
{
    const char *p = *at + strspn(*at, " \t");
    char *end;
    errno = 0;
    unsigned long long n = strtoull(p, &end, 10);
    if (*p < '0' || *p > '9' || errno != 0) {
        return false;
    }
    *value = n;
    *at = end;
    return true;
}

int file_field(const char *text, const char *name, uint64_t *value)
{
    size_t len = strlen(name);
    for (const char *line = text; line != NULL && *line != '\0'; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, len) != 0) {
            continue;
        }
        const char *at = line + len;
        if (!file_number(&at, value)) {
            return -ENOENT;
        }
        if (strncmp(at, " kB", 3) == 0) {
            *value *= 1024;
        }
        return 0;
    }
    return -ENOENT;
}
