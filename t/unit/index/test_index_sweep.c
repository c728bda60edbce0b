
/*
 * Copyright (C) kvroute contributors
 */


/*
 * kvr_index in one process: restarts, undo, a full table, and a comparison of
 * its clocks with a real LRU cache.
 */


#include "index.h"


#define ALL_UNITS  kvr_chain_depth(199)


TEST(test_index_flush)
{
    size_t        size;
    uint32_t      k, got;
    uint64_t      c[200], d[200];
    kvr_index_t  *copy;

    table(4096, 3, LARGE);
    chain(c, 1, 0, 200);
    chain(d, 2, 0, 200);

    for (k = 0; k < 3; k++) {
        (void) learn(c, 200, k, 0);
    }

    (void) learn(d, 200, 1, 0);

    /* no line is changed */

    size = ix->nlines * sizeof(kvr_index_line_t);
    copy = malloc(size);
    memcpy(copy, ix->line, size);

    kvr_index_flush(ix, 1);

    util_check(memcmp(copy, ix->line, size) == 0, "lines were changed");
    free(copy);

    (void) lookup(c, 200, 0);
    util_check(matched[0] == ALL_UNITS && matched[1] == 0
               && matched[2] == ALL_UNITS,
               "%u %u %u", matched[0], matched[1], matched[2]);
    util_check(lookup(d, 200, 1) == 0, "the other prompt");

    /* only later inserts count */

    (void) learn(d, 20, 1, 0);
    util_check((got = lookup(d, 200, 1)) == 20, "%u", got);
    util_check(lookup(c, 200, 1) == 0, "the first prompt");

    /* an insert by an older look-up: at most the new part counts */

    kvr_index_flush(ix, 1);
    (void) learn(d, 200, 1, ALL_UNITS - 100);
    util_check((got = lookup(d, 200, 1)) <= 100, "%u", got);

    /* undo twice, and without an insert in between */

    kvr_index_flush(ix, 0);
    kvr_index_flush(ix, 0);
    util_check(lookup(c, 200, 0) == 0 && matched[2] == ALL_UNITS, "twice");
    (void) learn(c, 1, 0, 0);
    util_check(lookup(c, 200, 0) == 1, "one block");
}


TEST(test_index_forget)
{
    uint32_t          i, got;
    uint64_t          c[200], d[200];
    kvr_index_undo_t  one, two;

    table(65536, 16, LARGE);
    chain(c, 1, 0, 200);

        /* all of the new part */

    one = learn(c, 200, 0, 0);
    util_check(one.valid && one.peer == 0 && one.matched == 0, "lesson");
    kvr_index_undo(ix, c, 200, &one);
    util_check(lookup(c, 200, 0) == 0, "all blocks");

        /* not the part that was cached before */

    (void) learn(c, 30, 0, 0);
    one = learn(c, 200, 0, 30);
    util_check(lookup(c, 200, 0) == ALL_UNITS, "learned");
    kvr_index_undo(ix, c, 200, &one);
    util_check((got = lookup(c, 200, 0)) == 30, "%u", got);

    /* no other peer's */

    (void) learn(c, 200, 1, 0);
    one = learn(c, 200, 0, 30);
    kvr_index_undo(ix, c, 200, &one);
    util_check(lookup(c, 200, 1) == ALL_UNITS && matched[0] == 30, "%u %u",
               matched[1], matched[0]);

        /* no entries that another attempt has inserted again */

    one = learn(c, 200, 0, 30);
    two = learn(c, 32, 0, 32);
    kvr_index_undo(ix, c, 200, &one);
    util_check((got = lookup(c, 200, 0)) == 32, "%u", got);

    /* even if it had nothing to compute; its undo removes nothing cached */

    kvr_index_undo(ix, c, 32, &two);
    util_check((got = lookup(c, 200, 0)) == 32, "%u", got);

    /* undo twice is like once */

    kvr_index_undo(ix, c, 200, &one);
    util_check((got = lookup(c, 200, 0)) == 32, "%u", got);

    /* only the end of a longer prompt with the same head */

    memcpy(d, c, sizeof(d));
    chain(d, 2, 28, 200);
    two = learn(d, 200, 0, 28);
    kvr_index_undo(ix, d, 200, &two);
    util_check(lookup(d, 200, 0) == 28 && lookup(c, 200, 0) == 32, "tail");

    /* after a restart nothing is left to undo */

    one = learn(c, 200, 0, 32);
    kvr_index_flush(ix, 0);
    (void) learn(c, 30, 0, 0);
    kvr_index_undo(ix, c, 200, &one);
    util_check((got = lookup(c, 200, 0)) == 30, "%u", got);

    /* a line full of holders, and a lost one */

    for (i = 0; i < 16; i++) {
        (void) learn(c, 200, i, 0);
    }

    one = learn(d, 200, 9, 28);
    lose(find(d[150]));
    kvr_index_undo(ix, d, 200, &one);
    util_check((got = lookup(d, 200, 9)) == 28, "%u", got);
}


