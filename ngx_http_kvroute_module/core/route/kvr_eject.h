
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_EJECT_H_INCLUDED_
#define _KVR_EJECT_H_INCLUDED_


/*
 * Servers that do worse than the others of their upstream get no choice for a
 * while (core/health/kvr_outlier.h), but never more than a set share of them at
 * once: the rest would have to bear it all.
 *
 * A process that puts a server out counts those that are out afterwards, and
 * takes its own back if there are too many.  So two that do it at once may both
 * take it back, and the next bad answer does it again; but more than the share
 * are never out for longer than that takes.
 *
 * Who answers what may be the client's fault is on trial first
 * (core/health/kvr_trial.h): the requests that the policy would send there are
 * divided.
 *
 * That somebody is out or on trial is told to the fleet afterwards, so that decisions look;
 * who brings one back takes that word away first, and looks then whether others
 * are out.  Who was killed before either is made good by the next look.
 */


#include "core/policy/kvr_policy.h"
#include "core/state/kvr_zone.h"


/* what kvr_eject_first() and kvr_eject_end() return */
#define KVR_EJECT_OUT   8        /* the server was put out */
#define KVR_EJECT_BACK  16       /* it is back */


/* one request at a server of an upstream */
typedef struct {
    uint32_t           member;
    uint64_t           given;    /* ms, when it was picked */
    uint64_t           bytes;    /* left to prefill there then */
    kvr_trial_arm_e    arm;
    uint32_t           doubted;  /* the member on trial, if ELSEWHERE */
    uint32_t           out;      /* the member put out, with KVR_EJECT_OUT */
    unsigned           probe:1;
    unsigned           counted:1;  /* as a bad one */
} kvr_eject_t;


/* the servers of an upstream */
static inline kvr_outlier_fleet_t *
kvr_eject_fleet(const kvr_zone_t *zone, const kvr_pool_t *pool)
{
    return &zone->registry->upstream[pool->upstream].fleet;
}


/* it is picked */
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

/* the first event of a 2xx answer has come; stream: it is one of a stream */
unsigned kvr_eject_first(kvr_eject_t *e, const kvr_zone_t *zone,
    const kvr_pool_t *pool, int stream, uint64_t now);

/*
 * It has ended; begun: a first event had come.  KVR_OUTLIER_NONE: well, or by
 * no fault of the server's.
 */
unsigned kvr_eject_end(kvr_eject_t *e, const kvr_zone_t *zone,
    const kvr_pool_t *pool, kvr_outlier_e reason, int begun, uint64_t now);

/*
 * A decision that was wary has looked at its servers. Puts out the one that may
 * be silent, if it has more than one request in flight; KVR_REGISTRY_NONE:
 * there is none.  Returns KVR_EJECT_OUT or 0.
 */
unsigned kvr_eject_looked(const kvr_zone_t *zone, const kvr_pool_t *pool,
    uint32_t member, uint64_t now);

/*
 * The policy has picked a candidate that is on trial.  Returns where the
 * request goes: KVR_TRIAL_NONE if no other candidate is to be had.  ELSEWHERE:
 * those on trial are marked as sick, and the policy is asked again.
 */
kvr_trial_arm_e kvr_eject_trial(kvr_candidate_t *cand, uint32_t n,
    uint64_t random);

/* whether a member gets no choice now */
int kvr_eject_sick(const kvr_zone_t *zone, uint32_t member, uint64_t now);


#endif /* _KVR_EJECT_H_INCLUDED_ */
