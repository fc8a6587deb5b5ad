/*
 * cluster.h: rooms that span processes and machines, through a broker that exists already.
 *
 *     static tws_hub *hub;
 *     static tws_cluster *cluster; // of the hub and a broker: tws/nats.h, tws/redis.h
 *     static void talk(tws_conn *c, void *arg)
 *     {
 *         tws_message m;
 *         tws_hub_join(hub, c, "lobby");
 *         while (tws_read_message(c, &m) == TWS_OK)
 *             tws_cluster_publish_message(cluster, "lobby", m.opcode, m.data, m.len, NULL, NULL);
 *     }
 *
 * A cluster belongs to one hub and makes this process a node. What is published with
 * tws_cluster_publish() goes to the members here, through the hub, and through the broker to the
 * members of that room on all other nodes with the same prefix. tws_hub_publish() stays local.
 *
 * What is promised. At most once: a message reaches each other node once or not at all, never twice,
 * also when the broker or its connection restarts. Messages that one thread publishes to one room
 * arrive in that order. Between publishers of different nodes there is no order: two nodes may see
 * their messages in different orders. Members of the publishing node get theirs without the broker.
 *
 * Gaps. Messages are numbered by node and room, and each node tells the rooms it knows its last number
 * every `beat`. A node that finds out that messages of another did not arrive calls on_gap with the
 * room, the other node and how many. It does so before the first message behind the gap is delivered,
 * or after about a beat when none follows. What one asks of the past, a broker that stores must
 * answer: docs/cluster.md shows NATS JetStream.
 *
 * When a node counts as having missed something: from its subscription on, which is made when the
 * first member joins and holds a round trip to the broker later. What was published elsewhere before
 * that is the past, as for anybody who joins.
 *
 * The broker slow or away. Local rooms go on as if nothing were the matter. What this node publishes
 * waits in a bounded queue, and leaves when the broker is there again. When the queue is full new
 * messages are refused for the other nodes (TWS_ERR_QUEUE_FULL; the members here have them), and
 * the others will be told of the gap. No publisher waits longer than `wait`, by default not at all.
 *
 * Subscriptions. There is one for each room that has members here, made on the first join and given
 * back `linger` after the last leave, and one for messages to all (room NULL). The subject is
 * PREFIX.r.NAME, where NAME has letters, digits, '-' and '_' as they are and =XX for each other
 * byte; names that would be longer than 128 bytes become ~ and 40 hexadecimal digits of a hash.
 * Each message carries the whole name, so that nothing depends on hashes being different.
 *
 * Trust. Whoever may publish on these subjects can speak to the rooms and in another node's name:
 * protect the broker with credentials, permissions and TLS. Bytes that are not a well-formed message
 * are ignored and counted.
 */
#ifndef TWS_CLUSTER_H
#define TWS_CLUSTER_H

#include <tws/hub.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A hub's part in a cluster. */
typedef struct tws_cluster tws_cluster;

/* ---- Adapters: what connects to a broker ---- */

/* What an adapter knows about its connection. */
typedef struct tws_broker_stats {
    uint64_t pending_bytes; /* taken by publish, but not by the network yet */
    uint64_t pending_in;    /* messages that came and wait to be handed to tws_broker_received() */
    uint64_t dropped; /* messages that came and were dropped, because this node was too slow */
    uint64_t errors;  /* that the broker reported */
    uint64_t reserved[4];
} tws_broker_stats;

/*
 * A broker: publish and subscribe with subjects, in a few functions. A third one is one file that uses
 * nothing but this header; src/redis/ is the example.
 *
 * All functions get `state`. Those from subscribe to publish are called by one thread, one after the
 * other, between start and stop. The adapter calls the tws_broker_ functions below from threads of its
 * own, with no lock held that one of these functions takes.
 *
 * A subject is up to 200 bytes of letters, digits, and "-_.=~". The adapter must keep the order of
 * messages that it takes and hands over, and must never send a message twice by itself.
 */
