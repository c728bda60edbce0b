/*
 * The shipped router: core/ linked, not copied, and used as the glue does it
 * in ngx_http_kvroute_upstream.c and _attempt.c.  Look up the chain, offer all
 * that are up, let the policy pick, count it in, teach the index; at the first
 * event release what was pending; at the end count it out, and take the insert
 * back if there was no first event.
 */

#include "router_int.h"


/* what the router keeps in shared memory */
static void *
kvs_router_memory(size_t size)
{
    void  *p;

    size = (size + KVR_CACHE_LINE) & ~(size_t) (KVR_CACHE_LINE - 1);
    p = aligned_alloc(KVR_CACHE_LINE, size);

    if (p == NULL) {
        abort();
    }

    return memset(p, 0, size);
}


static void
kvs_router_ring(kvs_router_t *ro)
{
    uint32_t         i;
    kvr_ring_peer_t  peer[KVS_REPLICAS];

    ro->hot = kvs_router_memory(sizeof(kvr_sketch_t));

    for (i = 0; i < ro->sim->n; i++) {
        peer[i].hash = kvr_mix(i + 1, 0x70656572);
        peer[i].weight = 1;
    }

    ro->ring.point = kvs_alloc(kvr_ring_size(peer, ro->sim->n)
                               * sizeof(kvr_ring_point_t));
    kvr_ring_build(&ro->ring, peer, ro->sim->n);
}


void *
kvs_router_create(kvs_sim_t *sim, const kvs_policy_t *policy)
{
    uint32_t            i;
    uint64_t            units;
    kvs_router_t       *ro;
    kvs_prefix_conf_t   px;

    ro = kvs_alloc(sizeof(kvs_router_t));

    ro->sim = sim;
    ro->probed = -KVS_ROUTER_PROBE;
    ro->conf = *(const kvs_router_conf_t *) policy->conf;

    kvs_rng_seed(&ro->lose, sim->seed, 0x6c6f73650e55ULL);

    ro->rows = kvr_max(sim->fleet.routers, 1);

    ro->popular = kvs_router_memory(sizeof(kvr_popular_t));
    ro->load = kvs_router_memory(kvr_load_size(ro->rows, KVS_REPLICAS));
    kvr_load_init(ro->load, ro->rows, KVS_REPLICAS);

    for (i = 0; i < ro->rows; i++) {
        kvr_load_claim(ro->load, kvr_load_owner(i + 1, 1), 1);
    }

    if (kvr_policy_needs(ro->conf.policy) & KVR_NEEDS_RING) {
        kvs_router_ring(ro);
    }

    memset(&px, 0, sizeof(px));

    if (ro->conf.state == KVS_STATE_TRUE) {
        ro->coming = kvs_prefix_create(&px);
    }

    if (ro->conf.state == KVS_STATE_LRU) {
        px.capacity = (uint32_t) (ro->conf.capacity * sim->blocks);
        px.ttl = ro->conf.ttl;
        ro->lru = kvs_prefix_create(&px);
    }

    /* of other states only its clock is asked */

    ro->index = kvs_router_memory(KVS_ROUTER_ZONE);
    kvr_index_init(ro->index, kvr_index_lines(KVS_ROUTER_ZONE));

    units = KVS_ROUTER_CAPACITY / KVS_UNIT_BYTES;

    if (ro->conf.assumed) {
        units = (uint64_t) ro->conf.assumed * 1024 * 1024 / KVS_UNIT_BYTES;
    }

    if (ro->conf.capacity > 0) {
        units = (uint64_t) (ro->conf.capacity * sim->blocks);
    }

    if (ro->conf.state != KVS_STATE_INDEX) {
        units = sim->blocks;
    }

    for (i = 0; i < sim->n; i++) {
        kvr_index_flush(ro->index, i);
        kvr_index_capacity(ro->index, i, units, ro->conf.reported);
    }

    ro->assumed = (uint32_t) units;

    return ro;
}


void
kvs_router_destroy(void *data)
{
    kvs_router_t *ro = data;

    if (ro->lru) {
        kvs_prefix_destroy(ro->lru);
    }

    if (ro->coming) {
        kvs_prefix_destroy(ro->coming);
    }

    free((void *) ro->index);
    free((void *) ro->popular);
    free((void *) ro->hot);
    free(ro->ring.point);
    free(ro->load);
    free(ro);
}


uint32_t
kvs_router_chain(kvs_router_t *ro, const uint64_t *chain, uint32_t units)
{
    uint32_t  i, n;

    n = kvr_min(kvr_chain_entries(units), KVS_ROUTER_ENTRIES);

    for (i = 0; i < n; i++) {
        ro->chain[i] = chain[kvr_chain_depth(i) - 1];
    }

    return n;
}


