
/*
 * Copyright (C) kvroute contributors
 */


#include "core/events/kvr_events.h"


/* consecutive messages out of order that show a new process */
#define KVR_EVENTS_RUN      8

/* a sample: 24 bits of the key, 40 of the clock; 0 is free */
#define KVR_EVENTS_TAG_AT   40
#define KVR_EVENTS_STAMP    ((1ULL << KVR_EVENTS_TAG_AT) - 1)
#define KVR_EVENTS_SHIFT    16       /* at most */
#define KVR_EVENTS_FULL     (KVR_EVENTS_SAMPLES * 3 / 4)
#define KVR_EVENTS_EMPTY    (KVR_EVENTS_SAMPLES / 8)

/* a sample this many times older than usual: its removal was missed */
#define KVR_EVENTS_STALE    8

/* most blocks that an engine stores in one step; most tokens of a block */
#define KVR_EVENTS_MAKING   4096
#define KVR_EVENTS_BLOCK    65536

/* the age moves by 1/64 of itself; a fifth of the removed blocks are younger */
#define KVR_EVENTS_STEP     64
#define KVR_EVENTS_BELOW    0.2


static uint32_t kvr_events_stored(kvr_events_t *e, const kvr_kvevent_t *event,
    unsigned source, uint64_t clock, double units);
static void kvr_events_sample(kvr_events_t *e, uint64_t key, uint64_t stamp,
    uint64_t clock);
static void kvr_events_halve(kvr_events_t *e);
static void kvr_events_removed(kvr_events_t *e, uint64_t key, uint64_t clock);
static void kvr_events_aged(kvr_events_t *e, uint64_t age);


void
kvr_events_reset(kvr_events_t *e)
{
    memset((void *) e, 0, sizeof(kvr_events_t));
}


void
kvr_events_flush(kvr_events_t *e)
{
    unsigned  i;

    for (i = 0; i < KVR_EVENTS_SAMPLES; i++) {
        kvr_set(&e->sample[i], 0);
    }

    memset((void *) &e->places, 0, sizeof(kvr_events_places_t));

    kvr_set(&e->used, 0);
    kvr_set(&e->group, 0);
    kvr_set(&e->making, 0);

    /* a new process may have another cache size, so the age adapts faster */

    kvr_set(&e->ages, kvr_min(kvr_get(&e->ages), KVR_EVENTS_ENOUGH));
}


/* whether there is a gap between two numbers */
static inline int
kvr_events_behind(uint64_t next, uint64_t seq)
{
    return seq > next && seq - next < KVR_EVENTS_FAR;
}


kvr_events_order_e
kvr_events_order(const kvr_events_source_t *s, kvr_events_order_t *o,
    uint64_t seq)
{
    uint64_t  next;
    unsigned  first;

    next = kvr_get(&s->next);
    first = !o->any;
    o->any = 1;

    if (next == 0 || seq == next || (seq > next && seq <= o->empty)) {
        o->run = 0;
        return KVR_EVENTS_NEXT;
    }

    if (kvr_events_behind(next, seq)) {
        return KVR_EVENTS_GAP;
    }

    /* replayed messages come again by the live stream */

    if (seq < o->replayed) {
        return KVR_EVENTS_REPEATED;
    }

    /* a new connection repeats nothing, and a number never returns to 0 */

    if (first || seq == 0) {
        return KVR_EVENTS_RESTARTED;
    }

    o->run = seq == o->back + 1 ? o->run + 1 : 1;
    o->back = seq;

    return o->run < KVR_EVENTS_RUN ? KVR_EVENTS_REPEATED : KVR_EVENTS_RESTARTED;
}


uint64_t
kvr_events_continue(kvr_events_t *e, kvr_events_source_t *s, uint64_t seq,
    uint64_t now)
{
    uint64_t  next, lost;

    next = kvr_get(&s->next);
    lost = next && kvr_events_behind(next, seq) ? seq - next : 0;

    kvr_set(&s->next, seq);

    if (lost) {
        kvr_add(&e->lost, lost);
        kvr_set(&e->doubt, kvr_max(now, 1));
    }

    return lost;
}


