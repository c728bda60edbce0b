
/*
 * Copyright (C) kvroute contributors
 */


/*
 * A look-up reads as few holders as it can.  Here each line is read, from the
 * first on, and both must say the same.
 */


#include "util.h"
#include "core/index/kvr_index_tag.h"


#define LINES   4096
#define LENGTH  700              /* entries of the longest prompt */
#define GAP     16               /* absent entries that end a look-up */
#define CHAINS  24


static kvr_index_t  *ix;
static uint64_t      chain[CHAINS][LENGTH];
static util_rng_t    rng;


/* is there a line of its own for this entry? */
static int
present(uint64_t h)
{
    unsigned  i;

    for (i = 0; i < LINES; i++) {
        if (atomic_load(&ix->line[i].key) == (h & ~1ULL)) {
            return 1;
        }
    }

    return 0;
}


static uint32_t
plainly(const uint64_t *c, uint32_t n, uint64_t set, uint32_t *matched)
{
    uint32_t  i, gap, best;
    uint64_t  has;

    memset(matched, 0, KVR_INDEX_PEERS * sizeof(uint32_t));

    gap = 0;
    best = 0;

    for (i = 0; i < n && gap < GAP; i++) {

        if (!present(c[i])) {
            gap++;
            continue;
        }

        gap = 0;

        for (has = kvr_index_holds(ix, c[i], set); has; has &= has - 1) {
            matched[__builtin_ctzll(has)] = kvr_chain_depth(i);
            best = kvr_chain_depth(i);
        }
    }

    return best;
}


/* prompts that share beginnings of all lengths with one another */
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


START_TEST(test_lookup_same)
{
    unsigned          i, peers, round, cases;
    uint32_t          n, best, a[KVR_INDEX_PEERS], b[KVR_INDEX_PEERS];
    uint64_t          set;
    kvr_index_undo_t  undo;

    kvr_index_line_t  *line;

    util_seed(&rng, "lookup", 0);

    ix = aligned_alloc(KVR_CACHE_LINE, kvr_index_size(LINES));

    for (cases = util_cases(20); cases; cases--) {

        memset(ix, 0, kvr_index_size(LINES));
        kvr_index_init(ix, LINES);
        chains();

        /* with more than eight there are masks */

        peers = 1 + (unsigned) util_below(&rng, KVR_INDEX_PEERS);

        for (i = 0; i < peers; i++) {
            kvr_index_capacity(ix, i, 200 + util_below(&rng, 4000), 0);
        }

        for (round = 0; round < 40; round++) {

            i = (unsigned) util_below(&rng, CHAINS);
            n = 1 + (uint32_t) util_below(&rng, LENGTH);

            kvr_index_insert(ix, chain[i], n, kvr_chain_depth(n - 1),
                             (unsigned) util_below(&rng, peers), 0, &undo);

            if (util_below(&rng, 8) == 0) {
                kvr_index_flush(ix, (unsigned) util_below(&rng, peers));
            }

            /* lines are lost, one by one and many at a time */

            for (n = (uint32_t) util_below(&rng, 60); n; n--) {
                line = &ix->line[util_below(&rng, LINES)];
                atomic_store(&line->key, 0);
                atomic_store(kvr_tag_line(ix, line), 0);
            }

            if (round % 4) {
                continue;
            }

            i = (unsigned) util_below(&rng, CHAINS);
            n = (uint32_t) util_below(&rng, LENGTH + 1);
            set = util_next(&rng) | util_next(&rng);
            set &= peers == 64 ? ~0ULL : (1ULL << peers) - 1;

            memset(a, 0, sizeof(a));

            best = kvr_index_lookup(ix, chain[i], n, set, a);

            util_check(best == plainly(chain[i], n, set, b),
                       "%u entries, %u peers: %u", n, peers, best);
            util_check(memcmp(a, b, sizeof(a)) == 0, "%u entries, %u peers", n,
                       peers);
        }
    }

    free(ix);
}
END_TEST


int
main(void)
{
    Suite  *s;

    s = suite_create("lookup");

    util_add(s, "same", test_lookup_same);

    return util_run(s);
}
