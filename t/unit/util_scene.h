
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _UTIL_SCENE_H_INCLUDED_
#define _UTIL_SCENE_H_INCLUDED_


/*
 * A zone with one server that publishes KV events, the chain of a prompt, and
 * room for an event.
 */


#include "util_zone.h"
#include "core/sync/kvr_sync.h"


#define UTIL_SCENE_PEERS  4
#define UTIL_SCENE_UNITS  64
#define UTIL_SCENE_UNIT   256
#define UTIL_SCENE_BLOCK  16         /* tokens; 4 bytes each: 4 blocks a unit */


typedef struct {
    kvr_zone_t      zone;
    kvr_feeds_t     feeds;
    kvr_hook_t      hook;
    kvr_pool_t      pool;
    uint32_t        peer;
    uint32_t        member;
    uint64_t        chain[UTIL_SCENE_UNITS];
    uint64_t        next;            /* hash */
    kvr_kvevent_t   event;
} util_scene_t;


static inline void
util_scene(util_scene_t *s)
{
    uint32_t     i;
    kvr_zone_t  *z;

    memset(s, 0, sizeof(util_scene_t));

    z = &s->zone;

    util_zone(z, UTIL_SCENE_PEERS, 4096);
    s->feeds.zone = z;
    s->feeds.events = util_zeroed(UTIL_SCENE_PEERS * sizeof(kvr_events_t));
    s->hook.call = &kvr_sync_hooks;
    s->hook.data = &s->feeds;
    z->hooks = &s->hook;
    z->listens = 1;

    s->peer = kvr_registry_peer(z->registry, z->load, z->row, z->index,
                                "a:1", 3, 1000);
    s->member = kvr_registry_member(z->registry, z->load, z->row, s->peer, "u",
                                    1);

    kvr_set(&s->feeds.events[s->peer].connected, 1);

    s->pool.set = kvr_set_of(s->peer);

    for (i = 0; i < UTIL_SCENE_UNITS; i++) {
        s->chain[i] = kvr_mix(i + 1, 42) | 1ULL << 63;
    }

    kvr_index_capacity(z->index, s->peer, 1000, KVR_INDEX_ASSUMED);
}


static inline void
util_scene_free(util_scene_t *s)
{
    util_zone_free(&s->zone);
    free(s->feeds.events);
}


#endif /* _UTIL_SCENE_H_INCLUDED_ */
