/*
 * The router as if it had never learned something, for the ablation; and as if
 * it knew all that there is.
 */

#include "bench/model/route.h"
#include "bench/sim/router/router.h"


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


/* units of those that will be there at which a hybrid model resumes */
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

        ro->load[i] = (uint64_t) (KVS_TOKEN_BYTES
                      * (tokens[KVE_HOST] * ro->sim->price[KVE_HOST]
                         + tokens[KVE_DISK] * ro->sim->price[KVE_DISK]));
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
