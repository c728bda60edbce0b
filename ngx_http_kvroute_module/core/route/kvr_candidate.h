
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_CANDIDATE_H_INCLUDED_
#define _KVR_CANDIDATE_H_INCLUDED_


/*
 * Collects what the policy gets to know about each peer.
 *
 * The caller sets the fields of the request and offers each usable peer.  This
 * file adds what is shared: load, draining, caps, engine reports.  It writes
 * nothing to shared memory, except to repair the fleet's flag.
 */


#include "core/route/kvr_eject.h"
#include "core/route/kvr_reservation.h"
#include "core/policy/kvr_policy.h"


/* one decision; the caller sets all fields up to "seconds" */
typedef struct {
    const kvr_zone_t          *zone;
    const kvr_pool_t          *pool;
    const kvr_reservation_t   *own;      /* of the request, or NULL */

    const uint32_t            *matched;  /* units cached, by peer; or NULL */
    const uint32_t            *loads;    /* units of prefill that loads from
                                            lower tiers cost; or NULL */
    const kvr_hot_view_t      *hot;      /* or NULL */
    uint64_t                   bytes;    /* of the prompt */
    uint64_t                   fit;      /* bytes that must fit into the cache;
                                            0: need not fit */

    /* peers; KVR_PEERS or more: none */

    uint32_t                   bound;    /* has the session */
    uint32_t                   pin;      /* named by the request */
    uint32_t                   owner;    /* of the previous response */
    const kvr_set_t           *models;   /* have the model; NULL: all */
    const kvr_set_t           *evicts;   /* must unload another for it */

    uint64_t                   random;
    uint64_t                   now;      /* ms */
    uint32_t                   seconds;

    /* out: bytes per ms of the fastest peer so far, as in kvr_prefill.h */

    uint32_t                   rate;

    uint32_t                   silent;   /* member that may be silent, or
                                            KVR_REGISTRY_NONE */

    /* set by kvr_candidate_view() */

    kvr_load_view_t            load;
    kvr_set_t                  special;  /* peers with flags of the request */
    uint64_t                   suspect_after;  /* ms: a peer with an older
                                            unanswered request may be silent;
                                            0: unknown */
    uint32_t                   picks;
    unsigned                   special_any:1;
    unsigned                   capped:1;
    unsigned                   signals:1;
    unsigned                   outliers:1;  /* some may be ejected or silent */
    unsigned                   extra:1;  /* any of these, or slow start */

    /* the last kvr_hot_shared(), for these arguments */

    struct {
        uint64_t               shared;
        uint32_t               units;
        uint32_t               active;
        uint32_t               rest;
    } memo;
} kvr_view_t;


/* Sets the fields that are the same for all peers. */
void kvr_candidate_view(kvr_view_t *v);

/*
 * Sets what peers can deliver of the units that they have: fewer, if the model
 * does not resume there.  With lower tiers or a hybrid model, sets loads[], by
 * peer, to what loading costs, and returns 1.
 */
int kvr_candidate_deliver(const kvr_zone_t *zone, const kvr_pool_t *pool,
    const uint64_t *chain, kvr_set_t set, uint32_t *matched, uint32_t *loads);

/*
 * Looks up how many requests share the prefix that peers have cached; units:
 * the most that a peer has.  A prefix below the score's floor is skipped.
 */
void kvr_candidate_hot(const kvr_zone_t *zone, const uint64_t *chain,
    uint32_t units, uint64_t now, kvr_hot_keys_t *keys,
    kvr_hot_view_t *view);

/*
 * Counts a request as one that has these prefixes.  The first token does so,
 * unless it was done before.
 */
void kvr_candidate_count(const kvr_zone_t *zone, kvr_hot_keys_t *keys,
    uint32_t peer, uint64_t now);

/*
 * The part of kvr_candidate_init() for upstreams and requests that need it:
 * view->extra is set.
 */
void kvr_candidate_extra(kvr_view_t *v, kvr_candidate_t *c, uint32_t peer,
    uint32_t member);

