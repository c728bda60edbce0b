
/*
 * Copyright (C) kvroute contributors
 */


#include "core/index/kvr_index_batch.h"


#define KVR_INSERT_STEP    8        /* entries of an insert at a time */
#define KVR_INSERT_AHEAD   32       /* whose lines are fetched before */
#define KVR_INSERT_TAGS    48       /* and their tags before that */
#define KVR_INSERT_RING    8        /* steps that are on their way */
#define KVR_INSERT_TAIL    34       /* entries written again in any case */
#define KVR_INSERT_RECENT  32       /* part of a capacity, about */
#define KVR_INSERT_ASSUMED 16       /* units, if that is only assumed */
#define KVR_INSERT_LOST    4        /* lines in a row, as a rule fewer */


/* an insert on its way along the prompt */
typedef struct {
    kvr_index_t       *ix;
    const uint64_t    *chain;
    uint32_t           n;
    uint32_t           first;        /* number of chain[0] */
    uint32_t           clock;        /* as in stamps */
    uint32_t           now;
    unsigned           peer;

    unsigned           slot;         /* of the peer in the last line */
    uint32_t           evicted;
    uint32_t           absent;       /* entries before that were put there */
    uint32_t           behind;       /* those are behind one that was there */
    kvr_line_names_t   names;        /* of the last line */
    kvr_index_line_t  *last;         /* there was, before or by now */
} kvr_insert_walk_t;


static void kvr_insert_run(kvr_index_t *ix, const uint64_t *chain,
    uint32_t n, uint32_t units, unsigned peer, uint32_t matched, int repeat,
    kvr_index_undo_t *undo);
static inline void kvr_insert_begin(kvr_insert_walk_t *t);
static inline void kvr_insert_end(kvr_insert_walk_t *t);
static inline void kvr_insert_expect(kvr_index_peer_t *p, uint64_t add);
static inline void kvr_insert_mark(kvr_index_t *ix, unsigned peer);
static uint32_t kvr_insert_recent(kvr_insert_walk_t *t, uint32_t matched);
static int kvr_insert_written(kvr_insert_walk_t *t, uint32_t k);
static void kvr_insert_lines(kvr_insert_walk_t *t);
static inline void kvr_insert_put(kvr_insert_walk_t *t,
    kvr_index_line_t *line);
static void kvr_insert_lost(kvr_insert_walk_t *t, kvr_index_line_t *line);
static int kvr_insert_other(kvr_insert_walk_t *t, uint32_t k, uint64_t key,
    uint32_t stamp, uint32_t touched, unsigned epoch);
static void kvr_insert_differ(kvr_insert_walk_t *t, uint32_t k,
    const kvr_line_names_t *names);
static int kvr_insert_fewer(const kvr_line_names_t *before,
    const kvr_line_names_t *names);
static uint32_t kvr_insert_advance(kvr_index_t *ix, const uint64_t *chain,
    uint32_t n, uint32_t units, unsigned peer, uint32_t matched,
    uint64_t *moved);


void
kvr_index_insert(kvr_index_t *ix, const uint64_t *chain, uint32_t n,
    uint32_t units, unsigned peer, uint32_t matched, kvr_index_undo_t *undo)
{
    kvr_insert_run(ix, chain, n, units, peer, matched, 0, undo);
}


void
kvr_index_refresh(kvr_index_t *ix, const uint64_t *chain, uint32_t n,
    uint32_t units, unsigned peer, uint32_t matched, kvr_index_undo_t *undo)
{
    kvr_insert_run(ix, chain, n, units, peer, matched, 1, undo);
}


static void
kvr_insert_run(kvr_index_t *ix, const uint64_t *chain, uint32_t n,
    uint32_t units, unsigned peer, uint32_t matched, int repeat,
    kvr_index_undo_t *undo)
{
    uint32_t           fresh;
    uint64_t           moved;
    kvr_insert_walk_t  t;

    matched = kvr_min(matched, units);
    fresh = units - matched;

    t.ix = ix;
    t.chain = chain;
    t.n = n;
    t.first = 0;
    t.peer = peer;

    t.clock = kvr_insert_advance(ix, chain, n, units, peer, matched, &moved);
    t.now = (uint32_t) (kvr_add(&ix->clock, fresh) + fresh);

    undo->clock = t.clock;
    undo->matched = matched;
    undo->moved = (uint32_t) kvr_min(moved, UINT32_MAX);
    undo->peer = (uint16_t) peer;
    undo->valid = 1;

    kvr_insert_begin(&t);

    if (repeat) {
        t.first = kvr_insert_recent(&t, matched);
        t.chain += t.first;
        t.n -= t.first;
    }

    undo->first = t.first;

    kvr_insert_lines(&t);
    kvr_insert_end(&t);
    kvr_insert_mark(ix, peer);

    kvr_line_sweep(ix, moved / 4 + 1);
}


