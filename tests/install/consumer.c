/* What a program outside of this tree does: finds the installed library, and talks to it. */
#include <stdio.h>
#include <string.h>

#include <tws/tws.h>

int main(void)
{
    if (strcmp(tws_version(), TWS_VERSION) != 0) {
        fprintf(stderr, "header %s, library %s\n", TWS_VERSION, tws_version());
        return 1;
    }
    if (strcmp(tws_err_name(TWS_ERR_TIMEOUT), "TWS_ERR_TIMEOUT") != 0)
        return 1;
    puts(tws_version());
    return 0;
}
