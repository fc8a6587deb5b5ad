/*
 * tws_0_1.h: what a program of version 0.1.0 was compiled with: part of its headers, as bytes. It is
 * not brought up to date, since that is what it is for.
 *
 * Three structs are shorter than they were in 0.1.0, as if their last fields had come later: the
 * server's options end before max_handshakes, those of compression before max_ratio, the counters of a
 * connection after two. Nothing older can be used: until the field `events` was added within
 * tws_server_options, structs still changed in their middle, and the very first ones had no size.
 */
#ifndef TWS_0_1_H
#define TWS_0_1_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef int64_t tws_ms;
typedef int tws_err;
typedef struct tws_conn tws_conn;
typedef struct tws_server tws_server;
typedef struct tws_response tws_response;

typedef struct tws_message {
    int opcode;
    uint32_t flags;
    char *data;
    size_t len;
    void *owner;
} tws_message;

typedef struct tws_deflate_options {
    size_t size;
    int level, memory_level, server_max_window_bits, client_max_window_bits;
    bool server_no_context_takeover, client_no_context_takeover;
    uint32_t threshold;
} tws_deflate_options;

/* 608 bytes, of which this program uses one field. */
typedef struct tws_upgrade_options {
    size_t size;
    tws_ms handshake_timeout;
    unsigned char more[104];
    const tws_deflate_options *deflate;
    unsigned char rest[480];
} tws_upgrade_options;

typedef struct tws_server_options {
    size_t size;
    const char *const *listen;
    size_t listen_count;
    int backlog;
    bool reuse_port;
    void (*on_connection)(tws_conn *c, void *arg);
    const void *events;
    void *arg;
    uint32_t max_connections, max_per_address;
    int threads;
    uint32_t carriers;
    size_t stack_size;
    bool measure_stacks, no_spread, no_pause;
    void *log, *log_arg, *tls;
    tws_upgrade_options upgrade;
} tws_server_options;

typedef struct tws_stats {
    uint64_t first[2];
} tws_stats;

const char *tws_version(void);
void tws_deflate_options_init_sized(tws_deflate_options *opt, size_t size);
void tws_server_options_init_sized(tws_server_options *opt, size_t size);
tws_err tws_server_start(tws_server **out, const tws_server_options *opt, void *error);
size_t tws_server_address(const tws_server *s, size_t index, char *buf, size_t size);
tws_err tws_server_drain(tws_server *s, tws_ms ms);
void tws_server_free(tws_server *s);
tws_err tws_dial(tws_conn **out, const char *url, const void *opt, tws_response **r, void *error);
tws_err tws_read_message(tws_conn *c, tws_message *m);
tws_err tws_write_message(tws_conn *c, int opcode, const void *data, size_t len);
void tws_conn_stats_sized(tws_conn *c, tws_stats *out, size_t size);
tws_err tws_close(tws_conn *c, int code, const char *reason);
void tws_conn_unref(tws_conn *c);

#endif
