/*
 * For the ablation: the router as if it had never learned something, and as if
 * it knew everything.  And two further options: a replica fetches what it
 * lacks of a prompt from another one; a request waits for a sibling that is
 * computing the common part.
 */

#include "bench/model/route.h"
#include "bench/sim/router/router.h"


/* smallest useful number of units: 2 KB, and for a sibling 8 KB */
#define KVS_FETCH_UNITS  8
#define KVS_WAIT_UNITS   32


void
kvs_router_forget(kvs_router_t *ro, double now)
{
    uint32_t           i;
    kvr_peer_t        *peer;
    kvr_feedback_t    *l;
    kvr_index_peer_t  *p;

    for (i = 0; i < ro->zone.n; i++) {
        peer = &ro->zone.registry.peer[i];
        p = kvr_index_peer(ro->zone.core.index, i);
        l = &peer->feedback;

        switch (ro->conf.without) {

        case KVS_WITHOUT_RETENTION:
            memset((void *) &l->retention, 0, sizeof(kvr_retention_t));
            break;

        case KVS_WITHOUT_FACTOR:
            kvr_set(&l->factor, 0);
            break;

        case KVS_WITHOUT_OUTPUT:
            kvr_set(&l->output, 0);
            break;

        case KVS_WITHOUT_MISSES:
            kvr_set(&l->misses, 0);
            break;

        case KVS_WITHOUT_DELAY:
            kvr_set(&peer->prefill.delay, 0);
            break;

        case KVS_WITHOUT_REST:
            kvr_set(&peer->prefill.given, kvs_zone_ms(now));
            break;

        case KVS_WITHOUT_RATE:
            kvr_set(&peer->prefill.rate, 0);
            break;

        case KVS_WITHOUT_TURNOVER:
            kvr_set(&p->mark, 0);
            kvr_set(&p->before, 0);
            kvr_set(&p->turnover, (uint64_t) kvs_zone_ms(now) >> 10 << 40);
            break;

        default:
            break;
        }
    }
}


/* of the expected units, those up to a place where a hybrid model resumes */
static uint32_t
kvs_router_resume(const kvs_sim_t *sim, const kvs_request_t *rq,
    uint32_t units)
{
    uint32_t  state;

    state = sim->fleet.state / KVS_UNIT_TOKENS;

    if (state == 0) {
        return units;
    }

    return sim->fleet.states || units == rq->units ? units / state * state : 0;
}


void
kvs_router_true(kvs_router_t *ro, kvs_request_t *rq, kvs_choice_t *ch,
    double now)
{
    uint32_t   i, coming[KVS_REPLICAS], tokens[KVE_TIERS];
    kvr_set_t  set;

    for (set = ch->set; ro->conf.tiers && kvr_set_next(&set, &i); /* void */ ) {
        kvs_sim_settle(ro->sim, i);
        kve_replica_reach(ro->sim->replica[i], rq->chain, rq->units,
                          rq->tokens, tokens);

        ch->loads[i] = (uint32_t) ((tokens[KVE_HOST] * ro->sim->price[KVE_HOST]
                                    + tokens[KVE_DISK]
                                      * ro->sim->price[KVE_DISK])
                                   / KVS_UNIT_TOKENS);
        ch->view.loads = ch->loads;
    }

    kvs_prefix_match(ro->coming, rq->chain, rq->units, ch->set, now, coming,
                     NULL);

    if (ro->conf.tiers) {
        for (set = ch->set; kvr_set_next(&set, &i); /* void */ ) {
            ch->matched[i] = kve_replica_match(ro->sim->replica[i], rq->chain,
                                               rq->units, rq->tokens)
                             / KVS_UNIT_TOKENS;

            coming[i] = kvs_router_resume(ro->sim, rq, coming[i]);
        }

    } else {
        kvs_sim_match(ro->sim, rq, ch->set, ch->matched);
    }

    for (set = ch->set; kvr_set_next(&set, &i); /* void */ ) {
        ch->matched[i] = kvr_max(ch->matched[i], coming[i]);
    }
}


static int
kvs_router_computes(kvs_router_t *ro, const kvs_request_t *rq, uint32_t units,
    uint32_t i)
{
    uint32_t   matched[KVS_REPLICAS];
    kvr_set_t  set;

    set = kvr_set_none();
    kvr_set_add(&set, i);

    kvs_prefix_match(ro->computing, rq->chain + units - 1, 1, set, 0, matched,
                     NULL);

    return matched[i] != 0;
}


