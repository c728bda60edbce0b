/*
 * The shipped router, linked from core/.  bench/model/route.c runs a request
 * through it.  This file has the simulated part: the state that is looked up,
 * the router of a request, its key, and the engines' reports.
 */

#include <math.h>

#include "bench/model/route.h"
#include "bench/sim/engine/sim_caches.h"
#include "bench/sim/router/router.h"


#define KVS_ROUTER_CAPACITY  (64 * 1024 * 1024)   /* the module's default */
#define KVS_ROUTER_PROBE     1.0                  /* s */

/* bytes per token: as if tokens had three bytes */
#define KVS_TOKENS_OF_3(n)   ((n) * KVS_TOKEN_BYTES / 3)


static void kvs_router_match(kvs_router_t *ro, kvs_request_t *rq,
    kvs_choice_t *ch, double now);
static void kvs_router_lose(kvs_router_t *ro, kvs_request_t *rq,
    kvs_choice_t *ch, double now);
static void kvs_router_key(kvs_router_t *ro, kvs_request_t *rq,
    kvs_choice_t *ch, double now);
static uint64_t kvs_router_home(kvs_router_t *ro, kvs_request_t *rq);
static kvr_set_t kvs_router_servers(kvs_router_t *ro);
static uint32_t kvs_router_rank(kvs_router_t *ro, uint32_t server);
static void kvs_router_probe(kvs_router_t *ro, double now);
static void kvs_router_extend(kvs_router_t *ro, kvs_request_t *rq, double now);


void *
kvs_router_create(kvs_sim_t *sim, const kvs_policy_t *policy)
{
    uint32_t            i, ranks;
    uint64_t            units;
    kvr_resume_t       *resume;
    kvs_router_t       *ro;
    kvs_prefix_conf_t   px;

    ro = kvs_alloc(sizeof(kvs_router_t));

    ro->sim = sim;
    ro->row = UINT32_MAX;
    ro->probed = -KVS_ROUTER_PROBE;
    ro->conf = *(const kvs_router_conf_t *) policy->conf;
    ro->needs = kvr_policy_needs(ro->conf.policy);

    kvs_rng_seed(&ro->lose, sim->seed, 0x6c6f73650e55ULL);

    memset(&px, 0, sizeof(px));

    if (ro->conf.state == KVS_STATE_TRUE) {
        ro->coming = kvs_prefix_create(&px);
        kvs_caches_watch(sim);
    }

    if (ro->conf.state == KVS_STATE_LRU) {
        px.capacity = (uint32_t) (ro->conf.capacity * sim->blocks);
        px.ttl = ro->conf.ttl;
        ro->lru = kvs_prefix_create(&px);
    }

    units = KVS_ROUTER_CAPACITY / KVS_UNIT_BYTES;

    if (ro->conf.assumed) {
        units = (uint64_t) ro->conf.assumed * 1024 * 1024 / KVS_UNIT_BYTES;
    }

    if (ro->conf.capacity > 0) {
        units = (uint64_t) (ro->conf.capacity * sim->blocks);
    }

    /* of other states only the clock is used */

    if (ro->conf.state != KVS_STATE_INDEX) {
        units = sim->blocks;
    }

    ranks = kvr_max(ro->conf.ranks, 1);

    kvs_zone_create_of(&ro->zone, kvr_max(sim->fleet.routers, 1),
                       (sim->n + ranks - 1) / ranks, units * ranks,
                       (size_t) kvr_max(ro->conf.zone, 16) << 20);

    for (i = 0; ro->conf.reported && i < sim->n; i++) {
        kvr_capacity_set(&ro->zone.core, &ro->zone.pool, i, units, 0);
    }

    for (i = 0; ro->conf.tiers && ro->conf.usage && i < sim->n; i++) {
        kvr_capacity_told(&ro->zone.core, &ro->zone.pool, i,
                          (uint64_t) (sim->blocks * sim->fleet.host),
                          sim->fleet.store
                          ? 0 : (uint64_t) (sim->blocks * sim->fleet.disk),
                          0);
    }

    if (ro->conf.tiers && ro->conf.state == KVS_STATE_TRUE
        && sim->fleet.state)
    {
        resume = &ro->zone.registry.upstream[ro->zone.pool.upstream].resume;

        kvr_set(&resume->step, sim->fleet.state);
        kvr_set(&resume->seen, KVR_RESUME_ENOUGH);
    }

    if (ro->conf.tiers && ro->conf.state == KVS_STATE_TRUE
        && (sim->fleet.host > 0 || sim->fleet.disk > 0))
    {
        for (i = 0; i < sim->n; i++) {
            kvr_set(&ro->zone.registry.peer[i].tier[KVR_TIER_GPU].until,
                    sim->blocks);
        }
    }

    if (ro->conf.fetch || ro->conf.wait) {
        memset(&px, 0, sizeof(px));
        ro->computing = kvs_prefix_create(&px);
    }

    if (ro->conf.events) {
        ro->told = kvs_told_create(sim, &ro->zone, ro->conf.delay,
                                   ro->conf.aliases);
    }

    if (ro->conf.probe) {
        ro->zone.pool.probe = (uint64_t) (1000 * KVS_ROUTER_PROBE);
    }

    ro->sketch = kvs_zone_alloc(sizeof(kvr_sketch_t));

    for (i = 0; i < sim->n; i++) {
        ro->peer[i].hash = kvr_mix(i + 1, 0x70656572);
        ro->peer[i].weight = 1;
    }

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

    if (ro->told) {
        kvs_told_destroy(ro->told);
    }

    if (ro->computing) {
        kvs_prefix_destroy(ro->computing);
    }

    kvs_zone_destroy(&ro->zone);

    free((void *) ro->sketch);
    free(ro);
}