TEST(test_index_sweep)
{
    uint32_t           i;
    uint64_t           c[100], claim;
    unsigned           k, used;
    kvr_index_line_t  *line;

    table(1024, 12, 2000);

    for (i = 0; i < 8; i++) {
        chain(c, i, 0, 100);
        (void) learn(c, 100, i, 0);
    }

    chain(c, 50, 0, 1);

    for (i = 0; i < 12; i++) {
        (void) learn(c, 1, i, 0);
    }

    util_check(kvr_index_fill(ix, 3) > 0.6, "fill %.2f",
               kvr_index_fill(ix, 3));

    /* all peers but one restart; lines are freed, and masks too */

    for (i = 0; i < 12; i++) {
        if (i != 5) {
            kvr_index_flush(ix, i);
        }
    }

    kvr_index_capacity(ix, 11, 1, KVR_INDEX_ASSUMED);
    sweep(11);

    used = 0;

    for (k = 0; k < 1024; k++) {
        line = &ix->line[k];

        if (line->key) {
            used++;
            util_check(line->mask == 0 || line->mask == 1ULL << 5, "mask %llx",
                       (unsigned long long) line->mask);
        }
    }

    /* 100 lines, the shared one, and the last that peer 11 has computed */

    util_check(used >= 98 && used < 120, "%u lines are left", used);

    chain(c, 5, 0, 100);
    util_check(lookup(c, 100, 5) >= kvr_chain_depth(98), "cached before: %u",
               matched[5]);

        /* claims of killed processes are freed, others are not */

    for (k = 0; k < 6; k++) {

        table(64, 2, LARGE);
        set_clocks(START, k < 3 ? 1ULL << 33 : (1ULL << 32) + CLAIM / 4);

        claim = (uint32_t) (ix->clock - (k % 3 == 0 ? 2 * CLAIM
                                         : k % 3 == 1 ? CLAIM / 2 : 0));
        claim = kvr_max(claim, 1);
        ix->line[40].key = claim;
        ix->line[41].key = claim;

        sweep(0);

        util_check((ix->line[40].key != claim) == (k % 3 == 0)
                   && (ix->line[41].key != claim) == (k % 3 == 0),
                   "kind %u", k);
    }

    /* a bucket full of claims: only the insert is lost */

    table(4, 2, LARGE);

    for (i = 0; i < 4; i++) {
        ix->line[i].key = START;
    }

    chain(c, 1, 0, 10);
    (void) learn(c, 10, 0, 0);
    util_check(lookup(c, 10, 0) == 0, "inserted into a full bucket");

    ix->clock += 2 * CLAIM;
    (void) learn(c, 10, 0, 0);
    (void) learn(c, 1, 0, 0);
    util_check(lookup(c, 1, 0) == 1, "still claimed");
}


/* an old line never looks recent */
TEST(test_index_old)
{
    uint64_t           c[1];
    unsigned           age, epoch, passed;
    kvr_index_line_t  *line;

    /* so large that an epoch is a quarter of it */

    table(1 << 15, 2, LARGE);
    chain(c, 1, 0, 1);
    (void) learn(c, 1, 0, 0);

    line = find(c[0]);
    util_check(line != NULL, "learned");

    for (passed = 0; passed < 400; passed++) {
        epoch = kvr_tag_epoch(ix, (uint32_t) ix->clock);
        age = kvr_tag_age(atomic_load(kvr_tag_line(ix, line)), epoch);

        util_check(line->key == (c[0] & ~1ULL), "evicted");
        util_check(age + 1 >= KVR_TAG_SLACK + kvr_min(passed, KVR_TAG_OLD),
                   "after %u epochs it looks like %u", passed, age);

        compute(1, 1U << ix->epoch);
    }
}


