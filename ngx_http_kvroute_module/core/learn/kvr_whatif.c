
/*
 * Copyright (C) kvroute contributors
 */


#include "core/learn/kvr_tier.h"
#include "core/learn/kvr_whatif.h"


#define KVR_WHATIF_MOST   (1U << 20)    /* units, then all are halved */
#define KVR_WHATIF_COUNT  32768         /* requests, likewise */

#define KVR_WHATIF_LEAST  4             /* log2 of the first class's end */
#define KVR_WHATIF_AGE    12            /* class of the first of the ages */

/*
 * Blocks of requests in flight are not evicted.  Another capacity is one for
 * the others alone.  Found in the simulator: part of what these requests use is
 * used by others too.
 */
#define KVR_WHATIF_PINNED  0.2

/* log2 of the ms in which time is counted; a longer pause does not count */
#define KVR_WHATIF_TICK   6
#define KVR_WHATIF_PAUSE  (60000 >> KVR_WHATIF_TICK)

/* the P95 of an exponential time, its mean being 1 */
#define KVR_WHATIF_P95    3.0
#define KVR_WHATIF_BUSY   0.95          /* at most */

/*
 * What is stated of errors: sizes were wrong by this at most, and in any case
 * shares by that, and times by that part.
 */
#define KVR_WHATIF_WRONG   1.25
#define KVR_WHATIF_OFF     0.04
#define KVR_WHATIF_LATE    0.15


/* what a change does; sizes in capacities */
static const struct {
    const char  *name;
    double       times;
    int          peers;
    int          host;
} kvr_whatif_changes[] = {
    { "now", 1, 0, 0 },
    { "one_less", 1, -1, 0 },
    { "one_more", 1, 1, 0 },
    { "half", 0.5, 0, 0 },
    { "twice", 2, 0, 0 },
    { "four_times", 4, 0, 0 },
    { "host_2", 2, 0, 1 },
    { "host_4", 4, 0, 1 },
    { "host_8", 8, 0, 1 },
    { "perfect_routing", 1, 0, 0 }
};

_Static_assert(kvr_nelts(kvr_whatif_changes) == KVR_WHATIF_CHANGES, "changes");


/* what estimates start from */
typedef struct {
    double    share;            /* that is delivered */
    double    first[3];         /* P5, P50 and P95 of first tokens, ms */
    double    work[3];          /* of units that prompts compute */
    double    busy;             /* part of the time that peers compute */
    uint32_t  peers;
} kvr_whatif_today_t;


static void kvr_whatif_of(const kvr_whatif_t *w, kvr_whatif_change_e change,
    double times, const kvr_whatif_today_t *today, kvr_whatif_estimate_t *e);
static void kvr_whatif_fade(kvr_whatif_t *w);
static uint32_t kvr_whatif_log(uint64_t n, uint32_t parts, uint32_t classes);
static double kvr_whatif_value(double class, uint32_t parts);
static double kvr_whatif_quantile(const _Atomic uint16_t *seen,
    uint32_t classes, uint32_t parts, double part);
static double kvr_whatif_bound(uint32_t class);
static double kvr_whatif_below(const kvr_whatif_t *w, double age);
static double kvr_whatif_age(const kvr_whatif_t *w, double times);
static void kvr_whatif_today(const kvr_whatif_t *w,
    kvr_whatif_today_t *today);
static double kvr_whatif_wait(double busy, uint32_t peers);
static double kvr_whatif_work(const kvr_whatif_t *w, double age);


void
kvr_whatif_prompt(kvr_whatif_t *w, uint32_t units, uint32_t matched,
    uint64_t used, uint64_t now)
{
    uint32_t           class;
    uint64_t           passed;
    _Atomic uint16_t  *work;

    if (kvr_unlikely(kvr_get(&w->units) > KVR_WHATIF_MOST
                     || kvr_get(&w->requests) > KVR_WHATIF_COUNT))
    {
        kvr_whatif_fade(w);
    }

    passed = (now >> KVR_WHATIF_TICK)
             - (kvr_get(&w->last) >> KVR_WHATIF_TICK);
    kvr_set(&w->last, now);

    if (passed < KVR_WHATIF_PAUSE) {
        kvr_set(&w->time, kvr_get(&w->time) + (uint32_t) passed);
    }

    matched = kvr_min(matched, units);
    class = kvr_whatif_log(units - matched, 2, KVR_WHATIF_WORKS);
    work = &w->work[class];

    kvr_set(&w->units, kvr_get(&w->units) + units);
    kvr_set(&w->matched, kvr_get(&w->matched) + matched);
    kvr_set(&w->requests, kvr_get(&w->requests) + 1);
    kvr_set(&w->used, kvr_get(&w->used)
                      + (uint32_t) kvr_min(used, KVR_WHATIF_ONE));
    kvr_set(work, (uint16_t) (kvr_get(work) + 1));
}


