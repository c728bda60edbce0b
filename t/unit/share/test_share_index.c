
/*
 * Copyright (C) kvroute contributors
 */


/*
 * One table publishes its entries to another one, which has as many peers as
 * possible in other slots: holders and their ages are equal.  Peers with equal
 * bits in a line's ids are distinguished.  A line with invalid words has no
 * peers.
 */


#include "util.h"
#include "core/index/kvr_index_line.h"
#include "core/share/kvr_share_index.h"


#define LINES     (1 << 14)
#define PEERS     400                    /* not a power of two */
#define CHAINS    60
#define LENGTH    40
#define CAPACITY  4000


static kvr_index_t  *table[2];
static uint64_t      chain[CHAINS][LENGTH];
static uint16_t      number[PEERS];      /* slot in the second table */
static util_rng_t    rng;


static void
begin(void)
{
    unsigned  i, k, t;
    uint16_t  swap;

    util_seed(&rng, "told", 1);

    for (t = 0; t < 2; t++) {
        table[t] = aligned_alloc(KVR_CACHE_LINE, kvr_index_size(LINES, PEERS));
        memset(table[t], 0, kvr_index_size(LINES, PEERS));
        kvr_index_init(table[t], LINES, PEERS);

        for (i = 0; i < PEERS; i++) {
            kvr_index_capacity(table[t], i, CAPACITY, KVR_INDEX_REPORTED);
        }
    }

    for (i = 0; i < PEERS; i++) {
        number[i] = (uint16_t) i;
    }

    for (i = PEERS - 1; i > 0; i--) {
        k = util_below(&rng, i + 1);
        swap = number[i];
        number[i] = number[k];
        number[k] = swap;
    }

    for (i = 0; i < CHAINS; i++) {
        for (k = 0; k < LENGTH; k++) {
            chain[i][k] = util_next(&rng) | 1ULL << 40;
        }
    }
}


static void
end(void)
{
    free(table[0]);
    free(table[1]);
}


static uint32_t
held(unsigned t, unsigned c, unsigned peer)
{
    uint32_t  matched[KVR_PEERS];

    (void) kvr_index_lookup(table[t], chain[c], LENGTH, kvr_set_of(peer),
                            matched);
    return matched[peer];
}


static void
insert(unsigned c, unsigned peer)
{
    kvr_index_undo_t  undo;

    kvr_index_insert(table[0], chain[c], LENGTH, kvr_chain_depth(LENGTH - 1),
                     peer, held(0, c, peer), &undo);
}


/* publishes all entries of the first table; returns their number */
static unsigned
tell(void)
{
    uint64_t           n;
    unsigned           i, told;
    kvr_share_index_t  k;

    for (i = 0; i < PEERS; i++) {
        kvr_share_index_advance(table[1], number[i], kvr_share_index_units(table[0], i),
                             1);
    }

    told = 0;

    for (n = 0; n < table[0]->nlines; n++) {

        if (!kvr_share_index_read(table[0], n, 0, &k)) {
            continue;
        }

        util_check(!k.session && k.n <= KVR_INDEX_HOLDERS, "%u", k.n);

        for (i = 0; i < k.n; i++) {
            util_check(k.peer[i] < PEERS, "peer %u", k.peer[i]);
            kvr_share_index_write(table[1], k.key, number[k.peer[i]], k.age[i],
                           k.marked);
            told++;
        }
    }

    return told;
}


/* each chain has holders whose slots differ by 128, 256 and by little */
TEST(test_share_index_same)
{
    unsigned  c, k, peer, known, gone;

    for (c = 0; c < CHAINS; c++) {
        peer = util_below(&rng, PEERS);

        for (k = 0; k < 4; k++) {
            insert(c, (peer + 128 * (k % 2) + k / 2) % PEERS);
        }
    }

    /* some of it is too old to count */

    for (c = 0; c < CHAINS; c++) {
        for (k = 0; k < util_below(&rng, 200); k++) {
            insert(c, 7);
            kvr_index_extend(table[0], &chain[c][0], 0, 1, 100, 7, 0);
        }
    }

    util_check(tell() > CHAINS * LENGTH, "all entries are published");

    known = 0;
    gone = 0;

    for (c = 0; c < CHAINS; c++) {
        for (peer = 0; peer < PEERS; peer++) {
            k = held(0, c, peer);
            known += k != 0;
            gone += peer == 7 && k == 0;

            util_check(held(1, c, number[peer]) == k,
                       "chain %u peer %u: %u, not %u", c, peer,
                       held(1, c, number[peer]), k);
        }
    }

    util_check(known > 3 * CHAINS && gone, "%u, %u", known, gone);

    /* equally old: both forget it at the same time */

    for (peer = 0; peer < PEERS; peer++) {
        kvr_index_extend(table[0], &chain[0][0], 0, 0, CAPACITY - 100, peer, 0);
        kvr_index_extend(table[1], &chain[0][0], 0, 0, CAPACITY - 100,
                         number[peer], 0);
    }

    for (c = 0; c < CHAINS; c++) {
        for (peer = 0; peer < PEERS; peer++) {
            util_check(held(1, c, number[peer]) == held(0, c, peer),
                       "chain %u peer %u: %u, not %u", c, peer,
                       held(1, c, number[peer]), held(0, c, peer));
        }
    }
}


/* only the peer in question, and only if as recent */
TEST(test_share_index_undo)
{
    unsigned  n;

    n = kvr_chain_depth(LENGTH - 1);

    insert(0, 5);
    insert(0, 133);
    insert(0, 261);
    insert(0, 389);

    kvr_share_index_undo(table[0], chain[0], 0, LENGTH, n, 261);

    util_check(held(0, 0, 261) == 0, "undone");
    util_check(held(0, 0, 5) == n && held(0, 0, 133) == n
               && held(0, 0, 389) == n, "the others are as before");

    kvr_index_extend(table[0], chain[1], 0, LENGTH, 3 * n, 133, 0);
    kvr_share_index_undo(table[0], chain[0], 0, LENGTH, 2 * n, 133);

    util_check(held(0, 0, 133) == n, "inserted before that");
}


/*
 * A process that is killed between ids and stamp can leave a slot that no peer
 * has: seven bits of one slot and two of another.
 */
TEST(test_share_index_nonsense)
{
    uint64_t           n;
    unsigned           told;
    kvr_share_index_t  k;
    kvr_index_line_t  *line;

    insert(0, 127);
    told = 0;

    /* memory after the peers looks like one of them */

    util_check((uint8_t *) (kvr_index_peer(table[0], 511) + 1)
               <= (uint8_t *) table[0] + kvr_index_size(LINES, PEERS), "room");
    memcpy((void *) kvr_index_peer(table[0], 511),
           (void *) kvr_index_peer(table[0], 127), sizeof(kvr_index_peer_t));

    for (n = 0; n < table[0]->nlines; n++) {
        line = &table[0]->line[n];

        if (kvr_get(&line->key) > KVR_INDEX_CLAIMED) {
            kvr_set(&line->stamp[0], kvr_get(&line->stamp[0]) | KVR_INDEX_HIGH);
            told += kvr_share_index_read(table[0], n, 0, &k);
        }
    }

    util_check(told == 0, "%u of peer 511, of %u", told, PEERS);
}


suite_around(begin, end);