/* the sweep passes over the whole table, hits included, and no line twice */
TEST(test_index_hand)
{
    uint64_t  c[100], hand, before, steps;

    table(1000, 2, 300);
    kvr_index_capacity(ix, 0, 300, KVR_INDEX_REPORTED);
    chain(c, 1, 0, 100);

    /* new units: a quarter of them */

    hand = ix->hand;
    compute(0, 4000);
    util_check(ix->hand - hand >= 1000 && ix->hand - hand < 1020, "%llu",
               (unsigned long long) (ix->hand - hand));

    /* hits: the clock's movement */

    (void) learn(c, 100, 0, 0);
    hand = ix->hand;
    before = kvr_index_peer(ix, 0)->clock;

    for (steps = 0; steps < 2000; steps++) {
        compute(0, 40);
        (void) learn(c, 100, 0, lookup(c, 100, 0));
    }

    util_check(4 * (ix->hand - hand)
               >= (kvr_index_peer(ix, 0)->clock - before) >> FRACTION, "too slow");

    /* an insert passes over the table at most once */

    hand = ix->hand;
    kvr_index_insert(ix, c, 100, 1U << 20, 1, 0, &(kvr_index_undo_t) { 0 });
    util_check(ix->hand - hand == 1000, "%llu",
               (unsigned long long) (ix->hand - hand));
}


TEST(test_index_fill)
{
    uint32_t  i;
    double    fill;
    uint64_t  c[100];

    table(10000, 1, LARGE);
    util_check(kvr_index_fill(ix, 5) == 0, "empty");

    for (i = 0; i < 30; i++) {
        chain(c, i, 0, 100);
        (void) learn(c, 100, 0, 0);

        fill = kvr_index_fill(ix, i);
        util_check(fabs(fill - (i + 1) / 100.0) < 0.075, "%u %%: %.3f", i + 1,
                   fill);
    }
}


/*
 * A real cache: evicts the least recently used block, of a prompt the last
 * one.
 */

#define LRU_BLOCKS   (1 << 17)

typedef struct {
    uint32_t    next;
    uint32_t    prev;
    uint8_t     in;
} lru_block_t;

typedef struct {
    lru_block_t  block[LRU_BLOCKS];      /* 0 is the list's head */
    uint32_t     n;
    uint32_t     size;
} lru_t;


static void
lru_remove(lru_t *l, uint32_t b)
{
    l->block[l->block[b].prev].next = l->block[b].next;
    l->block[l->block[b].next].prev = l->block[b].prev;
    l->block[b].in = 0;
    l->n--;
}


static void
lru_use(lru_t *l, uint32_t b)
{
    if (l->block[b].in) {
        lru_remove(l, b);
    }

    l->block[b].next = l->block[0].next;
    l->block[b].prev = 0;
    l->block[l->block[b].next].prev = b;
    l->block[0].next = b;
    l->block[b].in = 1;
    l->n++;
}


/*
 * returns the number of leading blocks; then it has all, the first one newest
 */
static uint32_t
lru_prompt(lru_t *l, const uint32_t *b, uint32_t n)
{
    uint32_t  k, hit;

    for (hit = 0; hit < n && l->block[b[hit]].in; hit++) { /* void */ }

    for (k = n; k; k--) {
        lru_use(l, b[k - 1]);
    }

    while (l->n > l->size) {
        lru_remove(l, l->block[0].prev);
    }

    return hit;
}


/*
 * Sessions chosen by Zipf's law, which grow until they end, and single
 * prompts. Returns by how much the index claims too much and too little, as
 * shares of the cached or claimed units.
 */

#define SESSIONS     400
#define SESSION_MAX  120