/* of the units that a replica has or will have, those that it has */
static uint32_t
kvs_router_ready(kvs_router_t *ro, const kvs_request_t *rq, uint32_t units,
    uint32_t i)
{
    uint32_t  low, high, middle;

    low = 0;
    high = units;

    while (low < high) {
        middle = high - (high - low) / 2;

        if (kvs_router_computes(ro, rq, middle, i)) {
            high = middle - 1;

        } else {
            low = middle;
        }
    }

    return low;
}


/* called after the candidates are made, before they are changed */
void
kvs_router_offered(kvs_router_t *ro, kvs_choice_t *ch)
{
    memcpy(ro->held, ch->matched, sizeof(ro->held));
    memcpy(ro->plain, ch->cand, ch->n * sizeof(kvr_candidate_t));

    ro->pull.transfer = ro->sim->price[KVE_PEER];
    ro->pull.min = KVS_FETCH_UNITS * KVS_UNIT_BYTES;
    ro->pull.source = KVR_PULL_NONE;
    ro->pull.held = 0;

    if (ro->conf.fetch) {
        kvr_pull(&ro->pull, ch->cand, ch->n);
    }
}


/* returns the replica that the picked one fetches from, or NULL */
kve_replica_t *
kvs_router_source(const kvs_router_t *ro, const kvs_choice_t *ch, uint32_t i)
{
    if (ro->pull.source == KVR_PULL_NONE
        || (uint64_t) ro->held[i] * KVS_UNIT_BYTES + ro->pull.min
           > ro->pull.held)
    {
        return NULL;
    }

    return ro->sim->replica[ch->cand[ro->pull.source].place];
}


int
kvs_router_wait(kvs_router_t *ro, kvs_request_t *rq, kvs_choice_t *ch,
    double now)
{
    double            cost;
    uint32_t          i, k, most, ready;
    uint64_t          left;
    kvr_pull_t        pull;
    kvr_decision_t    d;
    kvr_policy_request_t  req;
    kvr_candidate_t  *c, *h, after[KVS_REPLICAS];

    if (rq->until > 0 && now >= rq->until) {
        return 0;
    }

    /* the unfinished sibling with the longest common part */

    h = NULL;
    most = 0;
    ready = 0;

    for (k = 0; k < ch->n; k++) {
        c = &ch->cand[k];
        i = c->place;

        ready = kvr_max(ready, kvs_router_ready(ro, rq, ro->held[i], i));

        if (ro->held[i] > most) {
            most = ro->held[i];
            h = c;
        }
    }

    if (h == NULL || most <= ready + KVS_WAIT_UNITS) {
        return 0;
    }

    /* the cost now, and the cost once the sibling is done */

    req = ch->req;
    kvr_policy_pick(&req, ch->cand, ch->n, &d);
    cost = ch->cand[d.pick].cost;

    memcpy(after, ro->plain, ch->n * sizeof(kvr_candidate_t));

    left = kvr_prefill_left(&ro->zone.registry.peer[h->place].prefill,
                            h->pending, kvs_zone_ms(now));

    for (k = 0; k < ch->n; k++) {
        c = &after[k];
        c->pending -= kvr_min(c->pending, left);

        if (c->place == h->place) {
            c->unanswered = 0;
            c->pending = 0;
        }
    }

    if (ro->conf.fetch) {
        pull = ro->pull;
        kvr_pull(&pull, after, ch->n);
    }

    req = ch->req;
    kvr_policy_pick(&req, after, ch->n, &d);

    if ((double) left + after[d.pick].cost >= cost) {
        return 0;
    }

    rq->parked = h->place;

    /* the number of waiting requests is known before it is computed */

    if (!(rq->until > 0)) {
        kvr_hot_add(ro->zone.core.hot, &rq->route.counted, kvs_zone_ms(now));
        rq->until = now + 2 * (double) rq->bytes * KVR_PREFILL_RATE
                          / kvr_max(ch->view.rate, 1) / 1000;
    }

    return 1;
}


void
kvs_router_computed(kvs_router_t *ro, kvs_request_t *rq)
{
    if (rq->counted) {
        rq->counted = 0;
        kvs_prefix_drop(ro->computing, rq->chain + rq->computing,
                        rq->units - rq->computing, rq->replica);
    }
}