/*
 * How many matched entries need not be written again, as they were inserted a
 * short while ago: whole steps, or all entries.
 *
 * Clocks are cut into equal parts.  If a line was written in this part, so were
 * all lines before it: the same insert wrote them, or left them out because a
 * later line was of this part. Reply lines are newer than the prompt's. So the
 * line that is probed is KVR_INSERT_TAIL entries before the end, which no reply
 * reaches, or the first line. If the prompt goes on, lines behind the probe are
 * written again in any case. A prompt that relies on the lines of a reply may
 * lose them sooner, by one part and the units of the reply; and
 * kvr_index_prompted() does not see where the older lines end.
 */
static uint32_t
kvr_insert_recent(kvr_insert_walk_t *t, uint32_t matched)
{
    uint32_t  k, head;

    k = kvr_min(kvr_chain_entries(matched), t->n);

    if (k == 0) {
        return 0;
    }

    if (k >= KVR_INSERT_TAIL + KVR_INSERT_STEP) {
        head = (k - KVR_INSERT_TAIL) / KVR_INSERT_STEP * KVR_INSERT_STEP;

        if (!kvr_insert_written(t, head - 1)) {
            return 0;
        }

    } else {
        head = 0;

        if (k != t->n || !kvr_insert_written(t, 0)) {
            return 0;
        }
    }

    return k == t->n && kvr_insert_written(t, k - 1) ? k : head;
}


/* the k-th line was in this part; then the insert is as if it came from it */
static int
kvr_insert_written(kvr_insert_walk_t *t, uint32_t k)
{
    unsigned           s;
    uint32_t           part, depth, stamp, before, floor;
    kvr_index_t       *ix;
    kvr_index_line_t  *line;
    kvr_index_peer_t  *p;

    ix = t->ix;
    p = kvr_index_peer(ix, t->peer);

    part = kvr_get(&p->capacity) / KVR_INSERT_RECENT;

    /* capacities are learned from ages: they must be right in small caches */

    if (kvr_get(&p->source) < KVR_INDEX_EXACT) {
        part = kvr_min(part, KVR_INSERT_ASSUMED);
    }

    line = kvr_line_find(ix, t->chain[k]);

    if (line == NULL || part == 0) {
        return 0;
    }

    s = kvr_line_slot(line, kvr_get(&line->ids), t->peer, &stamp);

    if (s == KVR_INDEX_HOLDERS) {
        return 0;
    }

    depth = kvr_chain_depth(k);
    before = stamp + ((depth - 1) << KVR_INDEX_STAMP);
    floor = kvr_index_clocked(kvr_get(&p->floor) + 1, t->peer);

    if ((before ^ t->clock) >> (31 - __builtin_clz(part) + KVR_INDEX_STAMP)
        || (int32_t) (stamp - floor) < 0
        || ((kvr_get(&line->touched) + depth) ^ t->now) >> (ix->epoch - 2))
    {
        return 0;
    }

    t->slot = s;
    t->names = kvr_line_names(ix, line);
    t->last = line;

    return 1;
}


void
kvr_index_extend(kvr_index_t *ix, const uint64_t *value, uint32_t first,
    uint32_t n, uint32_t units, unsigned peer, uint32_t behind)
{
    kvr_index_prefetch(ix, value, n, 1);

    kvr_index_update(ix, value, first, first, n, units, peer, behind);
}


void
kvr_index_prefetch(kvr_index_t *ix, const uint64_t *value, uint32_t n,
    int lines)
{
    uint32_t     i;
    unsigned     epoch;
    kvr_batch_t  g;

    epoch = kvr_tag_epoch(ix, (uint32_t) kvr_get(&ix->clock));

    for (i = 0; i < n; i += KVR_BATCH) {
        kvr_batch_tags(ix, &g, &value[i], n - i);

        if (lines) {
            kvr_batch_lines(ix, &g, n - i, epoch);
        }
    }
}


