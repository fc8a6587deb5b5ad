/* The least a kernel thread per connection can cost: recv blocks, sendmsg blocks, nothing else. */
#include "floor.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define THREAD_BUFFER 4096 /* of the stack: one page, so that a thread that waits costs little */

static bool send_all(int fd, struct floor_reply *reply)
{
    while (reply->count > 0) {
        struct msghdr msg = {.msg_iov = reply->iov, .msg_iovlen = (size_t)reply->count};
        ssize_t n = sendmsg(fd, &msg, MSG_NOSIGNAL);

        if (n < 0)
            return false;
        floor_sent(reply, (size_t)n);
    }
    return true;
}

static bool answer(struct floor_conn *c, uint8_t *buf, size_t n)
{
    struct floor_reply reply;
    size_t done = 0;
    ptrdiff_t used;

    do {
        used = floor_input(c, buf + done, n - done, &reply);
        if (used < 0 || !send_all(c->fd, &reply) || c->closing)
            return false;
        done += (size_t)used;
    } while (used > 0 && done < n);
    return floor_hold(c, buf + done, n - done);
}

static void *connection(void *arg)
{
    struct floor_conn c = {.fd = (int)(intptr_t)arg};
    uint8_t buf[THREAD_BUFFER];

    for (;;) {
        size_t held = floor_begin(&c, buf);
        ssize_t n = held < sizeof buf ? recv(c.fd, buf + held, sizeof buf - held, 0) : 0;

        if (n <= 0 || !answer(&c, buf, held + (size_t)n))
            break;
    }
    free(c.held);
    close(c.fd);
    return NULL;
}

static pthread_attr_t attributes; /* set before the first thread */

static void accepted(int fd)
{
    pthread_t thread;

    if (pthread_create(&thread, &attributes, connection, (void *)(intptr_t)fd) != 0)
        close(fd);
}

int main(int argc, char **argv)
{
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 64 * 1024);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    return floor_serve(argc, argv, accepted);
}
