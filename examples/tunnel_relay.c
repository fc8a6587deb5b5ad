/* tunnel_relay.c: see tunnel_relay.h. */
#include "tunnel_relay.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PIECE = 16384 };

struct tunnel {
    tws_conn *conn;
    int fd;
    atomic_int ended;  /* directions: 0 to 2 */
    tws_channel *down; /* closed when the thread of that direction has returned */
};

/* Waits for the socket; a light thread lets others run meanwhile. */
static bool await(int fd, short events)
{
    tws_wait_item item = {.fd = fd, .events = events};
    return tws_wait_any(&item, 1, TWS_NO_LIMIT, NULL) == TWS_OK;
}

static bool write_all(int fd, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t n = send(fd, data, len, MSG_NOSIGNAL);
        if (n >= 0) {
            data += n;
            len -= (size_t)n;
        } else if (errno == EAGAIN ? !await(fd, POLLOUT) : errno != EINTR) {
            return false;
        }
    }
    return true;
}

/* Bytes; 0 at the end; -1 when the socket has failed. */
static ssize_t read_some(int fd, char *buf)
{
    for (;;) {
        ssize_t n = recv(fd, buf, PIECE, 0);
        if (n >= 0 || (errno == EAGAIN ? !await(fd, POLLIN) : errno != EINTR)) {
            return n;
        }
    }
}

/* A direction has ended in order. The second one to end closes the connection. */
static void direction_ended(struct tunnel *t)
{
    if (atomic_fetch_add(&t->ended, 1) == 1) {
        tws_close_start(t->conn, TWS_CLOSE_NORMAL, NULL);
    }
}

/* ---- TCP to WebSocket ---- */

static void relay_down(void *arg)
{
    struct tunnel *t = arg;
    char *buf = malloc(PIECE);
    ssize_t n = -1;
    while (buf != NULL && (n = read_some(t->fd, buf)) > 0) {
        if (tws_stream_write(t->conn, buf, (size_t)n, NULL) != TWS_OK) {
            break;
        }
    }
    free(buf);
    if (n == 0 && tws_stream_end(t->conn) == TWS_OK) {
        direction_ended(t);
    } else { /* does nothing if the connection is over already */
        tws_close_start(t->conn, TWS_CLOSE_INTERNAL_ERROR, "the TCP connection failed");
    }
    tws_channel_close(t->down);
}

/* ---- WebSocket to TCP ---- */

/* Returns when the connection is over. True: its bytes were all there. */
static bool relay_up(struct tunnel *t)
{
    char *buf = malloc(PIECE);
    bool complete = false;
    size_t n;
    while (buf != NULL && tws_stream_read(t->conn, buf, PIECE, &n) == TWS_OK) {
        if (n > 0 && !write_all(t->fd, buf, n)) {
            complete = false;
            break;
        }
        if (n == 0 && !complete) { /* the other direction may go on: read until the close */
            complete = true;
            shutdown(t->fd, SHUT_WR);
            direction_ended(t);
        } else if (n == 0) {
            break;
        }
    }
    free(buf);
    return complete;
}

/* ---- Both ---- */

static void close_tcp(int fd, bool complete)
{
    struct linger at_once = {.l_onoff = 1};
    if (!complete) { /* what broke off must not look like an end: RST in place of FIN */
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    }
    close(fd);
}

void relay(tws_conn *c, int fd, tws_group *group)
{
    struct tunnel t = {.conn = c, .fd = fd, .down = tws_channel_new(1)};
    bool complete = false;
    void *none;
    if (t.down != NULL && tws_group_spawn(group, relay_down, &t) == TWS_OK) {
        complete = relay_up(&t);
        tws_close(c, complete ? TWS_CLOSE_NORMAL : TWS_CLOSE_INTERNAL_ERROR, NULL);
        shutdown(fd, SHUT_RD); /* wakes the other thread, and says nothing to the peer */
        tws_channel_receive(t.down, &none, TWS_NO_LIMIT);
    } else {
        tws_close(c, TWS_CLOSE_TRY_AGAIN_LATER, "no thread");
    }
    close_tcp(fd, complete);
    tws_channel_free(t.down);
}

/* ---- TCP sockets ---- */

/* Looks "HOST:PORT" up and tries each address. */
static int open_socket(const char *address, int (*use)(int, const struct sockaddr *, socklen_t))
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    const char *colon = strrchr(address, ':');
    char host[256];
    size_t len = colon != NULL ? (size_t)(colon - address) : 0;
    if (colon == NULL || len >= sizeof host) {
        return -EINVAL;
    }
    if (len > 1 && address[0] == '[' && colon[-1] == ']') { /* [::1]:80 */
        address++;
        len -= 2;
    }
    memcpy(host, address, len);
    host[len] = '\0';
    if (getaddrinfo(host, colon + 1, &hints, &found) != 0) {
        return -EADDRNOTAVAIL;
    }
    int result = -EADDRNOTAVAIL;
    for (const struct addrinfo *at = found; at != NULL && result < 0; at = at->ai_next) {
        int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd >= 0 && use(fd, at->ai_addr, at->ai_addrlen) == 0 &&
            fcntl(fd, F_SETFL, O_NONBLOCK) == 0) {
            result = fd;
        } else {
            result = -errno;
            if (fd >= 0) {
                close(fd);
            }
        }
    }
    freeaddrinfo(found);
    return result;
}

int tcp_connect(const char *address)
{
    return open_socket(address, connect);
}

static int bind_and_listen(int fd, const struct sockaddr *address, socklen_t len)
{
    int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    return bind(fd, address, len) == 0 && listen(fd, 1024) == 0 ? 0 : -1;
}

int tcp_listen(const char *address)
{
    return open_socket(address, bind_and_listen);
}