/* units of the prompt that each replica holds */
static void
kvs_router_match(kvs_router_t *ro, kvs_request_t *rq, double now,
    uint32_t *matched)
{
    uint32_t   i, n, hole, coming[KVS_REPLICAS];
    uint64_t   m, set;
    kvs_sim_t  *sim;

    sim = ro->sim;
    set = sim->up;
    n = kvs_router_chain(ro, rq->chain, rq->units);

    switch (ro->conf.state) {

    case KVS_STATE_TRUE:
        kvs_prefix_match(ro->coming, rq->chain, rq->units, set, now, coming,
                         NULL);

        for (m = set; m; m &= m - 1) {
            i = (uint32_t) __builtin_ctzll(m);

            kvs_sim_settle(sim, i);

            matched[i] = (uint32_t) kve_replica_match(sim->replica[i],
                                                      rq->chain, rq->units,
                                                      rq->tokens)
                         / KVS_UNIT_TOKENS;
            matched[i] = kvr_max(matched[i], coming[i]);
        }

        return;

    case KVS_STATE_LRU:
        kvs_prefix_match(ro->lru, rq->chain, rq->units, set, now, matched,
                         NULL);
        return;

    case KVS_STATE_INDEX:
        break;
    }

    /* the same lines for all, and for good */

    hole = n;

    for (i = 0; ro->conf.lost > 0 && i < n; i++) {
        if ((double) (kvr_mix(ro->chain[i], ro->lose.s) >> 11) * 0x1p-53
            < ro->conf.lost)
        {
            ro->chain[i] ^= 0x5555555555555555ULL;
            hole = kvr_min(hole, i);
        }
    }

    kvr_index_lookup(ro->index, ro->chain, n, set, matched);

    for (m = ro->conf.strict && hole < n ? set : 0; m; m &= m - 1) {
        i = (uint32_t) __builtin_ctzll(m);
        matched[i] = kvr_min(matched[i], hole ? kvr_chain_depth(hole - 1) : 0);
    }
}


/* bytes of the prompt behind what is matched that each replica holds */
static void
kvs_router_chunks(kvs_router_t *ro, kvs_request_t *rq, const uint32_t *matched,
    uint64_t *chunks)
{
    uint32_t  i, r;
    uint64_t  has;

    for (i = 0; i < rq->units; i++) {
        has = kvr_index_holds(ro->index, rq->req.digests[i], ro->sim->up);

        for ( /* void */ ; has; has &= has - 1) {
            r = (uint32_t) __builtin_ctzll(has);
            chunks[r] += i >= matched[r] ? KVS_UNIT_BYTES : 0;
        }
    }
}


static inline uint64_t
kvs_router_ms(double now)
{
    return 100000 + (uint64_t) (now * 1000);
}


/* as ngx_http_kvroute_match_popular() does it */
static void
kvs_router_popular(kvs_router_t *ro, kvs_request_t *rq, double now,
    const uint32_t *matched, kvr_popular_view_t *view)
{
    uint32_t  i, best;

    best = 0;

    for (i = 0; i < ro->sim->n; i++) {
        best = kvr_max(best, matched[i]);
    }

    if (best * KVS_UNIT_BYTES <= KVR_SCORE_FLOOR) {
        best = 0;
    }

    kvr_popular_keys(ro->chain, kvr_chain_entries(best), &rq->counted);
    kvr_popular_view(ro->popular, &rq->counted, KVS_UNIT_BYTES,
                     kvs_router_ms(now), view);
}


/* what an engine has more than we know of came past us */
static void
kvs_router_probe(kvs_router_t *ro, double now)
{
    uint32_t     i, active, has, waits;
    kve_stats_t  st;

    if (now < ro->probed + KVS_ROUTER_PROBE) {
        return;
    }

    ro->probed = now;

    for (i = 0; i < ro->sim->n; i++) {
        kve_replica_stats(ro->sim->replica[i], &st);

        active = kvr_load_get(ro->load, i).active;
        has = st.running + st.waiting;
        waits = st.waiting + st.prefilling;

        ro->others[i] = has - kvr_min(has, active);
        ro->others_waiting[i] = waits - kvr_min(waits,
                                                ro->prefilling[i]);
    }
}


