
/*
 * Copyright (C) kvroute contributors
 */


#include "core/route/kvr_eject.h"


/* unanswered requests that make a silent server an outlier */
#define KVR_EJECT_SILENT  2


static void kvr_eject_doubt(kvr_eject_t *e, const kvr_zone_t *zone,
    const kvr_pool_t *pool, kvr_outlier_e reason, int end, uint64_t now);
static unsigned kvr_eject_step(kvr_eject_t *e, const kvr_zone_t *zone,
    const kvr_pool_t *pool, kvr_outlier_e reason, int ended, uint64_t now);
static unsigned kvr_eject_try(const kvr_zone_t *zone, const kvr_pool_t *pool,
    uint32_t member, kvr_outlier_e reason, uint64_t now);
static unsigned kvr_eject_return(const kvr_zone_t *zone, const kvr_pool_t *pool,
    kvr_member_t *member);
static void kvr_eject_recount(const kvr_zone_t *zone, const kvr_pool_t *pool);
static int kvr_eject_better(const kvr_zone_t *zone, const kvr_pool_t *pool,
    kvr_member_t *own, kvr_outlier_e reason, uint64_t now);
static uint32_t kvr_eject_count(const kvr_zone_t *zone, const kvr_pool_t *pool,
    int trials);
static uint32_t kvr_eject_servers(const kvr_zone_t *zone,
    const kvr_pool_t *pool);
static int kvr_eject_other(const kvr_zone_t *zone, const kvr_pool_t *pool,
    kvr_member_t *m);


int
kvr_eject_sick(const kvr_zone_t *zone, uint32_t member, uint64_t now)
{
    return member != KVR_REGISTRY_NONE
           && kvr_outlier_sick(kvr_get(&zone->registry->member[member]
                                       .outlier.state), now);
}


void
kvr_eject_owe(const kvr_eject_t *e, const kvr_zone_t *zone,
    const kvr_pool_t *pool, int stream, uint64_t bytes, uint32_t fastest)
{
    uint64_t       rate;
    kvr_peer_t    *peer;
    kvr_member_t  *member;

    if (e->member == KVR_REGISTRY_NONE || pool == NULL) {
        return;
    }

    member = &zone->registry->member[e->member];
    peer = &zone->registry->peer[member->peer];

    rate = kvr_get(&peer->prefill.rate);
    rate = rate ? rate : kvr_max(fastest, KVR_PREFILL_RATE);

    /* other clients' requests take time as well */

    kvr_outlier_owe(&member->outlier, kvr_eject_fleet(zone, pool),
                    stream && !kvr_get(&peer->engine.foreign),
                    bytes * KVR_PREFILL_RATE / rate,
                    kvr_get(&peer->engine.renewed), e->given);
}


unsigned
kvr_eject_first(kvr_eject_t *e, const kvr_zone_t *zone,
    const kvr_pool_t *pool, int stream, uint64_t now)
{
    unsigned              rc;
    uint64_t              ms;
    kvr_member_t         *member;
    kvr_outlier_fleet_t  *fleet;

    if (e->member == KVR_REGISTRY_NONE) {
        return 0;
    }

    fleet = kvr_eject_fleet(zone, pool);
    member = &zone->registry->member[e->member];
    ms = now - e->given;

    kvr_outlier_first(fleet, ms);

    if (!pool->eject.on) {
        return 0;
    }

    rc = 0;

    if (e->arm != KVR_TRIAL_FIXED) {
        kvr_outlier_trust(&member->outlier, 0);
    }

    if (kvr_unlikely(e->arm > KVR_TRIAL_NONE)) {
        rc = kvr_eject_step(e, zone, pool, KVR_OUTLIER_NONE, 0, now);
    }

    /* an answer that is no stream arrives complete */

    if (stream && kvr_outlier_slow(fleet, e->bytes, ms)) {
        return rc | kvr_eject_end(e, zone, pool, KVR_OUTLIER_SLOW, 0, now);
    }

    return kvr_outlier_good(&member->outlier, e->given, now)
           ? rc | kvr_eject_return(zone, pool, member) : rc;
}


