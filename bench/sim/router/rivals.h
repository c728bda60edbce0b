/*
 * The picks of other routers, as pure functions of their inputs, by their
 * published formulas and defaults (names and sources in rivals.c).
 */

#ifndef KVS_RIVALS_H
#define KVS_RIVALS_H


#include "bench/model/kvs.h"


/* a router's inputs about a replica */
typedef struct {
    uint32_t   active;      /* requests in flight */
    uint32_t   picks;       /* so far */
    uint64_t   pending;     /* uncached prompt tokens without a first token */
    uint32_t   matched;     /* tokens of this prompt that it has cached */
    uint32_t   waiting;     /* scraped: requests in its queue */
    double     usage;       /* scraped: of its KV cache, 0 .. 1 */
    uint64_t   blocks;      /* in flight and of this one, shared once */
    uint32_t   units;       /* Ramjet's load units */
} kvs_view_t;


typedef struct {
    double     cache;       /* share of the prompt that must match */
    double     abs;         /* requests */
    double     rel;
} kvs_gate_t;


/* a prompt's rank among recent ones with the same prefix (LMetric) */
typedef struct {
    uint32_t   window;
    uint32_t   n;
    uint32_t   at;
    uint64_t  *classes;     /* [window] */
    uint64_t   streak_of[64];
    uint32_t   streak[64];
} kvs_hotspot_t;


typedef struct {
    uint32_t   n;
    uint64_t  *hash;
    uint8_t   *replica;
} kvs_ring_t;


uint32_t kvs_pick_random(uint32_t n, kvs_rng_t *rng);
uint32_t kvs_pick_two_choices(const kvs_view_t *v, uint32_t n, kvs_rng_t *rng);

/* tenant: the replica of the deepest match, n if there is none */
uint32_t kvs_pick_sglang_fleet(const kvs_view_t *v, uint32_t n,
    uint32_t tokens, uint32_t tenant, const kvs_gate_t *gate);
uint32_t kvs_pick_two_tier(const kvs_view_t *v, uint32_t n, uint32_t tokens,
    const kvs_gate_t *gate);
uint32_t kvs_pick_sglang_request(const kvs_view_t *v, uint32_t n,
    uint32_t tokens, const kvs_gate_t *gate, kvs_rng_t *rng);

uint32_t kvs_pick_ring(const kvs_ring_t *ring, const uint32_t *id, uint32_t n,
    uint64_t key);
uint32_t kvs_pick_ring_bounded(const kvs_ring_t *ring, const kvs_view_t *v,
    const uint32_t *id, uint32_t n, uint64_t key, double factor);

uint32_t kvs_pick_llmd_blend(const kvs_view_t *v, uint32_t n, uint32_t tokens,
    kvs_rng_t *rng);
uint32_t kvs_pick_llmd_sticky(const kvs_view_t *v, uint32_t n, uint32_t tokens,
    uint32_t turn);

uint32_t kvs_pick_dynamo(const kvs_view_t *v, uint32_t n, uint32_t tokens,
    double credit, kvs_rng_t *rng);

uint32_t kvs_pick_lmetric(const kvs_view_t *v, uint32_t n, uint32_t tokens,
    kvs_rng_t *rng);
uint32_t kvs_pick_lmetric_dynamo(const kvs_view_t *v, uint32_t n,
    uint32_t tokens, kvs_hotspot_t *hot, uint64_t class, uint32_t prefix);
uint32_t kvs_pick_additive(const kvs_view_t *v, uint32_t n, uint32_t tokens,
    uint32_t turn);
uint32_t kvs_pick_aibrix(const kvs_view_t *v, uint32_t n, uint32_t tokens,
    kvs_rng_t *rng);
uint32_t kvs_pick_ramjet(const kvs_view_t *v, uint32_t n, uint32_t turn);

/* returns the load units of a request for Ramjet */
uint32_t kvs_ramjet_units(uint64_t bytes, uint64_t matched);

void kvs_ring_init(kvs_ring_t *ring, uint32_t replicas, uint32_t points);
void kvs_ring_done(kvs_ring_t *ring);
void kvs_hotspot_init(kvs_hotspot_t *hot, uint32_t window);
void kvs_hotspot_done(kvs_hotspot_t *hot);


#endif
