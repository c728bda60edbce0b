/*
 * Sources, as of late 2026:
 *
 *   sglang_fleet     SGLang's gateway up to 2026-08 and vLLM's router,
 *                    cache_aware: 0.3, 64, 1.5 on the command line
 *   two_tier         sgl-router's cache_aware_zmq, Dynamo's two_tier_cost_fn:
 *                    0.5, 32, 1.1
 * *   sglang_request   SMG since #2161: the gate asks about the chosen holder
 *   ring             vLLM router's consistent_hash, 160 points
 *   ring_bounded     KubeAI's balance_chwbl.go, 256 points, 1.25
 *   llmd_blend       llm-d's endpoint picker: prefix 3, queue 2, KV usage 2
 *   llmd_sticky      its default since 2026-08: optimized-baseline
 *   dynamo           Dynamo's default selector: linear cost in blocks
 *   lmetric          arXiv 2603.15202; and as Dynamo's plugin has it
 *   additive         LPWL, Llumnix, llm-d's token-load-scorer
 *   aibrix           AIBrix's prefix_cache.go
 *   ramjet           helixml/ramjet src/router.rs, alpha 4
 */

#include "bench/sim/router/rivals.h"


uint32_t
kvs_pick_random(uint32_t n, kvs_rng_t *rng)
{
    return kvs_rng_below(rng, n);
}


uint32_t
kvs_pick_two_choices(const kvs_view_t *v, uint32_t n, kvs_rng_t *rng)
{
    uint32_t  a, b;

    if (n == 1) {
        return 0;
    }

    a = kvs_rng_below(rng, n);
    b = kvs_rng_below(rng, n - 1);

    if (b >= a) {
        b++;
    }

    return v[b].active < v[a].active ? b : a;
}


/* the one with the fewest picks so far, or the first */
static uint32_t
kvs_least_active(const kvs_view_t *v, uint32_t n)
{
    uint32_t  i, best;

    best = 0;

    for (i = 1; i < n; i++) {
        if (v[i].active < v[best].active
            || (v[i].active == v[best].active
                && v[i].picks < v[best].picks))
        {
            best = i;
        }
    }

    return best;
}


/* the largest score; ties at random */
static uint32_t
kvs_best(const double *score, uint32_t n, kvs_rng_t *rng)
{
    uint32_t  i, best, ties;

    best = 0;
    ties = 1;

    for (i = 1; i < n; i++) {
        if (score[i] > score[best]) {
            best = i;
            ties = 1;

        } else if (score[i] == score[best]
                   && kvs_rng_below(rng, ++ties) == 0)
        {
            best = i;
        }
    }

    return best;
}


static int
kvs_unbalanced(const kvs_view_t *v, uint32_t n, const kvs_gate_t *gate)
{
    uint32_t  i, least, most;

    least = v[0].active;
    most = v[0].active;

    for (i = 1; i < n; i++) {
        least = kvr_min(least, v[i].active);
        most = kvr_max(most, v[i].active);
    }

    return most - least > gate->abs && most > least * gate->rel;
}


uint32_t
kvs_pick_sglang_fleet(const kvs_view_t *v, uint32_t n, uint32_t tokens,
    uint32_t tenant, const kvs_gate_t *gate)
{
    if (kvs_unbalanced(v, n, gate)) {
        return kvs_least_active(v, n);
    }

    if (tenant < n && v[tenant].matched > gate->cache * tokens) {
        return tenant;
    }

    return kvs_least_active(v, n);
}


uint32_t
kvs_pick_two_tier(const kvs_view_t *v, uint32_t n, uint32_t tokens,
    const kvs_gate_t *gate)
{
    uint32_t  i, best, most;

    if (kvs_unbalanced(v, n, gate)) {
        return kvs_least_active(v, n);
    }

    most = 0;

    for (i = 0; i < n; i++) {
        most = kvr_max(most, v[i].matched);
    }

    /* the share is relative to the whole blocks */

    if (most <= gate->cache * (tokens / KVS_UNIT_TOKENS * KVS_UNIT_TOKENS)) {
        return kvs_least_active(v, n);
    }

    best = n;

    for (i = 0; i < n; i++) {
        if (v[i].matched == most
            && (best == n || v[i].active < v[best].active
                || (v[i].active == v[best].active
                    && v[i].picks < v[best].picks)))
        {
            best = i;
        }
    }

    return best;
}


uint32_t
kvs_pick_sglang_request(const kvs_view_t *v, uint32_t n, uint32_t tokens,
    const kvs_gate_t *gate, kvs_rng_t *rng)
{
    double    avg, score[KVS_REPLICAS];
    uint32_t  i, most, pick;

    most = 0;
    avg = 0;

    for (i = 0; i < n; i++) {
        most = kvr_max(most, v[i].matched);
        avg += (double) v[i].active / n;
    }

    if (most <= gate->cache * tokens) {
        return kvs_least_active(v, n);
    }

    for (i = 0; i < n; i++) {
        score[i] = v[i].matched == most ? -(double) v[i].active : -INFINITY;
    }

    pick = kvs_best(score, n, rng);

    if (v[pick].active > avg * gate->rel && v[pick].active > avg + gate->abs) {
        return kvs_least_active(v, n);
    }

    return pick;
}


