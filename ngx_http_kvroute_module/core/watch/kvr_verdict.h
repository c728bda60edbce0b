
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

#define KVR_VERDICT_ERRORS   5       /* percent of requests, from here on it counts */
#define KVR_VERDICT_FEW      5       /* errors below this prove nothing */
#define KVR_VERDICT_REJECTS  5       /* percent, from here on it is red */
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
    uint64_t           firsts;       /* streams that began */
    uint64_t           ttft;         /* ms, of those together */
    unsigned           up:1;         /* it is given requests */
    unsigned           planned:1;    /* if not: since somebody wants it so */
    unsigned           backup:1;
    unsigned           stale:1;      /* its engine told something, long ago */
    unsigned           uncounted:1;  /* it has no number in the zone */
} kvr_verdict_server_t;


typedef struct {
    uint64_t           rejects;      /* in the last minute, by the queue */
    uint64_t           alone;        /* s for which sharing has failed; 0 */
    unsigned           locked:1;     /* the servers cannot be looked at */
} kvr_verdict_upstream_t;


/* reasons, and what n, percent and all are in each */
typedef enum {
    KVR_VERDICT_LOCKED = 0,  /* nginx's lock of the servers is held */
    KVR_VERDICT_NONE_UP,     /* no server of all is up; n lost */
    KVR_VERDICT_LOST,        /* n servers of all are not up */
    KVR_VERDICT_FAILS,       /* percent of n requests at the server; of all */
    KVR_VERDICT_REJECTED,    /* n requests by the queue; percent of all */
    KVR_VERDICT_SLOW,        /* first tokens: n ms there, all ms elsewhere */
    KVR_VERDICT_HOT,         /* n of all requests in flight are there */
    KVR_VERDICT_STALE,       /* engines of n servers of all have gone silent */
    KVR_VERDICT_ALONE,       /* sharing with other hosts fails, for n s */
    KVR_VERDICT_PLANNED,     /* n servers of all were taken out by hand */
    KVR_VERDICT_UNCOUNTED,   /* n servers of all have no counters */
    KVR_VERDICT_REASONS
} kvr_verdict_reason_e;


typedef struct {
    kvr_verdict_e         state;
    kvr_verdict_reason_e  reason;
    uint32_t              servers;   /* the first of them, by index */
    uint32_t              server[KVR_VERDICT_NAMES];
    uint64_t              n;
    uint64_t              all;
    uint32_t              percent;
    uint32_t              of_all;    /* percent; of FAILS */
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


#endif /* _KVR_VERDICT_H_INCLUDED_ */
