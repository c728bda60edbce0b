
/*
 * Copyright (C) kvroute contributors
 */


/*
 * A look-up reads as few holders as possible.  The model here reads each line
 * from the first on, and both must have the same result.
 */


#include "util.h"
#include "core/index/kvr_index_line.h"


#define LINES   4096
#define LENGTH  700              /* entries of the longest prompt */
#define GAP     16               /* absent entries that end a look-up */
#define CHAINS  24
#define PEERS   64               /* peers with work */
#define LOST    4                /* as in kvr_index_insert.c */


static kvr_index_t  *ix;
static uint64_t      chain[CHAINS][LENGTH];
static util_rng_t    rng;
static uint32_t      who[PEERS];
static uint8_t       unmarked[CHAINS][LENGTH];


/* returns whether this entry has a line of its own */
static kvr_index_line_t *
present(uint64_t h)
{
    unsigned  i;

    for (i = 0; i < LINES; i++) {
        if (atomic_load(&ix->line[i].key) == (h & ~1ULL)) {
            return &ix->line[i];
        }
    }

    return NULL;
}


static uint32_t
plainly(const uint64_t *c, uint32_t n, const kvr_set_t *set, uint32_t *matched,
    kvr_set_t *masked)
{
    uint32_t             i, k, id, gap, best;
    kvr_set_t            left;
    kvr_line_view_t      view;
    kvr_index_line_t    *line;
    kvr_line_holders_t   h;

    memset(matched, 0, KVR_PEERS * sizeof(uint32_t));

    gap = 0;
    best = 0;
    *masked = kvr_set_none();

    for (i = 0; i < n && gap < GAP; i++) {

        line = present(c[i]);

        if (line == NULL) {
            gap++;
            continue;
        }

        gap = 0;

        kvr_line_view(&view);
        kvr_line_holders(ix, line, kvr_index_key(c[i]), set,
                         kvr_chain_depth(i), &view, &h);

        left = h.mask ? h.masked : kvr_set_none();
        *masked = kvr_set_or(*masked, left);

        for (k = 0; k < h.n; k++) {
            kvr_set_add(&left, h.peer[k]);
            kvr_set_del(masked, h.peer[k]);
        }

        while (kvr_set_next(&left, &id)) {
            matched[id] = kvr_chain_depth(i);
            best = kvr_chain_depth(i);
        }
    }

    return best;
}


/*
 * Call it before an insert.  If lines are inserted in a row after an existing
 * one, only the first few are marked.  These can be lost while lines of
 * another prompt, which continues the last of them, are not: then a look-up of
 * the other prompt misses holders that end there.
 */
static void
put(unsigned i, uint32_t n)
{
    unsigned  k;
    uint32_t  e, next, row;

    for (e = 0, row = 0; e + 1 < n; e++) {

        row = kvr_line_find(ix, chain[i][e]) ? 0 : row + 1;

        for (k = 0; row > LOST && k < CHAINS; k++) {

            if (chain[k][e] != chain[i][e]
                || chain[k][e + 1] == chain[i][e + 1])
            {
                continue;
            }

            for (next = e + 1; next < kvr_min(e + GAP, LENGTH); next++) {
                unmarked[k][e] |= kvr_line_find(ix, chain[k][next]) != NULL;
            }
        }
    }
}


/*
 * Returns whether a holder of exactly this part of a prompt can be missed:
 * there is no mark, or the mark was lost with the next line, and that line
 * seems present because another line of its bucket has the same tag (1 of
 * 128).
 */
static int
hidden(unsigned i, uint32_t n, uint32_t depth)
{
    uint32_t    next;
    uint64_t    key;
    kvr_tag_t  *tags;

    next = kvr_chain_entries(depth);

    if (next == 0 || next >= n) {
        return 0;
    }

    key = kvr_index_key(chain[i][next]);
    tags = kvr_tag_bucket(ix, kvr_reduce(key, ix->nbuckets));

    return unmarked[i][next - 1]
           || (present(chain[i][next]) == NULL
               && kvr_tag_match(kvr_get(&tags->word), kvr_tag_key(key)));
}


