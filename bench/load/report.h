#ifndef LOAD_REPORT_H
#define LOAD_REPORT_H

#include <stdio.h>

#include "result.h"

/* The table for people. */
void report_print(FILE *f, const struct result *r);

#endif