/* as ngx_http_kvroute_match_prefix() and _session_find() do it */
static void
kvs_router_key(kvs_router_t *ro, kvs_request_t *rq, kvr_policy_request_t *req,
    kvr_candidate_t *cand, const uint32_t *id, uint32_t n, double now)
{
    uint32_t  i, entry, entries, peer, generation;

    if (kvr_policy_needs(ro->conf.policy) & KVR_NEEDS_SESSION) {

        req->keyed = 1;
        req->key = rq->key_session;

        peer = kvr_index_bound(ro->index, req->key, (uint32_t) now,
                               &generation);

        for (i = 0; i < n; i++) {
            cand[i].bound = (id[i] == peer);
        }

        return;
    }

    entries = kvs_router_chain(ro, rq->chain, rq->units);

    if (entries == 0) {
        return;
    }

    kvr_sketch_add(ro->hot, ro->chain, entries);

    if (req->conf && req->conf->length) {
        entry = kvr_chain_entries(kvr_max(req->conf->length / KVS_UNIT_BYTES,
                                          1));
        entry = kvr_min(entry, entries) - 1;

    } else {
        entry = kvr_sketch_entry(ro->hot, ro->chain, entries, 0.5 / ro->sim->n);
    }

    req->key = ro->chain[entry];
    req->keyed = 1;
    req->ring = &ro->ring;
    req->places = ro->sim->n;
}


uint32_t
kvs_router_pick(void *data, kvs_request_t *rq, double now)
{
    kvs_router_t *ro = data;

    uint32_t               i, n, row, id[KVS_REPLICAS], matched[KVS_REPLICAS];
    uint32_t               by_place[KVS_REPLICAS];
    uint64_t               m, seen[1], chunks[KVS_REPLICAS];
    unsigned               needs;
    kvr_load_sum_t         sum;
    kvr_popular_view_t     view;
    kvr_decision_t         d;
    kvr_candidate_t       *c, cand[KVS_REPLICAS];
    kvr_policy_request_t   req;

    needs = kvr_policy_needs(ro->conf.policy);

    memset(matched, 0, sizeof(matched));

    if (needs & KVR_NEEDS_SCORE) {
        kvs_router_match(ro, rq, now, matched);
        kvs_router_popular(ro, rq, now, matched, &view);
    }

    if (ro->conf.probe) {
        kvs_router_probe(ro, now);
    }

    memset(chunks, 0, sizeof(chunks));

    if (ro->conf.conf && ro->conf.conf->chunks && rq->req.digests) {
        kvs_router_chunks(ro, rq, matched, chunks);
    }

    n = 0;
    rq->rate = 0;

    for (m = ro->sim->up; m; m &= m - 1) {
        i = (uint32_t) __builtin_ctzll(m);

        sum = kvr_load_get(ro->load, i);

        c = &cand[n];
        memset(c, 0, sizeof(kvr_candidate_t));

        c->weight = 1;
        c->active = sum.active;
        c->unanswered = ro->prefilling[i];

        if (ro->conf.probe) {
            c->active += ro->others[i];
            c->unanswered += ro->others_waiting[i];
        }

        c->pending = sum.pending;
        c->delay = kvr_prefill_delay(&ro->pace[i], kvs_router_ms(now));
        rq->rate = kvr_max(rq->rate, kvr_get(&ro->pace[i].rate));
        c->matched = kvr_min((uint64_t) matched[i] * KVS_UNIT_BYTES,
                             rq->bytes);
        c->chunks = chunks[i];
        c->resident = ro->resident[i];
        c->waiting = ro->prefilling[i];
        c->fresh = 1;
        c->place = i;
        c->idle = ro->given - ro->last[i];
        c->current_weight = ro->current[i];
        c->effective_weight = 1;

        if (needs & KVR_NEEDS_SCORE) {
            c->turnover = kvr_index_turnover(ro->index, i,
                                             kvs_router_ms(now));
            c->shared = kvr_popular_shared(&view, matched[i], c->active);
        }

        id[n++] = i;
    }

    memset(&req, 0, sizeof(req));

    req.conf = ro->conf.conf;
    req.policy = ro->conf.policy;
    req.bytes = rq->bytes;
    req.rate = rq->rate;
    req.random = kvs_rng_next(&ro->sim->rng);
    req.parsed = 1;
    req.retry = rq->attempts > 1;

    if (needs & (KVR_NEEDS_RING | KVR_NEEDS_SESSION)) {
        req.by_place = by_place;
        req.seen = seen;

        kvs_router_key(ro, rq, &req, cand, id, n, now);
    }

    kvr_policy_pick(&req, cand, n, &d);

    for (i = 0; i < n; i++) {
        ro->current[id[i]] = cand[i].current_weight;
    }

    i = id[d.pick];
    row = (uint32_t) (rq->id % ro->rows);

    rq->replica = i;
    rq->pending = rq->bytes - kvr_min(d.matched, rq->bytes);
    rq->matched = (uint32_t) (d.matched / KVS_TOKEN_BYTES);
    rq->charge = row;
    rq->given = now;
    rq->depth = 0;
    rq->speculative = 0;
    rq->timed = kvr_ttft_give(&ro->ttft[i], rq->pending,
                              ro->prefilling[i] != 0);

    rq->ahead = kvr_prefill_give(&ro->pace[i], rq->pending,
                                 kvr_load_get(ro->load, i).pending,
                                 kvs_router_ms(now));

    kvr_load_add(ro->load, row, i, 1, (int64_t) rq->pending);

    ro->prefilling[i]++;
    ro->resident[i] += rq->bytes;
    ro->last[i] = ++ro->given;

    if (kvr_policy_needs(ro->conf.policy) & KVR_NEEDS_SESSION) {
        kvr_index_bind(ro->index, rq->key_session, i, 1,
                       (uint32_t) now + 3600);
    }

    if (ro->conf.conf && ro->conf.conf->chunks && rq->req.digests) {
        for (row = 0; row < rq->units; row++) {
            kvr_index_note(ro->index, rq->req.digests[row], i);
        }
    }

    if (needs & KVR_NEEDS_SCORE) {

        kvs_router_teach(ro, rq, now, rq->chain, rq->units, matched[i]);

        if (ro->coming) {
            kvs_prefix_hold(ro->coming, rq->chain, rq->units, i);
            rq->inserted = 1;
        }
    }

    return i;
}


