/* fault.h: error records of calls that failed here, before or without a connection. */
#ifndef BASE_FAULT_H
#define BASE_FAULT_H

#include <tws/error.h>

/*
 * Fills e, if there is one, for a fault on this side: the text of the code, and behind it what and more,
 * each of which may be NULL; in place of more the system's words for sys_errno, unless that is 0.
 * Returns code.
 */
tws_err base_fault(tws_error *e, tws_err code, tws_phase phase, int sys_errno, const char *what,
                   const char *more);

#endif
