
/*
 * Copyright (C) kvroute contributors
 */


#include "core/index/kvr_index_batch.h"


#define KVR_LOOKUP_BATCH  1024       /* entries per round */
#define KVR_LOOKUP_NEAR   8          /* lines prefetched ahead of reading */
#define KVR_LOOKUP_GAP    16         /* absent entries that end a lookup */
#define KVR_LOOKUP_SURE   3          /* present entries that end a gap */
#define KVR_LOOKUP_MASKS  4          /* masks of many peers that are read */


/* entries of a prompt, one bit each */
typedef struct {
    uint64_t           found[KVR_LOOKUP_BATCH / 64];
    uint64_t           marked[KVR_LOOKUP_BATCH / 64];
} kvr_lookup_t;


static uint32_t kvr_lookup_find(kvr_index_t *ix, const uint64_t *chain,
    uint32_t count, kvr_lookup_t *f, uint32_t *gap);
static uint32_t kvr_lookup_gap(kvr_index_t *ix, kvr_batch_t *g, uint32_t m,
    uint64_t *absent, uint32_t *gap);
static uint32_t kvr_lookup_read(kvr_index_t *ix, const uint64_t *chain,
    uint32_t i, uint32_t n, kvr_lookup_t *f, kvr_line_view_t *view,
    const kvr_set_t *set, uint32_t peers, uint32_t *matched);
static int kvr_lookup_meet(kvr_index_t *ix, uint64_t mask,
    const kvr_set_t *set);
static int kvr_lookup_young(kvr_index_t *ix, const uint64_t *chain,
    uint32_t from, uint32_t to, uint32_t *age);
static uint32_t kvr_lookup_take(kvr_index_t *ix, kvr_line_holders_t *h,
    uint32_t depth, kvr_set_t *open, uint32_t *matched);


/*
 * First finds out which entries are present.  Then reads lines from the last
 * one backwards, because the deepest block counts.  The lines of a prompt
 * usually name the same peers, so few are read: the deepest, the marked ones
 * and those before a hole.  If a line names a peer that no longer holds its
 * block, the line before it is read, too.
 */
uint32_t
kvr_index_lookup(kvr_index_t *ix, const uint64_t *chain, uint32_t n,
    kvr_set_t set, uint32_t *matched)
{
    uint32_t         i, id, gap, best, last, count, peers;
    kvr_set_t        left;
    kvr_lookup_t     f;
    kvr_line_view_t  view;

    /* peers are usually numbered from 0 */

    peers = kvr_set_run(&set, ix->words);

    if (peers) {
        memset(matched, 0, peers * sizeof(uint32_t));

    } else {
        for (left = set; kvr_set_next(&left, &id); peers++) {
            matched[id] = 0;
        }
    }

    if (n == 0 || peers == 0) {
        return 0;
    }

    kvr_line_view(&view);

    gap = 0;
    best = 0;

    for (i = 0; i < n && gap < KVR_LOOKUP_GAP; i += KVR_LOOKUP_BATCH) {

        count = kvr_min(n - i, KVR_LOOKUP_BATCH);
        count = kvr_lookup_find(ix, &chain[i], count, &f, &gap);

        last = kvr_lookup_read(ix, &chain[i], i, count, &f, &view, &set, peers,
                               matched);
        best = kvr_max(best, last);
    }

    return best;
}


/* Finds present entries up to a large gap; returns the number examined. */
static uint32_t
kvr_lookup_find(kvr_index_t *ix, const uint64_t *chain,
    uint32_t count, kvr_lookup_t *f, uint32_t *gap)
{
    uint32_t      i, k, m, end;
    uint64_t      n, word, match, found, marked, absent, bit;
    kvr_tag_t    *tags;
    kvr_batch_t   batch[2], *g;

    tags = kvr_tag_bucket(ix, 0);

    kvr_batch_tags(ix, &batch[0], chain, count);

    for (i = 0; i < count; i += KVR_BATCH) {

        g = &batch[i / KVR_BATCH % 2];
        m = kvr_min(count - i, KVR_BATCH);

        if (count - i > KVR_BATCH) {
            kvr_batch_tags(ix, &batch[i / KVR_BATCH % 2 ^ 1],
                           &chain[i + KVR_BATCH],
                           count - i - KVR_BATCH);
        }

        absent = 0;
        marked = 0;

        for (k = 0, bit = 1; k < m; k++, bit <<= 1) {

            n = g->bucket[k];

            word = kvr_get(&tags[n].word);
            match = kvr_tag_match(word, kvr_tag_key(g->key[k]));

            if (kvr_unlikely(match == 0)) {
                absent |= bit;

                if (k && !(absent & bit >> 1)) {
                    kvr_batch_near(ix, chain[i + k - 1]);
                }

            } else if (kvr_unlikely(kvr_tag_marked(word, match))) {
                marked |= bit;
                __builtin_prefetch(&ix->line[n * KVR_INDEX_WAYS
                                             + kvr_tag_way(match)]);
            }
        }

        end = 0;

        if (kvr_unlikely(absent | *gap)) {
            end = kvr_lookup_gap(ix, g, m, &absent, gap);
            bit >>= end;
        }

        found = ~absent & (bit - 1);

        if (i % 64) {
            f->found[i / 64] |= found << 32;
            f->marked[i / 64] |= marked << 32;

        } else {
            f->found[i / 64] = found;
            f->marked[i / 64] = marked;
        }

        if (end) {
            return i + m - end;
        }
    }

    return count;
}


