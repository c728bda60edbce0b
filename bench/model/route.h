/*
 * A request's way through the router, by core/route as nginx's glue goes it:
 * match, offer and pick, begin, first token, end.  Both simulators go it by
 * these, and say only what is theirs: who is up, what a prompt is, when what
 * happens.
 */

#ifndef KVS_ROUTE_H
#define KVS_ROUTE_H


#include "core/route/kvr_route.h"

#include "bench/model/zone.h"


#define KVS_ROUTE_ENTRIES  8192


/* a request, and its attempt at a replica */
typedef struct {
    const uint64_t      *chain;
    uint32_t             units;      /* whole ones of the prompt */
    uint64_t             bytes;
    uint32_t             row;        /* the router that has it */

    kvr_attempt_t        attempt;
    kvr_hot_keys_t       counted;
} kvs_route_t;


/* one decision: between offer() and pick() the caller may change it */
typedef struct {
    kvr_set_t            set;        /* those that are up */
    uint32_t             matched[KVS_REPLICAS];   /* units */
    uint32_t             loads[KVS_REPLICAS];     /* units, likewise */
    kvr_hot_view_t       hot;

    kvr_view_t           view;
    kvr_policy_request_t req;
    uint32_t             n;
    kvr_candidate_t      cand[KVS_REPLICAS];      /* by place: the replica */
    kvr_decision_t       decision;
} kvs_choice_t;


/* the entries of a chain that the index is to have, in memory of their own */
uint64_t *kvs_route_chain(const uint64_t *chain, uint32_t units, uint32_t *n);

/* what the index says that replicas hold, to matched and hot */
void kvs_route_match(const kvs_zone_t *z, kvs_route_t *rt, kvs_choice_t *ch,
    double now);

/* of how many requests what they hold is the beginning; matched is set */
void kvs_route_hot(const kvs_zone_t *z, kvs_route_t *rt, kvs_choice_t *ch,
    const uint64_t *entries, uint32_t best, double now);

/* what is the same for all replicas; set is set, the rest of view may follow */
void kvs_route_view(const kvs_zone_t *z, const kvs_route_t *rt,
    kvs_choice_t *ch, kvr_policy_e policy, uint64_t random,
    double now);

/* candidates of all that are up */
void kvs_route_offer(const kvs_zone_t *z, kvs_choice_t *ch);

/* returns the replica, where the request has begun; reserved may be NULL */
uint32_t kvs_route_pick(const kvs_zone_t *z, kvs_route_t *rt,
    kvs_choice_t *ch, kvr_reservation_t *reserved, double now);

/* the index learns that it is going there */
void kvs_route_insert(const kvs_zone_t *z, kvs_route_t *rt, uint32_t held);

/* the first token; plain: its time may tell what was held */
void kvs_route_first(const kvs_zone_t *z, kvs_route_t *rt, unsigned plain,
    double now);

/* the end; tokens: what the reply has told, or NULL */
void kvs_route_end(const kvs_zone_t *z, kvs_route_t *rt,
    const kvr_tokens_t *tokens, double now);


#endif
