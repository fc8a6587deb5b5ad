#include "base/text.h"

#include <string.h>

size_t base_text_copy(char *buf, size_t size, const char *text, size_t len)
{
    if (size > 0) {
        size_t n = len < size ? len : size - 1;

        memcpy(buf, text, n);
        buf[n] = 0;
    }
    return len;
}

void base_text_clean(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            *text = '?';
}
