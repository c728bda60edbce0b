
/*
 * Copyright (C) kvroute contributors
 */


/* Runs: recently stored blocks, and the search for those of a request. */


#include "core/alias/kvr_alias_int.h"


/* ms around a first token in which the last event of its prompt comes */
#define KVR_ALIAS_BEFORE    1000
#define KVR_ALIAS_AFTER     1000

/* the same around the usual time, if several runs fit */
#define KVR_ALIAS_SOONER    240
#define KVR_ALIAS_LATER     30
#define KVR_ALIAS_USUAL     8        /* requests that make it usual */

/* runs examined for a request, at most: about 100 us */
#define KVR_ALIAS_LOOKED    16384


static uint64_t kvr_alias_run_since(const kvr_alias_view_t *v, uint64_t time);
static int kvr_alias_run_fits(const kvr_alias_view_t *v,
    const kvr_alias_request_t *r, uint64_t number, uint32_t begin,
    uint32_t end, uint32_t *looked);
static kvr_alias_e kvr_alias_run_among(const kvr_alias_view_t *v,
    const kvr_alias_request_t *r, uint64_t session, uint32_t begin,
    uint32_t end, uint64_t *found);
static void kvr_alias_run_usual(const kvr_alias_view_t *v, int64_t delay);


void
kvr_alias_stored(const kvr_alias_view_t *v, const kvr_kvevent_t *event,
    unsigned source, uint32_t depth, uint64_t now)
{
    uint32_t           i, n, block, tip, back, at_name;
    uint64_t           number, names, parent;
    kvr_alias_t       *a;
    kvr_alias_run_t   *run, *before;
    _Atomic uint32_t  *at;

    a = v->shared;

    if (event->blocks == 0 || event->blocks > v->n) {
        return;
    }

    n = (uint32_t) event->blocks;
    block = event->block ? event->block : (uint32_t) (event->tokens / n);

    if (block == 0) {
        return;
    }

    kvr_set(&a->block, block);

    number = kvr_get(&a->runs);
    names = kvr_get(&a->names);
    run = kvr_alias_run(v, number);

    /* new memory, as after a reload with another "aliases=" */

    if (names == 0) {
        kvr_set(&v->count->used, 0);
    }

    /* if the process is killed here, the run fits nothing */

    kvr_set(&run->blocks, 0);

    back = 0;
    depth = event->rooted ? 0
            : depth == KVR_ALIAS_NOWHERE ? depth : depth / block;

    if (!event->rooted) {
        parent = kvr_mix(event->parent, source);
        tip = kvr_get(&v->tip[kvr_reduce(parent, kvr_alias_runs(v->n))]);
        back = (uint32_t) number - tip;

        /* tip is 0, or the lower bits of a run's number + 1 */

        back = tip ? back + 1 : 0;

        if (back && back < kvr_min(number + 1, kvr_alias_runs(v->n))) {
            before = kvr_alias_run(v, number - back);

            if (kvr_get(&before->last) != parent || !kvr_get(&before->blocks)) {
                back = 0;

            } else if (kvr_get(&before->depth) != KVR_ALIAS_NOWHERE) {
                depth = kvr_get(&before->depth) + kvr_get(&before->blocks);
            }

        } else {
            back = 0;
        }
    }

    at_name = (uint32_t) (names % kvr_alias_names(v->n));

    for (i = 0; i < n; i++) {
        kvr_set(&v->name[at_name],
                i < KVR_KVEVENT_HASHES ? kvr_mix(event->hash[i], source)
                : i + 1 == n ? kvr_mix(event->last, source) : 0);

        at_name = at_name + 1 < kvr_alias_names(v->n) ? at_name + 1 : 0;
    }

    kvr_set(&run->name, names);
    kvr_set(&run->last, kvr_mix(event->last, source));
    kvr_set(&run->time, now);
    kvr_set(&run->session, event->session);
    kvr_set(&run->depth, depth);
    kvr_set(&run->back, back);
    kvr_set(&run->taken, 0);

    atomic_store_explicit(&run->blocks, n, memory_order_release);

    kvr_set(&a->names, names + n);
    kvr_set(&a->runs, number + 1);

    at = &v->tip[kvr_reduce(kvr_get(&run->last), kvr_alias_runs(v->n))];
    kvr_set(at, (uint32_t) number + 1);
}


int
kvr_alias_run_before(const kvr_alias_view_t *v, uint64_t *number)
{
    uint32_t          back;
    uint64_t          age;
    kvr_alias_run_t  *run;

    age = kvr_get(&v->shared->runs) - *number;
    back = kvr_get(&kvr_alias_run(v, *number)->back);

    if (back == 0 || back > *number || age + back > kvr_alias_runs(v->n)) {
        return 0;
    }

    *number -= back;

    run = kvr_alias_run(v, *number);

    return kvr_get(&run->blocks)
           && kvr_get(&v->shared->names) - kvr_get(&run->name)
              <= kvr_alias_names(v->n);
}


/* returns the first run of that time or later */
static uint64_t
kvr_alias_run_since(const kvr_alias_view_t *v, uint64_t time)
{
    uint64_t  low, high, middle;

    high = kvr_get(&v->shared->runs);
    low = high - kvr_min(high, kvr_alias_runs(v->n));

    while (low < high) {
        middle = low + (high - low) / 2;

        if (kvr_get(&kvr_alias_run(v, middle)->time) < time) {
            low = middle + 1;

        } else {
            high = middle;
        }
    }

    return low;
}