void
kvr_index_update(kvr_index_t *ix, const uint64_t *value, uint32_t from,
    uint32_t first, uint32_t n, uint32_t units, unsigned peer, uint32_t behind)
{
    uint32_t           i;
    uint64_t           add, clock;
    kvr_insert_walk_t  t;

    add = (uint64_t) units << KVR_INDEX_FRACTION;
    clock = kvr_add(&kvr_index_peer(ix, peer)->clock, add) + add;
    clock >>= KVR_INDEX_FRACTION;

    kvr_insert_expect(kvr_index_peer(ix, peer), add);

    t.ix = ix;
    t.peer = peer;

    t.clock = kvr_index_clocked(clock - kvr_min(behind, clock), peer);
    t.now = (uint32_t) (kvr_add(&ix->clock, units) + units);

    kvr_insert_begin(&t);

    for (i = from; i < first; i++) {
        if (kvr_index_published(i, first)) {
            t.chain = value++;
            t.first = i;
            t.n = 1;

            kvr_insert_lines(&t);
        }
    }

    /* a group must not have entries that are further apart than others */

    for (i = 0; i < n; i += t.n) {
        t.chain = &value[i];
        t.first = first + i;
        t.n = kvr_min(n - i, KVR_BATCH - t.first % KVR_BATCH);

        kvr_insert_lines(&t);
    }

    kvr_insert_end(&t);

    kvr_line_sweep(ix, units / 4 + 1);
}


/* that so much is stored will be told, if anybody tells that at all */
static inline void
kvr_insert_expect(kvr_index_peer_t *p, uint64_t add)
{
    if (kvr_unlikely(kvr_get(&p->ahead))) {
        kvr_add(&p->ahead, add);
    }
}


/* a step of entries, from the i-th on */
static inline void
kvr_insert_tags(kvr_insert_walk_t *t, kvr_batch_t *batch, uint32_t i)
{
    kvr_batch_tags(t->ix, &batch[i / KVR_INSERT_STEP % KVR_INSERT_RING],
                   &t->chain[i], kvr_min(t->n - i, KVR_INSERT_STEP));
}


static inline void
kvr_insert_fetch(kvr_insert_walk_t *t, kvr_batch_t *batch, uint32_t i,
    unsigned epoch)
{
    kvr_batch_lines(t->ix, &batch[i / KVR_INSERT_STEP % KVR_INSERT_RING],
                    kvr_min(t->n - i, KVR_INSERT_STEP), epoch);
}


static inline void
kvr_insert_begin(kvr_insert_walk_t *t)
{
    t->slot = 0;
    t->evicted = 0;
    t->absent = 0;
    t->behind = 0;
    t->last = NULL;
    t->names = kvr_line_own(t->peer);
}


static inline void
kvr_insert_end(kvr_insert_walk_t *t)
{
    /* others may go on from here */

    if (t->last) {
        kvr_tag_mark(kvr_tag_line(t->ix, t->last));
    }

    if (t->evicted) {
        kvr_add(&t->ix->evicted, t->evicted);
    }
}


/* of many peers: this one's clock went on, and so did that of the others */
static inline void
kvr_insert_mark(kvr_index_t *ix, unsigned peer)
{
    if (kvr_unlikely(ix->words > 1)) {
        kvr_mask_mark(ix, peer);
        kvr_mask_mark(ix, kvr_add(&ix->marked, 1) % ix->max_peers);
    }
}