/* prompts that share prefixes of all lengths */
static void
chains(void)
{
    unsigned  i, k, from, same;

    for (i = 0; i < CHAINS; i++) {

        from = i ? (unsigned) util_below(&rng, i) : 0;
        same = i ? (unsigned) util_below(&rng, LENGTH) : 0;

        for (k = 0; k < LENGTH; k++) {
            chain[i][k] = k < same ? chain[from][k]
                                   : util_next(&rng) | 1ULL << 40;
        }
    }
}


/* existing peers, many with equal bits in ids */
static unsigned
peers(uint32_t max_peers)
{
    unsigned   n;
    uint32_t   id;
    kvr_set_t  set;

    set = kvr_set_none();

    for (n = 0; n < kvr_min(PEERS, max_peers); /* void */ ) {

        id = (uint32_t) util_below(&rng, max_peers);

        if (n && util_below(&rng, 2)) {
            id = who[util_below(&rng, n)]
                 ^ (uint32_t) (1 + util_below(&rng, 3)) << KVR_INDEX_ID;
        }

        if (id < max_peers && !kvr_set_test(&set, id)) {
            kvr_set_add(&set, id);
            who[n++] = id;

            if (util_below(&rng, PEERS) == 0) {
                break;
            }
        }
    }

    return n;
}


static void
same(uint32_t max_peers)
{
    unsigned          i, k, npeers, round, lossy, many;
    uint32_t          n, best, plain, a[KVR_PEERS], b[KVR_PEERS];
    kvr_set_t         set, masked;
    kvr_index_undo_t  undo;

    kvr_index_line_t  *line;

    util_note("%u peers", max_peers);
    lossy = util_below(&rng, 2);

    memset(ix, 0, kvr_index_size(LINES, max_peers));
    kvr_index_init(ix, LINES, max_peers);
    memset(unmarked, 0, sizeof(unmarked));
    chains();

    /* with more than eight there are masks */

    npeers = peers(max_peers);

    for (i = 0; i < npeers; i++) {
        kvr_index_capacity(ix, who[i], 200 + util_below(&rng, 4000), KVR_INDEX_ASSUMED);
    }

    for (round = 0; round < 40; round++) {

        i = (unsigned) util_below(&rng, CHAINS);
        n = 1 + (uint32_t) util_below(&rng, LENGTH);

        put(i, n);
        kvr_index_insert(ix, chain[i], n, kvr_chain_depth(n - 1),
                         who[util_below(&rng, npeers)], 0, &undo);

        if (util_below(&rng, 8) == 0) {
            kvr_index_flush(ix, who[util_below(&rng, npeers)]);
        }

        /* slots are cleared, and lines freed */

        if (util_below(&rng, 4) == 0) {
            kvr_line_sweep(ix, LINES * kvr_line_turns(ix));
        }

        /* lines are lost, one by one and many at a time */

        for (n = (uint32_t) util_below(&rng, lossy ? 60 : 3); n; n--) {
            line = &ix->line[util_below(&rng, LINES)];
            atomic_store(&line->key, 0);
            atomic_store(kvr_tag_line(ix, line), 0);
        }

        if (round % 4) {
            continue;
        }

        i = (unsigned) util_below(&rng, CHAINS);
        n = (uint32_t) util_below(&rng, LENGTH + 1);
        set = kvr_set_none();

        for (k = 0; k < npeers; k++) {
            if (util_below(&rng, 4)) {
                kvr_set_add(&set, who[k]);
            }
        }

        memset(a, 0, sizeof(a));

        best = kvr_index_lookup(ix, chain[i], n, set, a);

        plain = plainly(chain[i], n, &set, b, &masked);

        /* of many peers only the last masks are read */

        many = max_peers > KVR_PEERS_FEW;

        if (!many || kvr_set_empty(&masked, KVR_SET_WORDS)) {
            util_check(best == plain
                       || (best < plain && hidden(i, n, plain)),
                       "%u entries, %u peers: %u", n, npeers, best);
        }

        for (k = 0; k < KVR_PEERS; k++) {
            util_check(a[k] == b[k]
                       || (a[k] < b[k]
                           && ((many && kvr_set_test(&masked, k))
                               || hidden(i, n, b[k]))),
                       "%u entries, %u peers: %u of peer %u, not %u", n, npeers,
                       a[k], k, b[k]);
        }
    }
}


