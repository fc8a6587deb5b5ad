/*
 * chat_room.c: see chat_room.h.
 *
 * What members receive is one JSON object per message:
 *
 *     {"type":"welcome","room":R,"name":N,"limit":BYTES}       first; then what was said before
 *     {"type":"say","at":MS,"from":N,"text":T}                 MS since 1970, rising in each room
 *     {"type":"join","at":MS,"name":N,"members":[N,...]}       the first with one's own name says
 *     {"type":"leave","at":MS,"name":N,"members":[N,...]}      that one is in the room now
 */
#include "chat_room.h"

#include <tws/hub.h>
#include <tws/thread.h>

#include <string.h>
#include <time.h>

/* Room for one JSON object. Escaping at most doubles a text; a list of members is the longest. */
enum { LINE_BYTES = 128 + (ROOM_MEMBERS + 1) * (2 * ROOM_NAME_BYTES + 3) };

struct line {
    size_t len;
    char text[LINE_BYTES];
};

struct said {
    size_t len;
    char text[128 + 2 * (ROOM_NAME_BYTES + ROOM_TEXT_BYTES)];
};

_Static_assert(LINE_BYTES >= sizeof((struct said *)0)->text, "a line holds what was said");

struct room {
    char name[ROOM_NAME_BYTES + 1];
    struct member *members; /* empty: the room may be used under another name */
    int64_t last_at;
    unsigned long count; /* of texts said; the last ROOM_HISTORY of them are kept */
    struct said history[ROOM_HISTORY];
};

/*
 * Guards all rooms. One lock is enough: no thread waits for a peer while it holds it, because the
 * hub does not. It also makes what is said and the history agree in their order.
 */
static tws_mutex *lock; /* not a pthread's: it may be held while a light thread waits */
static tws_hub *hub;    /* sends what is said to those who are live, by the name of the room */
static struct room rooms[ROOM_COUNT];

bool rooms_open(void)
{
    lock = tws_mutex_new();
    return lock != NULL && tws_hub_new(&hub, NULL) == TWS_OK;
}

void rooms_close(void)
{
    tws_hub_free(hub);
    tws_mutex_free(lock);
}

tws_hub *rooms_hub(void)
{
    return hub;
}

/* ---- Lines of JSON ---- */

static void put(struct line *l, const char *bytes, size_t len)
{
    if (len <= LINE_BYTES - l->len) { /* always, see LINE_BYTES; never write past the end though */
        memcpy(l->text + l->len, bytes, len);
        l->len += len;
    }
}

static void put_text(struct line *l, const char *text)
{
    put(l, text, strlen(text));
}

static void put_number(struct line *l, int64_t n)
{
    char digits[24];
    char *p = digits + sizeof digits - 1;
    *p = '\0';
    do {
        *--p = (char)('0' + n % 10);
        n /= 10;
    } while (n > 0);
    put_text(l, p);
}

/* A JSON string. Control characters become blanks, except for line ends. */
static void put_string(struct line *l, const char *s, size_t len)
{
    put(l, "\"", 1);
    for (size_t i = 0; i < len; i++) {
        if (s[i] == '"' || s[i] == '\\') {
            put(l, "\\", 1);
            put(l, s + i, 1);
        } else if (s[i] == '\n') {
            put(l, "\\n", 2);
        } else if ((unsigned char)s[i] < ' ' || s[i] == 0x7f) {
            put(l, " ", 1);
        } else {
            put(l, s + i, 1);
        }
    }
    put(l, "\"", 1);
}

/* Begins {"type":TYPE,"at":MS,KEY:NAME with a time that no other line of the room has. */
static void begin_locked(struct line *l, struct room *r, const char *type, const char *key,
                         const char *name)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t at = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    r->last_at = at > r->last_at ? at : r->last_at + 1;
    l->len = 0;
    put_text(l, "{\"type\":\"");
    put_text(l, type);
    put_text(l, "\",\"at\":");
    put_number(l, r->last_at);
    put_text(l, ",\"");
    put_text(l, key);
    put_text(l, "\":");
    put_string(l, name, strlen(name));
}

/* ---- To all members ---- */

/*
 * Waits for nobody: a member that does not keep up has a queue, and when that is full its policy
 * acts. One that is closed for it finds out by its next read, and its page comes back and gets the
 * history.
 */
static void broadcast_locked(const struct room *r, const struct line *l)
{
    tws_hub_publish_message(hub, r->name, TWS_TEXT, l->text, l->len, NULL, NULL);
}

