
/*
 * Copyright (C) kvroute contributors
 */


#include "core/route/kvr_eject.h"


/* so many in flight that owe an answer are no accident */
#define KVR_EJECT_SILENT  2


static void kvr_eject_doubt(kvr_eject_t *e, const kvr_zone_t *zone,
    const kvr_pool_t *pool, kvr_outlier_e reason, int late, uint64_t now);
static unsigned kvr_eject_step(kvr_eject_t *e, const kvr_zone_t *zone,
    const kvr_pool_t *pool, kvr_outlier_e reason, int ended, uint64_t now);
static unsigned kvr_eject_out(const kvr_zone_t *zone, const kvr_pool_t *pool,
    uint32_t member, kvr_outlier_e reason, uint64_t now);
static unsigned kvr_eject_back(const kvr_zone_t *zone, const kvr_pool_t *pool,
    kvr_member_t *member);
static void kvr_eject_told(const kvr_zone_t *zone, const kvr_pool_t *pool);
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


unsigned
kvr_eject_first(kvr_eject_t *e, const kvr_zone_t *zone,
    const kvr_pool_t *pool, int stream, uint64_t now)
{
    unsigned              rc;
    uint64_t              ms;
    kvr_member_t         *member;
    kvr_outlier_fleet_t  *fleet;

    if (e->member == KVR_REGISTRY_NONE || !pool->eject.on) {
        return 0;
    }

    fleet = kvr_eject_fleet(zone, pool);
    member = &zone->registry->member[e->member];
    ms = now - e->given;

    kvr_outlier_first(fleet, ms);

    rc = 0;

    if (e->arm != KVR_TRIAL_FIXED) {
        kvr_outlier_trust(&member->outlier, 0);
    }

    if (kvr_unlikely(e->arm > KVR_TRIAL_NONE)) {
        rc = kvr_eject_step(e, zone, pool, KVR_OUTLIER_NONE, 0, now);
    }

    /* what is no stream begins when all of it is there */

    if (stream && kvr_outlier_slow(fleet, &pool->eject, e->bytes, ms)) {
        return rc | kvr_eject_end(e, zone, pool, KVR_OUTLIER_SLOW, 0, now);
    }

    return kvr_outlier_good(&member->outlier, &pool->eject, e->given, now)
           ? rc | kvr_eject_back(zone, pool, member) : rc;
}


unsigned
kvr_eject_end(kvr_eject_t *e, const kvr_zone_t *zone,
    const kvr_pool_t *pool, kvr_outlier_e reason, int begun, uint64_t now)
{
    unsigned       rc;
    kvr_member_t  *member;

    if (e->member == KVR_REGISTRY_NONE || !pool->eject.on || e->counted) {
        return 0;
    }

    member = &zone->registry->member[e->member];
    rc = 0;

    if (kvr_unlikely(e->arm > KVR_TRIAL_NONE)
        && (begun || reason != KVR_OUTLIER_NONE))
    {
        rc = kvr_eject_step(e, zone, pool, reason, 1, now);
    }

    if (kvr_likely(reason == KVR_OUTLIER_NONE)) {

        if (begun) {
            kvr_outlier_trust(&member->outlier, 1);

            return kvr_outlier_end(&member->outlier, e->given, now)
                   ? rc | kvr_eject_back(zone, pool, member) : rc;
        }

        if (kvr_get(&member->outlier.asked) == e->given) {
            kvr_outlier_heard(&member->outlier);
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
        rc |= kvr_eject_out(zone, pool, e->member, reason, now);
        e->out = e->member;
    }

    return rc;
}


/* the client may be to blame; what could go nowhere else says nothing */
static void
kvr_eject_doubt(kvr_eject_t *e, const kvr_zone_t *zone,
    const kvr_pool_t *pool, kvr_outlier_e reason, int late, uint64_t now)
{
    kvr_outlier_t  *o;

    o = &zone->registry->member[e->member].outlier;

    if (e->arm == KVR_TRIAL_FIXED) {
        kvr_outlier_heard(o);

    } else if (kvr_outlier_doubt(o, &pool->eject, reason, late, e->probe, now))
    {
        kvr_set(&kvr_eject_fleet(zone, pool)->out, 1);
    }
}


/* an answer of a request that a trial has divided; KVR_OUTLIER_NONE: good */
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

    /* an error after a good beginning is still to come */

    if (what == KVR_OUTLIER_UNCLEAR && !ended) {
        return 0;
    }

    /* another fault fits a sick server as well as a client's bad request */

    if (reason != what && reason != KVR_OUTLIER_NONE) {
        return 0;
    }

    rc = kvr_trial_step(&o->trial, e->arm, reason == what, pool->eject.window,
                        now);

    e->arm = KVR_TRIAL_NONE;

    if (rc == KVR_TRIAL_OPEN) {
        return 0;
    }

    if (rc == KVR_TRIAL_WON
        && kvr_eject_out(zone, pool, member, what, now))
    {
        e->out = member;
        return KVR_EJECT_OUT;
    }

    kvr_set(&o->doubt[0], 0);
    kvr_set(&o->doubt[1], 0);

    kvr_eject_told(zone, pool);

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

        /* who brought the last one back may not have come to say so */

        if (kvr_get(&fleet->out)) {
            kvr_eject_told(zone, pool);
        }
    }

    if (kvr_likely(member == KVR_REGISTRY_NONE)) {
        return 0;
    }

    o = &zone->registry->member[member].outlier;

    sum = kvr_load_get(zone->load, kvr_registry_column(zone->registry, member));

    /* who was killed, or has given up, waits for nothing */

    if (sum.active == 0) {
        kvr_outlier_heard(o);
    }

    if (sum.active < KVR_EJECT_SILENT) {
        return 0;
    }

    return kvr_eject_better(zone, pool, &zone->registry->member[member],
                            KVR_OUTLIER_SILENT, now)
           ? kvr_eject_out(zone, pool, member, KVR_OUTLIER_SILENT, now) : 0;
}