static void
kvr_whatif_fade(kvr_whatif_t *w)
{
    size_t             i;
    _Atomic uint16_t  *half;
    _Atomic uint32_t  *word;

    word = &w->units;

    for (i = 0; i < offsetof(kvr_whatif_t, work) / sizeof(uint32_t); i++) {
        kvr_set(&word[i], kvr_get(&word[i]) / 2);
    }

    half = w->work;

    for (i = 0;
         i < (offsetof(kvr_whatif_t, last) - offsetof(kvr_whatif_t, work))
             / sizeof(uint16_t);
         i++)
    {
        kvr_set(&half[i], kvr_get(&half[i]) / 2);
    }
}


uint32_t
kvr_whatif_class(uint32_t age)
{
    uint32_t  log;

    if (age < 1 << KVR_WHATIF_LEAST) {
        return 0;
    }

    log = 31 - (uint32_t) __builtin_clz(age);

    return kvr_min((log - KVR_WHATIF_LEAST) * 4 + (age >> (log - 2) & 3),
                   KVR_WHATIF_CLASSES - 1);
}


void
kvr_whatif_reused(kvr_whatif_t *w, uint32_t units, uint32_t class,
    uint32_t depth, uint32_t n, uint32_t *ages)
{
    uint32_t           work;
    _Atomic uint16_t  *fresh;

    kvr_set(&w->reused[class], kvr_get(&w->reused[class]) + n);

    work = kvr_whatif_log(units - kvr_min(depth, units), 2, KVR_WHATIF_WORKS);

    /* blocks are kept for these ages, and not for the others */

    while (*ages
           && (depth == 0 || class < KVR_WHATIF_AGE + 2 * (*ages - 1)))
    {
        (*ages)--;
        fresh = &w->fresh[*ages][work];
        kvr_set(fresh, (uint16_t) (kvr_get(fresh) + 1));
    }
}


void
kvr_whatif_reply(kvr_whatif_t *w, uint32_t units)
{
    kvr_set(&w->replies, kvr_get(&w->replies) + units);
}


void
kvr_whatif_first(kvr_whatif_t *w, uint64_t ms)
{
    _Atomic uint16_t  *first;

    first = &w->first[kvr_whatif_log(ms, 4, KVR_WHATIF_TIMES)];

    kvr_set(first, (uint16_t) (kvr_get(first) + 1));
}


void
kvr_whatif_delivered(kvr_whatif_t *w, uint32_t prompt, uint32_t cached)
{
    /* absurd counts of an engine would wrap the sum */

    if (prompt > UINT32_MAX - kvr_get(&w->prompt)) {
        return;
    }

    kvr_set(&w->prompt, kvr_get(&w->prompt) + prompt);
    kvr_set(&w->cached, kvr_get(&w->cached) + kvr_min(cached, prompt));
}


int
kvr_whatif_estimate(const kvr_whatif_t *w, kvr_whatif_change_e change,
    uint32_t peers, kvr_whatif_estimate_t *e)
{
    int                     more;
    double                  times, used, share, part;
    uint32_t                requests;
    kvr_whatif_today_t      today;
    kvr_whatif_estimate_t   less, most;

    requests = kvr_get(&w->requests);
    more = kvr_whatif_changes[change].peers;

    if (requests < KVR_WHATIF_ENOUGH || (int) peers + more < 1) {
        return KVR_DECLINED;
    }

    part = (double) ((int) peers + more) / peers;

    /* host memory has no requests in flight */

    used = KVR_WHATIF_PINNED * kvr_get(&w->used) / KVR_WHATIF_ONE / requests;
    times = kvr_whatif_changes[change].times * part
            - (kvr_whatif_changes[change].host ? 0 : used);
    times /= 1 - used;

    /* the share that engines deliver, or the predicted one */

    share = (double) kvr_get(&w->matched) / kvr_get(&w->units);

    if (kvr_get(&w->prompt)) {
        share = (double) kvr_get(&w->cached) / kvr_get(&w->prompt);
    }

    share = kvr_min(share, 1);

    if (change == KVR_WHATIF_NOW || change == KVR_WHATIF_PERFECT) {

        e->cached = share;
        e->first = kvr_whatif_quantile(w->first, KVR_WHATIF_TIMES, 4, 0.95)
                   / 1e3;

        if (change == KVR_WHATIF_PERFECT && kvr_get(&w->matched)) {
            e->cached *= kvr_whatif_below(w, 1) * kvr_get(&w->units)
                         / kvr_get(&w->matched);
        }

        e->cached = kvr_min(e->cached, 1);
        e->load = share < 1 ? (1 - e->cached) / (1 - share) : 1;

        e->low = e->cached;
        e->high = e->cached;
        e->soonest = e->first;
        e->latest = e->first;

        return KVR_OK;
    }

    today.share = share;
    today.peers = peers;

    kvr_whatif_today(w, &today);

    kvr_whatif_of(w, change, times, &today, e);
    kvr_whatif_of(w, change, times / KVR_WHATIF_WRONG, &today, &less);
    kvr_whatif_of(w, change, times * KVR_WHATIF_WRONG, &today, &most);

    e->low = kvr_max(kvr_min(less.cached, e->cached - KVR_WHATIF_OFF), 0);
    e->high = kvr_min(kvr_max(most.cached, e->cached + KVR_WHATIF_OFF), 1);
    e->soonest = kvr_min(most.first, e->first) * (1 - KVR_WHATIF_LATE);
    e->latest = kvr_max(less.first, e->first) * (1 + KVR_WHATIF_LATE);

    return KVR_OK;
}