/* makes a peer the holder of what a chain stands for */
static void
kvr_insert_lines(kvr_insert_walk_t *t)
{
    int                known;
    unsigned           epoch, shift, peer, slot, wide;
    uint32_t           i, k, m, stamp, touched, depth, clock, now, per;
    uint64_t           ids, key, same, high;
    kvr_batch_t        batch[KVR_INSERT_RING], *g;
    kvr_index_t       *ix;
    _Atomic uint16_t  *tags;
    kvr_index_line_t  *lines, *line;

    ix = t->ix;
    peer = t->peer;
    clock = t->clock;
    now = t->now;

    slot = t->slot;
    same = t->absent ? KVR_INDEX_TAG : t->names.low;
    high = t->names.high;
    wide = (unsigned) kvr_index_wide(ix);

    lines = ix->line;
    tags = kvr_tag_bucket(ix, 0)->way;

    shift = ix->epoch;
    epoch = kvr_tag_epoch(ix, t->now);

    for (i = 0; i < t->n && i < KVR_INSERT_TAGS; i += KVR_INSERT_STEP) {
        kvr_insert_tags(t, batch, i);
    }

    for (i = 0; i < t->n && i < KVR_INSERT_AHEAD; i += KVR_INSERT_STEP) {
        kvr_insert_fetch(t, batch, i, epoch);
    }

    for (i = 0; i < t->n; i += KVR_INSERT_STEP) {

        /* few at a time, so that memory and processor work together */

        if (t->n - i > KVR_INSERT_TAGS) {
            kvr_insert_tags(t, batch, i + KVR_INSERT_TAGS);
        }

        if (t->n - i > KVR_INSERT_AHEAD) {
            kvr_insert_fetch(t, batch, i + KVR_INSERT_AHEAD, epoch);
        }

        g = &batch[i / KVR_INSERT_STEP % KVR_INSERT_RING];
        m = kvr_min(t->n - i, KVR_INSERT_STEP);

        per = kvr_chain_step(t->first + i);
        depth = kvr_chain_depth(t->first + i) - per;

        for (k = 0; k < m; k++) {

            depth += per;
            stamp = kvr_index_stamp(clock, depth);
            touched = now - depth;

            key = g->key[k];
            line = g->line[k];

            if (atomic_load_explicit(&line->key, memory_order_acquire) == key)
            {
                ids = atomic_load_explicit(&line->ids, memory_order_acquire);

                /* as a rule all is as in the line before */

                if (kvr_likely((ids & ~KVR_INDEX_TAG) == same
                               && kvr_index_used(kvr_get(&line->stamp[slot]))
                               && (!wide || kvr_line_highs(line) == high)))
                {
                    if (kvr_line_touch(line, touched) >> shift) {
                        kvr_tag_touch(&tags[line - lines], epoch);
                    }

                    kvr_line_stamp(line, key, ids, peer, slot, stamp);
                    t->last = line;
                    continue;
                }

            } else if (g->absent >> k & 1) {
                line = kvr_line_put(ix, line, &tags[line - lines], key, peer,
                                    stamp, touched, epoch, &t->evicted);
                kvr_insert_put(t, line);
                same = KVR_INDEX_TAG;
                continue;
            }

            known = kvr_insert_other(t, i + k, key, stamp, touched, epoch);

            same = known ? t->names.low : KVR_INDEX_TAG;
            high = t->names.high;
            slot = t->slot;
        }
    }
}


/*
 * A line that is not where it was looked for, or names others than the one
 * before.  Returns whether the next one may name the same as this.
 */
static __attribute__ ((noinline)) int
kvr_insert_other(kvr_insert_walk_t *t, uint32_t k, uint64_t key, uint32_t stamp,
    uint32_t touched, unsigned epoch)
{
    kvr_line_names_t   names;
    kvr_index_line_t  *line;

    line = kvr_line_find_key(t->ix, key);

    if (line == NULL) {
        line = kvr_line_insert(t->ix, key, t->peer, stamp, touched);
        kvr_insert_put(t, line);
        return 0;
    }

    t->slot = kvr_line_add(t->ix, line, key, t->peer, stamp, touched)
              % KVR_INDEX_HOLDERS;

    kvr_tag_touch(kvr_tag_line(t->ix, line), epoch);

    names = kvr_line_names(t->ix, line);

    if (!kvr_line_same(&names, &t->names) || t->absent) {
        kvr_insert_differ(t, k, &names);
    }

    /* a mask that was begun anew names fewer than that of the line before */

    if (t->last && (kvr_get(&t->last->mask) & ~kvr_get(&line->mask))) {
        kvr_tag_mark(kvr_tag_line(t->ix, t->last));
    }

    t->last = line;

    return kvr_line_name(&names, t->slot) == t->peer;
}


/* an entry was not there: a line was put there, or not */
static inline void
kvr_insert_put(kvr_insert_walk_t *t, kvr_index_line_t *line)
{
    if (kvr_unlikely(t->absent++ < KVR_INSERT_LOST)) {
        kvr_insert_lost(t, line);
    }

    if (kvr_likely(line)) {
        t->last = line;
    }
}


/* the first ones that were not there */
static __attribute__ ((noinline)) void
kvr_insert_lost(kvr_insert_walk_t *t, kvr_index_line_t *line)
{
    /* holders of the line before may have gone on elsewhere */

    if (t->absent == 1) {
        t->behind = (t->last != NULL);

        if (t->last) {
            kvr_tag_mark(kvr_tag_line(t->ix, t->last));
        }
    }

    /* and these may have been lost, behind which others have gone on */

    if (line && t->behind) {
        kvr_tag_mark(kvr_tag_line(t->ix, line));
    }

    t->names = kvr_line_own(t->peer);
}


