
/*
 * Copyright (C) kvroute contributors
 */


/*
 * Sessions, models and chunks in kvr_index: sessions are bound until a time,
 * whatever the peers compute; models and chunks are noted for the lifetime of
 * a peer's cache.
 */


#include "util.h"
#include "core/index/kvr_index.h"


static kvr_index_t *
make(uint64_t lines, unsigned peers, uint64_t capacity)
{
    size_t        size;
    unsigned      i;
    kvr_index_t  *ix;

    size = kvr_index_size(lines, KVR_PEERS_FEW);
    size = (size + KVR_CACHE_LINE - 1) / KVR_CACHE_LINE * KVR_CACHE_LINE;

    ix = aligned_alloc(KVR_CACHE_LINE, size);
    memset((void *) ix, 0, size);

    kvr_index_init(ix, lines, KVR_PEERS_FEW);

    for (i = 0; i < peers; i++) {
        kvr_index_flush(ix, i);
        kvr_index_capacity(ix, i, capacity, KVR_INDEX_ASSUMED);
    }

    return ix;
}


static uint64_t
key(uint64_t n)
{
    return util_mix(n, 99);
}


/* returns the peers of a set that have a key, as bits */
static uint64_t
noted(kvr_index_t *ix, uint64_t key, uint64_t set)
{
    return util_word(kvr_index_holds(ix, key, util_set(set)));
}


static void
learn(kvr_index_t *ix, unsigned peer, uint64_t seed, uint32_t units)
{
    uint32_t          i;
    uint64_t          chain[64];
    kvr_index_undo_t  undo;

    for (i = 0; i < units; i++) {
        chain[i] = util_mix(seed, i + 1);
    }

    kvr_index_insert(ix, chain, units, units, peer, 0, &undo);
}


TEST(test_session_bind)
{
    uint32_t      generation;
    kvr_index_t  *ix;

    ix = make(4096, 4, 1000);

    util_check(kvr_index_bound(ix, key(1), 100, &generation) == KVR_PEERS,
               "not bound yet");

    kvr_index_bind(ix, key(1), 2, 7, 200);

    util_check(kvr_index_bound(ix, key(1), 100, &generation) == 2 && generation
               == 7, "bound");
    util_check(kvr_index_bound(ix, key(2), 100, &generation) == KVR_PEERS,
               "another session");

    /* exact to the second */

    util_check(kvr_index_bound(ix, key(1), 199, &generation) == 2,
               "still bound");
    util_check(kvr_index_bound(ix, key(1), 200, &generation) == KVR_PEERS,
               "expired");

    /* refreshed, bound again, in another generation */

    kvr_index_bind(ix, key(1), 2, 7, 300);
    util_check(kvr_index_bound(ix, key(1), 250, &generation) == 2, "refreshed");

    kvr_index_bind(ix, key(1), 3, 9, 300);
    util_check(kvr_index_bound(ix, key(1), 250, &generation) == 3 && generation
               == 9, "bound again");

    kvr_index_bind(ix, key(1), 0, 1, 400);
    util_check(kvr_index_bound(ix, key(1), 250, &generation) == 0 && generation
               == 1, "bound to peer 0");

    /* a prompt with the same hash is not a session, and the reverse */

    util_check(noted(ix, key(1), 15) == 0, "a prompt");
    kvr_index_note(ix, key(5), 1);
    util_check(kvr_index_bound(ix, key(5), 1, &generation) == KVR_PEERS,
               "a session");

    /* seconds wrap at 32 bits */

    kvr_index_bind(ix, key(6), 1, 1, 50);
    util_check(kvr_index_bound(ix, key(6), UINT32_MAX - 5, &generation) == 1,
               "before the wrap");
    util_check(kvr_index_bound(ix, key(6), 49, &generation) == 1, "after it");
    util_check(kvr_index_bound(ix, key(6), 51, &generation) == KVR_PEERS,
               "expired");

    free(ix);
}