typedef struct tws_broker {
    size_t size;      /* set by the initialiser */
    const char *name; /* constant: "nats" */
    void *state;
    /* Begins to connect, and goes on for ever; does not wait for it. Fails only for what cannot get
     * better by itself. */
    tws_err (*start)(void *state, tws_cluster *c, tws_error *error);
    /* Ends the connection and all threads. When it returns no tws_broker_ function runs, nor will. Not
     * called when start has failed. */
    void (*stop)(void *state);
    /* Without waiting for an answer. The first is called while the connection is there, as far as the
     * cluster knows; a subject twice is as good as once, and a failure is repeated. */
    tws_err (*subscribe)(void *state, const char *subject);
    void (*unsubscribe)(void *state, const char *subject);
    /* TWS_OK: taken. TWS_ERR_TIMEOUT: not taken within ms, try again. TWS_ERR_CLOSED: not taken, the
     * connection is down; it is kept until tws_broker_up(). Others: given up, and reported as a gap. */
    tws_err (*publish)(void *state, const char *subject, const void *data, size_t len, tws_ms ms);
    /* From any thread between start and stop. */
    void (*look)(void *state, tws_broker_stats *out);
    /* Frees state. The last call. */
    void (*release)(void *state);
    uint64_t reserved[8];
} tws_broker;

/* ---- A cluster ---- */

#define TWS_ORIGIN_BYTES 33 /* a node's name: 32 hexadecimal digits, and a zero */

typedef enum tws_gap_cause {
    TWS_GAP_MISSED = 1, /* messages of another node did not arrive */
    /* Another node of the room has not been heard for three beats: it died or is cut off, and what
     * it said last may be missing. When it is heard again, TWS_GAP_MISSED may follow. */
    TWS_GAP_SILENT = 2,
    TWS_GAP_UNSENT = 3 /* this node's own: they were queued, but the broker did not get them */
} tws_gap_cause;

typedef struct tws_gap {
    const char *room;   /* NULL: messages to all */
    const char *origin; /* the node that published them */
    uint64_t missed;    /* how many; 0: unknown, perhaps none */
    tws_gap_cause cause;
    uint64_t reserved[4];
} tws_gap;

/*
 * Messages are missing. Runs on the thread that found out, one of the adapter's or of the cluster's, or
 * inside tws_cluster_free(). It should be short: messages from and to other nodes wait meanwhile. It
 * may publish, but not free the cluster; on the cluster's own thread that does not wait for room,
 * and inside tws_cluster_free() it is refused (TWS_ERR_QUEUE_FULL).
 */
typedef void (*tws_gap_fn)(const tws_gap *gap, void *arg);

/*
 * The connection to the broker was made (again), or was lost; the text says more, for a person. Runs
 * on a thread of the adapter's. The first call says that it is there, sooner or later.
 */
typedef void (*tws_cluster_state_fn)(bool up, const char *text, void *arg);

typedef struct tws_cluster_options {
    size_t size; /* set by the initialiser */
    /* What all subjects begin with: letters, digits, '-', '_', and '.' inside; at most 64 bytes. */
    const char *prefix; /* default "tws" */
    /* How long a publish waits when the queue is full while the broker is connected; 0: no limit.
     * It never waits for a broker that is away. */
    tws_ms wait;           /* default TWS_NOWAIT: not at all */
    uint64_t max_bytes;    /* queued for the broker; default 16 MiB; 0: no limit */
    uint32_t max_messages; /* the same; default 65,536; 0: no limit */
    size_t max_message;    /* payload bytes; default 1,000,000, as NATS takes 1 MiB unless told */
    /* A node tells its rooms every so often that it is there, how many members it has and what it
     * said last. Each room costs the broker one small message per node and beat. */
    tws_ms beat; /* default 5,000; 50 to 3,600,000 */
    /* When a broker is back that was away for half of this or has forgotten its subscribers, what waits
     * leaves only after so long: it has restarted, and the other nodes come back at moments of their
     * own. Default 1,000; TWS_NOWAIT: at once. */
    tws_ms hold;
    /* How long a room without members keeps its subscription. Default 2,000; 0: for ever;
     * TWS_NOWAIT: not at all. */
    tws_ms linger;
    /* What tws_cluster_free() takes at most to send the rest. Default 1,000; 0: no limit;
     * TWS_NOWAIT: not at all. */
    tws_ms drain;
    tws_gap_fn on_gap;              /* default none */
    tws_cluster_state_fn on_state;  /* default none */
    void *arg;                      /* handed to both */
    tws_log_fn log;                 /* default none */
    void *log_arg;                  /* handed to log */
    const tws_allocator *allocator; /* default NULL: malloc; must outlive the cluster */
    uint64_t reserved[7];
} tws_cluster_options;

/**
 * Fills options with the defaults.
 *
 * @param opt the options
 * @param size sizeof *opt; use the macro tws_cluster_options_init(opt)
 * Threads: any.
 */
TWS_API void tws_cluster_options_init_sized(tws_cluster_options *opt, size_t size);
#define tws_cluster_options_init(opt) tws_cluster_options_init_sized((opt), sizeof *(opt))