TEST(test_lookup_same)
{
    unsigned  cases;

    util_seed(&rng, "lookup", 0);

    ix = aligned_alloc(KVR_CACHE_LINE, kvr_index_size(LINES, KVR_PEERS));

    for (cases = util_cases(20); cases; cases--) {
        same(1 + (uint32_t) util_below(&rng, KVR_PEERS_FEW));
        same(1 + (uint32_t) util_below(&rng, KVR_PEERS));
    }

    free(ix);
}


static uint32_t
units(uint32_t entries)
{
    return entries ? kvr_chain_depth(entries - 1) : 0;
}


/* peers with equal bits in ids are not taken for each other */
TEST(test_lookup_apart)
{
    unsigned          i, k, p, round;
    uint32_t          n, held[6][CHAINS] = { 0 }, found[KVR_PEERS];
    kvr_index_undo_t  undo;

    static const uint32_t  alike[6] = { 5, 133, 261, 389, 6, 262 };

    util_seed(&rng, "apart", 0);

    ix = aligned_alloc(KVR_CACHE_LINE, kvr_index_size(64 * LINES, KVR_PEERS));
    memset(ix, 0, kvr_index_size(64 * LINES, KVR_PEERS));
    kvr_index_init(ix, 64 * LINES, KVR_PEERS);

    for (p = 0; p < 6; p++) {
        kvr_index_capacity(ix, alike[p], KVR_INDEX_CAPACITY_MAX, KVR_INDEX_ASSUMED);
    }

    for (i = 0; i < CHAINS; i++) {
        for (k = 0; k < LENGTH; k++) {
            chain[i][k] = util_next(&rng) | 1ULL << 40;
        }
    }

    for (round = 0; round < util_cases(3000); round++) {

        p = util_below(&rng, 6);
        i = util_below(&rng, CHAINS);
        n = 1 + util_below(&rng, 200);

        switch (util_below(&rng, 20)) {

        case 0:
            kvr_index_flush(ix, alike[p]);
            memset(held[p], 0, sizeof(held[p]));
            break;

        case 1:

                /* a lookup after it has the same result */

            kvr_index_insert(ix, chain[i], n, kvr_chain_depth(n - 1), alike[p],
                             units(kvr_min(n, held[p][i])), &undo);
            kvr_index_undo(ix, chain[i], n, &undo);
            break;

        case 2:
            kvr_line_sweep(ix, 64 * LINES);
            break;

        default:
            kvr_index_refresh(ix, chain[i], n, kvr_chain_depth(n - 1), alike[p],
                              units(kvr_min(n, held[p][i])), &undo);
            held[p][i] = kvr_max(held[p][i], n);
        }

        i = util_below(&rng, 4) ? i : util_below(&rng, CHAINS);

        (void) kvr_index_lookup(ix, chain[i], LENGTH, kvr_set_below(KVR_PEERS),
                                found);

        for (k = 0, n = 0; k < KVR_PEERS; k++) {
            n += found[k] != 0;
        }

        for (p = 0; p < 6; p++) {
            util_check(found[alike[p]] == units(held[p][i]),
                       "round %u: peer %u has %u of %u", round, alike[p],
                       found[alike[p]], held[p][i]);
            n -= found[alike[p]] != 0;
        }

        util_check(n == 0, "round %u: %u wrong peers", round, n);
    }

    free(ix);
}