static void announce_locked(struct room *r, const char *type, const char *name)
{
    struct line l;
    begin_locked(&l, r, type, "name", name);
    put_text(&l, ",\"members\":[");
    bool first = true;
    for (const struct member *m = r->members; m != NULL; m = m->next) {
        if (m->live) {
            put_text(&l, first ? "" : ",");
            put_string(&l, m->name, strlen(m->name));
            first = false;
        }
    }
    put_text(&l, "]}");
    broadcast_locked(r, &l);
}

void room_say(struct member *m, const char *text, size_t len)
{
    struct line l;
    tws_mutex_lock(lock, TWS_NO_LIMIT);
    struct room *r = m->room;
    begin_locked(&l, r, "say", "from", m->name);
    put_text(&l, ",\"text\":");
    put_string(&l, text, len);
    put_text(&l, "}");
    struct said *said = &r->history[r->count++ % ROOM_HISTORY];
    said->len = l.len;
    memcpy(said->text, l.text, l.len);
    broadcast_locked(r, &l);
    tws_mutex_unlock(lock);
}

/* ---- In and out ---- */

/* The room of that name, else an unused one, else one that nobody is in any more. */
static struct room *find_room_locked(const char *name)
{
    struct room *spare = NULL;
    for (int i = 0; i < ROOM_COUNT; i++) {
        struct room *r = &rooms[i];
        if (strcmp(r->name, name) == 0) {
            return r;
        }
        if (r->members == NULL && (spare == NULL || r->last_at < spare->last_at)) {
            spare = r;
        }
    }
    if (spare != NULL) {
        memcpy(spare->name, name, strlen(name) + 1);
        spare->count = 0;
    }
    return spare;
}

/* Puts the member into the list. Others do not see it and nothing is sent to it yet. */
static enum join_result enter_locked(struct member *m, const char *room_name)
{
    struct room *r = find_room_locked(room_name);
    if (r == NULL) {
        return JOIN_FULL;
    }
    int count = 0;
    struct member **end = &r->members;
    for (; *end != NULL; end = &(*end)->next) {
        count++;
        if (strcmp((*end)->name, m->name) == 0) {
            return JOIN_NAME_TAKEN;
        }
    }
    if (count == ROOM_MEMBERS) {
        return JOIN_FULL;
    }
    m->room = r;
    m->live = false;
    m->next = NULL;
    *end = m;
    return JOIN_OK;
}

/*
 * Sends what was said before. Waits for the network, so the lock is given up for each line; when
 * the newcomer has caught up, it goes live without missing any.
 */
static bool replay(struct member *m)
{
    struct line l;
    struct room *r = m->room;
    bool ok = true;
    unsigned long next = 0;
    tws_mutex_lock(lock, TWS_NO_LIMIT);
    while (ok && next < r->count) {
        if (r->count - next > ROOM_HISTORY) {
            next = r->count - ROOM_HISTORY;
        }
        const struct said *said = &r->history[next++ % ROOM_HISTORY];
        memcpy(l.text, said->text, said->len);
        l.len = said->len;
        tws_mutex_unlock(lock);
        ok = tws_write_message(m->conn, TWS_TEXT, l.text, l.len) == TWS_OK;
        tws_mutex_lock(lock, TWS_NO_LIMIT);
    }
    if (ok && tws_hub_join(hub, m->conn, r->name) != TWS_OK) {
        ok = false;
    }
    if (ok) {
        m->live = true;
        announce_locked(r, "join", m->name);
    }
    tws_mutex_unlock(lock);
    return ok;
}

enum join_result room_join(struct member *m, const char *room_name)
{
    tws_mutex_lock(lock, TWS_NO_LIMIT);
    enum join_result result = enter_locked(m, room_name);
    tws_mutex_unlock(lock);
    if (result != JOIN_OK) {
        return result;
    }
    struct line l = {.len = 0};
    put_text(&l, "{\"type\":\"welcome\",\"room\":");
    put_string(&l, room_name, strlen(room_name));
    put_text(&l, ",\"name\":");
    put_string(&l, m->name, strlen(m->name));
    put_text(&l, ",\"limit\":");
    put_number(&l, ROOM_TEXT_BYTES);
    put_text(&l, "}");
    if (tws_write_message(m->conn, TWS_TEXT, l.text, l.len) != TWS_OK || !replay(m)) {
        room_leave(m);
        return JOIN_BROKEN;
    }
    return JOIN_OK;
}

void room_leave(struct member *m)
{
    tws_mutex_lock(lock, TWS_NO_LIMIT);
    struct member **at = &m->room->members;
    while (*at != m) {
        at = &(*at)->next;
    }
    *at = m->next;
    if (m->live) {
        tws_hub_leave(hub, m->conn, m->room->name); /* it may have done so by ending */
        announce_locked(m->room, "leave", m->name);
    }
    tws_mutex_unlock(lock);
}
