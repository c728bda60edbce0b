
/*
 * Copyright (C) kvroute contributors
 */


#include "core/index/kvr_index_batch.h"


#define KVR_LOOKUP_BATCH  1024       /* entries looked at at a time */
#define KVR_LOOKUP_NEAR   8          /* lines fetched before they are read */
#define KVR_LOOKUP_GAP    16         /* absent entries that end a look-up */
#define KVR_LOOKUP_SURE   3          /* entries in a row that are there */


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
    uint32_t *matched);


/*
 * From the first entry on it is found out which are there; then lines are read,
 * from the last one on, as what is deeper counts.  The lines of a prompt name
 * the same peers as a rule, so few are read: the deepest, those that are
 * marked, those before a hole; and as long as a peer is named that holds this
 * one no more, the next one.
 */
uint32_t
kvr_index_lookup(kvr_index_t *ix, const uint64_t *chain, uint32_t n,
    uint64_t set, uint32_t *matched)
{
    uint32_t         i, gap, best, last, count;
    uint64_t         left;
    kvr_lookup_t     f;
    kvr_line_view_t  view;

    if (set == 0) {
        return 0;
    }

    /* as a rule peers are numbered from 0 on */

    if ((set & (set + 1)) == 0) {
        memset(matched, 0, (size_t) (64 - __builtin_clzll(set))
                           * sizeof(uint32_t));

    } else {
        for (left = set; left; left &= left - 1) {
            matched[__builtin_ctzll(left)] = 0;
        }
    }

    if (n == 0) {
        return 0;
    }

    kvr_line_view(&view, set);

    gap = 0;
    best = 0;

    for (i = 0; i < n && gap < KVR_LOOKUP_GAP; i += KVR_LOOKUP_BATCH) {

        count = kvr_min(n - i, KVR_LOOKUP_BATCH);
        count = kvr_lookup_find(ix, &chain[i], count, &f, &gap);

        last = kvr_lookup_read(ix, &chain[i], i, count, &f, &view, matched);
        best = kvr_max(best, last);
    }

    return best;
}


/* which are there, up to too large a gap; how many entries were looked for */
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
 * Looks for a gap that is too large, and returns how many entries of the group
 * are behind it, or 0 and how many at its end are absent.  One or two entries
 * between others that are absent may only have the tag of others': they end no
 * gap unless a line says so too.
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


/* the deepest of what is held, 0 if nothing is */
static uint32_t
kvr_lookup_read(kvr_index_t *ix, const uint64_t *chain, uint32_t i, uint32_t n,
    kvr_lookup_t *f, kvr_line_view_t *view, uint32_t *matched)
{
    int                each;
    uint32_t           k, w, depth, best;
    uint64_t           found, read, next, has, open, key, ids, done;
    kvr_index_line_t  *line;

    open = view->set;
    best = 0;
    each = 0;
    next = 0;
    done = KVR_INDEX_TAG;

    for (w = (n + 63) / 64; w-- && open; /* void */) {

        found = f->found[w];

        /* what is marked, or before an entry that is not there */

        read = found & (f->marked[w] | ~(found >> 1 | next << 63));
        next = found & 1;

        while (open && (each ? found : read)) {

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

            ids = kvr_get(&line->ids) & ~KVR_INDEX_TAG;

            if (ids == done && !(kvr_get(&line->mask) & open)) {
                each = 0;
                continue;
            }

            has = open & kvr_line_holders(ix, line, key, view);
            open ^= has;

            if (has) {
                depth = kvr_chain_depth(i + k);
                best = kvr_max(best, depth);

                do {
                    matched[__builtin_ctzll(has)] = depth;
                    has &= has - 1;
                } while (has);
            }

            each = ((kvr_line_named(ids) | kvr_get(&line->mask)) & open) != 0;
            done = each ? KVR_INDEX_TAG : ids;
        }
    }

    return best;
}


uint32_t
kvr_index_inserted(kvr_index_t *ix, const uint64_t *chain, uint32_t n,
    unsigned peer, uint32_t matched, uint32_t *age)
{
    uint32_t           i, k, a, most, depth;
    uint64_t           clock, floor;
    kvr_index_line_t  *line;
    kvr_index_peer_t  *p;

    p = &ix->peer[peer];

    clock = kvr_index_units(p);
    floor = kvr_get(&p->floor);
    most = clock > floor ? (uint32_t) (clock - floor) : 0;

    depth = 0;

    k = kvr_min(kvr_chain_entries(matched), n);

    for (i = k ? k - 1 : 0; i < n; i++) {

        line = kvr_line_find(ix, chain[i]);

        if (line == NULL
            || !kvr_line_age(line, peer, (uint32_t) clock, &a)
            || a >= most)
        {
            break;
        }

        *age = a;
        depth = kvr_chain_depth(i);
    }

    return depth;
}


/*
 * A prompt's insert goes over all of it: so the clocks of the inserts, going
 * deeper, are the same or earlier, but where a reply's begins.
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

    clock = (uint32_t) kvr_index_units(&ix->peer[peer]);
    last = inserted - *age;

    /* nearly always it is all of one insert */

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


uint64_t
kvr_index_holds(kvr_index_t *ix, uint64_t key, uint64_t set)
{
    kvr_line_view_t    view;
    kvr_index_line_t  *line;

    line = kvr_line_find(ix, key);

    if (line == NULL) {
        return 0;
    }

    kvr_line_view(&view, set);

    return kvr_line_holders(ix, line, kvr_index_key(key), &view);
}
