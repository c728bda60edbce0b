
/*
 * Copyright (C) kvroute contributors
 */


/*
 * A version is a number above all that were seen, and 16 bits of the host that
 * gave it: so two orders given at a time have two versions, and all hosts agree
 * which is the later one.
 *
 * Orders are told for ever, as hosts may come that have not heard them.  A flush
 * that was done before a restart must not be done again after it: what is in the
 * snapshot was learned since.  So the peer keeps which one it was, and the
 * snapshot does.
 */


#include "core/share/kvr_share.h"


#define KVR_SHARE_ORDER_BITS  16


static void kvr_share_order_set(const kvr_zone_t *zone, uint32_t peer,
    kvr_share_kind_e kind, uint64_t version, int on, uint64_t left,
    uint64_t now, uint32_t seconds);
static void kvr_share_order_sooner(const kvr_zone_t *zone, uint32_t peer,
    kvr_share_kind_e kind, uint64_t left, uint64_t now);


void
kvr_share_order(const kvr_zone_t *zone, uint32_t peer, kvr_share_kind_e kind,
    int on, uint64_t left, uint64_t now, uint32_t seconds)
{
    uint32_t      i, k;
    uint64_t      version, most;
    kvr_share_t  *s;

    s = zone->share;
    most = 0;

    for (i = 0; i < KVR_PEERS; i++) {
        for (k = 0; k < KVR_SHARE_KINDS; k++) {
            version = kvr_get(&s->order[i][k].version);
            most = kvr_max(most, version);
        }
    }

    version = ((most >> KVR_SHARE_ORDER_BITS) + 1) << KVR_SHARE_ORDER_BITS
              | (s->id & ((1U << KVR_SHARE_ORDER_BITS) - 1));

    kvr_share_order_set(zone, peer, kind, version, on, left, now, seconds);

    /* it is told at once: the heartbeat is due */

    kvr_add(&s->ordered, 1);
}


void
kvr_share_order_take(const kvr_zone_t *zone, uint32_t peer,
    kvr_share_kind_e kind, uint64_t version, int on, uint64_t left,
    uint64_t now, uint32_t seconds)
{
    uint32_t                  hosts, have;
    const kvr_share_order_t  *order;

    order = kvr_share_ordered(zone, peer, kind, &hosts, &have);

    if (order == NULL || kvr_get(&order->version) < version) {
        kvr_share_order_set(zone, peer, kind, version, on, left, now, seconds);
        kvr_add(&zone->share->ordered, 1);

    } else if (kvr_get(&order->version) == version && left) {
        kvr_share_order_sooner(zone, peer, kind, left, now);
    }
}


/*
 * Who comes reads first what was told while it was not there, and cannot see how
 * old that is: what is told later of the same order ends sooner.  An end that was
 * set here since stands.
 */
static void
kvr_share_order_sooner(const kvr_zone_t *zone, uint32_t peer,
    kvr_share_kind_e kind, uint64_t left, uint64_t now)
{
    uint64_t            until;
    kvr_share_order_t  *order;

    order = &zone->share->order[peer][kind];
    until = kvr_get(&order->until);

    if (until <= now + left) {
        return;
    }

    kvr_set(&order->until, now + left);

    (void) atomic_compare_exchange_strong(
               &zone->registry->peer[peer].drain.until, &until, now + left);
}


/* the version comes last: who is killed before it is told again */
static void
kvr_share_order_set(const kvr_zone_t *zone, uint32_t peer,
    kvr_share_kind_e kind, uint64_t version, int on, uint64_t left,
    uint64_t now, uint32_t seconds)
{
    kvr_peer_t         *p;
    kvr_share_order_t  *order;

    p = &zone->registry->peer[peer];
    order = &zone->share->order[peer][kind];

    switch (kind) {

    case KVR_SHARE_DRAIN:

        if (on) {
            kvr_drain_begin(&p->drain, left, now);

        } else if (kvr_drain_end(&p->drain)) {

            /* it is warmed up */

            kvr_set(&p->since, seconds);
        }

        break;

    default:

        if (kvr_get(&p->flushed) != version) {
            kvr_index_flush(zone->index, peer);
            atomic_store_explicit(&p->flushed, version, memory_order_release);
        }

        break;
    }

    kvr_set(&order->on, on != 0);
    kvr_set(&order->until, left ? now + left : 0);
    kvr_set(&order->generation, kvr_get(&p->generation));

    atomic_store_explicit(&order->version, version, memory_order_release);
}


const kvr_share_order_t *
kvr_share_ordered(const kvr_zone_t *zone, uint32_t peer, kvr_share_kind_e kind,
    uint32_t *hosts, uint32_t *have)
{
    uint32_t                  i;
    uint64_t                  version;
    kvr_share_t              *s;
    kvr_share_host_t         *host;
    const kvr_share_order_t  *order;

    s = zone->share;
    order = &s->order[peer][kind];
    version = atomic_load_explicit(&order->version, memory_order_acquire);

    *hosts = 0;
    *have = 0;

    /* the number has another name by now */

    if (version == 0 || kvr_get(&order->generation)
                        != kvr_get(&zone->registry->peer[peer].generation))
    {
        return NULL;
    }

    for (i = 0; i < KVR_SHARE_HOSTS; i++) {
        host = &s->host[i];

        if (kvr_get(&host->id) && kvr_get(&host->alive)) {
            *hosts += 1;
            *have += kvr_get(&host->order[peer][kind]) >= version;
        }
    }

    return order;
}
