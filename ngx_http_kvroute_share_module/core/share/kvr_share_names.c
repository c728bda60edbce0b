
/*
 * Copyright (C) kvroute contributors
 */


/*
 * Digests of the peers' names.  Each batch looks them up, up to a thousand
 * times a second; they change when a server is added.  The registry counts
 * added servers.  If a process is killed before it has counted, the update
 * comes a second later.
 */


#include "core/share/kvr_share.h"


#define KVR_SHARE_NAMES_AGE  1000        /* ms */

static void kvr_share_names_new(kvr_share_t *s, uint32_t peer,
    uint64_t generation);

#define kvr_share_names_slot(digest)                                          \
    ((uint32_t) (digest) & (KVR_SHARE_SLOTS - 1))

_Static_assert((KVR_SHARE_SLOTS & (KVR_SHARE_SLOTS - 1)) == 0, "slots");


void
kvr_share_names(const kvr_share_self_t *self, kvr_share_names_t *names,
    uint64_t now)
{
    uint32_t         i, k, len, named;
    uint64_t         digest;
    kvr_registry_t  *registry;

    registry = self->zone->registry;
    named = atomic_load(registry->named);

    if (names->made && names->named == named
        && now + 1 - names->made < KVR_SHARE_NAMES_AGE)
    {
        return;
    }

    memset(names, 0, sizeof(kvr_share_names_t));

    names->made = now + 1;
    names->named = named;

    for (i = 0; i < registry->max_peers; i++) {
        len = kvr_get(&registry->peer[i].len);

        if (len == 0) {
            continue;
        }

        kvr_share_names_new(self->share, i,
                            kvr_get(&registry->peer[i].generation));

        digest = kvr_share_batch_peer(&self->key, registry->peer[i].name, len);

        names->digest[i] = digest;

        k = kvr_share_names_slot(digest);

        while (names->slot[k]) {
            k = (k + 1) & (KVR_SHARE_SLOTS - 1);
        }

        names->slot[k] = (uint16_t) (i + 1);
    }
}


/*
 * Forgets reports about the previous name of a peer, and does not send records
 * about it that are still in the ring.
 */
static void
kvr_share_names_new(kvr_share_t *s, uint32_t peer, uint64_t generation)
{
    uint32_t           i;
    uint64_t           before;
    kvr_share_host_t  *host;

    before = kvr_get(&s->generation[peer]);

    if (before == generation) {
        return;
    }

    if (before) {
        kvr_set(&s->renamed[peer], kvr_get(&s->ring.head));
    }

    kvr_set(&s->floored[peer], 0);

    for (i = 0; i < KVR_SHARE_HOSTS; i++) {
        host = &s->host[i];

        kvr_set(&host->load[peer], 0);
        kvr_set(&host->context[peer], 0);
    }

    kvr_set(&s->generation[peer], generation);
}


uint32_t
kvr_share_named(const kvr_share_names_t *names, uint64_t digest)
{
    uint32_t  k, i;

    for (k = kvr_share_names_slot(digest);
         names->slot[k];
         k = (k + 1) & (KVR_SHARE_SLOTS - 1))
    {
        i = names->slot[k] - 1U;

        if (names->digest[i] == digest) {
            return i;
        }
    }

    return KVR_PEERS;
}
