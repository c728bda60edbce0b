/*
 * The course of a request through the router, by core/route as in nginx's
 * glue: match, offer and pick, begin, first token, end.  Both simulators use
 * these functions.  Each adds what differs: which replicas are up, the
 * prompts, and the times.
 */

#ifndef KVS_ROUTE_H
#define KVS_ROUTE_H


#include "core/route/kvr_route.h"

#include "bench/model/zone.h"


#define KVS_ROUTE_ENTRIES  8192


/* a request, and its attempt at a replica */
typedef struct {
    const uint64_t      *chain;
    uint32_t             units;      /* complete units of the prompt */
    uint64_t             bytes;
    uint32_t             row;        /* row of its router */

    kvr_attempt_t        attempt;
    kvr_hot_keys_t       counted;
} kvs_route_t;


/* a decision; the caller can change it between offer() and pick() */
typedef struct {
    kvr_set_t            set;        /* replicas that are up */
    uint32_t             matched[KVS_REPLICAS];   /* units */
    uint32_t             loads[KVS_REPLICAS];     /* units, likewise */
    kvr_hot_view_t       hot;

    kvr_view_t           view;
    kvr_policy_request_t req;
    uint32_t             n;
    kvr_candidate_t      cand[KVS_REPLICAS];      /* by index of the replica */
    kvr_decision_t       decision;
} kvs_choice_t;


/* returns a copy of the chain's entries for the index */
uint64_t *kvs_route_chain(const uint64_t *chain, uint32_t units, uint32_t *n);

/* looks up what the replicas have cached, for matched and hot */
void kvs_route_match(const kvs_zone_t *z, kvs_route_t *rt, kvs_choice_t *ch,
    double now);

/* counts the requests that share the matched prefixes; matched is set */
void kvs_route_hot(const kvs_zone_t *z, kvs_route_t *rt, kvs_choice_t *ch,
    const uint64_t *entries, uint32_t best, double now);

/*
 * sets what is the same for all replicas; the caller can set the rest of view
 */
void kvs_route_view(const kvs_zone_t *z, const kvs_route_t *rt,
    kvs_choice_t *ch, kvr_policy_e policy, uint64_t random,
    double now);

/* makes the candidates of all replicas that are up */
void kvs_route_offer(const kvs_zone_t *z, kvs_choice_t *ch);

/*
 * begins the request at the picked replica and returns that; reserved or NULL
 */
uint32_t kvs_route_pick(const kvs_zone_t *z, kvs_route_t *rt,
    kvs_choice_t *ch, kvr_reservation_t *reserved, double now);

/* adds the prediction to the index */
void kvs_route_insert(const kvs_zone_t *z, kvs_route_t *rt, uint32_t held);

/* the first token; plain: its time can show what was cached */
void kvs_route_first(const kvs_zone_t *z, kvs_route_t *rt, unsigned plain,
    double now);

/* the end; tokens: as reported by the reply, or NULL */
void kvs_route_end(const kvs_zone_t *z, kvs_route_t *rt,
    const kvr_tokens_t *tokens, double now);


#endif