/**
 * Makes a hub's rooms part of a cluster.
 *
 * Rooms that have members already are subscribed to as well. Returns without waiting for the broker;
 * on_state tells when it is there.
 *
 * @param out set to the cluster; NULL on errors
 * @param h the hub; it must outlive the cluster
 * @param broker from an adapter, copied
 * @param opt the options, copied; NULL: the defaults
 * @param error filled on errors; may be NULL
 * @return TWS_OK; TWS_ERR_ARGUMENT for options or an adapter that cannot be; TWS_ERR_STATE when the
 *         hub is in a cluster already; TWS_ERR_MEMORY; TWS_ERR_SYSTEM when there is no thread; or what
 *         the adapter's start says.
 * Threads: any.
 * Ownership: tws_cluster_free(). The broker's state is the cluster's from the call on, also after an
 *         error: it is released then.
 */
TWS_API tws_err tws_cluster_new(tws_cluster **out, tws_hub *h, const tws_broker *broker,
                                const tws_cluster_options *opt, tws_error *error);

/**
 * Leaves the cluster: sends what is queued, at most for as long as `drain`, tells the other nodes
 * that this one goes, closes the connection to the broker, and frees everything. Members stay in
 * their rooms.
 *
 * @param c the cluster, or NULL
 * Threads: any, but not from a function that the cluster calls; no call on c may begin afterwards.
 *         Those that wait for room in the queue return with TWS_ERR_QUEUE_FULL.
 */
TWS_API void tws_cluster_free(tws_cluster *c);

/**
 * The name of this node, which is new for each tws_cluster_new().
 *
 * @param c the cluster
 * @param buf at least TWS_ORIGIN_BYTES
 * Threads: any.
 */
TWS_API void tws_cluster_origin(const tws_cluster *c, char *buf);

/**
 * Sends a message to every member of a room, here and on all other nodes.
 *
 * First to the members here, as tws_hub_publish(); then it is queued for the broker. A thread that
 * publishes twice to a room has its messages in that order everywhere.
 *
 * @param c the cluster
 * @param room the room, of at most 65,535 bytes; NULL: every connection that is in any room
 * @param p the message
 * @param opt as for tws_hub_publish(), for the members here: all members elsewhere get it
 * @param result what became of it here
 * @return TWS_OK; TWS_ERR_QUEUE_FULL when the members here have it but the queue for the broker was
 *         full and stayed so for `wait`; TWS_ERR_MEMORY, the same for lack of memory. Nobody has it
 *         after TWS_ERR_ARGUMENT, TWS_ERR_MESSAGE_SIZE (above max_message) and TWS_ERR_STATE (in a
 *         filter).
 * Threads: any.
 * Ownership: p stays the caller's and may be given up after the call.
 */
TWS_API tws_err tws_cluster_publish(tws_cluster *c, const char *room, tws_prepared *p,
                                    const tws_publish_options *opt, tws_publish_result *result);

/**
 * Prepares a message, publishes it as tws_cluster_publish(), and gives it up.
 *
 * @param c the cluster
 * @param room as for tws_cluster_publish()
 * @param opcode TWS_TEXT or TWS_BINARY
 * @param data the payload, copied; may be NULL when len is 0
 * @param len bytes
 * @param except this member does not get it; NULL: none
 * @param result what became of it here; may be NULL
 * @return as tws_cluster_publish(); TWS_ERR_TEXT.
 * Threads: any.
 */
TWS_API tws_err tws_cluster_publish_message(tws_cluster *c, const char *room, tws_opcode opcode,
                                            const void *data, size_t len, const tws_conn *except,
                                            tws_publish_result *result);

/* How many are in a room. Each node counts its own members; the others know what it said last. */
typedef struct tws_presence {
    uint64_t here;      /* members on this node, at this moment */
    uint64_t elsewhere; /* on other nodes, as they said last */
    uint64_t nodes;     /* other nodes that have members there */
    /* The age of the oldest of what they said. A node says so within 200 ms when its count has changed
     * and the broker is there, and once every beat; one that says nothing for three beats, or that
     * leaves, no longer counts. While this node's own connection is down, nothing changes. */
    tws_ms oldest;
    uint64_t reserved[4];
} tws_presence;

/**
 * Counts a room's members over the whole cluster.
 *
 * @param c the cluster
 * @param room the room; NULL: connections in any room
 * @param out filled
 * @param size sizeof *out; use the macro tws_cluster_presence(c, room, out)
 * @return TWS_OK; TWS_ERR_STATE when this node has no members there, and so has not subscribed to the
 *         room and cannot know: `here` is 0.
 * Threads: any.
 */