static void
zipf(util_rng_t *r, unsigned reported, double factor, double skew,
    double *over, double *under, double *ratio)
{
    lru_t      *lru;
    double      sum, x, cdf[SESSIONS];
    uint32_t    k, n, entries, got, real, ids[SESSION_MAX], len[SESSIONS];
    uint32_t    first[SESSIONS], next;
    uint64_t    c[SESSION_MAX], said, too_much, too_little, cached;
    unsigned    i, s, turns;
    kvr_index_undo_t  undo;

    lru = calloc(1, sizeof(lru_t));
    lru->size = 6000;

    table(400000, 1, (uint64_t) (lru->size * factor));
    kvr_index_capacity(ix, 0, (uint64_t) (lru->size * factor),
                       reported ? KVR_INDEX_REPORTED : KVR_INDEX_ASSUMED);

    sum = 0;

    for (s = 0; s < SESSIONS; s++) {
        sum += 1 / pow(s + 1, skew);
        cdf[s] = sum;
        len[s] = 0;
    }

    next = 1;
    said = 0;
    too_much = 0;
    too_little = 0;
    cached = 0;
    turns = 12000;

    for (i = 0; i < turns && next + SESSION_MAX < LRU_BLOCKS; i++) {

        x = sum * (util_next(r) >> 11) / (1ULL << 53);

        for (s = 0; s < SESSIONS - 1 && cdf[s] < x; s++) { /* void */ }

        /* a session that ends is followed by a new one */

        if (len[s] == 0 || len[s] + 12 > SESSION_MAX) {
            first[s] = next;
            next += SESSION_MAX;
            len[s] = 4 + util_below(r, 30);

        } else if (util_below(r, 3)) {
            len[s] += util_below(r, 12);
        }

        n = len[s];

        for (k = 0; k < n; k++) {
            ids[k] = first[s] + k;
        }

        entries = kvr_chain_entries(n);

        for (k = 0; k < entries; k++) {
            c[k] = value(ids[kvr_chain_depth(k) - 1], 0);
        }

        got = lookup(c, entries, 0);
        kvr_index_insert(ix, c, entries, n, 0, got, &undo);

        /* the index knows whole entries only */

        real = kvr_chain_entries(lru_prompt(lru, ids, n));
        real = real ? kvr_chain_depth(real - 1) : 0;

        if (i > turns / 4) {
            said += got;
            cached += real;
            too_much += got > real ? got - real : 0;
            too_little += real > got ? real - got : 0;
        }
    }

    free(lru);

    *over = (double) too_much / (double) kvr_max(said, 1);
    *under = (double) too_little / (double) kvr_max(cached, 1);
    *ratio = (double) said / (double) kvr_max(cached, 1);
}


/*
 * With a reported capacity, hits age others half as much as they would here:
 * the index claims a little too much, never too little.  With an assumed
 * capacity hits age nothing: it claims too much, more so with a flatter
 * distribution, never too little, also with a quarter added.
 */
TEST(test_index_lru)
{
    double      over, under, ratio;
    unsigned    i;
    util_rng_t  r;

    static const struct {
        double    skew;
        unsigned  reported;
        double    factor;
        double    over;
        double    under;
    } rule[] = {
        { 0.6, 1, 1.00, 0.11, 0.001 },
        { 0.8, 1, 1.00, 0.09, 0.001 },
        { 1.0, 1, 1.00, 0.09, 0.001 },
        { 1.2, 1, 1.00, 0.09, 0.001 },

        { 0.6, 1, 1.25, 0.26, 0.001 },
        { 1.0, 1, 1.25, 0.13, 0.001 },

        { 0.6, 0, 1.00, 0.28, 0.001 },
        { 0.8, 0, 1.00, 0.24, 0.001 },
        { 1.0, 0, 1.00, 0.17, 0.001 },
        { 1.2, 0, 1.00, 0.09, 0.001 }
    };

    /* shares of few prompts are noise */

    if (util_cases(100) < 50) {
        return;
    }

    for (i = 0; i < sizeof(rule) / sizeof(rule[0]); i++) {

        util_seed(&r, "index lru", i);

        zipf(&r, rule[i].reported, rule[i].factor, rule[i].skew, &over, &under,
             &ratio);

        util_check(over <= rule[i].over && under <= rule[i].under,
                   "skew %.1f, %s capacity x %.2f: %.4f too much, %.4f too "
                   "little, %.4f in all", rule[i].skew,
                   rule[i].reported ? "reported" : "assumed", rule[i].factor,
                   over, under, ratio);
    }
}
