#include "taskstats.h"

#include <errno.h>
#include <linux/genetlink.h>
#include <linux/netlink.h>
#include <linux/taskstats.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

/* One request or one answer. The largest answer is a struct taskstats and a few headers. */
struct message {
    struct nlmsghdr head;
    struct genlmsghdr generic;
    char attributes[4096];
};

enum { HEADERS = offsetof(struct message, attributes) };

/* Sends one attribute and leaves the answer in M. Returns the bytes of its attributes, or a
 * negative errno. */
static int ask(int fd, struct message *m, uint16_t family, uint8_t command, uint16_t type,
               const void *value, size_t len)
{
    struct nlattr attribute = {.nla_len = (uint16_t)(NLA_HDRLEN + len), .nla_type = type};
    *m = (struct message){
        .head = {.nlmsg_len = (uint32_t)(HEADERS + NLA_ALIGN(NLA_HDRLEN + len)),
                 .nlmsg_type = family,
                 .nlmsg_flags = NLM_F_REQUEST},
        .generic = {.cmd = command, .version = 1},
    };
    memcpy(m->attributes, &attribute, sizeof attribute);
    memcpy(m->attributes + NLA_HDRLEN, value, len);
    struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
    if (sendto(fd, m, m->head.nlmsg_len, 0, (struct sockaddr *)&kernel, sizeof kernel) < 0) {
        return -errno;
    }
    ssize_t n = recv(fd, m, sizeof *m, 0);
    if (n < 0) {
        return -errno;
    }
    if ((size_t)n < sizeof m->head || m->head.nlmsg_len > (size_t)n) {
        return -EPROTO;
    }
    if (m->head.nlmsg_type == NLMSG_ERROR) {
        struct nlmsgerr error;
        memcpy(&error, (char *)m + NLMSG_HDRLEN, sizeof error);
        return error.error < 0 ? error.error : -EPROTO;
    }
    return m->head.nlmsg_len < HEADERS ? -EPROTO : (int)(m->head.nlmsg_len - HEADERS);
}

/* Finds the attribute TYPE among LEN bytes. Returns its value and its length in *SIZE, or NULL. */
static const char *find(const char *attributes, size_t len, uint16_t type, size_t *size)
{
    struct nlattr a;
    for (size_t at = 0; at + sizeof a <= len; at += NLA_ALIGN(a.nla_len)) {
        memcpy(&a, attributes + at, sizeof a);
        if (a.nla_len < NLA_HDRLEN || a.nla_len > len - at) {
            return NULL;
        }
        if ((a.nla_type & NLA_TYPE_MASK) == type) {
            *size = a.nla_len - (size_t)NLA_HDRLEN;
            return attributes + at + NLA_HDRLEN;
        }
    }
    return NULL;
}

int taskstats_open(struct taskstats_reader *r)
{
    int result;
    r->fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_GENERIC);
    if (r->fd < 0) {
        return -errno;
    }
    struct timeval second = {.tv_sec = 1};
    setsockopt(r->fd, SOL_SOCKET, SO_RCVTIMEO, &second, sizeof second);
    struct message m;
    result = ask(r->fd, &m, GENL_ID_CTRL, CTRL_CMD_GETFAMILY, CTRL_ATTR_FAMILY_NAME,
                 TASKSTATS_GENL_NAME, sizeof TASKSTATS_GENL_NAME);
    if (result < 0) {
        goto out;
    }
    size_t size;
    const char *id = find(m.attributes, (size_t)result, CTRL_ATTR_FAMILY_ID, &size);
    if (id == NULL || size < sizeof r->family) {
        result = -EPROTO;
        goto out;
    }
    memcpy(&r->family, id, sizeof r->family);
    uint64_t ignored[2];
    result = taskstats_switches(r, getpid(), &ignored[0], &ignored[1]);
out:
    if (result < 0) {
        taskstats_close(r);
    }
    return result;
}

int taskstats_switches(const struct taskstats_reader *r, pid_t pid, uint64_t *voluntary,
                       uint64_t *involuntary)
{
    if (r->fd < 0) {
        return -ENOTSUP;
    }
    uint32_t number = (uint32_t)pid;
    struct message m;
    int len = ask(r->fd, &m, r->family, TASKSTATS_CMD_GET, TASKSTATS_CMD_ATTR_TGID, &number,
                  sizeof number);
    if (len < 0) {
        return len;
    }
    size_t size;
    const char *group = find(m.attributes, (size_t)len, TASKSTATS_TYPE_AGGR_TGID, &size);
    const char *stats = group == NULL ? NULL : find(group, size, TASKSTATS_TYPE_STATS, &size);
    if (stats == NULL || size < offsetof(struct taskstats, nivcsw) + sizeof(uint64_t)) {
        return -EPROTO;
    }
    memcpy(voluntary, stats + offsetof(struct taskstats, nvcsw), sizeof *voluntary);
    memcpy(involuntary, stats + offsetof(struct taskstats, nivcsw), sizeof *involuntary);
    return 0;
}

void taskstats_close(struct taskstats_reader *r)
{
    if (r->fd >= 0) {
        close(r->fd);
    }
    r->fd = -1;
}