uint32_t
kvs_router_pick(void *data, kvs_request_t *rq, double now)
{
    kvs_router_t *ro = data;

    uint32_t       i, k;
    kvs_choice_t   ch;
    kvr_home_t     home;

    rq->route.chain = rq->chain;
    rq->route.units = rq->units;
    rq->route.bytes = rq->bytes;
    rq->route.row = ro->row != UINT32_MAX ? ro->row
                    : (uint32_t) (rq->id % ro->zone.rows);

    ch.set = ro->conf.ranks ? kvs_router_servers(ro) : ro->sim->up;

    if (ro->told) {
        kvs_told_settle(ro->told, now);
    }

    kvs_route_view(&ro->zone, &rq->route, &ch, ro->conf.policy,
                   kvs_rng_next(&ro->sim->rng), now);

    ch.req.retry = rq->attempts > 1;

    if (ro->needs & KVR_NEEDS_SCORE) {
        kvs_router_match(ro, rq, &ch, now);
    }

    if (ro->conf.probe) {
        kvs_router_probe(ro, now);
    }

    if (ro->conf.without) {
        kvs_router_forget(ro, now);
    }

    kvs_router_key(ro, rq, &ch, now);

    if (ro->conf.home > 0) {
        home.key = kvs_router_home(ro, rq);
        home.credit = ro->conf.home;
        home.peer = ro->peer;
        ch.req.home = &home;
    }

    kvs_route_offer(&ro->zone, &ch);

    for (k = 0; k < ch.n; k++) {
        ch.cand[k].current_weight = ro->current[ch.cand[k].place];
    }

    if (ro->computing) {
        kvs_router_offered(ro, &ch);
    }

    if (ro->conf.wait && kvs_router_wait(ro, rq, &ch, now)) {
        return KVS_REPLICAS;
    }

    i = kvs_route_pick(&ro->zone, &rq->route, &ch, NULL, now);

    if (ro->computing) {
        rq->req.source = kvs_router_source(ro, &ch, i);

        if (ro->pull.source != KVR_PULL_NONE) {
            kvr_candidate_count(&ro->zone.core, &rq->route.counted, i,
                              kvs_zone_ms(now));
        }

        rq->computing = kvr_min(ro->held[i], rq->units);
        kvs_prefix_hold(ro->computing, rq->chain + rq->computing,
                        rq->units - rq->computing, i);
        rq->counted = 1;
    }

    for (k = 0; k < ch.n; k++) {
        ro->current[ch.cand[k].place] = ch.cand[k].current_weight;
    }

    rq->matched = (uint32_t) (ch.decision.matched / KVS_TOKEN_BYTES);

    if (ro->needs & KVR_NEEDS_SESSION) {
        kvr_index_bind(ro->zone.core.index, rq->key_session, i, 1,
                       (uint32_t) now + 3600);
    }

    if (!(ro->needs & KVR_NEEDS_SCORE)) {
        return i;
    }

    if (ro->lru) {
        kvs_prefix_insert(ro->lru, rq->chain, rq->units, i, now);
    }

    kvs_route_insert(&ro->zone, &rq->route, ch.matched[i]);

    if (ro->conf.ranks) {
        return kvs_router_rank(ro, i);
    }

    if (ro->coming) {
        kvs_prefix_hold(ro->coming, rq->chain, rq->units, i);
        rq->inserted = 1;
    }

    return i;
}