void
kvr_events_read(kvr_events_t *e, kvr_events_source_t *s,
    kvr_events_order_t *o, uint64_t seq, uint64_t now)
{
    kvr_add(&e->messages, 1);
    kvr_set(&s->next, seq + 1);
    kvr_set(&s->time, kvr_max(now, 1));

    o->run = 0;
}


void
kvr_events_empty(kvr_events_source_t *s, kvr_events_order_t *o, uint64_t seq,
    uint64_t now)
{
    kvr_set(&s->time, kvr_max(now, 1));

    o->run = 0;
    o->empty = seq + 1;
}


int
kvr_events_counts(kvr_events_t *e, const kvr_kvevent_t *event)
{
    uint32_t  group;

    if (event->type != KVR_KVEVENT_STORED
        && event->type != KVR_KVEVENT_REMOVED)
    {
        return 0;
    }

    if (event->elsewhere || event->part) {
        return 0;
    }

    /* each group of layers reports each block */

    group = kvr_get(&e->group);

    if (group == 0 && event->type == KVR_KVEVENT_STORED) {
        group = event->group + 1;
        kvr_set(&e->group, group);
    }

    return event->group + 1 == group;
}


uint64_t
kvr_events_tokens(const kvr_kvevent_t *event)
{
    if (event->type != KVR_KVEVENT_STORED) {
        return 0;
    }

    return event->block ? event->blocks * event->block : event->tokens;
}


uint32_t
kvr_events_take(kvr_events_t *e, const kvr_kvevent_t *event, unsigned source,
    uint64_t clock, double units)
{
    double    room;
    uint32_t  before;
    uint64_t  i, n, making;

    before = KVR_EVENTS_NOWHERE;
    making = kvr_get(&e->making);

    if (event->type == KVR_KVEVENT_STORED) {
        kvr_add(&e->stored, event->blocks);
        kvr_add(&e->tokens, kvr_events_tokens(event));
        kvr_set(&e->making, making - kvr_min(making, event->blocks));

        before = kvr_events_stored(e, event, source, clock, units);

    } else if (event->type == KVR_KVEVENT_REMOVED) {
        kvr_add(&e->removed, event->blocks);
        kvr_set(&e->making, kvr_min(making + event->blocks,
                                    KVR_EVENTS_MAKING));

        room = (double) making * kvr_get(&e->block) * units;
        clock += (uint64_t) room;

        n = kvr_min(event->blocks, KVR_KVEVENT_HASHES);

        for (i = 0; i < n; i++) {
            kvr_events_removed(e, kvr_mix(event->hash[i], source), clock);
        }
    }

    return before;
}


static uint32_t
kvr_events_stored(kvr_events_t *e, const kvr_kvevent_t *event,
    unsigned source, uint64_t clock, double units)
{
    uint32_t  before;
    uint64_t  i, n, key, tokens, depth, age;

    if (event->blocks == 0) {
        return KVR_EVENTS_NOWHERE;
    }

    before = event->rooted ? 0
             : kvr_events_place_find(&e->places,
                                     kvr_mix(event->parent, source));

    if (before == KVR_EVENTS_NOWHERE) {
        return before;
    }

    tokens = kvr_events_tokens(event) / event->blocks;
    kvr_set(&e->block, (uint32_t) kvr_min(tokens, KVR_EVENTS_BLOCK));
    n = kvr_min(event->blocks, KVR_KVEVENT_HASHES);

    for (i = 0; i < n; i++) {

        key = kvr_mix(event->hash[i], source);
        depth = before + (i + 1) * tokens;

        kvr_events_place_keep(&e->places, key, depth);

        if (key >> (64 - KVR_EVENTS_SHIFT)
            >> (KVR_EVENTS_SHIFT - kvr_get(&e->shift)) == 0)
        {
            age = (uint64_t) ((double) depth * units);

            kvr_events_sample(e, key, clock - kvr_min(age, clock), clock);
        }
    }

    kvr_events_place_keep(&e->places, kvr_mix(event->last, source),
                          before + event->blocks * tokens);

    return before;
}


