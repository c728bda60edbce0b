
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_VERDICT_H_INCLUDED_
#define _KVR_VERDICT_H_INCLUDED_


/*
 * Whether an upstream works, in one colour, and why not: a function of what its
 * servers and its queue did in the last minute, and of what they are like now.
 *
 *     red     requests are lost, or there is hardly a server left for them
 *     amber   somebody should look, but requests are served
 *     green   neither
 *
 * Reasons come worst first: the red ones, then the others.  The status makes
 * sentences of them.
 */


#include "core/base/kvr_core.h"


#define KVR_VERDICT_WHY      12      /* reasons told */
#define KVR_VERDICT_NAMES    3       /* servers told with one */

#define KVR_VERDICT_PERCENT  5       /* errors or rejects of all requests */
#define KVR_VERDICT_FEW      5       /* errors below this prove nothing */
#define KVR_VERDICT_REFUSED  50      /* 4xx of one server's requests, and at
                                        most a tenth of that elsewhere */
#define KVR_VERDICT_FIRSTS   5       /* streams below this prove nothing */
#define KVR_VERDICT_TIMES    3       /* times as long as elsewhere */
#define KVR_VERDICT_LATER    250     /* ms, and as much longer at least */
#define KVR_VERDICT_BUSY     3       /* times as many in flight as elsewhere */
#define KVR_VERDICT_ACTIVE   12      /* and so many more, at least */


typedef enum {
    KVR_VERDICT_GREEN = 0,
    KVR_VERDICT_AMBER,
    KVR_VERDICT_RED,
    KVR_VERDICT_STATES
} kvr_verdict_e;


/* a server, now and in the last minute */
typedef struct {
    uint64_t           active;
    uint64_t           requests;
    uint64_t           errors;
    uint64_t           refused;      /* answered with 4xx */
    uint64_t           firsts;       /* streams that began */
    uint64_t           ttft;         /* ms, of those together */
    unsigned           up:1;         /* it is given requests */
    unsigned           planned:1;    /* if not: since somebody wants it so */
    unsigned           backup:1;
    unsigned           stale:1;      /* its engine told something, long ago */
    unsigned           uncounted:1;  /* it has no number in the zone */
    unsigned           refuses:1;    /* it is ejected for 4xx */
} kvr_verdict_server_t;


typedef struct {
    uint64_t           rejects;      /* in the last minute, by the queue */
    uint64_t           alone;        /* s for which sharing has failed; 0 */
    unsigned           locked:1;     /* the servers cannot be looked at */
} kvr_verdict_upstream_t;


/* causes, see kvr_verdict_row() */
typedef enum {
    KVR_VERDICT_LOCKED = 0,  /* nginx's lock of the servers is held */
    KVR_VERDICT_NONE_UP,
    KVR_VERDICT_NOT_UP,      /* some servers */
    KVR_VERDICT_ERRORS,      /* of one server */
    KVR_VERDICT_REFUSES,     /* one server answers 4xx, the others do not */
    KVR_VERDICT_REJECTS,     /* by the queue */
    KVR_VERDICT_SLOW,        /* first tokens of one server come late */
    KVR_VERDICT_HOT,         /* one server has most of the requests in flight */
    KVR_VERDICT_STALE,       /* engines do not answer the probe */
    KVR_VERDICT_ALONE,       /* sharing with other hosts fails */
    KVR_VERDICT_DRAINED,     /* by the operator */
    KVR_VERDICT_UNCOUNTED,   /* servers have no counters: the zone is full */
    KVR_VERDICT_REASONS
} kvr_verdict_reason_e;


/* a cause by its code, and the names of its numbers; NULL: it has none */
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
    uint32_t              server[KVR_VERDICT_NAMES];  /* the first, by index */
    uint64_t              n;
    uint64_t              all;
    uint32_t              percent;
    uint32_t              of_all;
} kvr_verdict_why_t;


typedef struct {
    kvr_verdict_e         state;
    uint32_t              n;
    kvr_verdict_why_t     why[KVR_VERDICT_WHY + 1];  /* the last is spare */
} kvr_verdict_t;


/* looks at n servers; a server's index is its place among them */
void kvr_verdict(const kvr_verdict_upstream_t *u,
    const kvr_verdict_server_t *server, uint32_t n, kvr_verdict_t *verdict);

/* green, amber, red */
const char *kvr_verdict_name(kvr_verdict_e state);

const kvr_verdict_row_t *kvr_verdict_row(kvr_verdict_reason_e reason);


#endif /* _KVR_VERDICT_H_INCLUDED_ */
