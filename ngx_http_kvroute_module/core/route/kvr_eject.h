
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_EJECT_H_INCLUDED_
#define _KVR_EJECT_H_INCLUDED_


/*
 * Servers that do worse than the others of their upstream are ejected for a
 * while (core/health/kvr_outlier.h), but at most a configured share of them at
 * once: the rest must be able to take the load.
 *
 * A process that ejects a server counts the ejected ones afterwards, and takes
 * its ejection back if there are too many.  If two processes do so at once,
 * both may take it back; the next bad answer ejects again.  More than the share
 * are ejected only for the short time between the two steps.
 *
 * A server whose bad answers may be the client's fault is on trial first
 * (core/health/kvr_trial.h): the requests that the policy would send there are
 * divided.
 *
 * The fleet's flag says that a server is ejected or on trial, so that decisions
 * look at states.  It is set after an ejection.  A return clears the flag first
 * and then counts.  If a process is killed in between, the next look repairs
 * the flag.
 */


#include "core/policy/kvr_policy.h"
#include "core/state/kvr_zone.h"


/* what kvr_eject_first() and kvr_eject_end() return */
#define KVR_EJECT_EJECTED   8    /* the server was ejected */
#define KVR_EJECT_RETURNED  16   /* it is in rotation again */


/* one request at a server of an upstream */
typedef struct {
    uint32_t           member;
    uint64_t           given;    /* ms, time of the pick */
    uint64_t           bytes;    /* left to prefill there at that time */
    kvr_trial_arm_e    arm;
    uint32_t           doubted;  /* the member on trial, if ELSEWHERE */
    uint32_t           ejected;  /* the member, with KVR_EJECT_EJECTED */
    unsigned           probe:1;
    unsigned           counted:1;  /* as a bad answer */
} kvr_eject_t;


/* Returns the state of all servers of an upstream. */
static inline kvr_outlier_fleet_t *
kvr_eject_fleet(const kvr_zone_t *zone, const kvr_pool_t *pool)
{
    return &zone->registry->upstream[pool->upstream].fleet;
}


/* Notes a pick. */
static inline void
kvr_eject_begin(kvr_eject_t *e, const kvr_zone_t *zone, const kvr_pool_t *pool,
    uint64_t now)
{
    e->given = now;

    if (e->member != KVR_REGISTRY_NONE && pool && pool->eject.on) {
        e->probe = (unsigned) kvr_outlier_begin(
                                     &zone->registry->member[e->member].outlier,
                                     &pool->eject, now);
    }
}

/*
 * Notes a request that came when no other one waited; bytes: its whole prompt,
 * because the cached part may have been evicted; fastest: rate of the fastest
 * peer.
 */
void kvr_eject_owe(const kvr_eject_t *e, const kvr_zone_t *zone,
    const kvr_pool_t *pool, int stream, uint64_t bytes, uint32_t fastest);

/* Takes the first event of a 2xx answer; stream: it is a stream. */
unsigned kvr_eject_first(kvr_eject_t *e, const kvr_zone_t *zone,
    const kvr_pool_t *pool, int stream, uint64_t now);

/*
 * Takes the end of an answer; begun: there was a first event.
 * KVR_OUTLIER_NONE: it was good, or not the server's fault.
 */
unsigned kvr_eject_end(kvr_eject_t *e, const kvr_zone_t *zone,
    const kvr_pool_t *pool, kvr_outlier_e reason, int begun, uint64_t now);

/*
 * Called by a decision that has looked at states.  Ejects the member that may
 * be silent, if it has more than one request in flight; KVR_REGISTRY_NONE: no
 * such member.  Returns KVR_EJECT_EJECTED or 0.
 */
unsigned kvr_eject_looked(const kvr_zone_t *zone, const kvr_pool_t *pool,
    uint32_t member, uint64_t now);

/*
 * Called if the policy has picked a candidate on trial.  Returns where the
 * request goes; KVR_TRIAL_NONE if there is no other candidate.  If ELSEWHERE,
 * those on trial are marked as sick, and the caller asks the policy again.
 */
kvr_trial_arm_e kvr_eject_trial(kvr_candidate_t *cand, uint32_t n,
    uint64_t random);

/* Tells whether a member is ejected and not yet half-open. */
int kvr_eject_sick(const kvr_zone_t *zone, uint32_t member, uint64_t now);


#endif /* _KVR_EJECT_H_INCLUDED_ */
