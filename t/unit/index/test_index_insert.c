
/*
 * Copyright (C) kvroute contributors
 */


/*
 * kvr_index in one process: inserts, compared with a model with plain 64-bit
 * clocks; and the places of entries.
 */


#include "index.h"


/* units inserted for a peer, expired or not, and their age */
TEST(test_index_taught)
{
    uint32_t  age;
    uint64_t  c[100], d[100];

    table(1 << 16, 4, 200);
    chain(c, 8, 0, 100);
    chain(d, 9, 0, 100);

    util_check(kvr_index_inserted(ix, c, 100, 0, 0, &age) == 0, "nothing");

    (void) learn(c, 30, 0, 0);
    util_check(kvr_index_inserted(ix, c, 100, 0, 30, &age) == 30
               && age == 29, "age %u", age);

    /* expired, but still known */

    compute(0, 300);
    util_check(lookup(c, 100, 0) == 0, "expired");
    util_check(kvr_index_inserted(ix, c, 100, 0, 0, &age) == 30
               && age == 329, "age %u", age);
    util_check(kvr_index_inserted(ix, d, 100, 0, 0, &age) == 0,
               "another prompt");
    util_check(kvr_index_inserted(ix, c, 100, 1, 0, &age) == 0, "another peer");

    /* none from before the peer's restart */

    kvr_index_flush(ix, 0);
    util_check(kvr_index_inserted(ix, c, 100, 0, 0, &age) == 0, "flushed");
}


static uint32_t
prompted(const uint64_t *c, uint32_t *inserted, uint32_t *age)
{
    *inserted = kvr_index_inserted(ix, c, 100, 0, 0, age);

    return kvr_index_prompted(ix, c, *inserted, 0, 32, age);
}


/* the part that only a reply has inserted */
TEST(test_index_prompted)
{
    uint32_t  age, n;
    uint64_t  c[100], d[100];

    table(1 << 16, 4, 2000);
    chain(c, 8, 0, 100);
    chain(d, 9, 0, 100);
    memcpy(d, c, 5 * sizeof(uint64_t));

    (void) learn(c, 10, 0, 0);
    util_check(prompted(c, &n, &age) == 10 && age == 9, "a prompt");

    compute(0, 300);
    kvr_index_extend(ix, &c[10], 10, 12, 12, 0, 0);
    util_check(prompted(c, &n, &age) == 10 && n == 22 && age == 321,
               "a reply: %u of %u", age, n);

    /* other prompts with this prefix, or lost lines, change nothing */

    (void) learn(d, 25, 0, 5);
    util_check(prompted(c, &n, &age) == 10 && n == 22,
               "after another prompt");
    util_check(prompted(d, &n, &age) == 25 && n == 25, "theirs");

    /* the prompt of the next turn contains it */

    (void) learn(c, 28, 0, 22);
    util_check(prompted(c, &n, &age) == 28 && n == 28, "next");
    (void) learn(d, 31, 0, 25);
    util_check(prompted(c, &n, &age) == 28 && n == 28, "after its next turn");

    /* inserted at once, as long as possible */

    kvr_index_flush(ix, 0);
    (void) learn(c, 10, 0, 0);
    kvr_index_extend(ix, &c[10], 10, 32, kvr_chain_depth(41) - 10, 0,
                     0);
    util_check(prompted(c, &n, &age) == 10 && n == kvr_chain_depth(41), "at once");
}


/*
 * The model: 64-bit stamps and clocks for each peer and block.  Stamps of
 * evicted blocks can be cleared at any time, so there are two right answers
 * after a cache was enlarged: with them and without them.
 */

#define MODEL_PEERS     8
#define MODEL_HEADS     4
#define MODEL_PROMPTS   24
#define MODEL_ENTRIES   180
#define MODEL_SHARED    20

#define HEAD(p)         ((p) % MODEL_HEADS)

typedef struct {
    uint64_t    clock[MODEL_PEERS];
    uint64_t    floor[MODEL_PEERS];
    uint64_t    capacity[MODEL_PEERS];
    uint64_t    stamp[MODEL_PEERS][MODEL_HEADS + MODEL_PROMPTS][MODEL_ENTRIES];
    uint8_t     gone[MODEL_PEERS][MODEL_HEADS + MODEL_PROMPTS][MODEL_ENTRIES];
} model_t;