TWS_API tws_err tws_cluster_presence_sized(tws_cluster *c, const char *room, tws_presence *out,
                                           size_t size);
#define tws_cluster_presence(c, room, out)                                                         \
    tws_cluster_presence_sized((c), (room), (out), sizeof *(out))

/* ---- What it has done ---- */

typedef struct tws_cluster_stats {
    bool up;                           /* connected to the broker now */
    uint64_t ups, downs;               /* how often the connection was made, and lost */
    uint64_t rooms;                    /* known now: with members here, or published to lately */
    uint64_t subscriptions;            /* now */
    uint64_t subscribed, unsubscribed; /* over time; subscribing again after a loss not counted */
    uint64_t queue_bytes, queue_messages; /* waiting in this node for the broker, now */
    uint64_t published, published_bytes;  /* messages that were queued for it; payload bytes */
    uint64_t refused;                     /* not queued: TWS_ERR_QUEUE_FULL, TWS_ERR_MEMORY */
    uint64_t unsent;                      /* queued, but the broker did not take them */
    uint64_t waited;                      /* publishes that had to wait for room in the queue */
    uint64_t received, received_bytes;    /* messages of other nodes that were delivered here */
    uint64_t echoes;                      /* own messages that the broker sent back; ignored */
    uint64_t stale;                       /* duplicates, and those that came too late; ignored */
    uint64_t foreign;                     /* bytes that are no message of a cluster; ignored */
    uint64_t unwanted;                    /* for a room without members here; ignored */
    uint64_t gaps, missed;                /* calls of on_gap, and the sum of what they told */
    uint64_t broker_pending_bytes;        /* taken by the adapter, not yet by the network, now */
    uint64_t broker_pending_in;           /* messages that wait to be handled here, now */
    uint64_t broker_dropped;              /* by the adapter: this node was too slow a consumer */
    uint64_t broker_errors;               /* that the broker reported */
} tws_cluster_stats;

/**
 * Reads the counters of a cluster.
 *
 * @param c the cluster
 * @param out filled
 * @param size sizeof *out; use the macro tws_cluster_get_stats(c, out)
 * Threads: any.
 */
TWS_API void tws_cluster_stats_sized(tws_cluster *c, tws_cluster_stats *out, size_t size);
#define tws_cluster_get_stats(c, out) tws_cluster_stats_sized((c), (out), sizeof *(out))

/**
 * Writes the counters of a cluster in the Prometheus text format, to be put behind those of a server
 * and a hub.
 *
 * @param c the cluster
 * @param buf where the text goes; zero-terminated whenever size is above 0
 * @param size room in buf; 8 KiB is enough
 * @return the length of the whole text, as snprintf() counts.
 * Threads: any.
 */
TWS_API size_t tws_cluster_metrics(tws_cluster *c, char *buf, size_t size);

/* ---- What adapters call ---- */

/**
 * Fills an adapter's table with zeros and its size.
 *
 * @param b the table
 * @param size sizeof *b; use the macro tws_broker_init(b)
 * Threads: any.
 */
TWS_API void tws_broker_init_sized(tws_broker *b, size_t size);
#define tws_broker_init(b) tws_broker_init_sized((b), sizeof *(b))

/**
 * For adapters: the connection to the broker is there, for the first time or again.
 *
 * @param c the cluster, from start
 * @param kept the subscriptions of the connection before stand; if not, all are made anew
 * @param text where to, for a person
 * Threads: any between start and stop; up and down one after the other.
 */
TWS_API void tws_broker_up(tws_cluster *c, bool kept, const char *text);

/**
 * For adapters: the connection to the broker has been lost, or an attempt to make it has failed.
 *
 * @param c the cluster, from start
 * @param text why, for a person
 * Threads: any between start and stop; up and down one after the other.
 */
TWS_API void tws_broker_down(tws_cluster *c, const char *text);

/**
 * For adapters: a message has come. Returns when it has been handed to all members' sockets or queues.
 *
 * @param c the cluster, from start
 * @param subject what it was published on
 * @param data its bytes; may be NULL when len is 0
 * @param len how many
 * Threads: any between start and stop; for one subject one after the other, in order.
 */
TWS_API void tws_broker_received(tws_cluster *c, const char *subject, const void *data, size_t len);

#ifdef __cplusplus
}
#endif
#endif
