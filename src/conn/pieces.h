/* pieces.h: frames and messages that are sent piece by piece, for what comes from a file. */
#ifndef CONN_PIECES_H
#define CONN_PIECES_H

#include "conn/conn.h"

/* ---- send.c: with the writer's role ---- */

/* A part of a frame, and what is held before it. `begun`: an earlier part has left; set when this
 * one has begun to. */
tws_err conn_send_part(tws_conn *c, const struct iovec *iov, int count, enum conn_turn turn,
                       struct conn_wait *w, bool *begun);
/* The same from a file, some of the bytes, with nothing held. *error: errno of the file, ENODATA at
 * its end; 0. */
tws_err conn_send_file_part(tws_conn *c, int fd, int64_t *offset, size_t len, enum conn_turn turn,
                            struct conn_wait *w, int *error);
/* ---- writer.c ---- */

/* Data messages of others wait from now on; `who` is not looked at. */
tws_err conn_writer_claim(tws_conn *c, void *who);
void conn_writer_unclaim(tws_conn *c);
/* What has been gathered leaves as a fragment, if the message is not compressed. */
tws_err conn_writer_flush(tws_writer *w);
/* The message cannot be ended: tws_writer_close() abandons it. */
void conn_writer_fail(tws_writer *w, tws_err err);

#endif
