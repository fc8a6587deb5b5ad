/* What responses say besides their own fields: reason phrases and dates. */
#include <string.h>

#include "wire/http.h"

const char *http_status_text(int status)
{
    static const struct {
        int status;
        const char *text;
    } table[] = {
        {100, "Continue"},
        {101, "Switching Protocols"},
        {200, "OK"},
        {201, "Created"},
        {202, "Accepted"},
        {204, "No Content"},
        {205, "Reset Content"},
        {206, "Partial Content"},
        {301, "Moved Permanently"},
        {302, "Found"},
        {303, "See Other"},
        {304, "Not Modified"},
        {307, "Temporary Redirect"},
        {308, "Permanent Redirect"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {402, "Payment Required"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {406, "Not Acceptable"},
        {407, "Proxy Authentication Required"},
        {408, "Request Timeout"},
        {409, "Conflict"},
        {410, "Gone"},
        {411, "Length Required"},
        {412, "Precondition Failed"},
        {413, "Content Too Large"},
        {414, "URI Too Long"},
        {415, "Unsupported Media Type"},
        {417, "Expectation Failed"},
        {421, "Misdirected Request"},
        {422, "Unprocessable Content"},
        {426, "Upgrade Required"},
        {428, "Precondition Required"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {451, "Unavailable For Legal Reasons"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {502, "Bad Gateway"},
        {503, "Service Unavailable"},
        {504, "Gateway Timeout"},
        {505, "HTTP Version Not Supported"},
        {507, "Insufficient Storage"},
        {511, "Network Authentication Required"},
    };

    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (table[i].status == status)
            return table[i].text;
    return "Unknown";
}

static void put_two(char *out, int number)
{
    out[0] = (char)('0' + number / 10);
    out[1] = (char)('0' + number % 10);
}

void http_date(char out[HTTP_DATE_LEN + 1], int64_t seconds)
{
    static const char days[] = "ThuFriSatSunMonTueWed"; /* 1 January 1970 was a Thursday */
    static const char months[] = "MarAprMayJunJulAugSepOctNovDecJanFeb";
    const int64_t last = INT64_C(253402300799); /* end of the year 9999 */

    seconds = seconds < 0 ? 0 : seconds > last ? last : seconds;

    int day = (int)(seconds / 86400);
    int second = (int)(seconds % 86400);
    /* Days since 1 March of the year 0, in eras of 400 years of which each begins on 1 March: the
     * leap day is the last of its year. */
    int since = day + 719468;
    int era = since / 146097;
    int of_era = since % 146097;
    int year_of_era = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    int of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    int month = (5 * of_year + 2) / 153; /* 0 is March */
    int year = era * 400 + year_of_era + (month >= 10 ? 1 : 0);

    memcpy(out, "Ddd, 00 Mmm 0000 00:00:00 GMT", HTTP_DATE_LEN + 1);
    memcpy(out, days + (size_t)3 * (size_t)(day % 7), 3);
    put_two(out + 5, of_year - (153 * month + 2) / 5 + 1);
    memcpy(out + 8, months + (size_t)3 * (size_t)month, 3);
    put_two(out + 12, year / 100);
    put_two(out + 14, year % 100);
    put_two(out + 17, second / 3600);
    put_two(out + 20, second / 60 % 60);
    put_two(out + 23, second % 60);
}