static unsigned
model_id(unsigned prompt, uint32_t k)
{
    return k < MODEL_SHARED ? HEAD(prompt) : MODEL_HEADS + prompt;
}


static void
model_chain(uint64_t *c, uint64_t name, unsigned prompt)
{
    uint32_t  k;

    for (k = 0; k < MODEL_ENTRIES; k++) {
        c[k] = value(name + model_id(prompt, k), k);
    }
}


/* returns whether no place has more of these values than fit */
static int
model_fits(uint64_t name)
{
    uint8_t   *count;
    uint32_t   k, most;
    uint64_t   h;
    unsigned   id;

    most = 0;
    count = calloc(ix->nbuckets, 1);

    for (id = 0; id < MODEL_HEADS + MODEL_PROMPTS; id++) {
        for (k = id < MODEL_HEADS ? 0 : MODEL_SHARED; k < MODEL_ENTRIES; k++) {
            h = kvr_reduce(value(name + id, k), ix->nbuckets);
            count[h]++;
            most = kvr_max(most, count[h]);
        }
    }

    free(count);

    return most <= KVR_INDEX_WAYS;
}


static int
model_held(model_t *m, unsigned peer, unsigned prompt, uint32_t k, int swept)
{
    uint64_t  stamp;
    unsigned  id;

    id = model_id(prompt, k);
    stamp = m->stamp[peer][id][k];

    return stamp && stamp > m->floor[peer]
           && m->clock[peer] - stamp < m->capacity[peer]
           && !(swept && m->gone[peer][id][k]);
}


/* records stamps that can be cleared from now on */
static void
model_age(model_t *m, unsigned peer)
{
    uint32_t  k;
    uint64_t  stamp;
    unsigned  id;

    for (id = 0; id < MODEL_HEADS + MODEL_PROMPTS; id++) {
        for (k = 0; k < MODEL_ENTRIES; k++) {
            stamp = m->stamp[peer][id][k];

            if (stamp && m->clock[peer] - stamp >= m->capacity[peer]) {
                m->gone[peer][id][k] = 1;
            }
        }
    }
}


static uint64_t
model_stamp(uint64_t clock, uint32_t k)
{
    uint64_t  stamp;

    stamp = clock - (kvr_chain_depth(k) - 1);

    /* no stamp is 0, in its stored bits */

    return stamp & ((1U << 30) - 1) ? stamp : stamp + 1;
}


/*
 * Checks the result of a look-up: the deepest block, or the deepest before a
 * gap of this many blocks without a holder.
 */
static void
model_check(model_t *m, unsigned prompt, uint32_t n)
{
    int       swept;
    uint32_t  k, gap, deepest, ok, expect[2];
    unsigned  peer, p, any;

    for (peer = 0; peer < MODEL_PEERS; peer++) {

        ok = 0;

        for (swept = 0; swept < 2; swept++) {
            deepest = 0;
            gap = 0;

            for (k = 0; k < n; k++) {

                if (model_held(m, peer, prompt, k, swept)) {
                    deepest = kvr_chain_depth(k);
                }

                any = 0;

                for (p = 0; p < MODEL_PEERS; p++) {
                    any += model_held(m, p, prompt, k, 1);
                }

                gap = any ? 0 : gap + 1;

                if (gap >= 32) {
                    ok |= (matched[peer] == deepest);
                }
            }

            expect[swept] = deepest;
        }

        ok |= matched[peer] <= expect[0] && matched[peer] >= expect[1];

        util_check(ok, "peer %u, prompt %u: %u, not %u to %u; clock %llu",
                   peer, prompt, matched[peer], expect[1], expect[0],
                   (unsigned long long) m->clock[peer]);
    }
}


