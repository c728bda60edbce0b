
/*
 * Copyright (C) kvroute contributors
 */


/*
 * An insert that skips recently inserted entries, compared with one that
 * writes all: entries can expire earlier by two parts of the capacity and one
 * reply, and never later.
 */


#include "util.h"
#include "core/index/kvr_index_line.h"


#define LINES     (1 << 14)
#define LENGTH    500            /* entries of the longest prompt */
#define CHAINS    8
#define PEERS     3
#define ALL       ((1ULL << PEERS) - 1)
#define CAPACITY  4096
#define PART      16             /* part of an assumed capacity */
#define REPORTED  (CAPACITY / 32)
#define REPLY     32             /* entries, at most */
#define SOONER    (2 * PART + REPLY * 8)


enum { PLAIN, SHORT, REPEAT, TABLES };


static kvr_index_t  *table[TABLES];
static uint64_t      chain[CHAINS][LENGTH];
static unsigned      reported;
static util_rng_t    rng;


static void
tables(void)
{
    unsigned  t, p;

    for (t = 0; t < TABLES; t++) {
        if (table[t] == NULL) {
            table[t] = aligned_alloc(KVR_CACHE_LINE, kvr_index_size(LINES, KVR_PEERS_FEW));
        }

        memset(table[t], 0, kvr_index_size(LINES, KVR_PEERS_FEW));
        kvr_index_init(table[t], LINES, KVR_PEERS_FEW);

        for (p = 0; p < PEERS; p++) {
            kvr_index_capacity(table[t], p,
                               t == SHORT ? CAPACITY - SOONER : CAPACITY,
                               reported ? KVR_INDEX_REPORTED
                                        : KVR_INDEX_ASSUMED);
        }
    }
}


/* prompts that share prefixes of all lengths */
static void
chains(void)
{
    unsigned  i, k, from, same;

    for (i = 0; i < CHAINS; i++) {
        from = i ? util_below(&rng, i) : 0;
        same = i ? util_below(&rng, LENGTH) : 0;

        for (k = 0; k < LENGTH; k++) {
            chain[i][k] = k < same ? chain[from][k]
                                   : util_next(&rng) | 1ULL << 40;
        }
    }
}


static void
teach(const uint64_t *c, uint32_t n, unsigned peer, uint32_t matched)
{
    unsigned          t;
    uint32_t          units;
    kvr_index_undo_t  undo;

    units = n ? kvr_chain_depth(n - 1) : 0;

    for (t = 0; t < TABLES; t++) {
        if (t == REPEAT) {
            kvr_index_refresh(table[t], c, n, units, peer, matched, &undo);

        } else {
            kvr_index_insert(table[t], c, n, units, peer, matched, &undo);
        }
    }
}


/* the peer computes other prompts */
static void
compute(unsigned peer, uint32_t units)
{
    unsigned          t;
    kvr_index_undo_t  undo;

    for (t = 0; t < TABLES; t++) {
        kvr_index_insert(table[t], NULL, 0, units, peer, 0, &undo);
    }
}


static void
reply(const uint64_t *c, uint32_t first, uint32_t n, unsigned peer)
{
    unsigned  t;

    for (t = 0; t < TABLES; t++) {
        kvr_index_extend(table[t], c + first, first, n,
                         kvr_chain_depth(first + n - 1)
                         - kvr_chain_depth(first - 1), peer, 0);
    }
}


static uint32_t
stamp(uint64_t h)
{
    kvr_index_line_t  *line;

    line = kvr_line_find(table[REPEAT], h);
    util_check(line != NULL, "no line");

    return atomic_load(&line->stamp[0]) >> KVR_INDEX_STAMP;
}


