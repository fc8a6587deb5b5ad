/* Why a socket did not become a connection, in words. */
#include "server/upgrade.h"

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