/* makes a table with all possible peers, each without work yet, and chains */
static void
hundreds(void)
{
    uint32_t  i;

    ix = aligned_alloc(KVR_CACHE_LINE, kvr_index_size(64 * LINES, KVR_PEERS));
    memset(ix, 0, kvr_index_size(64 * LINES, KVR_PEERS));
    kvr_index_init(ix, 64 * LINES, KVR_PEERS);

    chains();

    for (i = 0; i < KVR_PEERS; i++) {
        kvr_index_flush(ix, i);
        kvr_index_capacity(ix, i, KVR_INDEX_CAPACITY_MAX, KVR_INDEX_ASSUMED);
    }
}


/*
 * Hundreds of holders, by masks whose bits stand for eight peers each: all
 * holders are found.  A peer that has computed less than the block's depth is
 * not found.  A peer that was found wrongly has the prefix after its next
 * request.
 */
TEST(test_lookup_many)
{
    uint32_t          i, n, units, wrong, found[KVR_PEERS];
    kvr_set_t         all;
    kvr_index_undo_t  undo;

    util_seed(&rng, "many", 0);

    hundreds();
    all = kvr_set_below(KVR_PEERS);

    n = 50;
    units = kvr_chain_depth(n - 1);

    /* 400 peers have the prefix, 56 another one, as long or shorter */

    for (i = 0; i < KVR_PEERS; i++) {

        if (i < 400) {
            kvr_index_insert(ix, chain[0], n, units, i, 0, &undo);

        } else if (i < 456) {
            kvr_index_insert(ix, chain[i % 2 + 1], i % 2 ? n : n - 1,
                             i % 2 ? units : units - 1, i, 0, &undo);
        }
    }

    (void) kvr_index_lookup(ix, chain[0], n, all, found);

    for (i = 0, wrong = 0; i < KVR_PEERS; i++) {
        util_check(i >= 400 || found[i] == units, "peer %u: %u", i, found[i]);
        util_check(i < 456 || found[i] == 0, "new peer %u: %u", i, found[i]);
        util_check(i < 400 || i % 2 || found[i] < units, "peer %u: %u", i,
                   found[i]);
        wrong += i >= 400 && found[i];
    }

    util_check(wrong > 0, "a bit stands for one peer");

    /* it is no proof, and a request corrects it */

    i = 401;
    util_check(kvr_index_inserted(ix, chain[0], n, i, found[i], &wrong) == 0,
               "a stamp of peer %u", i);
    kvr_index_refresh(ix, chain[0], n, units, i, found[i], &undo);
    util_check(kvr_index_inserted(ix, chain[0], n, i, found[i], &wrong)
               == units, "no stamp of peer %u", i);

    /* a restart removes it, even from masks */

    for (i = 0; i < 400; i += 7) {
        kvr_index_flush(ix, i);
    }

    (void) kvr_index_lookup(ix, chain[0], n, all, found);

    for (i = 0; i < 400; i++) {
        util_check(found[i] == (i % 7 ? units : 0), "restarted %u: %u", i,
                   found[i]);
    }

    free(ix);
}


/*
 * Hundreds of peers have a prefix, and some of them its continuation: the
 * masks of both distinguish them.
 */
TEST(test_lookup_levels)
{
    uint32_t          i, n, deep, found[KVR_PEERS];
    kvr_set_t         all;
    kvr_index_undo_t  undo;

    util_seed(&rng, "levels", 0);

    hundreds();
    all = kvr_set_below(KVR_PEERS);

    n = 50;
    deep = 90;

    for (i = 0; i < 400; i++) {
        kvr_index_insert(ix, chain[0], n, kvr_chain_depth(n - 1), i, 0, &undo);
    }

    for (i = 0; i < 40; i++) {
        kvr_index_insert(ix, chain[0], deep, kvr_chain_depth(deep - 1), i,
                         kvr_chain_depth(n - 1), &undo);
    }

    (void) kvr_index_lookup(ix, chain[0], deep, all, found);

    for (i = 0; i < 400; i++) {
        util_check(found[i] == kvr_chain_depth((i < 40 ? deep : n) - 1)
                   || (i >= 64 && i % 64 < 40 && found[i]),
                   "peer %u: %u", i, found[i]);
    }

    free(ix);
}


