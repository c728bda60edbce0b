
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_WHATIF_H_INCLUDED_
#define _KVR_WHATIF_H_INCLUDED_


/*
 * Estimates what another fleet would bring: the cached share of prompts, and
 * the P95 of first tokens.
 *
 * Of one request in KVR_WHATIF_SAMPLE the index gives the distance of each
 * block of the prompt: the age of its youngest copy, in parts of what that
 * peer can hold.  Entries that no longer count as held are in the index too,
 * as long as there is room, so it is the ghost list of larger caches.  The
 * history of blocks is complete, so requests can be sampled at random.
 *
 * Ages grow by what a peer computes, and with another capacity it would compute
 * another amount.  But with P(x), the part of the units with a distance beyond
 * x, a cache that keeps blocks for the time x has the size of the integral of P
 * from 0 to x (Hu et al., "Kinetic Modeling of Data Eviction in Cache", USENIX
 * ATC 2016).  Today's cache keeps blocks for the age of one capacity, as the
 * index has it.
 *
 * Fleets are assumed to route as today: the estimated share is scaled by what
 * is delivered today, where the curve says something else.
 *
 * The time of first tokens grows with the units that a prompt computes.  So
 * the P95 is that of today, less the time that all need, times the ratio of the
 * P95 of these units.  Peers are as busy as the rate of computed units and the
 * time of one say; then Erlang's C formula has the waits, which are in this
 * proportion too.  Host memory loads what it has at a price.
 *
 * In shared memory, one for each upstream.  Words are independent; of two
 * processes that write at once one observation can be lost.  All counts are
 * halved now and then, so old traffic fades.
 */


#include "core/base/kvr_core.h"


#define KVR_WHATIF_SAMPLE    8
#define KVR_WHATIF_ENOUGH    200        /* sampled requests */
#define KVR_WHATIF_ONE       1024       /* an age: the capacity */
#define KVR_WHATIF_CLASSES   48         /* of ages, from a 64th to 64 */
#define KVR_WHATIF_AGES      15         /* from an 8th to 16, two a doubling */
#define KVR_WHATIF_WORKS     28         /* classes of units, two a doubling */
#define KVR_WHATIF_TIMES     60         /* of ms, four a doubling */


typedef enum {
    KVR_WHATIF_NOW = 0,
    KVR_WHATIF_LESS,                    /* one peer */
    KVR_WHATIF_MORE,
    KVR_WHATIF_HALF,                    /* of the capacity of each peer */
    KVR_WHATIF_TWICE,
    KVR_WHATIF_FOUR,
    KVR_WHATIF_HOST_2,                  /* host memory, in capacities */
    KVR_WHATIF_HOST_4,
    KVR_WHATIF_HOST_8,
    KVR_WHATIF_PERFECT,                 /* each prompt goes to the best peer */
    KVR_WHATIF_CHANGES
} kvr_whatif_change_e;


typedef struct {
    _Atomic uint32_t   units;           /* of all prompts */
    _Atomic uint32_t   matched;         /* of these, at the picked peer */
    _Atomic uint32_t   replies;         /* units of replies */
    _Atomic uint32_t   requests;
    _Atomic uint32_t   used;            /* by requests in flight: sum of parts
                                           of the capacity */
    _Atomic uint32_t   prompt;          /* tokens, as engines report */
    _Atomic uint32_t   cached;
    _Atomic uint32_t   time;            /* that all this took */
    _Atomic uint32_t   reused[KVR_WHATIF_CLASSES];  /* units, by age */

    /* requests, by the units that they compute, and by their first tokens */

    _Atomic uint16_t   work[KVR_WHATIF_WORKS];
    _Atomic uint16_t   first[KVR_WHATIF_TIMES];

    /* by the units that they would compute if blocks were kept for an age */

    _Atomic uint16_t   fresh[KVR_WHATIF_AGES][KVR_WHATIF_WORKS];

    _Atomic uint64_t   last;            /* ms: the last prompt */
} kvr_whatif_t;


typedef struct {
    double             cached;          /* share of prompts */
    double             low, high;       /* of it */
    double             first;           /* P95 of first tokens, s; 0: unknown */
    double             soonest, latest; /* of it */
    double             load;            /* computed tokens per peer, 1: today */
} kvr_whatif_estimate_t;


/* Tells whether a request is sampled.  key: of its prompt, clock: any. */
static inline int
kvr_whatif_sampled(uint64_t key, uint64_t clock)
{
    return kvr_mix(key, clock) < UINT64_MAX / KVR_WHATIF_SAMPLE;
}


/*
 * Counts a sampled prompt.  matched: units that the picked peer has.  used: the
 * part of its capacity that requests in flight use, like an age.  now: ms.
 */
void kvr_whatif_prompt(kvr_whatif_t *w, uint32_t units, uint32_t matched,
    uint64_t used, uint64_t now);

/* Returns the class of an age in parts of KVR_WHATIF_ONE. */
uint32_t kvr_whatif_class(uint32_t age);

/*
 * Counts units of the prompt up to a depth with ages of a class.  Called with
 * falling classes and depths, at last with depth 0.  *ages is KVR_WHATIF_AGES
 * at first.
 */
void kvr_whatif_reused(kvr_whatif_t *w, uint32_t units, uint32_t class,
    uint32_t depth, uint32_t n, uint32_t *ages);

/* Counts a reply. */
void kvr_whatif_reply(kvr_whatif_t *w, uint32_t units);

/* Counts a first token. */
void kvr_whatif_first(kvr_whatif_t *w, uint64_t ms);

/* Counts the tokens that the engine reports. */
void kvr_whatif_delivered(kvr_whatif_t *w, uint32_t prompt, uint32_t cached);

/*
 * Estimates a change of a fleet of "peers" peers.  KVR_DECLINED: too little
 * is known, or no peer would be left.
 */
int kvr_whatif_estimate(const kvr_whatif_t *w, kvr_whatif_change_e change,
    uint32_t peers, kvr_whatif_estimate_t *e);

/* Returns the cached share if caches had this multiple of today's size. */
double kvr_whatif_share(const kvr_whatif_t *w, double times);

const char *kvr_whatif_name(kvr_whatif_change_e change);


#endif /* _KVR_WHATIF_H_INCLUDED_ */