TEST(test_index_model)
{
    model_t          *m;
    uint32_t          k, n, known, units, from;
    uint64_t          c[MODEL_ENTRIES], name, start, all;
    unsigned          i, step, peer, prompt, kept, id;
    util_rng_t        r;
    kvr_index_undo_t  undo[4];
    uint32_t          lesson_n[4];
    unsigned          lesson_prompt[4];
    uint64_t          lesson_clock[4];

    /* where 32 bits wrap, signed and unsigned, and beyond */

    static const uint64_t  starts[] = {
        START, 1ULL << 31, 1ULL << 32, (1ULL << 32) + (1ULL << 31), 1ULL << 33,
        1ULL << 30, 3ULL << 30, 1ULL << 48
    };

    m = malloc(sizeof(model_t));

    for (i = 0; i < util_cases(80); i++) {

        util_seed(&r, "index model", i);

        memset(m, 0, sizeof(model_t));
        table(65536, MODEL_PEERS, 1);

        for (name = (uint64_t) i << 32; !model_fits(name); name += 1000) {
            /* void */
        }

        /* the clocks pass that point halfway, with or without the table's */

        start = starts[i % 8];
        start -= start > START ? 2000 : 0;
        all = starts[util_below(&r, 8)];
        all -= all > START ? 2000 * MODEL_PEERS : 0;

        set_clocks(start, all);

        for (peer = 0; peer < MODEL_PEERS; peer++) {
            m->clock[peer] = start;
            m->floor[peer] = start;
            m->capacity[peer] = 1 + util_below(&r, 6000);
            kvr_index_capacity(ix, peer, m->capacity[peer], KVR_INDEX_ASSUMED);
        }

        kept = 0;

        for (step = 0; step < 300; step++) {

            util_note("index model, case %u, step %u", i, step);

            peer = util_below(&r, MODEL_PEERS);
            prompt = util_below(&r, MODEL_PROMPTS);
            n = 1 + util_below(&r, MODEL_ENTRIES);
            model_chain(c, name, prompt);

            switch (util_below(&r, 20)) {

            case 0:
                kvr_index_flush(ix, peer);
                m->floor[peer] = m->clock[peer];
                break;

            case 1:
                m->capacity[peer] = 1 + util_below(&r, 6000);
                kvr_index_capacity(ix, peer, m->capacity[peer], KVR_INDEX_ASSUMED);
                break;

            case 2:
            case 3:

                /* an attempt of some time ago failed */

                if (kept < 4) {
                    break;
                }

                k = util_below(&r, 4);
                prompt = lesson_prompt[k];
                peer = undo[k].peer;
                model_chain(c, name, prompt);

                kvr_index_undo(ix, c, lesson_n[k], &undo[k]);

                for (from = 0;
                     from < lesson_n[k] && from < MODEL_ENTRIES;
                     from++)
                {
                    id = model_id(prompt, from);

                    if (kvr_chain_depth(from) > undo[k].matched
                        && m->stamp[peer][id][from]
                           == model_stamp(lesson_clock[k], from))
                    {
                        m->stamp[peer][id][from] = 0;
                    }
                }

                break;

            default:
                (void) lookup(c, n, 0);
                model_check(m, prompt, n);

        /* mostly by the look-up's result, sometimes by an older one */

                known = util_below(&r, 8) ? matched[peer] : 0;
                units = kvr_chain_depth(n - 1);
                units += util_below(&r, kvr_chain_depth(n) - units);

                k = util_below(&r, 4);
                kvr_index_insert(ix, c, n, units, peer, known, &undo[k]);

                m->clock[peer] += kvr_max(units - known, 1);

                lesson_n[k] = n;
                lesson_prompt[k] = prompt;
                lesson_clock[k] = m->clock[peer];
                kept += (kept == k);

                for (k = 0; k < n; k++) {
                    id = model_id(prompt, k);
                    m->stamp[peer][id][k] = model_stamp(m->clock[peer], k);
                    m->gone[peer][id][k] = 0;
                }
            }

            model_age(m, peer);
        }

        for (prompt = 0; prompt < MODEL_PROMPTS; prompt++) {
            model_chain(c, name, prompt);
            (void) lookup(c, MODEL_ENTRIES, 0);
            model_check(m, prompt, MODEL_ENTRIES);
        }

        util_check(ix->evicted == 0, "the table is too small for this");
    }

    free(m);
}


