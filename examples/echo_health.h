/* echo_health.h: what a proxy asks for, GET /healthz: 200, and 503 from the moment the server leaves. */
#ifndef ECHO_HEALTH_H
#define ECHO_HEALTH_H

#include <tws/tws.h>

/* A tws_page_fn. */
bool health_page(const tws_request *r, tws_reply *a, void *arg);

/* Answers 503 from now on, and returns after that time, in which proxies stop sending clients. */
void health_leave(tws_ms ms);

#endif
