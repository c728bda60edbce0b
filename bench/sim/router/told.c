#include "core/route/kvr_route.h"

#include "bench/sim/router/told.h"


/* s, from one look at the capacities to the next, as nginx has it */
#define KVS_TOLD_LOOK  1


typedef enum {
    KVS_TOLD_STORED = 0,
    KVS_TOLD_REMOVED,
    KVS_TOLD_CLEARED
} kvs_told_e;


typedef struct {
    double            due;
    kvs_told_e        type;
    uint64_t          hash;
    uint64_t          parent;        /* stored: 0: none */
} kvs_word_t;


/* names, by open addressing; 0 is free */
typedef struct {
    uint64_t         *name;
    uint8_t          *held;          /* 0: it is no more */
    uint32_t          n, slots;
} kvs_names_t;


typedef struct {
    kvs_told_t       *told;
    uint32_t          replica;
    kve_watch_t       watch;

    kvs_word_t       *say;           /* [first, n), by time */
    size_t            first, n, size;
    size_t            step;          /* those from here on have no time yet */

    kvs_names_t       names;
} kvs_voice_t;


struct kvs_told_s {
    kvs_sim_t        *sim;
    kvs_zone_t       *zone;
    double            delay;         /* s */
    double            aliases;
    double            looked;
    kvs_rng_t         rng;
    kvs_names_t       known;         /* names whose place is known */
    kvs_voice_t       voice[KVS_REPLICAS];
};


static void kvs_names_set(kvs_names_t *s, uint64_t name, uint8_t held);


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
kvs_told_create(kvs_sim_t *sim, kvs_zone_t *zone, double delay, double aliases)
{
    uint32_t      i;
    kvs_told_t   *told;
    kvs_voice_t  *v;

    told = kvs_alloc(sizeof(kvs_told_t));

    told->sim = sim;
    told->zone = zone;
    told->delay = delay;
    told->aliases = aliases;

    kvs_rng_seed(&told->rng, sim->seed, 0x746f6c64ULL);

    zone->core.events = kvs_zone_alloc(sim->n * sizeof(kvr_events_t));

    for (i = 0; i < sim->n; i++) {
        v = &told->voice[i];

        v->told = told;
        v->replica = i;

        v->watch.stored = kvs_told_stored;
        v->watch.removed = kvs_told_removed;
        v->watch.cleared = kvs_told_cleared;
        v->watch.step = kvs_told_step;
        v->watch.data = v;

        kve_replica_watch(sim->replica[i], &v->watch);
    }

    return told;
}


static void
kvs_names_free(kvs_names_t *s)
{
    free(s->name);
    free(s->held);
    memset(s, 0, sizeof(kvs_names_t));
}


void
kvs_told_destroy(kvs_told_t *told)
{
    uint32_t      i;
    kvs_voice_t  *v;

    for (i = 0; i < told->sim->n; i++) {
        v = &told->voice[i];

        kve_replica_watch(told->sim->replica[i], NULL);
        kvs_names_free(&v->names);
        free(v->say);
    }

    kvs_names_free(&told->known);
    free((void *) told->zone->core.events);
    free(told);
}


/* the slot of a name, or of where it would be */

static uint32_t
kvs_names_slot(const kvs_names_t *s, uint64_t name)
{
    uint32_t  i;

    i = (uint32_t) (kvr_mix(name, 1) & (s->slots - 1));

    while (s->name[i] && s->name[i] != name) {
        i = (i + 1) & (s->slots - 1);
    }

    return i;
}


static int
kvs_names_held(const kvs_names_t *s, uint64_t name)
{
    return s->slots && s->held[kvs_names_slot(s, name)];
}


static void
kvs_names_grow(kvs_names_t *s)
{
    uint32_t     i;
    kvs_names_t  old;

    old = *s;

    s->slots = old.slots ? old.slots * 2 : 1024;
    s->name = kvs_alloc(s->slots * sizeof(uint64_t));
    s->held = kvs_alloc(s->slots);
    s->n = 0;

    for (i = 0; i < old.slots; i++) {
        if (old.held[i]) {
            kvs_names_set(s, old.name[i], 1);
        }
    }

    kvs_names_free(&old);
}


static void
kvs_names_set(kvs_names_t *s, uint64_t name, uint8_t held)
{
    uint32_t  i;

    if (s->n * 2 >= s->slots) {
        kvs_names_grow(s);
    }

    i = kvs_names_slot(s, name);

    s->n += s->name[i] == 0;
    s->name[i] = name;
    s->held[i] = held;
}


static void
kvs_told_hear(kvs_voice_t *v, const kvs_word_t *w, double now)
{
    kvr_kvevent_t  e;

    memset(&e, 0, offsetof(kvr_kvevent_t, hash));
    e.blocks = 1;
    e.block = KVS_UNIT_TOKENS;
    e.hash[0] = w->hash;
    e.last = w->hash;

    switch (w->type) {

    case KVS_TOLD_STORED:
        e.type = KVR_KVEVENT_STORED;
        e.parent = w->parent;
        e.rooted = w->parent == 0;

        if (v->told->aliases > 0) {
            kvs_names_set(&v->names, w->hash, 1);
        }

        break;

    case KVS_TOLD_REMOVED:
        e.type = KVR_KVEVENT_REMOVED;

        if (v->told->aliases > 0) {
            kvs_names_set(&v->names, w->hash, 0);
        }

        break;

    case KVS_TOLD_CLEARED:
        kvs_told_restarted(v->told, v->replica);
        return;
    }

    (void) kvr_capacity_event(&v->told->zone->core, v->replica, 0, &e,
                              kvs_zone_ms(now));
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
            kvs_told_hear(v, &v->say[v->first++], now);
        }

        if (v->first > v->n / 2) {
            v->n -= v->first;
            v->step -= v->first;
            memmove(v->say, v->say + v->first, v->n * sizeof(kvs_word_t));
            v->first = 0;
        }

        if (look) {
            kvr_capacity_update(&told->zone->core, &told->zone->pool, i);
        }
    }
}


void
kvs_told_attribute(kvs_told_t *told, const kvs_request_t *rq)
{
    uint32_t  i;

    if (told->aliases > 0 && kvs_rng_uniform(&told->rng) < told->aliases) {

        for (i = 0; i < rq->units; i++) {
            kvs_names_set(&told->known, rq->chain[i], 1);
        }
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

    kvr_capacity_another(&told->zone->core, replica,
                         kvs_zone_ms(told->sim->now));
    kvs_names_free(&v->names);
}


void
kvs_told_match(kvs_told_t *told, const kvs_request_t *rq, kvr_set_t set,
    const uint32_t *coming, uint32_t *matched)
{
    uint32_t      i, k, known, deepest;
    kvs_voice_t  *v;

    if (told->aliases == 0) {
        return;
    }

    for ( /* void */ ; kvr_set_next(&set, &i); /* void */ ) {
        v = &told->voice[i];
        deepest = 0;

        for (k = 0; k < rq->units; k++) {
            known = kvs_names_held(&told->known, rq->chain[k]);

            if (!known) {
                continue;
            }

            if (!kvs_names_held(&v->names, rq->chain[k])) {
                break;
            }

            deepest = k + 1;
        }

        matched[i] = kvr_max(coming[i],
                             kvr_min(k, kvr_max(matched[i], deepest)));
    }
}