/* half full: all inserted entries are found */
TEST(test_index_placement)
{
    double      share[2];
    uint64_t    n, inserted, found, *c;
    unsigned    k, i, prompts, len, cut;

    static const unsigned  lens[] = { 1024, 128 };

    c = malloc(1024 * sizeof(uint64_t));

    for (k = 0; k < 2; k++) {

        len = lens[k];
        n = 65536 + 4;
        table(n, 1, LARGE);

        prompts = (unsigned) (n / 2 / len);
        inserted = 0;
        found = 0;

        for (i = 0; i < prompts; i++) {
            chain(c, i, 0, len);
            (void) learn(c, len, 0, 0);
        }

        for (i = 0; i < prompts; i++) {
            chain(c, i, 0, len);
            inserted += kvr_chain_depth(len - 1);
            found += lookup(c, len, 0);
        }

        share[k] = (double) found / (double) inserted;
        cut = (unsigned) (100 * kvr_index_fill(ix, 1));

        util_check(cut > 42 && cut < 55, "%u %% full", cut);
    }

    free(c);

    util_check(share[0] > 0.999, "%.5f of chains of 1024 entries", share[0]);
    util_check(share[1] > 0.995, "%.5f of chains of 128 entries", share[1]);
}


/* twice as many as fit: recent ones stay, old ones are evicted */
TEST(test_index_steady)
{
    double      share, x;
    uint32_t    j, len;
    uint64_t    n, c[64], found;
    unsigned    i, k, prompts, eighth;

    n = 20000;
    len = 64;
    table(n, 4, LARGE);

    prompts = (unsigned) (2 * n / len);

    for (i = 0; i < 3 * prompts; i++) {
        chain(c, i, 0, len);
        (void) learn(c, len, i % 4, 0);

        if (i > 0) {
            chain(c, i - 1, 0, len);
            util_check(lookup(c, len, (i - 1) % 4) >= len - 3,
                       "prompt %u was lost at once: %u", i - 1,
                       matched[(i - 1) % 4]);
        }
    }

    /*
     * By age, in eighths of the last 200 %: a block remains if fewer than four
     * newer ones came to its place; their number is a Poisson variable.
     */

    eighth = prompts / 8;

    for (k = 0; k < 8; k++) {
        found = 0;

        for (i = 0; i < eighth; i++) {
            n = 3 * prompts - 1 - k * eighth - i;
            chain(c, n, 0, len);

            for (j = 0; j < len; j++) {
                found += lookup(&c[j], 1, n % 4);
            }
        }

        share = (double) found / (eighth * len);

        x = k + 0.5;
        x = exp(-x) * (1 + x + x * x / 2 + x * x * x / 6);

        util_check(fabs(share - x) < 0.04, "eighth %u: %.3f, not %.3f", k,
                   share, x);
    }

    util_check(kvr_index_fill(ix, 1) > 0.95, "full");
    util_check(ix->evicted > 3 * prompts * len / 2, "evicted");

    /* a prompt in constant use stays */

    chain(c, 1ULL << 50, 0, len);
    (void) learn(c, len, 0, 0);

    for (i = 0; i < 3 * prompts; i++) {
        if (i % 50 == 0) {
            chain(c, 1ULL << 50, 0, len);
            (void) learn(c, len, 0, len);
            util_check(lookup(c, len, 0) >= len - 1, "%u: %u", i, matched[0]);
        }

        chain(c, (1ULL << 40) + i, 0, len);
        (void) learn(c, len, i % 4, 0);
    }
}


/* keys that are noted repeatedly stay too, with all their peers */
TEST(test_index_noted)
{
    uint32_t     len;
    uint64_t     c[64], key[16];
    unsigned     i, k, peers, rounds, lost;
    util_rng_t   r;

    len = 64;
    peers = 4;
    table(4096, peers, LARGE);
    util_seed(&r, "noted", 0);

    for (k = 0; k < 16; k++) {
        key[k] = util_next(&r);

        for (i = 0; i < peers; i++) {
            kvr_index_note(ix, key[k], i);
        }
    }

    lost = 0;
    rounds = 30 * 4096 / len;

    for (i = 0; i < rounds; i++) {
        chain(c, i, 0, len);
        (void) learn(c, len, i % peers, 0);

        for (k = 0; k < 16; k++) {
            lost += (util_word(kvr_index_holds(ix, key[k], util_set(ALL)))
                     != (1U << peers) - 1);
            kvr_index_note(ix, key[k], i % peers);
        }
    }

    util_check(lost == 0, "%u of %u", lost, 16 * rounds);
}
