/*
 * In place of deflate.c, deflate_setup.c, inflate*.c and zstream.c in a build without zlib (make
 * DEFLATE=0).
 *
 * Options that ask for compression are refused, so that no connection ever agrees to it: what is said
 * here of a connection is true of one that does not compress.
 */
#include "conn/codec.h"

#include "base/sized.h"

#include <string.h>

tws_err conn_deflate_options(tws_deflate_options *out, const tws_deflate_options *in,
                             const char **what)
{
    (void)in;
    tws_deflate_options_init(out);
    *what = "this build has no permessage-deflate";
    return TWS_ERR_UNSUPPORTED;
}

bool conn_env_deflate(struct conn_env *env, const tws_deflate_options *opt)
{
    (void)env, (void)opt;
    return false;
}

void codec_env_free(struct conn_env *env)
{
    (void)env;
}

bool conn_deflate_want(const struct conn_env *env, bool server, struct deflate_params *want)
{
    (void)env, (void)server, (void)want;
    return false;
}

size_t conn_deflate_answer(const struct conn_env *env, const struct http_head *head,
                           const uint8_t *buf, struct deflate_params *agreed, char *text)
{
    (void)env, (void)head, (void)buf, (void)agreed, (void)text;
    return 0;
}

uint32_t conn_deflate_streams(struct conn_env *env)
{
    (void)env;
    return 0;
}

size_t conn_deflate_size(void)
{
    return 0;
}

bool conn_deflate_start(tws_conn *c, const struct deflate_params *agreed)
{
    (void)c, (void)agreed;
    return false;
}

void conn_deflate_start_in(tws_conn *c, const struct deflate_params *agreed, void *mem)
{
    (void)c, (void)agreed, (void)mem;
}

void conn_deflate_free(tws_conn *c)
{
    (void)c;
}

/* ---- Options of a connection, and what is known about it ---- */

tws_err tws_set_compression(tws_conn *c, tws_compression mode)
{
    (void)c;
    return mode < TWS_COMPRESS_AUTO || mode > TWS_COMPRESS_ALWAYS ? TWS_ERR_ARGUMENT : TWS_OK;
}

bool tws_conn_deflate_sized(tws_conn *c, tws_deflate_info *out, size_t size)
{
    tws_deflate_info none;

    (void)c;
    memset(&none, 0, sizeof none);
    base_sized_give(out, size, &none, sizeof none);
    return false;
}

tws_compression conn_deflate_mode(tws_conn *c)
{
    (void)c;
    return TWS_COMPRESS_NEVER;
}

uint64_t conn_deflate_threshold(tws_conn *c, tws_compression mode)
{
    (void)c, (void)mode;
    return UINT64_MAX;
}

bool conn_deflate_wanted(tws_conn *c, tws_compression mode, uint64_t len)
{
    (void)c, (void)mode, (void)len;
    return false;
}

bool conn_deflate_ordered(const tws_conn *c)
{
    (void)c;
    return false;
}

bool conn_deflate_form(const tws_conn *c, struct conn_deflate_form *form)
{
    (void)c, (void)form;
    return false;
}

bool conn_deflate_warm(const tws_conn *c)
{
    (void)c;
    return false;
}

void conn_deflate_idle(tws_conn *c)
{
    (void)c;
}

/* ---- Messages ---- */

tws_err conn_deflate_message_as(tws_conn *c, tws_compression mode, const struct iovec *iov,
                                int count, struct conn_deflated *d)
{
    (void)c, (void)mode, (void)iov, (void)count;
    memset(d, 0, sizeof *d);
    return TWS_OK;
}

tws_err conn_deflate_once(struct conn_env *env, struct conn_deflate_form form, const void *data,
                          size_t len, struct conn_deflated *d)
{
    (void)env, (void)form, (void)data, (void)len;
    memset(d, 0, sizeof *d);
    return TWS_OK;
}

void conn_deflate_count(tws_conn *c, const struct conn_deflated *d)
{
    (void)c, (void)d;
}

void conn_deflated_free(struct conn_env *env, struct conn_deflated *d)
{
    (void)env, (void)d;
}

void conn_deflate_reset(tws_conn *c)
{
    (void)c;
}

struct zstream *conn_deflate_open(tws_conn *c)
{
    (void)c;
    return NULL;
}

void conn_deflate_close(tws_conn *c, struct zstream *s, bool sent)
{
    (void)c, (void)s, (void)sent;
}

void zstream_feed(struct zstream *s, const void *data, size_t len)
{
    (void)s, (void)data, (void)len;
}

size_t zstream_pack(struct zstream *s, uint8_t *out, size_t room, bool end)
{
    (void)s, (void)out, (void)room, (void)end;
    return 0;
}

tws_err conn_read_compressed(tws_conn *c, int64_t deadline)
{
    (void)c, (void)deadline;
    return TWS_ERR_UNSUPPORTED;
}

tws_err conn_stream_compressed(tws_conn *c, uint8_t *buf, size_t size, size_t *n, int64_t deadline)
{
    (void)c, (void)buf, (void)size, (void)deadline;
    *n = 0;
    return TWS_ERR_UNSUPPORTED;
}

tws_err conn_skip_compressed(tws_conn *c, int64_t deadline)
{
    (void)c, (void)deadline;
    return TWS_ERR_UNSUPPORTED;
}