uint32_t
kvs_pick_llmd_blend(const kvs_view_t *v, uint32_t n, uint32_t tokens,
    kvs_rng_t *rng)
{
    double    queue, score[KVS_REPLICAS];
    uint32_t  i, least, most, blocks;

    least = v[0].waiting;
    most = v[0].waiting;

    for (i = 1; i < n; i++) {
        least = kvr_min(least, v[i].waiting);
        most = kvr_max(most, v[i].waiting);
    }

    /* the last block counts even if it is not full */

    blocks = (tokens + KVS_UNIT_TOKENS - 1) / KVS_UNIT_TOKENS;

    for (i = 0; i < n; i++) {
        queue = most == least ? 1
                : (double) (most - v[i].waiting) / (most - least);

        score[i] = 3 * fmin((double) (v[i].matched / KVS_UNIT_TOKENS)
                            / kvr_max(blocks, 1), 1)
                   + 2 * queue
                   + 2 * (1 - v[i].usage);
    }

    return kvs_best(score, n, rng);
}


#define KVS_LLMD_SHARE     0.8
#define KVS_LLMD_GAP       (15.928 * 18000)   /* tokens: peak prefill * 18 s */


uint32_t
kvs_pick_llmd_sticky(const kvs_view_t *v, uint32_t n, uint32_t tokens,
    uint32_t turn)
{
    double     cost, least;
    uint32_t   i, k, full, best;
    uint64_t   warm, cold;
    kvr_set_t  sticky;

    full = tokens / KVS_UNIT_TOKENS * KVS_UNIT_TOKENS;
    sticky = kvr_set_none();
    warm = UINT64_MAX;
    cold = UINT64_MAX;

    for (i = 0; i < n; i++) {
        if (full && v[i].matched >= KVS_LLMD_SHARE * full) {
            kvr_set_add(&sticky, i);
            warm = kvr_min(warm, v[i].pending);

        } else {
            cold = kvr_min(cold, v[i].pending);
        }
    }

    if (kvr_set_empty(&sticky, KVR_SET_WORDS)
        || (cold != UINT64_MAX && (double) warm - (double) cold > KVS_LLMD_GAP))
    {
        sticky = kvr_set_below(n);
    }

    /* ties in turn */

    best = n;
    least = INFINITY;

    for (k = 0; k < n; k++) {
        i = (turn + k) % n;

        if (!kvr_set_test(&sticky, i)) {
            continue;
        }

        cost = (double) (v[i].pending + tokens
                         - kvr_min(v[i].matched, tokens));

        if (cost < least) {
            least = cost;
            best = i;
        }
    }

    return best;
}


uint32_t
kvs_pick_dynamo(const kvs_view_t *v, uint32_t n, uint32_t tokens,
    double credit, kvs_rng_t *rng)
{
    double    raw, score[KVS_REPLICAS];
    uint32_t  i;

    for (i = 0; i < n; i++) {
        raw = (double) (v[i].pending + tokens) / KVS_UNIT_TOKENS;

        score[i] = -(fmax(raw - credit * (v[i].matched / KVS_UNIT_TOKENS), 0)
                     + (double) v[i].blocks);
    }

    return kvs_best(score, n, rng);
}


uint32_t
kvs_pick_lmetric(const kvs_view_t *v, uint32_t n, uint32_t tokens,
    kvs_rng_t *rng)
{
    double    fresh, score[KVS_REPLICAS];
    uint32_t  i;

    for (i = 0; i < n; i++) {
        fresh = (double) (v[i].pending + tokens
                          - kvr_min(v[i].matched, tokens));

        score[i] = -fmax(fresh, 1) * (v[i].active + 1);
    }

    return kvs_best(score, n, rng);
}


void
kvs_hotspot_init(kvs_hotspot_t *hot, uint32_t window)
{
    memset(hot, 0, sizeof(kvs_hotspot_t));

    hot->window = window;
    hot->classes = kvs_alloc(window * sizeof(uint64_t));
}


void
kvs_hotspot_done(kvs_hotspot_t *hot)
{
    free(hot->classes);
}


/* the least uncached tokens times batch size */
static uint32_t
kvs_lmetric_least(const kvs_view_t *v, uint32_t n, uint32_t tokens,
    kvr_set_t set)
{
    double    cost, least;
    uint32_t  i, best;

    best = n;
    least = INFINITY;

    for (i = 0; i < n; i++) {

        if (!kvr_set_test(&set, i)) {
            continue;
        }

        cost = fmax(tokens - kvr_min(v[i].matched, tokens), 1)
               * (v[i].active + 1.0);

        if (cost < least) {
            least = cost;
            best = i;
        }
    }

    return best;
}


/*
 * A class is the prompts that share their first "prefix" tokens, named by a
 * hash; 0 for a shorter prompt.
 */
