#include "core/sync/kvr_sync.h"

#include "bench/sim/router/told.h"


/* s between two readings of the capacities, as in nginx */
#define KVS_TOLD_LOOK     1

/* bytes per replica, generous */
#define KVS_TOLD_ALIASES  (4 * 1024 * 1024)


typedef enum {
    KVS_TOLD_STORED = 0,
    KVS_TOLD_REMOVED,
    KVS_TOLD_CLEARED
} kvs_told_e;


typedef struct {
    double            due;
    kvs_told_e        type;
    uint64_t          hash;
    uint64_t          parent;        /* stored: parent, 0: none */
} kvs_word_t;


typedef struct {
    kvs_told_t       *told;
    uint32_t          replica;
    kve_watch_t       watch;

    kvs_word_t       *say;           /* [first, n), by time */
    size_t            first, n, size;
    size_t            step;          /* events from here on have no time yet */
} kvs_voice_t;


struct kvs_told_s {
    kvs_sim_t        *sim;
    kvs_zone_t       *zone;
    kvr_feeds_t       feeds;
    kvr_hook_t        hook;
    double            delay;         /* s */
    double            looked;
    kvs_voice_t       voice[KVS_REPLICAS];
};


static kvs_word_t *
kvs_told_word(kvs_voice_t *v, kvs_told_e type)
{
    kvs_word_t  *w;

    v->say = kvs_grow(v->say, v->n, &v->size, sizeof(kvs_word_t));
    w = &v->say[v->n++];
    w->type = type;

    return w;
}


static void
kvs_told_stored(void *data, const kve_req_t *req, uint32_t first, uint32_t n)
{
    kvs_voice_t *v = data;

    uint32_t     i;
    kvs_word_t  *w;

    for (i = first; i < first + n; i++) {
        w = kvs_told_word(v, KVS_TOLD_STORED);
        w->hash = req->hashes[i];
        w->parent = i ? req->hashes[i - 1] : 0;
    }
}


static void
kvs_told_removed(void *data, uint64_t hash)
{
    kvs_told_word(data, KVS_TOLD_REMOVED)->hash = hash;
}


static void
kvs_told_cleared(void *data)
{
    (void) kvs_told_word(data, KVS_TOLD_CLEARED);
}


static void
kvs_told_step(void *data, double t)
{
    kvs_voice_t *v = data;

    while (v->step < v->n) {
        v->say[v->step++].due = t + v->told->delay;
    }
}


kvs_told_t *
kvs_told_create(kvs_sim_t *sim, kvs_zone_t *zone, double delay,
    unsigned aliases)
{
    size_t        size;
    uint32_t      i;
    kvs_told_t   *told;
    kvs_voice_t  *v;

    told = kvs_alloc(sizeof(kvs_told_t));

    told->sim = sim;
    told->zone = zone;
    told->delay = delay;
    told->feeds.zone = &zone->core;
    told->feeds.events = kvs_zone_alloc(sim->n * sizeof(kvr_events_t));
    told->hook.call = &kvr_sync_hooks;
    told->hook.data = &told->feeds;
    zone->core.hooks = &told->hook;
    zone->core.listens = 1;

    if (aliases) {
        size = kvr_attribute_size(sim->n, KVS_TOLD_ALIASES);
        told->feeds.aliases = kvs_zone_alloc(size);
        kvr_attribute_init(told->feeds.aliases, sim->n, KVS_TOLD_ALIASES);
    }

    for (i = 0; i < sim->n; i++) {
        v = &told->voice[i];

        v->told = told;
        v->replica = i;

        kvr_set(&told->feeds.events[i].connected, 1);

        v->watch.stored = kvs_told_stored;
        v->watch.removed = kvs_told_removed;
        v->watch.cleared = kvs_told_cleared;
        v->watch.step = kvs_told_step;
        v->watch.data = v;

        kve_replica_watch(sim->replica[i], &v->watch);
    }

    return told;
}


void
kvs_told_destroy(kvs_told_t *told)
{
    uint32_t      i;
    kvs_voice_t  *v;

    for (i = 0; i < told->sim->n; i++) {
        v = &told->voice[i];

        kve_replica_watch(told->sim->replica[i], NULL);
        free(v->say);
    }

    free((void *) told->feeds.events);
    free((void *) told->feeds.aliases);
    free(told);
}


/* reads an engine's event; returns its number of words */
static size_t
kvs_told_hear(kvs_voice_t *v, double now)
{
    size_t             i, n;
    kvr_kvevent_t      e;
    const kvs_word_t  *w;

    w = &v->say[v->first];

    if (w->type == KVS_TOLD_CLEARED) {
        kvs_told_restarted(v->told, v->replica);
        return 0;
    }

    memset(&e, 0, offsetof(kvr_kvevent_t, hash));
    e.type = w->type == KVS_TOLD_STORED ? KVR_KVEVENT_STORED
                                        : KVR_KVEVENT_REMOVED;
    e.block = KVS_UNIT_TOKENS;
    e.parent = w->parent;
    e.rooted = w->parent == 0;

    n = kvr_min(v->step - v->first, KVR_KVEVENT_HASHES);

    for (i = 0; i < n; i++) {
        if (i && (w[i].type != KVS_TOLD_STORED || w[0].type != w[i].type
                  || w[i].due != w[0].due || w[i].parent != e.last))
        {
            break;
        }

        e.hash[i] = w[i].hash;
        e.last = w[i].hash;
    }

    e.blocks = i;

    (void) kvr_sync_event(&v->told->feeds, v->replica, 0, &e,
                          kvs_zone_ms(now));

    return i;
}


void
kvs_told_settle(kvs_told_t *told, double now)
{
    uint32_t      i;
    unsigned      look;
    kvs_voice_t  *v;

    look = now >= told->looked + KVS_TOLD_LOOK;

    if (look) {
        told->looked = now;
    }

    for (i = 0; i < told->sim->n; i++) {
        v = &told->voice[i];

        kvs_sim_settle(told->sim, i);

        while (v->first < v->step && v->say[v->first].due <= now) {
            v->first += kvs_told_hear(v, v->say[v->first].due);
        }

        if (v->first > v->n / 2) {
            v->n -= v->first;
            v->step -= v->first;
            memmove(v->say, v->say + v->first, v->n * sizeof(kvs_word_t));
            v->first = 0;
        }

        if (look) {
            kvr_capacity_update(&told->zone->core, &told->zone->pool, i,
                                kvs_zone_ms(now));
        }
    }

    if (told->feeds.aliases) {
        (void) kvr_attribute_look(&told->feeds, UINT32_MAX, kvs_zone_ms(now));
    }
}


void
kvs_told_restarted(kvs_told_t *told, uint32_t replica)
{
    kvs_voice_t  *v;

    v = &told->voice[replica];

    v->first = 0;
    v->step = 0;
    v->n = 0;

    kvr_sync_restart(&told->feeds, replica, kvs_zone_ms(told->sim->now));
}

