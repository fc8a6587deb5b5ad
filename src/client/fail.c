/* What a dial tells when it fails. */
#include "client/dial.h"

#include "base/text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static tws_cause cause_of(tws_err code)
{
    switch (code) {
    case TWS_ERR_ARGUMENT:
    case TWS_ERR_ADDRESS:
    case TWS_ERR_MEMORY:
    case TWS_ERR_SYSTEM:
    case TWS_ERR_UNSUPPORTED:
    case TWS_ERR_CANCELLED:
        return TWS_CAUSE_LOCAL;
    case TWS_ERR_HANDSHAKE_TIMEOUT:
        return TWS_CAUSE_TIMEOUT;
    case TWS_ERR_RESOLVE:
    case TWS_ERR_CONNECT:
    case TWS_ERR_NETWORK:
        return TWS_CAUSE_NETWORK;
    default:
        return TWS_CAUSE_PEER;
    }
}

tws_err dial_fail(struct dial *d, tws_err code, tws_phase phase, int sys_errno, const char *format,
                  ...)
{
    tws_error *e = d->error;
    va_list args;
    int n;

    e->code = code;
    e->phase = phase;
    e->cause = cause_of(code);
    e->sys_errno = sys_errno;
    n = snprintf(e->text, sizeof e->text, "%s: ", tws_err_text(code));
    va_start(args, format);
    vsnprintf(e->text + n, sizeof e->text - (size_t)n, format, args);
    va_end(args);
    base_text_clean(e->text);
    return code;
}

tws_err dial_no_memory(struct dial *d, tws_phase phase)
{
    return dial_fail(d, TWS_ERR_MEMORY, phase, ENOMEM, "while dialling");
}

tws_err dial_local_failed(struct dial *d, tws_phase phase, int result)
{
    char text[96];

    if (result == -ENOMEM)
        return dial_no_memory(d, phase);
    return dial_fail(d, TWS_ERR_SYSTEM, phase, -result, "%s",
                     strerror_r(-result, text, sizeof text));
}

tws_err dial_io_failed(struct dial *d, tws_phase phase, int result)
{
    struct net_tls_error tls;
    char text[96];

    switch (result) {
    case -ENOMEM:
        return dial_no_memory(d, phase);
    case -EPROTO: /* TLS 1.3: a server may refuse our certificate when we are done already */
    case -EKEYREJECTED:
        net_tls_last_error(&d->stream, &tls);
        d->error->tls_error = tls.code;
        return dial_fail(d, result == -EPROTO ? TWS_ERR_TLS : TWS_ERR_CERTIFICATE, TWS_PHASE_TLS, 0,
                         "%s", tls.text);
    case 0:
        return dial_fail(d, TWS_ERR_EOF, phase, 0, "before it had answered");
    case -ETIMEDOUT:
        return dial_fail(d, TWS_ERR_HANDSHAKE_TIMEOUT, phase, 0,
                         "the server did not answer in time");
    case -ECONNABORTED:
        return dial_fail(d, TWS_ERR_TRUNCATED, phase, 0, "before it had answered");
    default:
        return dial_fail(d, TWS_ERR_NETWORK, phase, task_errno(result), "%s",
                         strerror_r(task_errno(result), text, sizeof text));
    }
}

int64_t dial_step(const struct dial *d, tws_ms ms)
{
    int64_t step = task_deadline(ms);

    return step < d->deadline ? step : d->deadline;
}