/* The same for lower tiers and hybrid models: view->loads is set. */
void kvr_candidate_tiers(const kvr_view_t *v, kvr_candidate_t *c,
    uint32_t peer);

/*
 * Tells whether a peer is at its cap of work.  fit: bytes that must fit into
 * its cache, or 0; own: a reservation that does not count, or NULL.
 */
int kvr_candidate_capped(const kvr_zone_t *zone, const kvr_pool_t *pool,
    uint32_t peer, uint64_t fit, const kvr_reservation_t *own, uint64_t now);

/* Tells whether a peer is being drained. */
int kvr_candidate_draining(const kvr_zone_t *zone, uint32_t peer);

/*
 * Tells whether a peer is being drained, has asked for a pause, or is
 * unhealthy: it is used only if all are.
 */
int kvr_candidate_spared(const kvr_zone_t *zone, const kvr_pool_t *pool,
    uint32_t peer, uint64_t now);


/*
 * Sets all fields of a candidate, except its weight, place and the weights of
 * smooth round robin.  conns: requests in flight by the caller's count, for a
 * peer without a slot.  Inline, since each decision calls it for each peer.
 */
static inline void
kvr_candidate_init(kvr_view_t *v, kvr_candidate_t *c, uint32_t peer,
    uint32_t member, uint32_t conns)
{
    uint32_t                units, rate, rest;
    kvr_peer_t             *known;
    kvr_reservation_load_t  load;

    /* one by one: for more gcc uses a slow instruction */

    c->flags = 0;
    c->matched = 0;
    c->shared = 0;
    c->cost = 0;
    c->delay = 0;
    c->turnover = 0;
    c->load = 0;
    c->fetch = 0;

    if (kvr_unlikely(peer == KVR_REGISTRY_NONE)) {
        c->active = conns;
        c->unanswered = 0;
        c->pending = 0;
        c->idle = 0;
        c->resident = 0;
        return;
    }

    known = &v->zone->registry->peer[peer];
    load = kvr_reservation_load(&v->load, v->zone->registry, peer, v->own);

    c->active = load.active;
    c->pending = load.pending;
    c->unanswered = load.unanswered;
    c->resident = load.resident;
    c->idle = v->picks - kvr_get(&known->given);
    c->delay = kvr_prefill_delay(&known->prefill, v->now);

    rate = kvr_get(&known->prefill.rate);
    v->rate = kvr_max(v->rate, rate);

    if (v->matched) {
        units = v->matched[peer];

        c->matched = kvr_min((uint64_t) units * KVR_BLOCK, v->bytes);
        c->turnover = kvr_index_turnover(v->zone->index, peer, v->now);

        if (v->hot) {

            /* many peers have the same arguments as the one before */

            rest = kvr_prefill_rest(&known->prefill, v->now);

            if (units != v->memo.units || c->active != v->memo.active
                || rest != v->memo.rest)
            {
                v->memo.units = units;
                v->memo.active = c->active;
                v->memo.rest = rest;
                v->memo.shared = kvr_hot_shared(v->hot, units, c->active,
                                                rest);
            }

            c->shared = v->memo.shared;
        }
    }

    if (kvr_unlikely(v->loads != NULL)) {
        kvr_candidate_tiers(v, c, peer);
    }

    if (kvr_unlikely(kvr_drain_on(&known->drain))) {
        c->draining = 1;
        c->ended = kvr_drain_over(&known->drain, v->now);
        c->common = v->hot
                    && kvr_hot_common(v->hot,
                                      (uint32_t) (c->matched
                                                  / KVR_BLOCK));
    }

    if (kvr_unlikely(kvr_get(&known->engine.pressure) > v->now)) {
        c->throttled = 1;
    }

    if (kvr_unlikely(v->extra)) {
        kvr_candidate_extra(v, c, peer, member);
    }
}


#endif /* _KVR_CANDIDATE_H_INCLUDED_ */
