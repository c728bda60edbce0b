/*
 * The caches of all replicas, by block: for routers that see them.
 *
 * Asking each replica for each request would take hundreds of walks from the
 * first block on, nearly all along the same prefix.  So replicas report the
 * blocks that they store and remove, as engines do by KV events, but at once.
 * A single walk then finds which replica has how much.
 */

#include "bench/model/prefix.h"
#include "bench/sim/engine/sim_caches.h"


typedef struct {
    kve_watch_t       watch;
    kvs_prefix_t     *held;
    uint32_t          replica;
} kvs_caches_watch_t;


struct kvs_caches_s {
    kvs_prefix_t        *held;
    kvs_caches_watch_t   by[KVS_REPLICAS];
};


static void
kvs_caches_stored(void *data, const kve_req_t *req, uint32_t first, uint32_t n)
{
    kvs_caches_watch_t *w = data;

    kvs_prefix_hold(w->held, req->hashes + first, n, w->replica);
}


static void
kvs_caches_removed(void *data, uint64_t hash)
{
    kvs_caches_watch_t *w = data;

    kvs_prefix_drop(w->held, &hash, 1, w->replica);
}


static void
kvs_caches_cleared(void *data)
{
    kvs_caches_watch_t *w = data;

    kvs_prefix_flush(w->held, w->replica);
}


/* the table is right when the replica is settled, so steps do not matter */
static void
kvs_caches_step(void *data, double t)
{
    (void) data;
    (void) t;
}


void
kvs_caches_watch(kvs_sim_t *sim)
{
    uint32_t             i;
    kvs_caches_t        *c;
    kvs_prefix_conf_t    conf;
    kvs_caches_watch_t  *w;

    if (sim->caches) {
        return;
    }

    memset(&conf, 0, sizeof(conf));

    c = kvs_alloc(sizeof(kvs_caches_t));
    c->held = kvs_prefix_create(&conf);

    for (i = 0; i < sim->n; i++) {
        w = &c->by[i];

        w->held = c->held;
        w->replica = i;
        w->watch.stored = kvs_caches_stored;
        w->watch.removed = kvs_caches_removed;
        w->watch.cleared = kvs_caches_cleared;
        w->watch.step = kvs_caches_step;
        w->watch.data = w;

        kve_replica_watch(sim->replica[i], &w->watch);
    }

    sim->caches = c;
}


void
kvs_caches_free(kvs_sim_t *sim)
{
    if (sim->caches) {
        kvs_prefix_destroy(sim->caches->held);
        free(sim->caches);
    }
}


void
kvs_caches_match(kvs_sim_t *sim, const kvs_request_t *rq, kvr_set_t set,
    uint32_t *matched)
{
    /* the last token is always computed, so its block does not count */

    kvs_prefix_match(sim->caches->held, rq->chain,
                     kvr_min(rq->units,
                             (kvr_max(rq->tokens, 1) - 1) / KVS_UNIT_TOKENS),
                     set, sim->now, matched, NULL);
}


void
kvs_caches_restarted(kvs_sim_t *sim, uint32_t replica)
{
    if (sim->caches) {
        kvs_prefix_flush(sim->caches->held, replica);
    }
}
