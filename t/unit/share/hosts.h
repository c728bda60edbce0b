
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_T_SHARE_HOSTS_H_INCLUDED_
#define _KVR_T_SHARE_HOSTS_H_INCLUDED_


/* Three hosts that share updates of the same peers; each has its own slots. */


#include "util_registry.h"
#include "util.h"
#include "core/index/kvr_index_line.h"
#include "core/hot/kvr_hot.h"
#include "core/share/kvr_share.h"


#define HOSTS     3
#define LINES     32768
#define PEERS     5
#define CHAINS    60
#define DEPTH     200
#define CAPACITY  1000000
#define LEASE     3000

/* units between two published entries, of two each */
#define SLACK     (2 * KVR_INDEX_PUBLISHED)


typedef struct {
    kvr_zone_t         zone;
    kvr_share_self_t   self;
    kvr_share_owner_t  owner;
    uint32_t           number[PEERS];    /* slot of each peer on this host */
} host_t;


static host_t      host[HOSTS];
static uint8_t     secret[KVR_SECRET_LEN];
static uint64_t    chain[CHAINS][DEPTH], buffer[KVR_SHARE_BATCH / 8], now;
static util_rng_t  rng;


static void
hosts_begin(void)
{
    char         name[32];
    unsigned     i, k, h;
    kvr_zone_t  *z;

    util_seed(&rng, "share", 1);
    now = 100000;

    for (i = 0; i < KVR_SECRET_LEN; i++) {
        secret[i] = (uint8_t) util_next(&rng);
    }

    /* Every second chain continues the one before. */

    for (i = 0; i < CHAINS; i++) {
        for (k = 0; k < DEPTH; k++) {
            chain[i][k] = i % 2 && k < 37 + i ? chain[i - 1][k]
                                              : util_next(&rng) | 1ULL << 40;
        }
    }

    for (h = 0; h < HOSTS; h++) {
        memset(&host[h], 0, sizeof(host_t));
        z = &host[h].zone;

        z->registry = util_registry(KVR_PEERS_FEW);
        z->load = util_zeroed(kvr_load_size(4, kvr_registry_columns(KVR_PEERS_FEW)));
        kvr_load_init(z->load, 4, kvr_registry_columns(KVR_PEERS_FEW));
        z->index = util_zeroed(kvr_index_size(LINES, KVR_PEERS_FEW));
        kvr_index_init(z->index, LINES, KVR_PEERS_FEW);
        z->hot = util_zeroed(sizeof(kvr_hot_t));
        host[h].self.share = util_zeroed(sizeof(kvr_share_t));
        z->row = kvr_load_claim(z->load, kvr_load_owner(1, 1), 1);

        kvr_share_init(host[h].self.share, 1000 + h);

        /* in another order on each host */

        for (i = 0; i < PEERS; i++) {
            k = (i + h) % PEERS;
            snprintf(name, sizeof(name), "10.0.0.%u:8000", k);
            host[h].number[k] = kvr_registry_peer(z->registry, z->load, z->row,
                                                  z->index, name,
                                                  strlen(name), CAPACITY);
        }

        host[h].self.zone = z;
        host[h].self.lease = LEASE;
        snprintf((char *) host[h].self.name, KVR_SHARE_NAME, "h%u", h);
        kvr_share_batch_key(&host[h].self.key, secret, 1);
    }
}


static void
hosts_end(void)
{
    unsigned  h;

    for (h = 0; h < HOSTS; h++) {
        free(host[h].zone.registry);
        free(host[h].zone.load);
        free(host[h].zone.index);
        free((void *) host[h].zone.hot);
        free(host[h].self.share);
    }
}


/* Sends a host's next batch to all hosts, itself included. */
static void
flush(unsigned from, unsigned flags)
{
    size_t       len;
    unsigned     h;
    kvr_share_e  rc;

    len = kvr_share_frame(&host[from].self, &host[from].owner, buffer, flags,
                          now, 1000);

    for (h = 0; h < HOSTS; h++) {
        rc = kvr_share_apply(&host[h].self, &host[h].owner,
                             (uint8_t *) buffer, len, now, 1000);
        util_check(rc == (h == from ? KVR_SHARE_ECHO : KVR_SHARE_OK),
                   "%u to %u: %d", from, h, rc);
    }

    kvr_share_acked(&host[from].self, &host[from].owner);
}


static void
flush_all(unsigned from)
{
    do {
        flush(from, 0);
    } while (kvr_get(&host[from].self.share->ring.head)
             != kvr_get(&host[from].self.share->ring.tail));
}


static uint32_t
held(unsigned h, const uint64_t *c, unsigned peer)
{
    uint32_t  matched[KVR_PEERS];

    peer = host[h].number[peer];

    (void) kvr_index_lookup(host[h].zone.index, c, DEPTH, kvr_set_of(peer),
                            matched);

    return matched[peer];
}


/* like core/route */
static void
teach(unsigned h, const uint64_t *c, uint32_t entries, unsigned peer,
    kvr_index_undo_t *undo)
{
    uint32_t  units;

    units = kvr_chain_depth(entries - 1);

    kvr_index_refresh(host[h].zone.index, c, entries, units,
                      host[h].number[peer],
                      kvr_min(held(h, c, peer), units), undo);
    kvr_share_publish_update(&host[h].zone, host[h].self.share, c, entries, undo);
}


static inline kvr_load_sum_t
elsewhere(unsigned h, unsigned peer)
{
    return kvr_load_elsewhere(host[h].zone.load, host[h].number[peer]);
}


#endif /* _KVR_T_SHARE_HOSTS_H_INCLUDED_ */
