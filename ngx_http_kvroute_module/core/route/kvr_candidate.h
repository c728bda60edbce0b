
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_CANDIDATE_H_INCLUDED_
#define _KVR_CANDIDATE_H_INCLUDED_


/*
 * What is known of a peer, put before the policy.
 *
 * The caller says what belongs to the request, and offers each peer that may be
 * had at all.  What is shared is read here: load, draining, caps, what engines
 * said.  Nothing is written.
 */


#include "core/route/kvr_eject.h"
#include "core/route/kvr_reservation.h"
#include "core/policy/kvr_policy.h"
#include "core/prompt/kvr_document.h"


/* one decision; all but the last part is the caller's to set */
typedef struct {
    const kvr_zone_t          *zone;
    const kvr_pool_t          *pool;
    const kvr_reservation_t   *own;      /* the request's, or NULL */

    const uint32_t            *matched;  /* units held, by peer; or NULL */
    const uint32_t            *documents;  /* bytes held apart; or NULL */
    const kvr_hot_view_t      *hot;      /* or NULL */
    uint64_t                   bytes;    /* of the prompt */
    uint64_t                   fit;      /* bytes that must find room in the
                                            cache, 0: it does not matter */

    /* peers; or any number from KVR_PEERS on */

    uint32_t                   bound;    /* of the session */
    uint32_t                   pin;      /* named by the request */
    uint32_t                   owner;    /* of the response before */
    const kvr_set_t           *models;   /* have the model; NULL: all */
    const kvr_set_t           *evicts;   /* would unload another */

    kvr_by_e                   by;       /* of the policy */
    uint64_t                   random;
    uint64_t                   now;      /* ms */
    uint32_t                   seconds;

    /* out: bytes a ms, of the fastest peer so far, as in kvr_prefill.h */

    uint32_t                   rate;

    uint32_t                   silent;   /* member that seems to be, or
                                            KVR_REGISTRY_NONE */

    /* of kvr_candidate_view() */

    kvr_load_view_t            load;
    kvr_set_t                  special;  /* not like the others, if some */
    uint64_t                   quiet;    /* if wary: ms; who owes an answer
                                            since before is silent; 0: nobody */
    uint64_t                   shared;   /* by who is like these three */
    uint32_t                   units;
    uint32_t                   active;
    uint32_t                   rest;
    uint32_t                   given;
    unsigned                   some:1;
    unsigned                   capped:1;
    unsigned                   signals:1;
    unsigned                   wary:1;   /* somebody may be out, or silent */
    unsigned                   more:1;   /* any of these, or slow start */
} kvr_view_t;


/* finds out what is the same for all peers */
void kvr_candidate_view(kvr_view_t *v);

/*
 * Of how many requests what peers hold of this prompt is the beginning; units:
 * what the best of them holds.  What is below the floor of the costs is not
 * worth the look.
 */
void kvr_candidate_hot(const kvr_zone_t *zone, const uint64_t *chain,
    uint32_t units, uint64_t now, kvr_hot_keys_t *keys,
    kvr_hot_view_t *view);

/*
 * Adds to held[peer] the bytes of the documents of a prompt that each peer of
 * the set holds behind the matched[peer] units that it holds of the prefix.
 */
void kvr_candidate_documents(const kvr_zone_t *zone,
    const kvr_document_t *document, uint32_t n, kvr_set_t set,
    const uint32_t *matched, uint32_t *held);

/*
 * The part of kvr_candidate_init() that only some upstreams and requests need:
 * those of which view->more is set.
 */
void kvr_candidate_more(kvr_view_t *v, kvr_candidate_t *c, uint32_t peer,
    uint32_t member);

/*
 * Whether a peer has all the work that it may have.  fit: bytes that must find
 * room in its cache, or 0; own: a reservation that does not count, or NULL.
 */
int kvr_candidate_capped(const kvr_zone_t *zone, const kvr_pool_t *pool,
    uint32_t peer, uint64_t fit, const kvr_reservation_t *own, uint64_t now);

/* whether a peer is out of health: it gets work only if all are */
int kvr_candidate_unhealthy(const kvr_zone_t *zone, const kvr_pool_t *pool,
    uint32_t peer, uint64_t now);

/* whether a peer is being drained */
int kvr_candidate_draining(const kvr_zone_t *zone, uint32_t peer);


/* whether a peer has asked to be left alone, and the time is not over */
static inline int
kvr_candidate_throttled(const kvr_zone_t *zone, uint32_t peer, uint64_t now)
{
    return peer != KVR_REGISTRY_NONE
           && kvr_get(&zone->registry->peer[peer].engine.pressure) > now;
}


/*
 * What is known of a peer, in all fields but weight, place, and those of the
 * smooth round robin.  conns: requests in flight there by the caller's count,
 * for a peer without a number.  Here, as it is asked for each peer in each
 * decision.
 */
static inline void
kvr_candidate_init(kvr_view_t *v, kvr_candidate_t *c, uint32_t peer,
    uint32_t member, uint32_t conns)
{
    uint32_t                units, rate, rest;
    kvr_peer_t             *known;
    kvr_reservation_load_t  load;

    /* one by one: gcc would clear so many by an instruction that is slow */

    c->flags = 0;
    c->matched = 0;
    c->shared = 0;
    c->cost = 0;
    c->delay = 0;
    c->turnover = 0;
    c->documents = 0;
    c->kv = 0;
    c->waiting = 0;

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
    c->idle = v->given - kvr_get(&known->given);
    c->delay = kvr_prefill_delay(&known->prefill, v->now);

    rate = kvr_get(&known->prefill.rate);
    v->rate = kvr_max(v->rate, rate);

    if (v->matched) {
        units = v->matched[peer];

        c->matched = kvr_min(units * v->zone->unit, v->bytes);
        c->turnover = kvr_index_turnover(v->zone->index, peer, v->now);

        if (v->hot) {

            /* many peers are like the one before */

            rest = kvr_prefill_rest(&known->prefill, v->now);

            if (units != v->units || c->active != v->active
                || rest != v->rest)
            {
                v->units = units;
                v->active = c->active;
                v->rest = rest;
                v->shared = kvr_hot_shared(v->hot, units, c->active,
                                           rest);
            }

            c->shared = v->shared;
        }
    }

    if (v->documents) {
        c->documents = v->documents[peer];
    }

    if (kvr_unlikely(kvr_drain_on(&known->drain))) {
        c->draining = 1;
        c->ended = kvr_drain_over(&known->drain, v->now);
        c->common = v->hot
                    && kvr_hot_common(v->hot,
                                      (uint32_t) (c->matched
                                                  / v->zone->unit));
    }

    if (kvr_unlikely(kvr_get(&known->engine.pressure) > v->now)) {
        c->throttled = 1;
    }

    if (kvr_unlikely(v->more)) {
        kvr_candidate_more(v, c, peer, member);
    }
}


#endif /* _KVR_CANDIDATE_H_INCLUDED_ */