void
kvs_router_admitted(void *data, kvs_request_t *rq, double now)
{
    kvs_router_t *ro = data;

    (void) now;

    if (ro->coming && rq->inserted) {
        rq->inserted = 0;
        kvs_prefix_drop(ro->coming, rq->chain, rq->units, rq->replica);
    }
}


void
kvs_router_headers(void *data, kvs_request_t *rq, double now)
{
    kvs_router_t *ro = data;

    (void) now;

    if (ro->conf.early && !rq->started) {
        kvr_load_add(ro->load, rq->charge, rq->replica, 0,
                     -(int64_t) rq->pending);
        rq->pending = 0;
    }
}


void
kvs_router_first(void *data, kvs_request_t *rq, double now)
{
    kvs_router_t *ro = data;

    uint64_t        ms;
    kvr_prefill_t  *pace;

    kvr_load_add(ro->load, rq->charge, rq->replica, 0, -(int64_t) rq->pending);

    rq->pending = 0;
    rq->undo.valid = 0;

    if (kvr_policy_needs(ro->conf.policy) & KVR_NEEDS_SCORE) {
        kvr_popular_add(ro->popular, &rq->counted, kvs_router_ms(now));
    }

    pace = &ro->pace[rq->replica];
    ms = (uint64_t) (1000 * (now - rq->given));

    kvr_prefill_first(pace, rq->ahead, ms, kvs_router_ms(now));
    kvr_prefill_waited(pace, rq->ahead, (uint64_t) rq->matched
                       * KVS_TOKEN_BYTES, ms, rq->rate, kvs_router_ms(now));

    if (ro->conf.timed) {
        kvs_router_timed(ro, rq, now);
    }

    if (ro->conf.usage || ro->conf.timed) {
        kvr_inflight_answered(&ro->feedback[rq->replica].inflight,
                              rq->inflight);
        rq->inflight = 0;
    }

    ro->prefilling[rq->replica]--;
}


void
kvs_router_restarted(void *data, uint32_t replica, double now)
{
    kvs_router_t *ro = data;

    (void) now;

    if (ro->conf.flush) {

        if (ro->index) {
            kvr_index_flush(ro->index, replica);
        }

        if (ro->lru) {
            kvs_prefix_flush(ro->lru, replica);
        }
    }
}


void
kvs_router_done(void *data, kvs_request_t *rq, double now, unsigned ok)
{
    kvs_router_t *ro = data;

    uint32_t  n;

    kvs_router_admitted(ro, rq, now);

    kvr_load_add(ro->load, rq->charge, rq->replica, -1, -(int64_t) rq->pending);

    rq->pending = 0;

    ro->resident[rq->replica] -= rq->bytes;
    ro->prefilling[rq->replica] -= !rq->started;

    if (ro->conf.usage || ro->conf.timed) {
        kvr_inflight_answered(&ro->feedback[rq->replica].inflight,
                              rq->inflight);
        rq->inflight = 0;

        if (ro->conf.usage && ok && rq->started && rq->units) {
            kvs_router_settle(ro, rq, now);
        }
    }

    if (rq->undo.valid) {
        rq->undo.valid = 0;

        n = kvs_router_chain(ro, rq->chain, rq->units);
        kvr_index_undo(ro->index, ro->chain, n, &rq->undo);
        return;
    }

    if (ok && ro->conf.replies && rq->req.nhashes > rq->units) {
        kvs_router_teach(ro, rq, now, rq->chain, rq->req.nhashes, rq->units);
    }
}
