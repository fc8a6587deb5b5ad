#include "wire/utf8.h"

#include <tws/types.h>

bool tws_utf8_valid(const void *data, size_t len)
{
    return wire_utf8_valid(data, len);
}