/* a reported capacity, and parts of it */
TEST(test_repeat_reported)
{
    uint32_t  first;

    util_seed(&rng, "reported", 0);
    reported = 1;
    tables();
    chains();

    teach(chain[0], 138, 0, 0);
    compute(0, REPORTED - (uint32_t) kvr_index_clock(table[0], 0) % REPORTED);
    teach(chain[0], 138, 0, kvr_chain_depth(137));

    first = stamp(chain[0][0]);

    compute(0, 2 * PART);
    teach(chain[0], 138, 0, kvr_chain_depth(137));
    util_check(stamp(chain[0][0]) == first, "written again");

    compute(0, REPORTED);
    teach(chain[0], 138, 0, kvr_chain_depth(137));
    util_check(stamp(chain[0][0]) != first, "the stamp was not renewed");

    reported = 0;
}


/* the results of the three tables for a prompt */
static void
compare(const uint64_t *c, uint32_t n)
{
    unsigned  t, p;
    uint32_t  matched[TABLES][KVR_PEERS];

    for (t = 0; t < TABLES; t++) {
        (void) kvr_index_lookup(table[t], c, n, util_set(ALL), matched[t]);
    }

    for (p = 0; p < PEERS; p++) {
        util_check(matched[REPEAT][p] <= matched[PLAIN][p],
                   "peer %u: %u, not %u", p, matched[REPEAT][p],
                   matched[PLAIN][p]);
        util_check(matched[REPEAT][p] >= matched[SHORT][p],
                   "peer %u: %u, at least %u", p, matched[REPEAT][p],
                   matched[SHORT][p]);
    }
}


TEST(test_repeat_bounds)
{
    unsigned  i, k, p, t, cases;
    uint32_t  n, matched[KVR_PEERS];
    uint64_t  clock;

    util_seed(&rng, "bounds", 0);

    for (cases = util_cases(20); cases; cases--) {

        tables();
        chains();

        for (k = 0; k < 300; k++) {

            i = util_below(&rng, CHAINS);
            n = 1 + util_below(&rng, LENGTH - REPLY);
            p = util_below(&rng, PEERS);

            (void) kvr_index_lookup(table[REPEAT], chain[i], n, util_set(ALL),
                                    matched);
            teach(chain[i], n, p, matched[p]);

            switch (util_below(&rng, 8)) {

            case 0:
                compute(p, 1 + util_below(&rng, CAPACITY / 8));
                break;

            case 1:
            case 2:
                reply(chain[i], n, 1 + util_below(&rng, REPLY), p);
                break;

            case 3:
                if (util_below(&rng, 4) == 0) {
                    clock = kvr_index_clock(table[0], p);
                    clock -= util_below(&rng, 500);

                    for (t = 0; t < TABLES; t++) {
                        kvr_index_floor(table[t], p,
                                        clock + (t == SHORT ? SOONER : 0));
                    }
                }

                break;
            }

            compare(chain[util_below(&rng, CHAINS)],
                    1 + util_below(&rng, LENGTH));
        }
    }
}


/*
 * A conversation whose prompts add no entries, because the user's messages are
 * short.  Each reply belongs to a new part; the entries before it must not
 * keep an older part for ever.
 */
TEST(test_repeat_replies)
{
    unsigned  turn, first;
    uint32_t  n, matched[KVR_PEERS];

    util_seed(&rng, "replies", 0);
    reported = 1;

    for (first = 20; first <= 100; first += 80) {

        tables();
        chains();

        n = first;
        teach(chain[0], n, 0, 0);

        for (turn = 0; turn < 40; turn++) {

            /* up to just before a part ends */

            compute(0, REPORTED - 8
                       - (uint32_t) kvr_index_clock(table[REPEAT], 0)
                         % REPORTED + REPORTED);

            reply(chain[0], n, 1, 0);
            n++;

            (void) kvr_index_lookup(table[REPEAT], chain[0], n, util_set(ALL),
                                    matched);
            teach(chain[0], n, 0, matched[0]);

            compare(chain[0], n);
            compare(chain[0], first);
        }
    }

    reported = 0;
}
