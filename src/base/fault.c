#include "base/fault.h"

#include <stdio.h>
#include <string.h>

tws_err base_fault(tws_error *e, tws_err code, tws_phase phase, int sys_errno, const char *what,
                   const char *more)
{
    char text[64];

    if (!e)
        return code;
    memset(e, 0, sizeof *e);
    e->code = code;
    e->phase = phase;
    e->cause = TWS_CAUSE_LOCAL;
    e->sys_errno = sys_errno;
    if (!more && sys_errno)
        more = strerror_r(sys_errno, text, sizeof text);
    snprintf(e->text, sizeof e->text, "%s%s%s%s%s", tws_err_text(code), what ? ": " : "",
             what ? what : "", more ? ": " : "", more ? more : "");
    return code;
}