uint32_t
kvs_pick_lmetric_dynamo(const kvs_view_t *v, uint32_t n, uint32_t tokens,
    kvs_hotspot_t *hot, uint64_t class, uint32_t prefix)
{
    double     share;
    uint32_t   i, best, arrivals, nholders, slot;
    kvr_set_t  all, holders;

    all = kvr_set_below(n);
    best = kvs_lmetric_least(v, n, tokens, all);

    if (class == 0) {
        return best;
    }

    hot->classes[hot->at] = class;
    hot->at = (hot->at + 1) % hot->window;
    hot->n = kvr_min(hot->n + 1, hot->window);

    arrivals = 0;

    for (i = 0; i < hot->n; i++) {
        arrivals += hot->classes[i] == class;
    }

    share = (double) arrivals / hot->n;

    holders = kvr_set_none();
    nholders = 0;

    for (i = 0; i < n; i++) {
        if (v[i].matched >= prefix) {
            kvr_set_add(&holders, i);
            nholders++;
        }
    }

    /* one slot per class is enough: there are few at a time */

    slot = (uint32_t) kvr_reduce(class, 64);

    if (hot->streak_of[slot] != class) {
        hot->streak_of[slot] = class;
        hot->streak[slot] = 0;
    }

    if (nholders == 0 || nholders == n
        || share * (n - nholders) <= (1 - share) * nholders
        || !kvr_set_test(&holders, best))
    {
        hot->streak[slot] = 0;
        return best;
    }

    if (++hot->streak[slot] < 2 * nholders) {
        return best;
    }

    return kvs_lmetric_least(v, n, tokens, kvr_set_andnot(all, holders));
}


uint32_t
kvs_pick_additive(const kvs_view_t *v, uint32_t n, uint32_t tokens,
    uint32_t turn)
{
    uint32_t  i, k, best;
    uint64_t  cost, least;

    best = n;
    least = 0;

    for (k = 0; k < n; k++) {
        i = (turn + k) % n;

        cost = v[i].pending + tokens - kvr_min(v[i].matched, tokens);

        if (best == n || cost < least
            || (cost == least && v[i].active < v[best].active))
        {
            least = cost;
            best = i;
        }
    }

    return best;
}


uint32_t
kvs_pick_aibrix(const kvs_view_t *v, uint32_t n, uint32_t tokens,
    kvs_rng_t *rng)
{
    int       skewed;
    double    mean, deviation, score[KVS_REPLICAS];
    uint32_t  i, least, most, best;

    least = v[0].active;
    most = 0;
    mean = 0;
    deviation = 0;

    for (i = 0; i < n; i++) {
        least = kvr_min(least, v[i].active);
        most = kvr_max(most, v[i].active);
        mean += (double) v[i].active / n;
    }

    for (i = 0; i < n; i++) {
        deviation += (v[i].active - mean) * (v[i].active - mean) / n;
    }

    deviation = sqrt(deviation);
    memset(score, 0, sizeof(score));

    /* only the least loaded are compared by their caches */

    skewed = most > 2 * (mean + 1) && most - least >= 8;

    for (i = 0; i < n; i++) {

        if (v[i].matched == 0
            || (skewed && v[i].active != least)
            || v[i].active > mean + deviation)
        {
            score[i] = -INFINITY;
            continue;
        }

        /* first whole percents of the prompt, then requests */

        score[i] = (uint64_t) v[i].matched * 100
                   / kvr_max(tokens / KVS_UNIT_TOKENS * KVS_UNIT_TOKENS, 1)
                   * 1e6 - v[i].active;
    }

    best = kvs_best(score, n, rng);

    if (score[best] == -INFINITY) {

        for (i = 0; i < n; i++) {
            score[i] = -(double) v[i].active;
        }

        best = kvs_best(score, n, rng);
    }

    return best;
}


#define KVS_RAMJET_BLOCK   512       /* tokens: 2 KB */
#define KVS_RAMJET_MOST    32        /* blocks that count */
#define KVS_RAMJET_ALPHA   4
#define KVS_RAMJET_UNIT    32768     /* bytes */
#define KVS_RAMJET_UNITS   8


uint32_t
kvs_ramjet_units(uint64_t bytes, uint64_t matched)
{
    uint64_t  units;

    units = (bytes - kvr_min(matched, bytes) + KVS_RAMJET_UNIT - 1)
            / KVS_RAMJET_UNIT;

    return (uint32_t) kvr_min(kvr_max(units, 1), KVS_RAMJET_UNITS);
}


uint32_t
kvs_pick_ramjet(const kvs_view_t *v, uint32_t n, uint32_t turn)
{
    int       score, most;
    uint32_t  i, k, best, overlap;

    best = n;
    most = 0;

    for (k = 0; k < n; k++) {

        /* it ranks (index + rotation) % n from 0 up */

        i = (k + n - turn % n) % n;

        overlap = v[i].matched / KVS_RAMJET_BLOCK;
        score = (int) kvr_min(overlap, KVS_RAMJET_MOST)
                - KVS_RAMJET_ALPHA * (int) v[i].units;

        if (best == n || score > most
            || (score == most
                && overlap > v[best].matched / KVS_RAMJET_BLOCK))
        {
            most = score;
            best = i;
        }
    }

    return best;
}
