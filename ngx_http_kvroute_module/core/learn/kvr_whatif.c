
/*
 * Copyright (C) kvroute contributors
 */


#include "core/learn/kvr_whatif.h"


#define KVR_WHATIF_MOST   (1U << 20)    /* units, then all are halved */
#define KVR_WHATIF_COUNT  32768         /* requests, likewise */

#define KVR_WHATIF_LEAST  4             /* log2 of the first class's end */
#define KVR_WHATIF_AGE    12            /* class of the first of the ages */

/*
 * Blocks of requests in flight are not evicted.  More capacity is for the
 * others alone, who gain that much more.  Found in the simulator: part of what
 * these requests use is used by others too.
 */
#define KVR_WHATIF_PINNED  0.25


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


static double kvr_whatif_scaled(double share, double now, double then);
static void kvr_whatif_fade(kvr_whatif_t *w);
static uint32_t kvr_whatif_log(uint64_t n, uint32_t parts, uint32_t classes);
static double kvr_whatif_value(double class, uint32_t parts);
static double kvr_whatif_quantile(const _Atomic uint16_t *seen,
    uint32_t classes, uint32_t parts, double part);
static double kvr_whatif_bound(uint32_t class);
static double kvr_whatif_below(const kvr_whatif_t *w, double age);
static double kvr_whatif_age(const kvr_whatif_t *w, double size);
static double kvr_whatif_work(const kvr_whatif_t *w, double age);


void
kvr_whatif_prompt(kvr_whatif_t *w, uint32_t units, uint32_t matched,
    uint64_t used)
{
    uint32_t           class;
    _Atomic uint16_t  *work;

    if (kvr_unlikely(kvr_get(&w->units) > KVR_WHATIF_MOST
                     || kvr_get(&w->requests) > KVR_WHATIF_COUNT))
    {
        kvr_whatif_fade(w);
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
         i < (sizeof(kvr_whatif_t) - offsetof(kvr_whatif_t, work))
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
kvr_whatif_moved(kvr_whatif_t *w, uint32_t reply, uint32_t moved)
{
    kvr_set(&w->replies, kvr_get(&w->replies) + reply);
    kvr_set(&w->moved, kvr_get(&w->moved) + moved);
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
    kvr_set(&w->prompt, kvr_get(&w->prompt) + prompt);
    kvr_set(&w->cached, kvr_get(&w->cached) + kvr_min(cached, prompt));
}


int
kvr_whatif_estimate(const kvr_whatif_t *w, kvr_whatif_change_e change,
    uint32_t peers, kvr_whatif_estimate_t *e)
{
    int       more;
    double    times, used, now, share, least, work, part;
    uint32_t  requests;

    requests = kvr_get(&w->requests);
    more = kvr_whatif_changes[change].peers;

    if (requests < KVR_WHATIF_ENOUGH || (int) peers + more < 1) {
        return KVR_DECLINED;
    }

    part = (double) ((int) peers + more) / peers;
    times = kvr_whatif_changes[change].times * part;

    if (!kvr_whatif_changes[change].host) {
        used = (double) kvr_get(&w->used) / KVR_WHATIF_ONE / requests;
        times += KVR_WHATIF_PINNED * (times - 1) * used;
    }

    /* what engines deliver, or what is predicted */

    share = (double) kvr_get(&w->matched) / kvr_get(&w->units);

    if (kvr_get(&w->prompt)) {
        share = (double) kvr_get(&w->cached) / kvr_get(&w->prompt);
    }

    now = kvr_whatif_share(w, 1);
    e->cached = share;

    if (change == KVR_WHATIF_PERFECT) {
        e->cached *= kvr_get(&w->matched)
                     ? kvr_whatif_below(w, 1) * kvr_get(&w->units)
                       / kvr_get(&w->matched)
                     : 1;

    } else if (change != KVR_WHATIF_NOW && now > 0) {
        e->cached = kvr_whatif_scaled(share, now, kvr_whatif_share(w, times));
    }

    e->cached = kvr_min(e->cached, 1);
    e->load = share < 1 ? (1 - e->cached) / (1 - share) / part : 1;

    /* the P95, beyond what all first tokens take */

    e->first = kvr_whatif_quantile(w->first, KVR_WHATIF_TIMES, 4, 0.95) / 1e3;
    least = kvr_whatif_quantile(w->first, KVR_WHATIF_TIMES, 4, 0.05) / 1e3;
    work = kvr_whatif_quantile(w->work, KVR_WHATIF_WORKS, 2, 0.95);

    if (change != KVR_WHATIF_NOW && change != KVR_WHATIF_PERFECT && work > 0) {
        e->first = least + (e->first - least)
                   * kvr_whatif_work(w, kvr_whatif_age(w, times)) / work;
    }

    return KVR_OK;
}


/*
 * Returns what will be delivered, where the curve says now and then, and share
 * is delivered now.  A loss is in proportion to what is cached.  Of gains, one
 * bound is that, the other one in proportion to what is not cached.
 */
static double
kvr_whatif_scaled(double share, double now, double then)
{
    double  most;

    most = share * then / now;

    return then <= now || now >= 1
           ? most : (most + 1 - (1 - share) * (1 - then) / (1 - now)) / 2;
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


/* Returns how long caches of a size, in capacities, keep blocks. */
static double
kvr_whatif_age(const kvr_whatif_t *w, double size)
{
    double    from, to, add, below, next, prompts;
    uint32_t  i, units, moved;

    units = kvr_get(&w->units) + kvr_get(&w->replies);
    moved = kvr_get(&w->moved) + kvr_get(&w->replies);

    if (moved == 0) {
        return size;
    }

    /* P counts replies, which are never used before */

    prompts = (double) kvr_get(&w->units) / units;
    size *= (double) moved / units;

    for (i = 0, from = 0, below = 0; i < KVR_WHATIF_CLASSES; i++) {
        to = kvr_whatif_bound(i + 1);
        next = kvr_whatif_below(w, to);
        add = (to - from) * (1 - prompts * (below + next) / 2);

        if (size < add) {
            return from + (to - from) * size / add;
        }

        size -= add;
        from = to;
        below = next;
    }

    return from;
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
