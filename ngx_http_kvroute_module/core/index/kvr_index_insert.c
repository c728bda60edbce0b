
/*
 * Copyright (C) kvroute contributors
 */


#include "core/index/kvr_index_batch.h"


#define KVR_INSERT_STEP    8        /* entries handled together */
#define KVR_INSERT_AHEAD   32       /* entries whose lines are prefetched */
#define KVR_INSERT_TAGS    48       /* and their tags before that */
#define KVR_INSERT_RING    8        /* steps in progress */
#define KVR_INSERT_TAIL    34       /* entries that are always written */
#define KVR_INSERT_RECENT  32       /* part of a capacity, about */
#define KVR_INSERT_ASSUMED 16       /* units, if it is only assumed */
#define KVR_INSERT_LOST    4        /* lost lines in a row that are marked */


/* the state of an insert */
typedef struct {
    kvr_index_t       *ix;
    const uint64_t    *chain;
    uint32_t           n;
    uint32_t           first;        /* index of chain[0] */
    uint32_t           clock;        /* as in stamps */
    uint32_t           now;
    unsigned           peer;

    uint32_t           evicted;      /* apart from absent: gcc would count both
                                        at once, by a slow vector */
    unsigned           slot;         /* of the peer in the last line */
    uint32_t           absent;       /* new lines directly before this one */
    uint32_t           behind;       /* these follow a line that existed */
    kvr_line_names_t   names;        /* of the last line */
    kvr_index_line_t  *last;         /* last line that exists by now */
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
 * Returns how many matched entries need not be written again, because they
 * were inserted a short while ago: whole steps, or all entries.
 *
 * The clock is divided into equal parts.  If a line was written in the current
 * part, so were all lines before it: the same insert wrote them, or skipped
 * them because a later line was of this part.  Lines of a reply are newer than
 * those of its prompt.  So the line KVR_INSERT_TAIL entries before the end is
 * tested, which no reply reaches, or else the first line.  If the prompt goes
 * on, the lines behind the tested one are always written.  A prompt that relies
 * on lines of a reply can lose them earlier, by one part and the units of the
 * reply, and kvr_index_prompted() does not see where the older lines end.
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


/* Tests the k-th line; if it is recent, the insert continues from there. */
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

    /* in small caches ages must be exact: capacities are learned from them */

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

    /* all entries of a group must have the same distance */

    for (i = 0; i < n; i += t.n) {
        t.chain = &value[i];
        t.first = first + i;
        t.n = kvr_min(n - i, KVR_BATCH - t.first % KVR_BATCH);

        kvr_insert_lines(&t);
    }

    kvr_insert_end(&t);

    kvr_line_sweep(ix, units / 4 + 1);
}


/* Adds to the unconfirmed part, if the engine reports what it stores. */
static inline void
kvr_insert_expect(kvr_index_peer_t *p, uint64_t add)
{
    if (kvr_unlikely(kvr_get(&p->ahead))) {
        kvr_add(&p->ahead, add);
    }
}


/* Prefetches the tags of a step, from the i-th entry on. */
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
    /* other prompts may branch off here */

    if (t->last) {
        kvr_tag_mark(kvr_tag_line(t->ix, t->last));
    }

    if (t->evicted) {
        kvr_add(&t->ix->evicted, t->evicted);
    }
}


/* Updates the masks of this peer, and of one of the others in turn. */
static inline void
kvr_insert_mark(kvr_index_t *ix, unsigned peer)
{
    if (kvr_unlikely(ix->words > 1)) {
        kvr_mask_mark(ix, peer);
        kvr_mask_mark(ix, kvr_add(&ix->marked, 1) % ix->max_peers);
    }
}


/* Makes a peer the holder of all entries. */
static void
kvr_insert_lines(kvr_insert_walk_t *t)
{
    int                known;
    unsigned           epoch, shift, peer, slot, wide;
    uint32_t           i, k, m, stamp, touched, depth, clock, now, per, absent;
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

        /* small steps, so that memory and processor work in parallel */

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
        absent = g->absent;

        for (k = 0; k < m; k++, absent >>= 1) {

            depth += per;
            stamp = kvr_index_stamp(clock, depth);
            touched = now - depth;

            key = g->key[k];
            line = g->line[k];

            if (atomic_load_explicit(&line->key, memory_order_acquire) == key)
            {
                ids = atomic_load_explicit(&line->ids, memory_order_acquire);

                /* usually all is as in the line before */

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

            } else if (absent & 1) {
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
 * Handles a line that was not where it was expected, or names other peers than
 * the line before.  Returns whether the next line may name the same peers.
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

    /* a mask that began anew names fewer peers than that of the line before */

    if (t->last && (kvr_get(&t->last->mask) & ~kvr_get(&line->mask))) {
        kvr_tag_mark(kvr_tag_line(t->ix, t->last));
    }

    t->last = line;

    return kvr_line_name(&names, t->slot) == t->peer;
}


/*
 * Handles an absent entry. line: its new line, or NULL if there was no place.
 */
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


/* Marks lines around the first absent ones. */
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

    /* lines may have been lost here that others went on from */

    if (line && t->behind) {
        kvr_tag_mark(kvr_tag_line(t->ix, line));
    }

    t->names = kvr_line_own(t->peer);
}


/* Handles a line with other names, or one behind lost lines. */
static void
kvr_insert_differ(kvr_insert_walk_t *t, uint32_t k,
    const kvr_line_names_t *names)
{
    uint32_t           i;
    kvr_index_line_t  *line;

    /* peers that went on from the lost lines do not insert them again */

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


/* Tells whether a peer that was named before is missing. */
static int
kvr_insert_fewer(const kvr_line_names_t *before, const kvr_line_names_t *names)
{
    unsigned  i, k, peer;

    /* usual: one peer has had both, and lines were lost in between */

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
 * Moves a peer's clock by what it must compute: the new units, and for a hit
 * half of the share of its other blocks that the hit moves back in an LRU, age
 * / capacity, if the source of the capacity is exact.  Half, because a hit
 * moves only younger blocks: the whole share is right for random prompts, but
 * old blocks of sessions are moved by few hits.  The clock moves by at least
 * one unit, so that two inserts of a prompt never have the same stamps.
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

        /* the matched blocks were used together; the deepest one has the age */

        k = kvr_min(kvr_chain_entries(matched), n);
        line = k ? kvr_line_find(ix, chain[k - 1]) : NULL;
        age = 0;

        if (line) {
            clock = kvr_index_units(p);
            (void) kvr_line_age(line, peer, kvr_index_clocked(clock, peer),
                                &age);
        }

        age = kvr_min(age, capacity);

        /* the deepest stamp includes its depth, the first one does not */

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
