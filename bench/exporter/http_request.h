/* The head of a request, as far as a server of one page needs it. */
#ifndef EXPORTER_HTTP_REQUEST_H
#define EXPORTER_HTTP_REQUEST_H

#include <stdbool.h>
#include <stddef.h>

struct http_request {
    bool head;       /* HEAD: the same answer without its body */
    bool keep_alive; /* the connection may serve another request */
    char path[256];  /* without the query */
};

/* Finds the end of a head in LEN bytes. Returns the number of bytes of the head with its blank
 * line, or 0. */
size_t http_head_length(const char *bytes, size_t len);

/* Takes the head apart. Returns 200 when it is a request for a page, else the status to refuse
 * it with. */
int http_parse(const char *bytes, size_t len, struct http_request *r);

const char *http_reason(int status);

#endif
