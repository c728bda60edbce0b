
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_VERDICT_H_INCLUDED_
#define _KVR_VERDICT_H_INCLUDED_


/*
 * Judges an upstream from the last minute of its servers and its queue, and
 * from their current state.  The result is a state and its causes:
 *
 *     red     requests are lost, or few servers are left
 *     amber   requests are served, but an operator should look
 *     green   neither
 *
 * Red causes come first, then the others.  The page makes sentences of them.
 */


#include "core/base/kvr_core.h"


#define KVR_VERDICT_WHY      12      /* causes at most */
#define KVR_VERDICT_NAMES    3       /* servers named per cause */

#define KVR_VERDICT_PERCENT  5       /* of requests that failed or were
                                        rejected */
#define KVR_VERDICT_FEW      5       /* fewer errors prove nothing */
#define KVR_VERDICT_REFUSED  50      /* percent of 4xx at one server, ten
                                        times that of the others */
#define KVR_VERDICT_FIRSTS   5       /* fewer streams prove nothing */
#define KVR_VERDICT_TIMES    3       /* times the others' TTFT */
#define KVR_VERDICT_LATER    250     /* ms above the others' TTFT */
#define KVR_VERDICT_FIFTH    5       /* times fewer requests than its share */
#define KVR_VERDICT_SHARE    10      /* a smaller share proves nothing */
#define KVR_VERDICT_BEHIND   50      /* ms above the others' TTFT that explain
                                        it */
#define KVR_VERDICT_IDLE     8       /* requests in flight at each of the others
                                        while it has none: they do, too */
#define KVR_VERDICT_BUSY     3       /* times the others' active requests */
#define KVR_VERDICT_ACTIVE   12      /* requests above the others' mean */


typedef enum {
    KVR_VERDICT_GREEN = 0,
    KVR_VERDICT_AMBER,
    KVR_VERDICT_RED,
    KVR_VERDICT_STATES
} kvr_verdict_e;


/* the state of a server and its last minute */
typedef struct {
    uint64_t           active;
    uint64_t           requests;
    uint64_t           errors;
    uint64_t           refused;      /* 4xx responses */
    uint64_t           firsts;       /* streams that have started */
    uint64_t           ttft;         /* sum, ms */
    uint64_t           window;       /* TTFT in ms, mean of the last window that
                                        has enough streams; 0: unknown */
    uint64_t           mute;         /* ms since a stream waits, too long by now;
                                        0: none does */
    uint64_t           weight;
    uint32_t           member;       /* its number in the zone */
    unsigned           steady:1;     /* it has been up for a minute, and more if
                                        it warms up */
    unsigned           up:1;         /* it receives requests */
    unsigned           planned:1;    /* not up, but by the operator's choice */
    unsigned           backup:1;
    unsigned           stale:1;      /* the engine's metrics are old */
    unsigned           uncounted:1;  /* it has no slot in the zone */
    unsigned           refuses:1;    /* it is ejected for 4xx */
} kvr_verdict_server_t;


typedef struct {
    uint64_t           rejects;      /* of the last minute */
    uint64_t           alone;        /* s for which sharing has failed; 0: it
                                        works */
    unsigned           locked:1;     /* the list of servers cannot be read */
} kvr_verdict_upstream_t;


/* causes, see kvr_verdict_row() */
typedef enum {
    KVR_VERDICT_ERRORS = 0,  /* of one server */
    KVR_VERDICT_REFUSES,     /* one server answers 4xx, the others do not */
    KVR_VERDICT_SILENT,      /* one server sends nothing */
    KVR_VERDICT_SLOW,        /* first tokens of one server come late */
    KVR_VERDICT_HOT,         /* one server has most requests in flight */
    KVR_VERDICT_STARVED,      /* one server gets far fewer than its share */
    KVR_VERDICT_SINGLE,      /* the causes before are of one server */
    KVR_VERDICT_LOCKED = KVR_VERDICT_SINGLE,  /* nginx's lock of the servers
                                                 stays held */
    KVR_VERDICT_NONE_UP,
    KVR_VERDICT_NOT_UP,      /* some servers */
    KVR_VERDICT_REJECTS,     /* by the queue */
    KVR_VERDICT_STALE,       /* engines do not answer the probe */
    KVR_VERDICT_ALONE,       /* sharing with other hosts fails */
    KVR_VERDICT_DRAINED,     /* by the operator */
    KVR_VERDICT_UNCOUNTED,   /* servers have no counters: no slot is free */
    KVR_VERDICT_REASONS
} kvr_verdict_reason_e;


/*
 * the code of a cause and the JSON names of its numbers; NULL: no such number
 */
typedef struct {
    const char           *code;
    const char           *n;
    const char           *all;
    const char           *percent;
    const char           *of_all;
} kvr_verdict_row_t;


typedef struct {
    kvr_verdict_e         state;
    kvr_verdict_reason_e  reason;
    uint32_t              servers;
    uint32_t              server[KVR_VERDICT_NAMES];  /* indexes of the first
                                                         ones */
    uint64_t              n;
    uint64_t              all;
    uint32_t              percent;
    uint32_t              of_all;
    uint32_t              since;     /* s since 1970; kvr_since_causes() */
} kvr_verdict_why_t;


typedef struct {
    kvr_verdict_e         state;
    uint32_t              n;
    kvr_verdict_why_t     why[KVR_VERDICT_WHY + 1];  /* the last entry is
                                                        spare */
} kvr_verdict_t;


/* Judges n servers. A cause refers to a server by its index. */
void kvr_verdict(const kvr_verdict_upstream_t *u,
    const kvr_verdict_server_t *server, uint32_t n, kvr_verdict_t *verdict);

/* Returns green, amber or red. */
const char *kvr_verdict_name(kvr_verdict_e state);

const kvr_verdict_row_t *kvr_verdict_row(kvr_verdict_reason_e reason);


#endif /* _KVR_VERDICT_H_INCLUDED_ */
