/* The error table's three views, and the version. */
#include <tws/error.h>

#define NAME_CASE(name, value, text)                                                               \
    case name:                                                                                     \
        return #name;
#define TEXT_CASE(name, value, text)                                                               \
    case name:                                                                                     \
        return text;

const char *tws_err_name(tws_err err)
{
    switch (err) {
        TWS_ERROR_MAP(NAME_CASE)
    case TWS_ERR_FORCE_INT_:
        break;
    }
    return "TWS_ERR_UNKNOWN";
}

const char *tws_err_text(tws_err err)
{
    switch (err) {
        TWS_ERROR_MAP(TEXT_CASE)
    case TWS_ERR_FORCE_INT_:
        break;
    }
    return "unknown error";
}

bool tws_err_is_final(tws_err err)
{
    return err <= TWS_ERR_CLOSED;
}

const char *tws_version(void)
{
    return TWS_VERSION;
}