/*
 * All lines of a prompt have the same mask: a peer that has computed less
 * since its start than the prompt is long counts as having that much.
 */
TEST(test_lookup_late)
{
    uint32_t          i, n, found[KVR_PEERS];
    kvr_set_t         all;
    kvr_index_undo_t  undo;

    static const uint32_t  late[3] = { 310, 333, 402 };
    static const uint32_t  has[3] = { 30, 20, 10 };

    util_seed(&rng, "late", 0);

    hundreds();
    all = kvr_set_below(KVR_PEERS);

    n = 50;

    for (i = 0; i < 300; i++) {
        kvr_index_insert(ix, chain[0], n, kvr_chain_depth(n - 1), i, 0, &undo);
    }

    /* they have the prefix, and eight later ones all of it */

    for (i = 0; i < 3; i++) {
        kvr_index_insert(ix, chain[0], has[i], kvr_chain_depth(has[i] - 1),
                         late[i], 0, &undo);
    }

    for (i = 500; i < 508; i++) {
        kvr_index_insert(ix, chain[0], n, kvr_chain_depth(n - 1), i, 0, &undo);
    }

    (void) kvr_index_lookup(ix, chain[0], n, all, found);

    for (i = 0; i < 3; i++) {
        util_check(found[late[i]] == kvr_chain_depth(has[i] - 1),
                   "peer %u: %u of %u entries", late[i],
                   found[late[i]], has[i]);
    }

    util_check(found[0] == kvr_chain_depth(n - 1)
               && found[299] == kvr_chain_depth(n - 1), "the one with all");

    free(ix);
}


/*
 * A block that an engine removed and stored again: the peer has it, but not
 * the blocks after it, whether or not the line existed.
 */
TEST(test_lookup_again)
{
    uint32_t           n, at, found[KVR_PEERS];
    kvr_index_undo_t   undo;
    kvr_index_line_t  *line;

    util_seed(&rng, "again", 0);

    ix = aligned_alloc(KVR_CACHE_LINE, kvr_index_size(64 * LINES, 8));
    memset(ix, 0, kvr_index_size(64 * LINES, 8));
    kvr_index_init(ix, 64 * LINES, 8);

    chains();
    n = 50;

    for (at = 0; at < 2; at++) {
        kvr_index_flush(ix, at);
        kvr_index_capacity(ix, at, KVR_INDEX_CAPACITY_MAX, KVR_INDEX_ASSUMED);
    }

    for (at = 0; at < n; at++) {
        chain[1][at] = ~chain[0][at];
    }

    kvr_index_insert(ix, chain[1], n, kvr_chain_depth(n - 1), 1, 0, &undo);
    kvr_index_insert(ix, chain[0], n, kvr_chain_depth(n - 1), 0, 0, &undo);

    for (at = 20; at < 22; at++) {
        line = kvr_line_hold(ix, kvr_index_key(chain[0][at]), 1,
                             kvr_index_stamp(kvr_index_clocked(
                                                 kvr_index_clock(ix, 1), 1),
                                             kvr_chain_depth(at)));
        kvr_tag_mark(kvr_tag_line(ix, line));

        (void) kvr_index_lookup(ix, chain[0], n, kvr_set_below(8), found);
        util_check(found[0] == kvr_chain_depth(n - 1)
                   && found[1] == kvr_chain_depth(at),
                   "entry %u: %u and %u", at, found[0], found[1]);

        /* now a line that the table has lost */

        line = kvr_line_find(ix, chain[0][at + 1]);
        atomic_store(&line->key, 0);
        atomic_store(kvr_tag_line(ix, line), 0);
    }

    free(ix);
}
