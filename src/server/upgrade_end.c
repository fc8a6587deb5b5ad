/* Why a socket did not become a connection, in words. */
#include "server/handshake.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

const char *upgrade_end_name(enum upgrade_end end)
{
    switch (end) {
    case UPGRADE_DONE:
        return "done";
    case UPGRADE_PAGE:
        return "page";
    case UPGRADE_REQUIRED:
        return "upgrade_required";
    case UPGRADE_BAD_REQUEST:
        return "bad_request";
    case UPGRADE_BAD_METHOD:
        return "method";
    case UPGRADE_BAD_VERSION:
        return "version";
    case UPGRADE_TOO_LARGE:
        return "too_large";
    case UPGRADE_BAD_ORIGIN:
        return "origin";
    case UPGRADE_HOOK_REFUSED:
        return "hook";
    case UPGRADE_TIMED_OUT:
        return "timeout";
    case UPGRADE_DISCONNECTED:
        return "disconnected";
    case UPGRADE_INTERNAL:
        return "internal";
    case UPGRADE_CUT:
        return "cut";
    case UPGRADE_TLS:
        return "tls";
    case UPGRADE_ENDS:
        break;
    }
    return "unknown";
}

static tws_err code_of(enum upgrade_end end, const struct handshake *h)
{
    switch (end) {
    case UPGRADE_DONE:
        return TWS_OK;
    case UPGRADE_PAGE:
        return TWS_ERR_NOT_UPGRADE;
    case UPGRADE_REQUIRED:
        return h->req.verdict == HANDSHAKE_PLAIN ? TWS_ERR_NOT_UPGRADE : TWS_ERR_HANDSHAKE;
    case UPGRADE_BAD_ORIGIN:
    case UPGRADE_HOOK_REFUSED:
        return TWS_ERR_REFUSED;
    case UPGRADE_TIMED_OUT:
        return TWS_ERR_HANDSHAKE_TIMEOUT;
    case UPGRADE_DISCONNECTED:
        if (h->sys_errno == ECONNABORTED && net_stream_is_tls(&h->stream))
            return TWS_ERR_TRUNCATED;
        return h->sys_errno ? TWS_ERR_NETWORK : TWS_ERR_EOF;
    case UPGRADE_INTERNAL:
        return TWS_ERR_MEMORY;
    case UPGRADE_CUT:
        return TWS_ERR_CLOSED;
    case UPGRADE_TLS:
        return h->tls_result == -EKEYREJECTED ? TWS_ERR_CERTIFICATE : TWS_ERR_TLS;
    case UPGRADE_BAD_REQUEST:
    case UPGRADE_BAD_METHOD:
    case UPGRADE_BAD_VERSION:
    case UPGRADE_TOO_LARGE:
    case UPGRADE_ENDS:
        break;
    }
    return TWS_ERR_HANDSHAKE;
}

static tws_cause cause_of(enum upgrade_end end)
{
    switch (end) {
    case UPGRADE_TIMED_OUT:
        return TWS_CAUSE_TIMEOUT;
    case UPGRADE_TOO_LARGE:
        return TWS_CAUSE_LIMIT;
    case UPGRADE_BAD_ORIGIN:
    case UPGRADE_HOOK_REFUSED:
    case UPGRADE_INTERNAL:
    case UPGRADE_CUT:
        return TWS_CAUSE_LOCAL;
    default:
        return TWS_CAUSE_PEER;
    }
}

static void describe(const struct handshake *h, tws_error *e)
{
    memset(e, 0, sizeof *e);
    if (!h->end)
        return;
    e->code = code_of(h->end, h);
    e->phase = h->tls_result ? TWS_PHASE_TLS : TWS_PHASE_HANDSHAKE;
    e->tls_error = h->tls_error.code;
    e->cause = cause_of(h->end);
    e->sys_errno = h->sys_errno;
    e->http_status = h->status;
    if (h->status)
        snprintf(e->text, sizeof e->text, "%s: %d, %s", tws_err_text(e->code), h->status, h->why);
    else
        snprintf(e->text, sizeof e->text, "%s: %s", tws_err_text(e->code), h->why);
}

void upgrade_tell(struct handshake *h, tws_error *error)
{
    const tws_upgrade_options *o = &h->cfg->opt;

    describe(h, error);
    if (h->end && o->on_handshake_end)
        o->on_handshake_end(error, h->request, h->reply.user, o->hook_arg);
}