/* sets the units of the prompt that each replica has cached */
static void
kvs_router_match(kvs_router_t *ro, kvs_request_t *rq, kvs_choice_t *ch,
    double now)
{
    uint32_t   i, n, best;
    uint64_t  *entries;

    if (ro->conf.lost > 0) {
        kvs_router_lose(ro, rq, ch, now);
        return;
    }

    if (ro->conf.state == KVS_STATE_INDEX) {
        kvs_route_match(&ro->zone, &rq->route, ch, now);
        return;
    }

    memset(ch->matched, 0, sizeof(ch->matched));

    if (ro->conf.state == KVS_STATE_TRUE) {
        kvs_router_true(ro, rq, ch, now);

    } else {
        kvs_prefix_match(ro->lru, rq->chain, rq->units, ch->set, now,
                         ch->matched, NULL);
    }

    best = 0;

    for (i = 0; i < ro->sim->n; i++) {
        best = kvr_max(best, ch->matched[i]);
    }

    entries = kvs_route_chain(rq->chain, rq->units, &n);

    kvs_route_hot(&ro->zone, &rq->route, ch, entries, best, now);
}


/* removes some lines of the index, the same for all, for ever */
static void
kvs_router_lose(kvs_router_t *ro, kvs_request_t *rq, kvs_choice_t *ch,
    double now)
{
    uint32_t   i, n, hole, most, best;
    uint64_t  *entries;
    kvr_set_t  set;

    entries = kvs_route_chain(rq->chain, rq->units, &n);
    hole = n;

    for (i = 0; i < n; i++) {
        if ((double) (kvr_mix(entries[i], ro->lose.s) >> 11) * 0x1p-53
            < ro->conf.lost)
        {
            entries[i] ^= 0x5555555555555555ULL;
            hole = kvr_min(hole, i);
        }
    }

    memset(ch->matched, 0, sizeof(ch->matched));

    best = kvr_index_lookup(ro->zone.core.index, entries, n, ch->set,
                            ch->matched);

    if (ro->conf.strict && hole < n) {
        most = hole ? kvr_chain_depth(hole - 1) : 0;
        best = kvr_min(best, most);

        for (set = ch->set; kvr_set_next(&set, &i); /* void */ ) {
            ch->matched[i] = kvr_min(ch->matched[i], most);
        }
    }

    kvs_route_hot(&ro->zone, &rq->route, ch, entries, best, now);
}


/* returns the key of a session */
static void
kvs_router_key(kvs_router_t *ro, kvs_request_t *rq, kvs_choice_t *ch,
    double now)
{
    uint32_t  generation;

    if (ro->needs & KVR_NEEDS_SESSION) {
        ch->req.keyed = 1;
        ch->view.bound = kvr_index_bound(ro->zone.core.index, rq->key_session,
                                         (uint32_t) now, &generation);
    }
}


/* number of first units that are the key of a home */
#define KVS_HOME_UNITS  4


/*
 * Returns the key of a request's home.  The end of the first message is exact,
 * not in whole units, as if what begins there had its own digest.
 */
static uint64_t
kvs_router_home(kvs_router_t *ro, kvs_request_t *rq)
{
    uint32_t   n, first;
    uint64_t  *entries;

    first = rq->session->steps[0].prompt / KVS_UNIT_TOKENS;

    if (ro->conf.home_by == KVS_HOME_USER || rq->units == 0) {
        return kvr_mix(first ? rq->chain[first - 1] : 0, rq->key_session);
    }

    if (ro->conf.home_by == KVS_HOME_BEGIN) {
        return rq->chain[kvr_min(KVS_HOME_UNITS, rq->units) - 1];
    }

    entries = kvs_route_chain(rq->chain, rq->units, &n);

    kvr_sketch_add(ro->sketch, entries, n);

    return entries[kvr_sketch_entry(ro->sketch, entries, n, ro->sim->n)];
}


/* returns one of several ranks, if any is up */
static kvr_set_t
kvs_router_servers(kvs_router_t *ro)
{
    uint32_t   i;
    kvr_set_t  up, servers;

    servers = kvr_set_none();

    for (up = ro->sim->up; kvr_set_next(&up, &i); /* void */ ) {
        kvr_set_add(&servers, i / ro->conf.ranks);
    }

    return servers;
}


/* as vLLM chooses: a waiting request counts as four running ones */
static uint32_t
kvs_router_rank(kvs_router_t *ro, uint32_t server)
{
    uint32_t     i, pick;
    double       load, least;
    kvr_set_t    up;
    kve_stats_t  st;

    pick = 0;
    least = INFINITY;

    for (up = ro->sim->up; kvr_set_next(&up, &i); /* void */ ) {

        if (i / ro->conf.ranks != server) {
            continue;
        }

        kvs_sim_settle(ro->sim, i);
        kve_replica_stats(ro->sim->replica[i], &st);

        load = 4.0 * (double) st.waiting + (double) st.running;

        if (load < least) {
            least = load;
            pick = i;
        }
    }

    return pick;
}


