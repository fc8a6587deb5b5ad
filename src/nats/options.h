/* options.h: a program's wishes, as libnats wants them. */
#ifndef NATS_OPTIONS_H
#define NATS_OPTIONS_H

#include <tws/nats.h>

#include <nats/nats.h>

/* Fills the record, if there is one; returns err. */
tws_err nats_options_error(tws_error *error, tws_err err, const char *text);
/* times: gets all of the options, with the defaults; no pointer in it is valid later. */
tws_err nats_options_make(natsOptions **out, tws_nats_options *times, const tws_nats_options *opt,
                          tws_error *error);

#endif