/*
 * Looks for a gap that is too large.  Returns the number of entries of the
 * group behind it, or 0; *gap counts absent entries at the end.  One or two
 * present entries in a gap may be tags of other lines, so they end the gap
 * only if a line confirms one of them.
 */
static uint32_t
kvr_lookup_gap(kvr_index_t *ix, kvr_batch_t *g, uint32_t m, uint64_t *absent,
    uint32_t *gap)
{
    uint32_t  i, k, n;
    uint64_t  rest;

    for (k = 0; k < m; k += n) {

        rest = *absent >> k;
        n = rest ? (uint32_t) __builtin_ctzll(rest) : m - k;

        if (n) {
            if (*gap && n < KVR_LOOKUP_SURE) {

                for (i = k; i < k + n; i++) {
                    if (kvr_line_find_key(ix, g->key[i])) {
                        *gap = 0;
                        break;
                    }
                }

                if (*gap) {
                    *absent |= ((1ULL << n) - 1) << k;
                    n = 0;
                }

            } else {
                *gap = 0;
            }

            continue;
        }

        n = (uint32_t) __builtin_ctzll(~rest);

        if (*gap + n >= KVR_LOOKUP_GAP) {
            k += KVR_LOOKUP_GAP - *gap - 1;
            *gap = KVR_LOOKUP_GAP;
            return m - k;
        }

        *gap += n;
    }

    return 0;
}


/* Reads lines; returns the depth of the deepest hit, 0 if there is none. */
static uint32_t
kvr_lookup_read(kvr_index_t *ix, const uint64_t *chain, uint32_t i, uint32_t n,
    kvr_lookup_t *f, kvr_line_view_t *view, const kvr_set_t *set,
    uint32_t peers, uint32_t *matched)
{
    int                 each;
    uint32_t            k, w, depth, best, has, masks, begun, last_begun, below;
    uint64_t            found, read, next, key, mask, last_mask;
    kvr_set_t           open;
    kvr_line_names_t    names, done;
    kvr_index_line_t   *line;
    kvr_line_holders_t  h;

    open = *set;
    best = 0;
    each = 0;
    next = 0;
    done.low = KVR_INDEX_TAG;
    done.high = 0;

    last_mask = 0;
    last_begun = 0;
    below = 0;

    /* with many peers each mask names some that do not hold the block */

    masks = ix->words > 1 ? KVR_LOOKUP_MASKS : UINT32_MAX;

    for (w = (n + 63) / 64; w-- && peers; /* void */) {

        found = f->found[w];

        /* marked entries, and those before an absent one */

        read = found & (f->marked[w] | ~(found >> 1 | next << 63));
        next = found & 1;

        while (peers && (each ? found : read)) {

            k = 63 - (uint32_t) __builtin_clzll(each ? found : read);

            found &= (1ULL << k) - 1;
            read &= found;

            k += w * 64;
            key = kvr_index_key(chain[k]);
            line = kvr_line_find_key(ix, key);

            if (each && k >= KVR_LOOKUP_NEAR) {
                kvr_batch_near(ix, chain[k - KVR_LOOKUP_NEAR]);
            }

            if (kvr_unlikely(line == NULL)) {
                each = 1;
                continue;
            }

            depth = kvr_chain_depth(i + k);
            mask = kvr_get(&line->mask);

            if (kvr_unlikely(mask)) {
                begun = kvr_get(&line->masked);

                /* a prompt's masks are alike: one is enough, except for peers
                   that may hold less than its depth */

                if (masks == 0
                    || (mask == last_mask && begun == last_begun
                        && depth > below))
                {
                    mask = 0;

                } else {
                    last_mask = mask;
                    last_begun = begun;
                    masks--;
                }
            }

            names = kvr_line_names(ix, line);

            if (kvr_line_same(&names, &done)
                && !kvr_lookup_meet(ix, mask, &open))
            {
                each = 0;
                continue;
            }

            kvr_line_holders(ix, line, key, &open, mask ? depth : 0, view, &h);

            if (kvr_unlikely(h.mask)) {
                below = h.below;
            }

            has = kvr_lookup_take(ix, &h, depth, &open, matched);

            if (has) {
                best = kvr_max(best, depth);
                peers -= has;
            }

            each = kvr_line_named(&names, &open);

            done = names;

            if (each) {
                done.low = KVR_INDEX_TAG;
            }
        }
    }

    return best;
}


