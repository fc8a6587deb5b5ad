/*
 * handshake.h: the steps of an opening handshake, for upgrade.c, which takes them in one go, and
 * verdict.c, which leaves the answer to somebody else.
 */
#ifndef SERVER_HANDSHAKE_H
#define SERVER_HANDSHAKE_H

#include "server/upgrade.h"

#include "wire/deflate.h"

struct handshake {
    struct upgrade_config *cfg;
    const struct upgrade_input *in;
    struct net_stream stream;
    union net_peer peer;
    int64_t deadline;
    void *block;
    uint8_t *buf; /* from cfg->heads: max_head_bytes, then the field table */
    size_t len;
    struct http_head head;
    struct handshake_request req;
    tws_request *request; /* in the block, or on the heap */
    bool request_on_heap;
    tws_reply reply;
    const void *rest; /* bytes behind the head */
    size_t rest_len;
    bool compress;                /* messages are compressed, as agreed */
    struct deflate_params agreed; /* how */
    enum upgrade_end end;
    int status;   /* of the answer; 0: none was sent */
    bool keep;    /* the answer is not sent but kept */
    char *answer; /* owned */
    size_t answer_len;
    int sys_errno;
    const char *why;
    int tls_result; /* -errno of the TLS handshake; 0: done, or none */
    struct net_tls_error tls_error;
};

/* Ready for the head. The block and the descriptor in `in` are taken over, in every case. */
enum upgrade_end upgrade_prepare(struct handshake *h, struct upgrade_config *cfg,
                                 const struct upgrade_input *in);
/* Reads the head, judges it, asks the hooks. */
enum upgrade_end upgrade_judge(struct handshake *h);
/* The 101. */
enum upgrade_end upgrade_answer_switch(struct handshake *h);
/* The answer to everything but an upgrade. The end that led here is kept. */
void upgrade_answer_refusal(struct handshake *h);
/* The connection, after the 101. */
enum upgrade_end upgrade_open(struct handshake *h, tws_conn **out);
/* Fills *error and tells the hook about an end. */
void upgrade_tell(struct handshake *h, tws_error *error);
void upgrade_handshake_free(struct handshake *h);

#endif