/* the tag of a sample; its first bits show whether the block is sampled */
static inline uint64_t
kvr_events_tag(uint64_t key)
{
    return key >> KVR_EVENTS_TAG_AT;
}


static inline _Atomic uint64_t *
kvr_events_cell(kvr_events_t *e, uint64_t key)
{
    return &e->sample[key % KVR_EVENTS_SAMPLES];
}


static void
kvr_events_sample(kvr_events_t *e, uint64_t key, uint64_t stamp,
    uint64_t clock)
{
    uint64_t           word, old, age;
    _Atomic uint64_t  *cell;

    cell = kvr_events_cell(e, key);
    old = kvr_get(cell);

    word = kvr_events_tag(key) << KVR_EVENTS_TAG_AT
           | ((stamp & KVR_EVENTS_STAMP) | 1);

    if (old == 0) {
        kvr_set(cell, word);
        kvr_add(&e->used, 1);

        if (kvr_get(&e->used) > KVR_EVENTS_FULL) {
            kvr_events_halve(e);
        }

        return;
    }

    /* keep the older sample, unless its removal was missed */

    age = (clock - old) & KVR_EVENTS_STAMP;

    if (old >> KVR_EVENTS_TAG_AT == kvr_events_tag(key)
        || (kvr_events_age(e) && age > KVR_EVENTS_STALE * kvr_events_age(e)))
    {
        kvr_set(cell, word);
    }
}


static void
kvr_events_halve(kvr_events_t *e)
{
    unsigned  i;
    uint32_t  shift, used;
    uint64_t  word;

    shift = kvr_get(&e->shift);

    if (shift == KVR_EVENTS_SHIFT) {
        return;
    }

    shift++;
    used = 0;

    for (i = 0; i < KVR_EVENTS_SAMPLES; i++) {
        word = kvr_get(&e->sample[i]);

        if (word >> (64 - shift)) {
            kvr_set(&e->sample[i], 0);

        } else if (word) {
            used++;
        }
    }

    kvr_set(&e->shift, shift);
    kvr_set(&e->used, used);
}


static void
kvr_events_removed(kvr_events_t *e, uint64_t key, uint64_t clock)
{
    uint32_t           used, shift;
    uint64_t           word;
    _Atomic uint64_t  *cell;

    shift = kvr_get(&e->shift);

    if (key >> (64 - KVR_EVENTS_SHIFT) >> (KVR_EVENTS_SHIFT - shift)) {
        return;
    }

    cell = kvr_events_cell(e, key);
    word = kvr_get(cell);

    if (word == 0 || word >> KVR_EVENTS_TAG_AT != kvr_events_tag(key)) {
        return;
    }

    kvr_set(cell, 0);
    used = kvr_get(&e->used);
    kvr_set(&e->used, used - kvr_min(used, 1));

    kvr_events_aged(e, (clock - word) & KVR_EVENTS_STAMP);

    if (used < KVR_EVENTS_EMPTY && shift) {
        kvr_set(&e->shift, shift - 1);
    }
}


static void
kvr_events_aged(kvr_events_t *e, uint64_t age)
{
    double    now, step;
    uint64_t  n;

    n = kvr_get(&e->ages);
    now = (double) kvr_get(&e->age);

    if (n == 0) {
        now = (double) age * KVR_EVENTS_ONE;

    } else {
        step = now / (double) kvr_min(n + 1, KVR_EVENTS_STEP);

        now += (double) age * KVR_EVENTS_ONE > now
               ? step * KVR_EVENTS_BELOW : -step * (1 - KVR_EVENTS_BELOW);
    }

    kvr_set(&e->age, (uint64_t) kvr_max(now, KVR_EVENTS_ONE));
    kvr_set(&e->ages, n + 1);
}


uint64_t
kvr_events_age(const kvr_events_t *e)
{
    if (kvr_get(&e->ages) < KVR_EVENTS_ENOUGH) {
        return 0;
    }

    return kvr_get(&e->age) / KVR_EVENTS_ONE;
}
