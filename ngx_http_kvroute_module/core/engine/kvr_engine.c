
/*
 * Copyright (C) kvroute contributors
 */


#include "core/engine/kvr_engine.h"


/* ms; engines report start times in seconds, some of them rounded */
#define KVR_ENGINE_START_SLACK  2000

/* ms, assumed interval between reports without probes */
#define KVR_ENGINE_INTERVAL     1000

/* ms, see kvr_engine_same(): doubt after fallen counters, longest interval */
#define KVR_ENGINE_DOUBT        60000
#define KVR_ENGINE_SOON         3000


static const char *const  kvr_healths[] = { "up", "starting", "down" };

_Static_assert(kvr_nelts(kvr_healths) == KVR_HEALTH_MAX, "kvr_healths");


static void kvr_engine_report(kvr_engine_t *s, uint64_t tokens,
    unsigned restarted, uint64_t now);
static int kvr_engine_recent(uint64_t time, uint64_t now,
    uint64_t interval);
static int kvr_engine_restarted(const kvr_engine_t *s,
    const kvr_metrics_t *m);
static int kvr_engine_fallen(const kvr_engine_t *s, const kvr_metrics_t *m);
static double kvr_engine_aged(uint64_t time, uint64_t now, uint64_t interval);
static int kvr_engine_fell(_Atomic uint64_t const *old, uint64_t new);
static void kvr_engine_preempted(kvr_engine_t *s, const kvr_metrics_t *m,
    unsigned restarted);
static void kvr_engine_foreign(kvr_engine_t *s, const kvr_metrics_t *m,
    uint32_t own);


void
kvr_engine_reset(kvr_engine_t *s)
{
    memset((void *) s, 0, sizeof(kvr_engine_t));
}


unsigned
kvr_engine_take(kvr_engine_t *s, const kvr_metrics_t *m, uint32_t before,
    uint32_t after, uint64_t now)
{
    unsigned  i, found;

    found = 0;

    if (kvr_engine_back(s, now)) {
        found |= KVR_ENGINE_RESTARTED;

    } else if (kvr_engine_restarted(s, m)) {
        found |= KVR_ENGINE_RESTARTED;
        kvr_engine_renew(s, now);

    } else if (kvr_engine_fallen(s, m)) {
        kvr_set(&s->fell, kvr_max(now, 1));
    }

    kvr_engine_preempted(s, m, found);

    /* requests can start or end during the probe */

    kvr_engine_foreign(s, m, kvr_max(before, after));

    if (m->set & KVR_METRICS_CAPACITY) {
        kvr_engine_report(s, m->capacity, found, now);
    }

    if (m->set & KVR_METRICS_HITS) {
        kvr_set(&s->hits, m->hits);
    }

    if (m->set & KVR_METRICS_QUERIES) {
        kvr_set(&s->queries, m->queries);
    }

    if (m->set & KVR_METRICS_PREEMPTIONS) {
        kvr_set(&s->preemptions, m->preemptions);
    }

    /* the latest one: several engines can share an address */

    if (m->set & KVR_METRICS_START) {
        kvr_set(&s->start, kvr_max(kvr_get(&s->start),
                                   (uint64_t) (m->start * 1000)));
    }

    kvr_set(&s->running, m->running);
    kvr_set(&s->waiting, m->waiting);
    kvr_set(&s->kv, (uint32_t) (m->kv * 10000 + 0.5));
    kvr_set(&s->engine, m->engine);

    if (m->set & KVR_METRICS_LORA) {
        kvr_set(&s->max_loras, m->max_loras);

        for (i = 0; i < m->loras; i++) {
            kvr_set(&s->lora[i], m->lora[i]);
        }

        kvr_set(&s->loras, m->loras);
    }

    kvr_set(&s->set, m->set);
    kvr_set(&s->time, kvr_max(now, 1));

    return found;
}


