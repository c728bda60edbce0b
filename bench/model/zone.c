/* The shared memory of a simulated router. */

#include <stdio.h>

#include "bench/model/zone.h"


/* bytes for up to 64 replicas, and for each further 64 */
#define KVS_ZONE_INDEX  (16 * 1024 * 1024)


void *
kvs_zone_alloc(size_t size)
{
    void  *p;

    size = (size + KVR_CACHE_LINE) & ~(size_t) (KVR_CACHE_LINE - 1);
    p = aligned_alloc(KVR_CACHE_LINE, size);

    if (p == NULL) {
        abort();
    }

    return memset(p, 0, size);
}


void
kvs_zone_create(kvs_zone_t *z, uint32_t rows, uint32_t n, uint64_t capacity)
{
    kvs_zone_create_of(z, rows, n, capacity, KVS_ZONE_INDEX);
}


void
kvs_zone_create_of(kvs_zone_t *z, uint32_t rows, uint32_t n, uint64_t capacity,
    size_t index)
{
    int           len;
    char          name[16];
    size_t        size;
    uint32_t      i, peers, columns;
    kvr_zone_t   *core;

    memset(z, 0, sizeof(kvs_zone_t));

    z->rows = rows;
    z->n = n;

    core = &z->core;


    peers = kvr_max(n, KVR_PEERS_FEW);
    size = index * kvr_set_words(peers);

    core->index = kvs_zone_alloc(size);
    kvr_index_init(core->index, kvr_index_lines(size, peers), peers);

    columns = kvr_registry_columns(peers);
    core->load = kvs_zone_alloc(kvr_load_size(rows, columns));
    kvr_load_init(core->load, rows, columns);

    for (i = 0; i < rows; i++) {
        kvr_load_claim(core->load, kvr_load_owner(i + 1, 1), 1);
    }

    core->hot = kvs_zone_alloc(sizeof(kvr_hot_t));
    z->shared = kvs_zone_alloc(kvr_registry_size(peers));
    kvr_registry_view(&z->registry, z->shared, peers);
    core->registry = &z->registry;

    z->pool.max_waiting = -1;

    for (i = 0; i < n; i++) {
        len = snprintf(name, sizeof(name), "replica%u", i);

        /* an empty registry gives slots in order */

        if (kvr_registry_peer(core->registry, core->load, 0, core->index, name,
                              (size_t) len, capacity)
            != i)
        {
            abort();
        }

        z->member[i] = kvr_registry_member(core->registry, core->load, 0, i,
                                           "replicas", 8);
        kvr_set_add(&z->pool.set, i);
    }
}


void
kvs_zone_destroy(kvs_zone_t *z)
{
    free((void *) z->core.index);
    free((void *) z->core.load);
    free((void *) z->core.hot);
    free((void *) z->shared);
}


void
kvs_zone_probed(kvs_zone_t *z, uint32_t i, const kve_stats_t *st,
    uint64_t capacity, double now)
{
    uint32_t       own;
    kvr_metrics_t  m;

    memset(&m, 0, sizeof(kvr_metrics_t));

    m.set = KVR_METRICS_RUNNING|KVR_METRICS_WAITING|KVR_METRICS_KV
            |KVR_METRICS_QUERIES|KVR_METRICS_HITS;
    m.running = st->running;
    m.waiting = st->waiting;
    m.kv = st->kv_usage;
    m.queries = st->queries;
    m.hits = st->hits;

    if (capacity) {
        m.set |= KVR_METRICS_CAPACITY;
        m.capacity = capacity;
    }

    own = kvr_load_get(z->core.load, i).active;

    if (kvr_engine_take(&z->core.registry->peer[i].engine, &m, own, own,
                        kvs_zone_ms(now))
        & KVR_ENGINE_RESTARTED)
    {
        kvr_index_flush(z->core.index, i);
        kvr_feedback_restart(&z->core.registry->peer[i].feedback);
    }

    if (capacity) {
        kvr_capacity_update(&z->core, &z->pool, i, kvs_zone_ms(now));
    }
}
