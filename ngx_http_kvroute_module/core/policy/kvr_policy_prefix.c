
/*
 * Copyright (C) kvroute contributors
 */


/* Picks the peer of the prefix, by consistent hashing with bounded loads. */


#include "core/policy/kvr_policy_int.h"


/* a peer with fewer requests than this does not overflow */
#define KVR_POLICY_PREFIX_FLOOR  4


static uint32_t kvr_policy_prefix_pick(const kvr_policy_request_t *req,
    kvr_candidate_t *cand, uint32_t n, kvr_decision_t *d);
static int kvr_policy_prefix_room(void *data, uint32_t place);


typedef struct {
    kvr_candidate_t  *cand;
    const uint32_t   *by_place;
    uint64_t          total;
    uint64_t          weights;
    double            factor;
} kvr_policy_prefix_rooms_t;


static const kvr_policy_param_t  kvr_policy_prefix_params[] = {
    { "length", KVR_PARAM_SIZE, offsetof(kvr_policy_conf_t, length),
      256, 64 * 1024 * 1024, NULL },
    { "load_factor", KVR_PARAM_DECIMAL,
      offsetof(kvr_policy_conf_t, load_factor), 1, 1000, NULL },
    { 0 }
};


const kvr_policy_t  kvr_policy_prefix = {
    .name = "prefix",
    .needs = KVR_NEEDS_BODY | KVR_NEEDS_MATCH | KVR_NEEDS_RING,
    .params = kvr_policy_prefix_params,
    .pick = kvr_policy_prefix_pick
};


static uint32_t
kvr_policy_prefix_pick(const kvr_policy_request_t *req, kvr_candidate_t *cand,
    uint32_t n, kvr_decision_t *d)
{
    uint32_t                   i, place, first;
    kvr_policy_prefix_rooms_t  rooms;

    if (!req->keyed || req->ring == NULL || req->ring->n == 0) {

        i = kvr_policy_least_request_pick(req, cand, n, d);

        if (!req->parsed && !req->no_prefill) {
            d->reason = KVR_REASON_UNPARSED;
        }

        return i;
    }

    rooms.cand = cand;
    rooms.by_place = req->by_place;
    rooms.total = 0;
    rooms.weights = 0;
    rooms.factor = req->conf->load_factor;

    for (i = 0; i < req->places; i++) {
        req->by_place[i] = KVR_POLICY_NONE;
    }

    for (i = 0; i < n; i++) {

        if (!cand[i].out) {
            req->by_place[cand[i].place] = i;
            rooms.total += cand[i].active;
            rooms.weights += cand[i].weight;
        }
    }

    place = kvr_ring_pick(req->ring, req->key, req->places, req->seen,
                          kvr_policy_prefix_room, &rooms, &first);

    if (place == req->places) {
        return kvr_policy_least_request_pick(req, cand, n, d);
    }

    d->reason = (place == first) ? KVR_REASON_RING : KVR_REASON_SPILL;

    return req->by_place[place];
}


static int
kvr_policy_prefix_room(void *data, uint32_t place)
{
    kvr_policy_prefix_rooms_t *rooms = data;

    kvr_candidate_t  *c;

    if (rooms->by_place[place] == KVR_POLICY_NONE) {
        return -1;
    }

    c = &rooms->cand[rooms->by_place[place]];

    return c->active < kvr_ring_bound(rooms->total, c->weight, rooms->weights,
                                      rooms->factor, KVR_POLICY_PREFIX_FLOOR);
}