/* takes a report of the capacity */
static void
kvr_engine_report(kvr_engine_t *s, uint64_t tokens, unsigned restarted,
    uint64_t now)
{
    uint64_t  old;
    uint32_t  rises;

    old = kvr_get(&s->capacity);
    rises = tokens > old ? kvr_get(&s->rises) + 1 : 0;

    if (rises == 0 || rises == KVR_ENGINE_HOLD || old == 0 || restarted) {
        kvr_set(&s->capacity, tokens);
        rises = 0;
    }

    kvr_set(&s->rises, rises);
    kvr_set(&s->reported, kvr_max(now, 1));
}


uint64_t
kvr_engine_capacity(const kvr_engine_t *s, uint64_t now, uint64_t interval)
{
    return kvr_engine_recent(kvr_get(&s->reported), now, interval)
           ? kvr_get(&s->capacity) : 0;
}


int
kvr_engine_uncached(const kvr_engine_t *s, uint64_t now, uint64_t interval)
{
    return kvr_get(&s->set) & KVR_METRICS_NO_CACHE
           && kvr_engine_recent(kvr_get(&s->time), now, interval);
}


/*
 * Returns whether a report is valid; without probes for the default interval.
 */
static int
kvr_engine_recent(uint64_t time, uint64_t now, uint64_t interval)
{
    interval = interval ? interval : KVR_ENGINE_INTERVAL;

    return time && now <= time + KVR_ENGINE_HOLD * interval;
}


/* Returns whether the process was restarted. */
static int
kvr_engine_restarted(const kvr_engine_t *s, const kvr_metrics_t *m)
{
    uint32_t  set;
    uint64_t  start, old;

    old = kvr_get(&s->start);
    set = kvr_get(&s->set);

    /* a snapshot of the zone can have the start time only */

    if (kvr_get(&s->time) == 0) {
        set = old ? KVR_METRICS_START : 0;
    }

    if (m->set & set & KVR_METRICS_START) {
        start = (uint64_t) (m->start * 1000);

        return start > old + KVR_ENGINE_START_SLACK;
    }

    return kvr_get(&s->time) != 0 && kvr_engine_fallen(s, m);
}


static int
kvr_engine_fallen(const kvr_engine_t *s, const kvr_metrics_t *m)
{
    return (m->set & KVR_METRICS_QUERIES
            && kvr_engine_fell(&s->queries, m->queries))
           || (m->set & KVR_METRICS_HITS
               && kvr_engine_fell(&s->hits, m->hits));
}


void
kvr_engine_renew(kvr_engine_t *s, uint64_t now)
{
    kvr_set(&s->refused, 0);
    kvr_set(&s->foreign_last, 0);
    kvr_set(&s->hits, 0);
    kvr_set(&s->queries, 0);
    kvr_set(&s->set, kvr_get(&s->set)
                     & ~(uint32_t) (KVR_METRICS_START
                                    |KVR_METRICS_PREEMPTIONS));
    kvr_set(&s->renewed, kvr_max(now, 1));
}


void
kvr_engine_refused(kvr_engine_t *s, uint64_t asked)
{
    if (asked > kvr_get(&s->renewed)) {
        kvr_set(&s->refused, kvr_max(asked, 1));
    }
}


int
kvr_engine_back(kvr_engine_t *s, uint64_t now)
{
    if (!kvr_get(&s->refused)) {
        return 0;
    }

    kvr_engine_renew(s, now);

    /* forget the start time: it can be of another engine or a wrong clock */

    kvr_set(&s->start, 0);

    return 1;
}


/* Returns whether a counter fell by half: sums of processes vary a little. */
static int
kvr_engine_fell(_Atomic uint64_t const *old, uint64_t new)
{
    return new < kvr_get(old) / 2;
}


/*
 * Limits the requests of an engine that preempts running requests: to three
 * quarters of those running, then slowly more.
 */
static void
kvr_engine_preempted(kvr_engine_t *s, const kvr_metrics_t *m,
    unsigned restarted)
{
    uint32_t  cap;

    cap = kvr_get(&s->cap);

    if (m->set & kvr_get(&s->set) & KVR_METRICS_PREEMPTIONS && !restarted
        && m->preemptions > kvr_get(&s->preemptions))
    {
        cap = kvr_max(m->running * 3 / 4, 1);

    } else if (cap) {
        cap += cap / 16 + 1;

        /* the limit is twice the load: remove it */

        if (cap > 2 * (m->running + m->waiting) + 16) {
            cap = 0;
        }
    }

    kvr_set(&s->cap, cap);
}