/* Tells whether a mask may name any peer of a set. */
static inline int
kvr_lookup_meet(kvr_index_t *ix, uint64_t mask, const kvr_set_t *set)
{
    uint32_t  i;

    for (i = 0; mask && i < ix->words; i++) {
        if (set->word[i] & mask) {
            return 1;
        }
    }

    return 0;
}


/* Sets the depth of holders and closes them; returns their number. */
static inline uint32_t
kvr_lookup_take(kvr_index_t *ix, kvr_line_holders_t *h, uint32_t depth,
    kvr_set_t *open, uint32_t *matched)
{
    uint32_t  i, id, n;
    uint64_t  left;

    n = 0;

    for (i = 0; i < h->n; i++) {
        id = h->peer[i];

        if (kvr_likely(kvr_set_test(open, id))) {
            kvr_set_del(open, id);
            matched[id] = depth;
            n++;
        }
    }

    for (i = 0; kvr_unlikely(h->mask) && i < ix->words; i++) {

        left = h->masked.word[i] & open->word[i];
        open->word[i] &= ~left;

        for ( /* void */ ; left; left &= left - 1) {
            matched[i * 64 + (uint32_t) __builtin_ctzll(left)] = depth;
            n++;
        }
    }

    return n;
}


uint32_t
kvr_index_inserted(kvr_index_t *ix, const uint64_t *chain, uint32_t n,
    unsigned peer, uint32_t matched, uint32_t *age)
{
    uint32_t           i, k, a, most, depth, clock;
    uint64_t           units, floor;
    kvr_index_line_t  *line;
    kvr_index_peer_t  *p;

    p = kvr_index_peer(ix, peer);

    units = kvr_index_units(p);
    floor = kvr_get(&p->floor);
    clock = kvr_index_clocked(units, peer);
    most = units > floor ? (uint32_t) kvr_min(units - floor, INT32_MAX) : 0;

    depth = 0;

    k = kvr_min(kvr_chain_entries(matched), n);

    for (i = k ? k - 1 : 0; i < n; i++) {

        line = kvr_line_find(ix, chain[i]);

        if (line == NULL
            || !kvr_line_age(line, peer, clock, &a)
            || a >= most)
        {
            break;
        }

        *age = a;
        depth = kvr_chain_depth(i);
    }

    return depth;
}


int
kvr_index_age(kvr_index_t *ix, uint64_t value, unsigned peer, uint32_t *age)
{
    uint32_t           clock;
    kvr_index_line_t  *line;

    clock = kvr_index_clocked(kvr_index_units(kvr_index_peer(ix, peer)), peer);
    line = kvr_line_find(ix, value);

    return line && kvr_line_age(line, peer, clock, age) && (int32_t) *age >= 0;
}


uint32_t
kvr_index_reuse(kvr_index_t *ix, const uint64_t *chain, uint32_t n,
    uint32_t known, kvr_index_reuse_t *reuse)
{
    uint32_t  i, end, low, high, middle, age, other;

    /* the deepest entry; the index may have lost some before */

    end = kvr_min(known, n);

    for (i = end; i < n && i < end + KVR_LOOKUP_GAP; i++) {
        if (kvr_lookup_young(ix, chain, i, i + 1, &age)) {
            end = i + 1;
        }
    }

    for (i = 0; end && i < KVR_INDEX_REUSES; /* void */ ) {

        if (!kvr_lookup_young(ix, chain, end - 1, end, &age)) {
            end--;
            continue;
        }

        /* entries low .. end - 1 are about as old, mostly all of them */

        for (low = 0, middle = 0, high = end - 1;
             low < high;
             middle = (low + high) / 2)
        {
            if (kvr_lookup_young(ix, chain, middle, high, &other)
                && other < age - age / 8)
            {
                low = middle + 1;

            } else {
                high = middle;
            }
        }

        reuse[i].age = age;
        reuse[i].depth = kvr_chain_depth(end - 1);
        reuse[i].units = reuse[i].depth
                         - (low ? kvr_chain_depth(low - 1) : 0);
        end = low;
        i++;
    }

    return i;
}


