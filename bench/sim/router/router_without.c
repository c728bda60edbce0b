/* The router as if it had never learned something, for the ablation. */

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

        case KVS_WITHOUT_INFLIGHT:
            memset((void *) &l->inflight, 0, sizeof(kvr_inflight_t));
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
