
/*
 * Copyright (C) kvroute contributors
 */


/* The snapshot of a zone: its size, and the time to write and to read it */


#include "micro_cases.h"
#include "micro_run.h"
#include "core/state/kvr_zone_snapshot.h"

#include <cjson/cJSON.h>


#define MICRO_ZONE   (64 << 20)
#define MICRO_PEERS  8
#define MICRO_CHAIN  128
#define MICRO_TURNS  5


static kvr_registry_t *
micro_registry(kvr_registry_t *reg)
{
    kvr_registry_view(reg, micro_alloc(kvr_registry_size(KVR_PEERS_FEW)),
                      KVR_PEERS_FEW);

    return reg;
}


/* empties a zone without new memory */
static void
micro_zone_clear(kvr_zone_t *z, uint64_t lines)
{
    memset((void *) z->registry->peer, 0,
           z->registry->max_peers * sizeof(kvr_peer_t));
    memset((void *) z->index, 0, kvr_index_size(lines, KVR_PEERS_FEW));

    kvr_index_init(z->index, lines, KVR_PEERS_FEW);
}


/* fills the index completely, by inserting twice as many entries */
static void
micro_zone_fill(kvr_zone_t *z, uint64_t lines)
{
    unsigned          i, k;
    uint64_t          h, chain[MICRO_CHAIN];
    kvr_index_undo_t  undo;

    for (i = 0; i < MICRO_PEERS; i++) {
        z->registry->peer[i].name[0] = (uint8_t) ('a' + i);
        atomic_store(&z->registry->peer[i].len, 1);
        kvr_index_capacity(z->index, i, KVR_INDEX_CAPACITY_MAX, 0);
    }

    for (i = 0; i < 2 * lines / MICRO_CHAIN; i++) {
        h = kvr_mix(i + 1, 0x1234567);

        for (k = 0; k < MICRO_CHAIN; k++) {
            h = kvr_mix(h, i + 77);
            chain[k] = h;
        }

        kvr_index_insert(z->index, chain, MICRO_CHAIN, MICRO_CHAIN,
                         i % MICRO_PEERS, 0, &undo);
    }
}


void
micro_snapshot(cJSON *results)
{
    cJSON                     *item;
    size_t                     n, len;
    double                     now, took, slice, write[MICRO_TURNS],
                               read[MICRO_TURNS];
    uint8_t                   *file;
    uint64_t                   lines;
    unsigned                   i, slices;
    kvr_zone_t                 a, b;
    kvr_registry_t             registry[2];
    kvr_zone_snapshot_t        s;
    kvr_zone_snapshot_read_t   r;

    lines = kvr_index_lines(MICRO_ZONE, KVR_PEERS_FEW);

    memset(&a, 0, sizeof(a));
    a.registry = micro_registry(&registry[0]);
    a.index = micro_alloc_shared(kvr_index_size(lines, KVR_PEERS_FEW));

    b = a;
    b.registry = micro_registry(&registry[1]);
    b.index = micro_alloc_shared(kvr_index_size(lines, KVR_PEERS_FEW));

    file = micro_alloc(MICRO_ZONE + KVR_ZONE_SNAPSHOT_SLICE);

    micro_zone_clear(&a, lines);
    micro_zone_fill(&a, lines);

    len = 0;
    slice = 0;
    slices = 0;

    for (i = 0; i < MICRO_TURNS; i++) {

        kvr_zone_snapshot_begin(&s, &a, micro_secret);

        write[i] = 0;
        slices = 0;

        for (len = 0; !s.done; len += n) {
            now = micro_now();
            n = kvr_zone_snapshot_next(&s, 1, file + len);
            took = micro_now() - now;

            write[i] += took;
            slice = kvr_max(slice, took);
            slices++;
        }

        micro_zone_clear(&b, lines);

        now = micro_now();

        if (kvr_zone_snapshot_read(&b, micro_secret, file, len, 1, &r)
            != KVR_ZONE_SNAPSHOT_OK)
        {
            exit(1);
        }

        read[i] = micro_now() - now;
    }

    item = cJSON_AddObjectToObject(results, "snapshot");

    cJSON_AddNumberToObject(item, "zone_bytes", MICRO_ZONE);
    cJSON_AddNumberToObject(item, "bytes", (double) len);
    cJSON_AddNumberToObject(item, "lines", (double) r.lines);
    cJSON_AddNumberToObject(item, "slices", slices);
    cJSON_AddNumberToObject(item, "slice_lines", KVR_ZONE_SNAPSHOT_LINES);
    cJSON_AddNumberToObject(item, "slice_max_us", slice / 1000);
    cJSON_AddNumberToObject(item, "write_ms",
                            micro_median(write, MICRO_TURNS) / 1e6);
    cJSON_AddNumberToObject(item, "read_ms",
                            micro_median(read, MICRO_TURNS) / 1e6);
}