/* a binding does not depend on a peer's work or restarts */
TEST(test_session_work)
{
    uint32_t      i, generation, kept;
    kvr_index_t  *ix;

    ix = make(1 << 14, 4, 500);

    for (i = 0; i < 200; i++) {
        kvr_index_bind(ix, key(i), i % 4, 1, 1000);
        kvr_index_note(ix, key(10000 + i), i % 4);
    }

    /* ten times the peer's capacity */

    for (i = 0; i < 400; i++) {
        learn(ix, i % 4, i, 50);
    }

    kept = 0;

    for (i = 0; i < 200; i++) {
        kept += (kvr_index_bound(ix, key(i), 999, &generation) == i % 4);
        util_check(noted(ix, key(10000 + i), 15) == 0,
                   "a model expires with the cache");
    }

    util_check(kept == 200, "%u of 200 are bound", kept);

    kvr_index_flush(ix, 1);

    util_check(kvr_index_bound(ix, key(1), 999, &generation) == 1,
               "after a restart");

    free(ix);
}


/* a full table: sessions in use stay, those unused longest are evicted */
TEST(test_session_full)
{
    uint32_t      i, k, generation, kept;
    kvr_index_t  *ix;

    ix = make(4096, 4, 1 << 20);

    for (i = 0; i < 100; i++) {
        kvr_index_bind(ix, key(i), i % 4, 1, 100000);
    }

    for (k = 0; k < 40; k++) {

        /* half a table of prompts, while half of the sessions are used */

        for (i = 0; i < 40; i++) {
            learn(ix, i % 4, 1000 + k * 40 + i, 50);
        }

        for (i = 0; i < 50; i++) {
            kvr_index_bind(ix, key(i), i % 4, 1, 100000);
        }
    }

    kept = 0;

    for (i = 0; i < 50; i++) {
        kept += (kvr_index_bound(ix, key(i), 1, &generation) == i % 4);
    }

    util_check(kept >= 48, "%u of 50 in use are bound", kept);

    free(ix);
}


TEST(test_session_notes)
{
    kvr_index_t  *ix;

    ix = make(4096, 12, 100);

    util_check(noted(ix, key(1), 0xfff) == 0, "no peer");

    kvr_index_note(ix, key(1), 3);
    kvr_index_note(ix, key(1), 11);
    kvr_index_note(ix, key(1), 3);

    util_check(noted(ix, key(1), 0xfff) == (1 << 3 | 1 << 11),
               "two peers");
    util_check(noted(ix, key(1), 1 << 3) == 1 << 3, "only peers of the set");

    /* noted again it is recent again */

    learn(ix, 3, 1, 60);
    kvr_index_note(ix, key(1), 3);
    learn(ix, 3, 2, 60);
    util_check(noted(ix, key(1), 1 << 3), "noted again");
    learn(ix, 3, 3, 60);
    util_check(noted(ix, key(1), 1 << 3) == 0, "too long ago");

    kvr_index_flush(ix, 11);
    util_check(noted(ix, key(1), 0xfff) == 0, "a restart");

    free(ix);
}


/* compared with a plain table with room for all */
TEST(test_session_model)
{
    uint32_t      i, n, now, generation, peer;
    util_rng_t    r;
    kvr_index_t  *ix;

    struct {
        uint32_t  peer, generation, expires;
    } model[300];

    ix = make(1 << 14, 8, 1000);
    memset(model, 0, sizeof(model));
    util_seed(&r, "session model", 0);
    now = 1000;

    for (i = 0; i < util_cases(40000); i++) {

        n = util_below(&r, 300);
        now += util_below(&r, 20) == 0;

        peer = kvr_index_bound(ix, key(n), now, &generation);

        if (model[n].expires > now) {
            util_check(peer == model[n].peer && generation
                       == model[n].generation, "session %u: peer %u", n, peer);
        } else {
            util_check(peer == KVR_PEERS, "session %u: %u", n, peer);
        }

        if (util_below(&r, 2)) {
            model[n].peer = util_below(&r, 8);
            model[n].generation = 1 + util_below(&r, 3);
            model[n].expires = now + 1 + util_below(&r, 50);

            kvr_index_bind(ix, key(n), model[n].peer, model[n].generation,
                           model[n].expires);
        }

        if (util_below(&r, 10) == 0) {
            learn(ix, util_below(&r, 8), i, 1 + util_below(&r, 3));
        }
    }

    free(ix);
}
