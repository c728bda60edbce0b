
/*
 * Copyright (C) kvroute contributors
 */


/*
 * Tests kvr_fifo.  Records come out unchanged, in the order of their places. 
 * Records without room are dropped and counted.  The reader skips the slots of
 * a killed writer.  A writer that resumes late produces no mixed record.
 */


#include "util.h"
#include "core/base/kvr_fifo.h"

#include <pthread.h>


#define WRITERS  4


static kvr_fifo_t       *ring;
static _Atomic unsigned   finished;


static void
begin(void)
{
    ring = aligned_alloc(KVR_CACHE_LINE, sizeof(kvr_fifo_t));
    memset((void *) ring, 0, sizeof(kvr_fifo_t));
    finished = 0;
}


static void
end(void)
{
    free(ring);
}


/* Makes a record of n words that identify it. */
static void
fill(uint64_t *word, uint32_t n, uint64_t seed)
{
    uint32_t  i;

    word[0] = seed;

    for (i = 1; i < n; i++) {
        word[i] = kvr_mix(seed, i);
    }
}


static int
put(uint32_t n, uint64_t seed, uint32_t cut)
{
    uint64_t  word[KVR_FIFO_MAX];

    fill(word, n, seed);
    cut = kvr_min(cut, n);

    return kvr_fifo_put(ring, (kvr_fifo_part_t []) {
                                  { word, cut }, { word, 0 },
                                  { word + cut, n - cut } }, 3);
}


static void
check(const uint64_t *word, uint32_t n)
{
    uint64_t  good[KVR_FIFO_MAX];

    fill(good, n, word[0]);
    util_check(memcmp(good, word, n * 8) == 0, "record %lu of %u words",
               (unsigned long) word[0], n);
}


TEST(test_fifo_full)
{
    unsigned  n;
    uint64_t  place, word[KVR_FIFO_MAX];

    for (n = 0; put(100, n + 1, 3); n++) { /* void */ }

    util_check(n == KVR_FIFO_SLOTS / 15, "%u records of 15 slots", n);
    util_check(kvr_get(&ring->dropped) == 1, "counted");

    /* a shorter record can still fit; the ring keeps its records */

    (void) put(1, 99, 0);
    util_check(!put(200, 99, 0), "full");

    for (place = 0, n = 0; n < KVR_FIFO_SLOTS / 15; n++) {
        util_check(kvr_fifo_get(ring, &place, word, 0) == 100, "read");
        util_check(word[0] == n + 1, "order");
        check(word, 100);
    }

    kvr_set(&ring->tail, place);
    util_check(put(200, 100, 2), "room after a read");
}


/* Puts a record and is killed before slot n has its number. */
TEST(test_fifo_killed)
{
    int       rc;
    unsigned  i, lost, cut;
    uint64_t  place, word[KVR_FIFO_MAX];

    for (cut = 0; cut <= 4; cut++) {

        end();
        begin();

        (void) put(20, 1, 20);
        (void) put(20, 2, 20);
        (void) put(20, 3, 20);

        /* numbers are stored from the last slot on: these slots have none */

        for (i = 0; i < 3 && i + cut < 4; i++) {
            kvr_set(&ring->slot[3 + i].number, 0);
        }

        place = 0;
        util_check(kvr_fifo_get(ring, &place, word, 0) == 20, "first");

        lost = 0;

        for ( ;; ) {
            rc = kvr_fifo_get(ring, &place, word, 0);

            if (rc == KVR_AGAIN) {
                util_check(cut < 4, "all records are written");
                rc = kvr_fifo_get(ring, &place, word, KVR_FIFO_SKIP);
                util_check(rc == KVR_ERROR, "passed");
                lost++;
                continue;
            }

            if (rc > 0) {
                break;
            }
        }

        util_check(word[0] == (cut < 4 ? 3 : 2), "cut %u: record %lu", cut,
                   (unsigned long) word[0]);
        check(word, 20);
    }
}


/* two writers used the same place */
TEST(test_fifo_mixed)
{
    unsigned  i;
    uint64_t  place, word[KVR_FIFO_MAX];

    (void) put(20, 1, 20);
    (void) put(20, 2, 20);

    for (i = 0; i < 20; i++) {

        place = 0;
        kvr_add(&ring->slot[(i + 1) / 7].word[(i + 1) % 7], 1);

        util_check(kvr_fifo_get(ring, &place, word, 0) == KVR_ERROR,
                   "wrong word %u", i);

        while (kvr_fifo_get(ring, &place, word, 0) != 20) {
            util_check(place < kvr_get(&ring->head), "the next one is found");
        }

        util_check(word[0] == 2, "the next one is good");

        kvr_add(&ring->slot[(i + 1) / 7].word[(i + 1) % 7], -1);
    }

    /* an invalid length */

    place = 0;
    kvr_set(&ring->slot[0].word[0], UINT64_MAX);
    util_check(kvr_fifo_get(ring, &place, word, 0) == KVR_ERROR, "len");
}


static void *
writer(void *data)
{
    unsigned    i, n;
    util_rng_t  rng;

    n = (unsigned) (uintptr_t) data;
    util_seed(&rng, "writer", n);

    for (i = 0; i < util_cases(100000); i++) {
        (void) put(1 + util_below(&rng, 60),
                   (uint64_t) n << 32 | (i + 1), 3);
    }

    finished++;

    return NULL;
}


TEST(test_fifo_together)
{
    int        rc;
    unsigned   i, w;
    uint64_t   place, read, word[KVR_FIFO_MAX], last[WRITERS] = { 0 };
    pthread_t  thread[WRITERS];

    for (i = 0; i < WRITERS; i++) {
        pthread_create(&thread[i], NULL, writer, (void *) (uintptr_t) i);
    }

    place = 0;
    read = 0;

    for ( ;; ) {
        rc = kvr_fifo_get(ring, &place, word, 0);

        if (rc > 0) {
            check(word, (uint32_t) rc);

            w = (unsigned) (word[0] >> 32);
            util_check(w < WRITERS && (uint32_t) word[0] > last[w],
                       "each writer's come in its order");
            last[w] = (uint32_t) word[0];

            kvr_set(&ring->tail, place);
            read++;
            continue;
        }

        util_check(rc == KVR_AGAIN || rc == KVR_DECLINED, "%d", rc);

        if (rc == KVR_DECLINED && finished == WRITERS
            && place == kvr_get(&ring->head))
        {
            break;
        }
    }

    for (i = 0; i < WRITERS; i++) {
        pthread_join(thread[i], NULL);
    }

    util_check(read + kvr_get(&ring->dropped)
               == WRITERS * (uint64_t) util_cases(100000),
               "each record was read or counted");
}


suite_around(begin, end);