unsigned
kvr_eject_end(kvr_eject_t *e, const kvr_zone_t *zone,
    const kvr_pool_t *pool, kvr_outlier_e reason, int begun, uint64_t now)
{
    unsigned       rc;
    kvr_member_t  *member;

    if (e->member == KVR_REGISTRY_NONE || e->counted) {
        return 0;
    }

    member = &zone->registry->member[e->member];
    rc = 0;

    if (kvr_unlikely(reason != KVR_OUTLIER_NONE)) {
        kvr_set(kvr_outlier_refusal(reason) && reason != KVR_OUTLIER_503
                ? &member->outlier.refusal : &member->outlier.last, reason);
    }

    if (kvr_likely(reason == KVR_OUTLIER_NONE)
        || reason == KVR_OUTLIER_TIMEOUT || reason == KVR_OUTLIER_BROKEN)
    {
        if (!begun) {
            kvr_outlier_unheard(&member->outlier, e->given,
                                reason == KVR_OUTLIER_TIMEOUT, now);
        }

    } else {
        kvr_outlier_heard(&member->outlier);
    }

    if (!pool->eject.on) {
        return 0;
    }

    if (kvr_unlikely(e->arm > KVR_TRIAL_NONE)
        && (begun || reason != KVR_OUTLIER_NONE))
    {
        rc = kvr_eject_step(e, zone, pool, reason, 1, now);
    }

    if (kvr_likely(reason == KVR_OUTLIER_NONE)) {

        if (begun) {
            kvr_outlier_trust(&member->outlier, 1);

            return kvr_outlier_end(&member->outlier, e->given, now)
                   ? rc | kvr_eject_return(zone, pool, member) : rc;
        }

        if (kvr_get(&member->outlier.asked) == e->given) {
            kvr_outlier_answered(&member->outlier);
        }

        return rc;
    }

    e->counted = 1;

    if (kvr_outlier_doubtful(reason)) {
        kvr_eject_doubt(e, zone, pool, reason, begun, now);
        return rc;
    }

    if (kvr_outlier_bad(&member->outlier, &pool->eject, reason, begun,
                        e->probe, now)
        && kvr_eject_better(zone, pool, member, reason, now))
    {
        rc |= kvr_eject_try(zone, pool, e->member, reason, now);
        e->ejected = e->member;
    }

    return rc;
}


/* The client may be to blame; a request with one candidate proves nothing. */
static void
kvr_eject_doubt(kvr_eject_t *e, const kvr_zone_t *zone,
    const kvr_pool_t *pool, kvr_outlier_e reason, int end, uint64_t now)
{
    kvr_outlier_t  *o;

    o = &zone->registry->member[e->member].outlier;

    if (e->arm == KVR_TRIAL_FIXED) {
        kvr_outlier_answered(o);

    } else if (kvr_outlier_doubt(o, &pool->eject, reason, end, e->probe, now))
    {
        kvr_set(&kvr_eject_fleet(zone, pool)->ejected, 1);
    }
}


/* Takes an answer of a request that a trial has divided. */
static unsigned
kvr_eject_step(kvr_eject_t *e, const kvr_zone_t *zone,
    const kvr_pool_t *pool, kvr_outlier_e reason, int ended, uint64_t now)
{
    uint32_t        member;
    uint64_t        trial;
    kvr_trial_e     rc;
    kvr_outlier_e   what;
    kvr_outlier_t  *o;

    member = (e->arm == KVR_TRIAL_THERE) ? e->member : e->doubted;
    o = &zone->registry->member[member].outlier;

    trial = kvr_get(&o->trial);
    what = (kvr_outlier_e) kvr_trial_reason(trial);

    /* the error can still follow a good start */

    if (what == KVR_OUTLIER_UNCLEAR && !ended) {
        return 0;
    }

    /* another fault fits a sick server as well as a client's bad request */

    if (reason != what && reason != KVR_OUTLIER_NONE) {
        return 0;
    }

    rc = kvr_trial_step(&o->trial, e->arm, reason == what, KVR_OUTLIER_WINDOW,
                        now);

    e->arm = KVR_TRIAL_NONE;

    if (rc == KVR_TRIAL_OPEN) {
        return 0;
    }

    if (rc == KVR_TRIAL_WON
        && kvr_eject_try(zone, pool, member, what, now))
    {
        e->ejected = member;
        return KVR_EJECT_EJECTED;
    }

    kvr_set(&o->doubt[0], 0);
    kvr_set(&o->doubt[1], 0);

    kvr_eject_recount(zone, pool);

    return 0;
}


kvr_trial_arm_e
kvr_eject_trial(kvr_candidate_t *cand, uint32_t n, uint64_t random)
{
    uint32_t         i, others;
    kvr_candidate_t  not;

    memset(&not, 0, sizeof(kvr_candidate_t));

    not.doubted = 1;
    not.full = 1;
    not.draining = 1;
    not.other = 1;
    not.unhealthy = 1;
    not.sick = 1;
    not.throttled = 1;
    not.evicts = 1;

    for (i = 0, others = 0; i < n; i++) {
        others += !(cand[i].flags & not.flags);
    }

    if (others == 0) {
        return KVR_TRIAL_NONE;
    }

    if (kvr_reduce(random, KVR_TRIAL_OWN) == 0) {
        return KVR_TRIAL_THERE;
    }

    for (i = 0; i < n; i++) {
        cand[i].sick |= cand[i].doubted;
    }

    return KVR_TRIAL_ELSEWHERE;
}