/* Takes the lower value of two probes: a short peak does not count. */
static void
kvr_engine_foreign(kvr_engine_t *s, const kvr_metrics_t *m, uint32_t own)
{
    uint32_t  there, foreign;

    there = m->running + m->waiting;
    foreign = 0;

    if (m->set & KVR_METRICS_RUNNING && there > own) {
        foreign = there - own;
    }

    kvr_set(&s->foreign, kvr_min(foreign, kvr_get(&s->foreign_last)));
    kvr_set(&s->foreign_last, foreign);
}


double
kvr_engine_worth(const kvr_engine_t *s, uint64_t now, uint64_t interval)
{
    return kvr_engine_aged(kvr_get(&s->time), now, interval);
}


int
kvr_engine_same(const kvr_engine_t *s, uint64_t now, uint64_t interval)
{
    uint64_t  fell;

    interval = kvr_min(interval, KVR_ENGINE_SOON);
    fell = kvr_get(&s->fell);

    return kvr_get(&s->set) & (KVR_METRICS_START|KVR_METRICS_QUERIES
                               |KVR_METRICS_HITS)
           && !kvr_get(&s->refused)
           && (fell == 0 || now > fell + KVR_ENGINE_DOUBT)
           && kvr_engine_worth(s, now, interval) > 0.5;
}


static double
kvr_engine_aged(uint64_t time, uint64_t now, uint64_t interval)
{
    uint64_t  age;

    if (time == 0) {
        return 0;
    }

    age = now > time ? now - time : 0;

    if (age <= 2 * interval) {
        return 1;
    }

    if (age >= 5 * interval) {
        return 0;
    }

    return (double) (5 * interval - age) / (double) (3 * interval);
}


int
kvr_engine_check(kvr_engine_t *s, kvr_check_e result, uint32_t fails,
    uint32_t passes, uint64_t interval, uint64_t now)
{
    uint32_t  n;

    kvr_add(&s->checks, 1);
    kvr_set(&s->last, result);

    if (result == KVR_CHECK_FAIL || result == KVR_CHECK_TIMEOUT) {
        kvr_add(&s->checks_failed, 1);
    }

    switch (result) {

    case KVR_CHECK_PASS:
        kvr_set(&s->fails, 0);
        n = kvr_get(&s->passes) + 1;
        kvr_set(&s->passes, n);

        if (kvr_get(&s->health) != KVR_HEALTH_UP && n >= passes) {
            kvr_set(&s->health, KVR_HEALTH_UP);
            return 1;
        }

        return 0;

    case KVR_CHECK_LOADING:
        kvr_set(&s->passes, 0);
        kvr_set(&s->health, KVR_HEALTH_STARTING);
        return 0;

    case KVR_CHECK_TIMEOUT:

        /* it is busy with requests of our clients */

        if (now < kvr_get(&s->success) + (fails + 1) * interval) {
            return 0;
        }

        /* fall through */

    default:
        kvr_set(&s->passes, 0);
        n = kvr_get(&s->fails) + 1;
        kvr_set(&s->fails, n);

        if (n >= fails && kvr_get(&s->health) != KVR_HEALTH_DOWN) {
            kvr_set(&s->health, KVR_HEALTH_DOWN);
            kvr_add(&s->unhealthy, 1);
        }

        return 0;
    }
}


int
kvr_engine_lora(const kvr_engine_t *s, uint64_t lora)
{
    uint32_t  i, n, max;

    n = kvr_min(kvr_get(&s->loras), KVR_METRICS_LORAS);
    max = kvr_get(&s->max_loras);

    for (i = 0; i < n; i++) {
        if (kvr_get(&s->lora[i]) == lora) {
            return 1;
        }
    }

    return max && n >= max ? -1 : 0;
}


const char *
kvr_engine_health_name(kvr_health_e health)
{
    return (unsigned) health < KVR_HEALTH_MAX ? kvr_healths[health] : NULL;
}