/*
 * Returns whether this run and those that it continues are exactly these
 * blocks.  Counts the runs examined.
 */
static int
kvr_alias_run_fits(const kvr_alias_view_t *v, const kvr_alias_request_t *r,
    uint64_t number, uint32_t begin, uint32_t end, uint32_t *looked)
{
    uint32_t          n, depth;
    kvr_alias_run_t  *run;

    for ( ;; ) {
        if (++*looked > KVR_ALIAS_LOOKED) {
            return 0;
        }

        run = kvr_alias_run(v, number);
        n = kvr_get(&run->blocks);
        depth = kvr_get(&run->depth);

        if (n == 0 || n > end - begin
            || (depth != KVR_ALIAS_NOWHERE && depth + n != end))
        {
            return 0;
        }

        end -= n;

        if (end == begin) {
            return begin || depth == 0;
        }

        if (!kvr_alias_run_before(v, &number)
            || kvr_get(&kvr_alias_run(v, number)->time) < r->start)
        {
            return 0;
        }
    }
}


/*
 * Searches by the session, or by the time if the engine does not report
 * sessions.  If it has reported one before, a run without one belongs to
 * another request.
 */
kvr_alias_e
kvr_alias_run_find(const kvr_alias_view_t *v, const kvr_alias_request_t *r,
    uint32_t begin, uint32_t end, uint64_t *found)
{
    kvr_alias_e  rc;

    if (r->session) {
        rc = kvr_alias_run_among(v, r, r->session, begin, end, found);

        if (rc != KVR_ALIAS_MISSING) {
            kvr_set(&v->shared->sessions, 1);
            kvr_add(&v->count->session, rc == KVR_ALIAS_ATTRIBUTED);
            return rc;
        }

        if (kvr_get(&v->shared->sessions)) {
            return KVR_ALIAS_MISSING;
        }
    }

    return kvr_alias_run_among(v, r, 0, begin, end, found);
}


/*
 * Searches the runs of a session, or all runs of about the right time.  If
 * they are too many to examine, the result is ambiguous.
 */
static kvr_alias_e
kvr_alias_run_among(const kvr_alias_view_t *v, const kvr_alias_request_t *r,
    uint64_t session, uint32_t begin, uint32_t end, uint64_t *found)
{
    int32_t           lag;
    int64_t           delay;
    uint32_t          fit, usual, other, looked;
    uint64_t          number, last, time, likely, name;
    kvr_alias_run_t  *run;

    lag = kvr_get(&v->shared->lag);
    name = kvr_get(&v->shared->names);
    last = kvr_get(&v->shared->runs);
    likely = 0;
    fit = 0;
    usual = 0;
    other = 0;
    looked = 0;

    time = session ? r->start
           : kvr_max(r->start, r->first - kvr_min(r->first, KVR_ALIAS_BEFORE));

    for (number = kvr_alias_run_since(v, time); number < last; number++) {

        run = kvr_alias_run(v, number);
        time = kvr_get(&run->time);

        if (!session && time > r->first + KVR_ALIAS_AFTER) {
            break;
        }

        if ((session && kvr_get(&run->session) != session)
            || name - kvr_get(&run->name) > kvr_alias_names(v->n)
            || !kvr_alias_run_fits(v, r, number, begin, end, &looked))
        {
            if (looked > KVR_ALIAS_LOOKED) {
                return KVR_ALIAS_AMBIGUOUS;
            }

            continue;
        }

        if (kvr_get(&run->taken)) {
            other++;

            if (fit == 0) {
                *found = number;
            }

            continue;
        }

        fit++;
        *found = number;

        delay = (int64_t) (time - r->first) - lag;

        if (delay >= -KVR_ALIAS_SOONER && delay <= KVR_ALIAS_LATER) {
            usual++;
            likely = number;
        }
    }

    if (fit == 0) {
        return other == 1 ? KVR_ALIAS_ATTRIBUTED
               : other ? KVR_ALIAS_AMBIGUOUS : KVR_ALIAS_MISSING;
    }

    if (fit > 1) {

        if (usual != 1 || kvr_get(&v->shared->lags) < KVR_ALIAS_USUAL) {
            return KVR_ALIAS_AMBIGUOUS;
        }

        *found = likely;
        return KVR_ALIAS_ATTRIBUTED;
    }

    delay = (int64_t) (kvr_get(&kvr_alias_run(v, *found)->time) - r->first);

    kvr_alias_run_usual(v, delay);

    return KVR_ALIAS_ATTRIBUTED;
}


/* learns the usual time from a request with a single matching run */
static void
kvr_alias_run_usual(const kvr_alias_view_t *v, int64_t delay)
{
    int32_t   lag;
    uint32_t  n;

    /* a session may match at any time */

    if (delay < -KVR_ALIAS_BEFORE || delay > KVR_ALIAS_AFTER) {
        return;
    }

    lag = kvr_get(&v->shared->lag);
    n = kvr_add(&v->shared->lags, 1) + 1;
    n = kvr_min(n, KVR_ALIAS_USUAL);

    kvr_set(&v->shared->lag, lag + ((int32_t) delay - lag) / (int32_t) n);
}