static unsigned
kvr_eject_out(const kvr_zone_t *zone, const kvr_pool_t *pool, uint32_t member,
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

    max = kvr_max(n * pool->eject.max / 100, 1);
    max = kvr_min(max, n - 1);

    if (kvr_eject_count(zone, pool, 0) > max) {
        kvr_outlier_spare(&own->outlier, now);
        return 0;
    }

    kvr_set(&kvr_eject_fleet(zone, pool)->out, 1);
    kvr_add(&own->ejections, 1);

    return KVR_EJECT_OUT;
}


/* whether another server does better, as far as anything is known of them */
static int
kvr_eject_better(const kvr_zone_t *zone, const kvr_pool_t *pool,
    kvr_member_t *own, kvr_outlier_e reason, uint64_t now)
{
    int            rc, known, better;
    uint32_t       i;
    uint64_t       quiet;
    kvr_member_t  *m;

    quiet = kvr_outlier_quiet(kvr_eject_fleet(zone, pool), now);

    for (i = 0, known = 0, better = 0; i < zone->registry->max_members; i++) {
        m = &zone->registry->member[i];

        if (m != own && kvr_eject_other(zone, pool, m)) {
            rc = reason == KVR_OUTLIER_SILENT
                 ? kvr_get(&m->outlier.asked) - 1 >= quiet
                 : kvr_outlier_better(&m->outlier, &own->outlier, &pool->eject,
                                      now);
            known |= rc >= 0;
            better |= rc > 0;
        }
    }

    return better || !known;
}


static unsigned
kvr_eject_back(const kvr_zone_t *zone, const kvr_pool_t *pool,
    kvr_member_t *member)
{
    /* it will be warmed up */

    kvr_set(&member->lost, 1);

    kvr_eject_told(zone, pool);

    return KVR_EJECT_BACK;
}


/* whoever is put out meanwhile is counted, or says so afterwards */
static void
kvr_eject_told(const kvr_zone_t *zone, const kvr_pool_t *pool)
{
    kvr_outlier_fleet_t  *fleet;

    fleet = kvr_eject_fleet(zone, pool);

    atomic_store(&fleet->out, 0);

    if (kvr_eject_count(zone, pool, 1)) {
        kvr_set(&fleet->out, 1);
    }
}


/* how many are out in an upstream; trials: or on trial */
static uint32_t
kvr_eject_count(const kvr_zone_t *zone, const kvr_pool_t *pool, int trials)
{
    uint32_t       i, n;
    kvr_member_t  *m;

    for (i = 0, n = 0; i < zone->registry->max_members; i++) {
        m = &zone->registry->member[i];

        if (kvr_eject_other(zone, pool, m)) {
            n += kvr_outlier_out(atomic_load(&m->outlier.state))
                 || (trials
                     && kvr_trial_reason(atomic_load(&m->outlier.trial)));
        }
    }

    return n;
}


/* addresses: all ranks behind one are put out with it */
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


/* whether a member is of the upstream, and has not been taken out */
static int
kvr_eject_other(const kvr_zone_t *zone, const kvr_pool_t *pool,
    kvr_member_t *m)
{
    return atomic_load(&m->used) && m->upstream == pool->upstream
           && kvr_set_test(&pool->set, m->peer)
           && zone->registry->peer[m->peer].rank == 0;
}