unsigned
kvr_eject_looked(const kvr_zone_t *zone, const kvr_pool_t *pool,
    uint32_t member, uint64_t now)
{
    kvr_load_sum_t        sum;
    kvr_outlier_t        *o;
    kvr_outlier_fleet_t  *fleet;

    fleet = kvr_eject_fleet(zone, pool);

    if (now >= kvr_get(&fleet->look)) {
        kvr_set(&fleet->look, now + KVR_OUTLIER_LOOK);

        /* a killed process may have left the flag set */

        if (kvr_get(&fleet->ejected)) {
            kvr_eject_recount(zone, pool);
        }
    }

    if (kvr_likely(member == KVR_REGISTRY_NONE)) {
        return 0;
    }

    o = &zone->registry->member[member].outlier;

    sum = kvr_load_get(zone->load, kvr_registry_column(zone->registry, member));

    /* requests of killed workers or gone clients expect no answer */

    if (sum.active == 0) {
        kvr_outlier_answered(o);
    }

    if (sum.active < KVR_EJECT_SILENT) {
        return 0;
    }

    return kvr_eject_better(zone, pool, &zone->registry->member[member],
                            KVR_OUTLIER_SILENT, now)
           ? kvr_eject_try(zone, pool, member, KVR_OUTLIER_SILENT, now) : 0;
}


static unsigned
kvr_eject_try(const kvr_zone_t *zone, const kvr_pool_t *pool, uint32_t member,
    kvr_outlier_e reason, uint64_t now)
{
    uint32_t       n, max;
    kvr_member_t  *own;

    n = kvr_eject_servers(zone, pool);
    own = &zone->registry->member[member];

    if (n < 2
        || kvr_outlier_eject(&own->outlier, &pool->eject, reason, now) == 0)
    {
        return 0;
    }

    max = kvr_max(n * KVR_OUTLIER_MAX / 100, 1);
    max = kvr_min(max, n - 1);

    if (kvr_eject_count(zone, pool, 0) > max) {
        kvr_outlier_spare(&own->outlier, now);
        return 0;
    }

    kvr_set(&kvr_eject_fleet(zone, pool)->ejected, 1);
    kvr_add(&own->ejections, 1);

    return KVR_EJECT_EJECTED;
}


/* Tells whether another server does better, or nothing is known of others. */
static int
kvr_eject_better(const kvr_zone_t *zone, const kvr_pool_t *pool,
    kvr_member_t *own, kvr_outlier_e reason, uint64_t now)
{
    int            rc, known, better;
    uint32_t       i;
    uint64_t       suspect_after;
    kvr_member_t  *m;

    suspect_after = kvr_outlier_suspect_after(kvr_eject_fleet(zone, pool), now);

    for (i = 0, known = 0, better = 0; i < zone->registry->max_members; i++) {
        m = &zone->registry->member[i];

        if (m != own && kvr_eject_other(zone, pool, m)) {
            rc = reason == KVR_OUTLIER_SILENT
                 ? kvr_get(&m->outlier.asked) - 1 >= suspect_after
                 : kvr_outlier_better(&m->outlier, &own->outlier, now);
            known |= rc >= 0;
            better |= rc > 0;
        }
    }

    return better || !known;
}


static unsigned
kvr_eject_return(const kvr_zone_t *zone, const kvr_pool_t *pool,
    kvr_member_t *member)
{
    /* starts its warm-up */

    kvr_set(&member->lost, 1);

    kvr_eject_recount(zone, pool);

    return KVR_EJECT_RETURNED;
}


/* A concurrent ejection is counted here, or sets the flag itself afterwards. */
static void
kvr_eject_recount(const kvr_zone_t *zone, const kvr_pool_t *pool)
{
    kvr_outlier_fleet_t  *fleet;

    fleet = kvr_eject_fleet(zone, pool);

    atomic_store(&fleet->ejected, 0);

    if (kvr_eject_count(zone, pool, 1)) {
        kvr_set(&fleet->ejected, 1);
    }
}


/* Counts the ejected servers of an upstream; trials: and those on trial. */
static uint32_t
kvr_eject_count(const kvr_zone_t *zone, const kvr_pool_t *pool, int trials)
{
    uint32_t       i, n;
    kvr_member_t  *m;

    for (i = 0, n = 0; i < zone->registry->max_members; i++) {
        m = &zone->registry->member[i];

        if (kvr_eject_other(zone, pool, m)) {
            n += kvr_outlier_ejected(atomic_load(&m->outlier.state))
                 || (trials
                     && kvr_trial_reason(atomic_load(&m->outlier.trial)));
        }
    }

    return n;
}


/* Counts addresses: all ranks behind an address are ejected together. */
static uint32_t
kvr_eject_servers(const kvr_zone_t *zone, const kvr_pool_t *pool)
{
    uint32_t   n, peer;
    kvr_set_t  left;

    for (left = pool->set, n = 0; kvr_set_next(&left, &peer); /* void */ ) {
        n += (zone->registry->peer[peer].rank == 0);
    }

    return n;
}


/* Tells whether a member belongs to the upstream and was not removed. */
static int
kvr_eject_other(const kvr_zone_t *zone, const kvr_pool_t *pool,
    kvr_member_t *m)
{
    return atomic_load(&m->used) && m->upstream == pool->upstream
           && kvr_set_test(&pool->set, m->peer)
           && zone->registry->peer[m->peer].rank == 0;
}