static void
kvs_router_probe(kvs_router_t *ro, double now)
{
    uint32_t     i;
    uint64_t     tokens;
    kve_stats_t  st;

    if (now < ro->probed + KVS_ROUTER_PROBE) {
        return;
    }

    ro->probed = now;

    for (i = 0; i < ro->sim->n; i++) {
        kve_replica_stats(ro->sim->replica[i], &st);
        tokens = (uint64_t) st.blocks * KVS_UNIT_TOKENS;

        kvs_zone_probed(&ro->zone, i, &st,
                        ro->conf.metrics ? KVS_TOKENS_OF_3(tokens)
                        : ro->conf.usage ? tokens : 0, now);
    }
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


/* returns pending bytes too early, and changes nothing else */
void
kvs_router_headers(void *data, kvs_request_t *rq, double now)
{
    kvs_router_t *ro = data;

    unsigned            unanswered;
    kvr_zone_t          zone;
    kvr_reservation_t  *r;

    (void) now;

    zone = ro->zone.core;
    zone.row = rq->route.row;

    r = &rq->route.attempt.reservation;

    unanswered = r->unanswered;
    r->unanswered = 0;

    kvr_reservation_answered(&zone, r);

    r->unanswered = unanswered;
}


void
kvs_router_first(void *data, kvs_request_t *rq, double now)
{
    kvs_router_t *ro = data;

    kvs_router_computed(ro, rq);
    kvs_route_first(&ro->zone, &rq->route, ro->conf.timed, now);
}


void
kvs_router_restarted(void *data, uint32_t replica, double now)
{
    kvs_router_t *ro = data;

    (void) now;

    if (!ro->conf.flush) {
        return;
    }

    kvr_index_flush(ro->zone.core.index,
                    replica / kvr_max(ro->conf.ranks, 1));

    if (ro->told) {
        kvs_told_restarted(ro->told, replica);
    }

    if (ro->lru) {
        kvs_prefix_flush(ro->lru, replica);
    }
}


/* times that the request's replica was assumed to have lost its cache */
static uint32_t
kvs_router_flushed(kvs_router_t *ro, const kvs_request_t *rq)
{
    uint32_t  peer;

    peer = rq->replica / kvr_max(ro->conf.ranks, 1);

    return (uint32_t) kvr_get(&ro->zone.registry.peer[peer].feedback.by_usage);
}


void
kvs_router_done(void *data, kvs_request_t *rq, double now, unsigned ok)
{
    kvs_router_t *ro = data;

    uint32_t      flushed;
    kvr_tokens_t  tokens;

    kvs_router_admitted(ro, rq, now);
    kvs_router_computed(ro, rq);

    tokens.prompt = rq->tokens;
    tokens.cached = rq->req.cached_tokens;
    tokens.completion = rq->req.output_tokens;

    if (ro->conf.metrics) {
        tokens.prompt = KVS_TOKENS_OF_3(tokens.prompt);
        tokens.cached = KVS_TOKENS_OF_3(tokens.cached);
    }

    flushed = kvs_router_flushed(ro, rq);

    kvs_route_end(&ro->zone, &rq->route, ok && ro->conf.usage ? &tokens : NULL,
                  now);

    ro->sim->flushed += kvs_router_flushed(ro, rq) - flushed;

    if (ok && ro->conf.replies && rq->req.nhashes > rq->units) {
        kvs_router_extend(ro, rq, now);
    }
}


/* the reply is in the replica's cache and in the next prompt */
static void
kvs_router_extend(kvs_router_t *ro, kvs_request_t *rq, double now)
{
    uint32_t      n;
    uint64_t     *entries;
    kvr_reply_t   reply;

    if (ro->lru) {
        kvs_prefix_insert(ro->lru, rq->chain, rq->req.nhashes, rq->replica,
                          now);
    }

    entries = kvs_route_chain(rq->chain, rq->req.nhashes, &n);

    reply.first = kvr_min(kvr_chain_entries(rq->units), n);
    reply.n = kvr_min(n - reply.first, KVR_REPLY_VALUES);
    reply.start = rq->units;
    reply.blocks = rq->req.nhashes;

    memcpy(reply.value, entries + reply.first, reply.n * sizeof(uint64_t));

    kvr_attempt_extend(&rq->route.attempt, &ro->zone.core, &reply);
}
