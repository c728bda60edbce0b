#include <math.h>
#include <string.h>

#include "replica_int.h"


void
kve_replica_below(kve_replica_t *r, uint64_t hash)
{
    kve_tier_e  i;

    if (r->cf.no_cache) {
        return;
    }

    for (i = KVE_HOST; i < KVE_TIERS; i++) {

        if (r->tier[i] == NULL) {
            continue;
        }

        if (r->watch && r->watch->moved
            && kve_blocks_find(r->tier[i], hash) == KVE_BLOCK_NONE)
        {
            r->told = 1;
            r->watch->moved(r->watch->data, i, hash, 1);
        }

        kve_blocks_touch(r->tier[i], hash);
    }
}


void
kve_replica_states(kve_replica_t *r, kve_req_t *req, uint32_t tokens)
{
    uint32_t  i, id, last;

    last = tokens < req->resume ? tokens : req->resume - 1;
    last = last / r->cf.block_size / r->cf.state * r->cf.state;

    for (i = r->cf.states ? r->cf.state : last;
         i && i <= last && i <= req->nhashes;
         i += r->cf.state)
    {
        id = kve_blocks_find(r->blocks, req->hashes[i - 1]);

        if (id != KVE_BLOCK_NONE) {
            kve_blocks_mark(r->blocks, id);
        }
    }
}


uint32_t
kve_replica_found(const kve_replica_t *r, const uint64_t *hashes,
    uint32_t limit, uint32_t *ids, uint32_t *tier)
{
    uint32_t    i, id, resume;
    kve_tier_e  k;

    memset(tier, 0, KVE_TIERS * sizeof(uint32_t));

    resume = 0;

    for (i = 0; i < limit; i++) {
        id = kve_blocks_find(r->blocks, hashes[i]);

        if (id == KVE_BLOCK_NONE) {
            break;
        }

        if (ids) {
            ids[i] = id;
        }

        if (r->cf.state && (i + 1) % r->cf.state == 0
            && kve_blocks_is_marked(r->blocks, id))
        {
            resume = i + 1;
        }
    }

    if (r->cf.state) {
        tier[KVE_GPU] = resume;
        return resume;
    }

    tier[KVE_GPU] = i;

    for ( /* void */ ; i < limit; i++) {

        for (k = KVE_HOST; k < KVE_TIERS; k++) {
            if (r->tier[k]
                && kve_blocks_find(r->tier[k], hashes[i]) != KVE_BLOCK_NONE)
            {
                break;
            }
        }

        if (k == KVE_TIERS) {
            break;
        }

        tier[k]++;
    }

    return i;
}


/* counts the blocks if the source delivers its additional ones */
uint32_t
kve_replica_fetched(const kve_req_t *req, uint32_t limit, uint32_t found,
    uint32_t *tier)
{
    uint32_t  n, there[KVE_TIERS];

    if (req->source == NULL) {
        return found;
    }

    n = kve_replica_found(req->source, req->hashes, limit, NULL, there);

    tier[KVE_PEER] = n > found ? n - found : 0;

    return found + tier[KVE_PEER];
}


/* returns whether a block is on its way from another replica */
int
kve_replica_coming(const kve_replica_t *r, uint64_t hash)
{
    uint32_t          i;
    const kve_req_t  *req;

    for (req = r->nloading ? r->prefill.first : NULL; req; req = req->pnext) {

        if (!req->loading || req->source == NULL) {
            continue;
        }

        i = req->depth / r->cf.block_size;

        while (i-- > req->named) {
            if (req->hashes[i] == hash) {
                return 1;
            }
        }
    }

    return 0;
}


void
kve_replica_load(kve_replica_t *r, kve_req_t *req, const uint32_t *tier,
    double t)
{
    double      start;
    kve_tier_e  i;

    req->ready = t;

    for (i = KVE_HOST; i < KVE_TIERS; i++) {

        if (tier[i] == 0) {
            continue;
        }

        start = r->link[i] > t ? r->link[i] : t;

        if (i == KVE_PEER && req->source->out > start) {
            start = req->source->out;
        }

        r->link[i] = start + r->cf.tier[i].load * tier[i] * r->cf.block_size;

        if (i == KVE_PEER) {
            req->source->out = r->link[i];
        }

        if (r->link[i] > req->ready) {
            req->ready = r->link[i];
        }
    }

    req->loading = req->ready > t;
    r->nloading += req->loading;
}


double
kve_replica_ready(const kve_replica_t *r)
{
    double            ready;
    const kve_req_t  *req;

    ready = INFINITY;

    for (req = r->nloading ? r->prefill.first : NULL; req; req = req->pnext) {
        if (req->loading && req->ready < ready) {
            ready = req->ready;
        }
    }

    return ready;
}
