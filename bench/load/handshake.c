#include "handshake.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

const char *handshake_deflate_params(const struct options *o)
{
    return o->deflate_params != NULL ? o->deflate_params : "client_max_window_bits";
}

char *handshake_request(const struct options *o, const struct url *u, size_t *length,
                        size_t *key_at)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    if (f == NULL)
        return NULL;
    fprintf(f,
            "GET %s HTTP/1.1\r\nHost: %s\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Version: 13\r\n",
            u->target, u->authority);
    if (o->deflate) {
        const char *params = handshake_deflate_params(o);
        fprintf(f, "Sec-WebSocket-Extensions: permessage-deflate%s%s\r\n",
                params[0] != '\0' ? "; " : "", params);
    }
    if (o->subprotocol != NULL)
        fprintf(f, "Sec-WebSocket-Protocol: %s\r\n", o->subprotocol);
    for (unsigned i = 0; i < o->header_count; i++)
        fprintf(f, "%s\r\n", o->headers[i]);
    fputs("Sec-WebSocket-Key: ", f);
    fflush(f);
    *key_at = size;
    fprintf(f, "%*s\r\n\r\n", HANDSHAKE_KEY, "");
    if (fclose(f) != 0) {
        free(text);
        return NULL;
    }
    *length = size;
    return text;
}

int handshake_new_key(char key[HANDSHAKE_KEY + 1])
{
    unsigned char raw[16];
    if (getrandom(raw, sizeof raw, 0) != (ssize_t)sizeof raw)
        return -1;
    EVP_EncodeBlock((unsigned char *)key, raw, sizeof raw);
    return 0;
}

void handshake_accept(char out[HANDSHAKE_ACCEPT + 1], const char *key)
{
    static const char guid[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    char text[HANDSHAKE_KEY + sizeof guid];
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    int len = snprintf(text, sizeof text, "%s%s", key, guid);
    out[0] = '\0';
    if (EVP_Digest(text, (size_t)len, digest, &n, EVP_sha1(), NULL) == 1 && n == 20)
        EVP_EncodeBlock((unsigned char *)out, digest, (int)n);
}

/* "HTTP/1.1 NNN ..." to NNN, or -1. */
static int status_of(const char *line)
{
    int status = 0;
    if (strncmp(line, "HTTP/1.1 ", 9) != 0 && strncmp(line, "HTTP/1.0 ", 9) != 0)
        return -1;
    for (int i = 9; i < 12; i++) {
        if (line[i] < '0' || line[i] > '9')
            return -1;
        status = status * 10 + (line[i] - '0');
    }
    return line[12] == ' ' || line[12] == '\0' ? status : -1;
}

static bool has_token(const char *list, const char *token)
{
    size_t n = strlen(token);
    while (*list != '\0') {
        list += strspn(list, " \t,");
        size_t len = strcspn(list, " \t,");
        if (len == n && strncasecmp(list, token, n) == 0)
            return true;
        list += len;
    }
    return false;
}

/* Which of the headers that matter have been seen. */
struct seen {
    bool upgrade, connection, accept, extensions, protocol;
};

static bool read_header(const char *name, const char *value, const struct handshake *h,
                        const struct options *o, struct seen *seen, struct handshake_answer *a)
{
    if (strcasecmp(name, "Upgrade") == 0) {
        seen->upgrade = strcasecmp(value, "websocket") == 0;
    } else if (strcasecmp(name, "Connection") == 0) {
        seen->connection = seen->connection || has_token(value, "upgrade");
    } else if (strcasecmp(name, "Sec-WebSocket-Accept") == 0) {
        char want[HANDSHAKE_ACCEPT + 1];
        handshake_accept(want, h->key);
        bool once = !seen->accept;
        seen->accept = strcmp(want, value) == 0;
        return once;
    } else if (strcasecmp(name, "Sec-WebSocket-Protocol") == 0) {
        bool once = !seen->protocol;
        seen->protocol = true;
        return once && o->subprotocol != NULL && strcmp(value, o->subprotocol) == 0;
    } else if (strcasecmp(name, "Sec-WebSocket-Extensions") == 0) {
        bool once = !seen->extensions;
        seen->extensions = true;
        return once && o->deflate &&
               deflate_read_answer(value, handshake_deflate_params(o), &a->deflate);
    }
    return true;
}

/* Splits one line at the colon and trims the value, in place. */
static bool split_header(char *line, char **value)
{
    char *colon = strchr(line, ':');
    if (colon == NULL || colon == line)
        return false;
    *colon = '\0';
    char *v = colon + 1 + strspn(colon + 1, " \t");
    size_t n = strlen(v);
    while (n > 0 && (v[n - 1] == ' ' || v[n - 1] == '\t'))
        n--;
    v[n] = '\0';
    *value = v;
    return true;
}

enum handshake_result handshake_read(struct handshake *h, const struct options *o,
                                     struct handshake_answer *a)
{
    struct seen seen = {.upgrade = false};
    *a = (struct handshake_answer){.status = 0};
    char *end = memmem(h->head, h->have, "\r\n\r\n", 4);
    if (end == NULL)
        return h->have < HANDSHAKE_HEAD_MAX ? HANDSHAKE_MORE : HANDSHAKE_INVALID;
    a->length = (size_t)(end + 4 - h->head);
    end[2] = '\0';
    char *line = h->head;
    bool ok = strlen(line) == a->length - 2;
    for (bool first = true; ok && *line != '\0'; first = false) {
        char *next = strstr(line, "\r\n");
        char *value;
        *next = '\0';
        if (first) {
            a->status = status_of(line);
            if (a->status != 101)
                return a->status > 0 ? HANDSHAKE_STATUS : HANDSHAKE_INVALID;
        } else {
            ok = split_header(line, &value) && read_header(line, value, h, o, &seen, a);
        }
        line = next + 2;
    }
    ok = ok && seen.upgrade && seen.connection && seen.accept;
    return ok ? HANDSHAKE_DONE : HANDSHAKE_INVALID;
}