/* the k-th line names others than the one before, or that one was lost */
static void
kvr_insert_differ(kvr_insert_walk_t *t, uint32_t k,
    const kvr_line_names_t *names)
{
    uint32_t           i;
    kvr_index_line_t  *line;

    /* whoever went on from those that were lost will not look there again */

    for (i = k - kvr_min(t->absent, k); i < k; i++) {

        line = kvr_line_find(t->ix, t->chain[i]);

        if (line) {
            kvr_tag_mark(kvr_tag_line(t->ix, line));
        }
    }

    if (t->last && kvr_insert_fewer(&t->names, names)) {
        kvr_tag_mark(kvr_tag_line(t->ix, t->last));
    }

    t->absent = 0;
    t->names = *names;
}


/* whether one that was named before is named no more */
static int
kvr_insert_fewer(const kvr_line_names_t *before, const kvr_line_names_t *names)
{
    unsigned  i, k, peer;

    /* as a rule only one peer has had both, and lines were lost in between */

    if (kvr_line_same(before, names)) {
        return 0;
    }

    for (i = 0; i < KVR_INDEX_HOLDERS; i++) {

        peer = kvr_line_name(before, i);

        for (k = 0; kvr_line_name(names, k) != peer; k++) {
            if (k == KVR_INDEX_HOLDERS - 1) {
                return 1;
            }
        }
    }

    return 0;
}


/*
 * Moves a peer's clock on by what it must compute: new units, and for what it
 * holds the share of its other blocks that a hit at that age puts further back
 * in an LRU: age / capacity, if the source of the capacity is exact.  Half
 * of it: all is right where prompts are asked for at random, but a hit moves
 * only what is younger, and of sessions that come back soon or never the old
 * blocks are moved by few.  By one unit at least, so that no two
 * inserts on a prompt have the same stamps.
 */
static uint32_t
kvr_insert_advance(kvr_index_t *ix, const uint64_t *chain, uint32_t n,
    uint32_t units, unsigned peer, uint32_t matched, uint64_t *moved)
{
    uint32_t           capacity, age, k;
    uint64_t           add, clock;
    kvr_index_line_t  *line;
    kvr_index_peer_t  *p;

    p = kvr_index_peer(ix, peer);
    add = (uint64_t) kvr_max(units - matched, 1) << KVR_INDEX_FRACTION;

    kvr_insert_expect(p, add);

    capacity = kvr_get(&p->capacity);

    if (matched && capacity && kvr_get(&p->source) >= KVR_INDEX_EXACT) {

        /* the matched blocks were used together, at the deepest one's age */

        k = kvr_min(kvr_chain_entries(matched), n);
        line = k ? kvr_line_find(ix, chain[k - 1]) : NULL;
        age = 0;

        if (line) {
            clock = kvr_index_units(p);
            (void) kvr_line_age(line, peer, kvr_index_clocked(clock, peer),
                                &age);
        }

        age = kvr_min(age, capacity);

        /* the deepest has the stamp of its depth, the first one none */

        age -= kvr_min(age, matched / 2);

        add += ((uint64_t) matched * age << KVR_INDEX_FRACTION) / capacity / 2;
    }

    *moved = add >> KVR_INDEX_FRACTION;

    clock = kvr_add(&p->clock, add) + add;

    return kvr_index_clocked(clock >> KVR_INDEX_FRACTION, peer);
}


uint32_t
kvr_index_undo_age(kvr_index_t *ix, const kvr_index_undo_t *undo)
{
    uint64_t  units;

    units = kvr_index_units(kvr_index_peer(ix, undo->peer));

    return (kvr_index_clocked(units, undo->peer) - undo->clock)
           >> KVR_INDEX_STAMP;
}


void
kvr_index_undo(kvr_index_t *ix, const uint64_t *chain, uint32_t n,
    const kvr_index_undo_t *undo)
{
    unsigned           s;
    uint32_t           i, depth, stamp;
    kvr_index_line_t  *line;

    for (i = 0; i < n; i++) {

        depth = kvr_chain_depth(i);

        if (depth <= undo->matched) {
            continue;
        }

        line = kvr_line_find(ix, chain[i]);

        if (line == NULL) {
            continue;
        }

        s = kvr_line_slot(line, kvr_get(&line->ids), undo->peer, &stamp);

        if (s != KVR_INDEX_HOLDERS
            && stamp == kvr_index_stamp(undo->clock, depth))
        {
            (void) kvr_line_free(line, s, stamp);
        }
    }
}
