#include <tws/client.h>

#include "base/alloc.h"
#include "client/dial.h"

tws_cancel *tws_cancel_new(void)
{
    tws_cancel *cancel = base_calloc(NULL, sizeof *cancel);

    if (cancel)
        task_cancel_init(&cancel->task);
    return cancel;
}

void tws_cancel_now(tws_cancel *cancel)
{
    task_cancel_set(&cancel->task);
}

bool tws_cancel_is_set(tws_cancel *cancel)
{
    return task_cancel_is_set(&cancel->task);
}

void tws_cancel_free(tws_cancel *cancel)
{
    if (!cancel)
        return;
    task_cancel_destroy(&cancel->task);
    base_free(NULL, cancel);
}