/*
 * Estimates the cached share with caches of "times" today's size.  A loss is in
 * proportion to the cached part, a gain to the rest.
 */
static void
kvr_whatif_of(const kvr_whatif_t *w, kvr_whatif_change_e change, double times,
    const kvr_whatif_today_t *today, kvr_whatif_estimate_t *e)
{
    double    age, now, then, share, least, all, work;
    uint32_t  n, peers;

    share = today->share;
    peers = today->peers;
    age = kvr_whatif_age(w, times);
    now = kvr_whatif_below(w, 1);
    then = kvr_whatif_below(w, age);

    e->cached = share;

    if (now > 0 && now < 1) {
        e->cached = then < now ? share * then / now
                               : 1 - (1 - share) * kvr_max(1 - then, 0)
                                   / (1 - now);
    }

    n = (uint32_t) ((int) peers + kvr_whatif_changes[change].peers);

    e->load = share < 1 ? (1 - e->cached) / (1 - share) * peers / n : 1;

    /* the P95, beyond what all first tokens take */

    all = today->first[2] / 1e3;
    least = today->first[0] / 1e3;
    work = today->work[2];

    e->first = all;

    if (work > 0) {
        e->first = least + (all - least) * kvr_whatif_work(w, age) / work
                           * (1 + kvr_whatif_wait(today->busy * e->load, n))
                           / (1 + kvr_whatif_wait(today->busy, peers));
    }

    if (kvr_whatif_changes[change].host) {
        e->first += kvr_max(all - e->first, 0) * KVR_TIER_HOST_PRICE
                    / KVR_TIER_ONE;
    }
}


/*
 * Finds today's quantiles, and the part of the time that peers compute prompts.
 * A unit takes as long as the middle of the prompts say, or the large ones, if
 * that is less.
 */
static void
kvr_whatif_today(const kvr_whatif_t *w, kvr_whatif_today_t *today)
{
    double    unit, *first, *work;
    uint32_t  i;

    static const double  part[] = { 0.05, 0.5, 0.95 };

    first = today->first;
    work = today->work;

    for (i = 0; i < 3; i++) {
        first[i] = kvr_whatif_quantile(w->first, KVR_WHATIF_TIMES, 4, part[i]);
        work[i] = kvr_whatif_quantile(w->work, KVR_WHATIF_WORKS, 2, part[i]);
    }

    unit = kvr_min((first[1] - first[0]) / kvr_max(work[1] - work[0], 1),
                   (first[2] - first[0]) / kvr_max(work[2] - work[0], 1));

    today->busy = unit * KVR_WHATIF_SAMPLE
                  * (kvr_get(&w->units) - kvr_get(&w->matched))
                  / kvr_max((double) kvr_get(&w->time) * (1 << KVR_WHATIF_TICK),
                            1)
                  / today->peers;
}


/* Returns the P95 of the wait, over the time that computing takes. */
static double
kvr_whatif_wait(double busy, uint32_t peers)
{
    double    blocked, waits;
    uint32_t  i;

    busy = kvr_min(busy, KVR_WHATIF_BUSY);

    for (i = 1, blocked = 1; i <= peers; i++) {
        blocked *= busy * peers / (i + busy * peers * blocked);
    }

    waits = blocked / (1 - busy * (1 - blocked));

    return KVR_WHATIF_P95 * waits / (peers * (1 - busy));
}


double
kvr_whatif_share(const kvr_whatif_t *w, double times)
{
    return kvr_whatif_below(w, kvr_whatif_age(w, times));
}