/*
 * Looks for the first entry in the range that is in the index.  Sets *age to
 * its age in parts of the capacity of the peer with the youngest copy.
 */
static int
kvr_lookup_young(kvr_index_t *ix, const uint64_t *chain, uint32_t from,
    uint32_t to, uint32_t *age)
{
    int                found;
    uint32_t           i, id, stamp, part;
    int64_t            units;
    uint64_t           ids, clock, capacity;
    kvr_index_line_t  *line;
    kvr_index_peer_t  *p;

    for (found = 0; from < to && !found; from++) {

        line = kvr_line_find(ix, chain[from]);

        if (line == NULL) {
            continue;
        }

        /* many have it */

        if (kvr_get(&line->mask)) {
            *age = 0;
            return 1;
        }

        ids = kvr_get(&line->ids);

        for (i = 0; i < KVR_INDEX_HOLDERS; i++) {

            stamp = kvr_get(&line->stamp[i]);

            if (!kvr_index_used(stamp)) {
                continue;
            }

            id = kvr_index_id(ids, i, stamp);

            if (id >= ix->max_peers) {
                continue;
            }

            p = kvr_index_peer(ix, id);
            clock = kvr_index_units(p);
            capacity = kvr_get(&p->capacity);

            units = (int32_t) (kvr_index_clocked(clock, id) - stamp)
                    >> KVR_INDEX_STAMP;
            units = kvr_max(units, 0);

            if (capacity == 0
                || (uint64_t) units + kvr_get(&p->floor) >= clock)
            {
                continue;
            }

            part = (uint32_t) kvr_min((uint64_t) units * KVR_INDEX_WHOLE
                                      / capacity, UINT32_MAX);

            *age = found ? kvr_min(*age, part) : part;
            found = 1;
        }
    }

    return found;
}


/*
 * A prompt's insert writes all of its lines.  So with rising depth the clocks
 * of the inserts stay the same or fall, except where a reply begins.
 */
uint32_t
kvr_index_prompted(kvr_index_t *ix, const uint64_t *chain, uint32_t inserted,
    unsigned peer, uint32_t most, uint32_t *age)
{
    uint32_t           i, n, a, clock, depth, insert, last;
    kvr_index_line_t  *line;

    n = kvr_chain_entries(inserted);

    if (n < 2) {
        return inserted;
    }

    clock = kvr_index_clocked(kvr_index_units(kvr_index_peer(ix, peer)), peer);
    last = inserted - *age;

    /* usual: all lines are of one insert */

    i = n - 1 - kvr_min(most, n - 1);
    line = kvr_line_find(ix, chain[i]);

    if (line && kvr_line_age(line, peer, clock, &a)
        && kvr_chain_depth(i) - a == last)
    {
        return inserted;
    }

    for (i = n - 1; i > 0 && i + most >= n; i--) {

        line = kvr_line_find(ix, chain[i - 1]);

        if (line == NULL || !kvr_line_age(line, peer, clock, &a)) {
            continue;
        }

        depth = kvr_chain_depth(i - 1);
        insert = depth - a;

        if ((int32_t) (insert - last) < 0) {
            *age = a;
            return depth;
        }

        last = insert;
    }

    return inserted;
}


kvr_set_t
kvr_index_holds(kvr_index_t *ix, uint64_t key, kvr_set_t set)
{
    uint32_t            i;
    kvr_set_t           has;
    kvr_line_view_t     view;
    kvr_index_line_t   *line;
    kvr_line_holders_t  h;

    has = kvr_set_none();
    line = kvr_line_find(ix, key);

    if (line == NULL) {
        return has;
    }

    kvr_line_view(&view);
    kvr_line_holders(ix, line, kvr_index_key(key), &set, 1, &view, &h);

    if (h.mask) {
        has = h.masked;
    }

    for (i = 0; i < h.n; i++) {
        kvr_set_add(&has, h.peer[i]);
    }

    return has;
}
