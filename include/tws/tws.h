/* tws.h: all public headers of libtws. */
#ifndef TWS_TWS_H
#define TWS_TWS_H

#include <tws/client.h>
#include <tws/cluster.h>
#include <tws/conn.h>
#include <tws/deflate.h>
#include <tws/error.h>
#include <tws/event.h>
#include <tws/handoff.h>
#include <tws/hub.h>
#include <tws/map.h>
#include <tws/metrics.h>
#include <tws/pair.h>
#include <tws/prepared.h>
#include <tws/queue.h>
#include <tws/server.h>
#include <tws/session.h>
#include <tws/stream.h>
#include <tws/thread.h>
#include <tws/tls.h>
#include <tws/types.h>
#include <tws/upgrade.h>
#include <tws/wait.h>

#endif