const char *
kvr_whatif_name(kvr_whatif_change_e change)
{
    return kvr_whatif_changes[change].name;
}


/* Returns the class of a number.  parts: classes of a doubling, 2 or 4. */
static uint32_t
kvr_whatif_log(uint64_t n, uint32_t parts, uint32_t classes)
{
    uint32_t  log, x;

    x = (uint32_t) kvr_min(n, 1 << 24) * 4 + 4;
    log = 31 - (uint32_t) __builtin_clz(x);

    return kvr_min((log - 2) * parts + (x >> (log - 2) & 3) * parts / 4,
                   classes - 1);
}


/* Returns the number at a place between two bounds of such classes. */
static double
kvr_whatif_value(double class, uint32_t parts)
{
    double    part;
    uint32_t  n;

    n = (uint32_t) class;
    part = (n % parts + class - n) / parts;

    return (double) (UINT64_C(1) << n / parts) * (1 + part) - 1;
}


static double
kvr_whatif_quantile(const _Atomic uint16_t *seen, uint32_t classes,
    uint32_t parts, double part)
{
    double    sum, n;
    uint32_t  i;

    for (i = 0, sum = 0; i < classes; i++) {
        sum += kvr_get(&seen[i]);
    }

    for (i = 0, sum *= part; i < classes; i++) {
        n = kvr_get(&seen[i]);

        if (n > 0 && sum <= n) {
            return kvr_whatif_value(i + sum / n, parts);
        }

        sum -= n;
    }

    return 0;
}


/* Returns the lowest age of a class, in capacities. */
static double
kvr_whatif_bound(uint32_t class)
{
    return class == 0 ? 0
           : (double) ((4 + class % 4) << class / 4) * (1 << KVR_WHATIF_LEAST)
             / 4 / KVR_WHATIF_ONE;
}


/* Returns the share of units below an age. */
static double
kvr_whatif_below(const kvr_whatif_t *w, double age)
{
    double    sum, from, to;
    uint32_t  i;

    for (i = 0, sum = 0, from = 0; i < KVR_WHATIF_CLASSES && from < age; i++) {
        to = kvr_whatif_bound(i + 1);
        sum += kvr_get(&w->reused[i])
               * kvr_min((age - from) / (to - from), 1);
        from = to;
    }

    return sum / kvr_max(kvr_get(&w->units), 1);
}


/* Returns how long caches of this multiple of today's size keep blocks. */
static double
kvr_whatif_age(const kvr_whatif_t *w, double times)
{
    double    from, to, units, prompts, below, next, all, size;
    double    add[KVR_WHATIF_CLASSES];
    uint32_t  i, today;

    units = kvr_get(&w->units);

    /* P counts replies, which are never used before */

    prompts = units / kvr_max(units + kvr_get(&w->replies), 1);
    today = kvr_whatif_class(KVR_WHATIF_ONE);

    /* by class, the size of what a cache keeps of its ages */

    for (i = 0, below = 0, size = 0, all = 0; i < KVR_WHATIF_CLASSES; i++) {
        all += kvr_get(&w->reused[i]);
        next = all / kvr_max(units, 1);

        add[i] = (kvr_whatif_bound(i + 1) - kvr_whatif_bound(i))
                 * (1 - prompts * (below + next) / 2);

        size += i < today ? add[i] : 0;
        below = next;
    }

    for (i = 0, size *= times; i < KVR_WHATIF_CLASSES; i++) {

        if (size < add[i]) {
            from = kvr_whatif_bound(i);
            to = kvr_whatif_bound(i + 1);

            return from + (to - from) * size / add[i];
        }

        size -= add[i];
    }

    return kvr_whatif_bound(i);
}


/* Returns the P95 of the units that a prompt computes. */
static double
kvr_whatif_work(const kvr_whatif_t *w, double age)
{
    double    from, to, part, works[2];
    uint32_t  i;

    for (i = 0; i < KVR_WHATIF_AGES - 2; i++) {
        if (age < kvr_whatif_bound(KVR_WHATIF_AGE + 2 * (i + 1))) {
            break;
        }
    }

    from = kvr_whatif_bound(KVR_WHATIF_AGE + 2 * i);
    to = kvr_whatif_bound(KVR_WHATIF_AGE + 2 * (i + 1));
    part = (age - from) / (to - from);
    part = part < 0 ? 0 : kvr_min(part, 1);

    works[0] = kvr_whatif_quantile(w->fresh[i], KVR_WHATIF_WORKS, 2, 0.95);
    works[1] = kvr_whatif_quantile(w->fresh[i + 1], KVR_WHATIF_WORKS, 2, 0.95);

    return works[0] + (works[1] - works[0]) * part;
}
