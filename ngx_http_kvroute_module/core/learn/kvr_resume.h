
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_RESUME_H_INCLUDED_
#define _KVR_RESUME_H_INCLUDED_


/*
 * Learns where prompts resume.  An engine of a hybrid model (attention mixed
 * with recurrent layers) resumes only where it kept a recurrent state: at some
 * of the multiples of a few hundred tokens.  Only the numbers of cached tokens
 * show where.
 *
 * The step is the greatest common divisor of these numbers.  An attention
 * model resumes at each block of 16 to 64 tokens, so its step soon becomes
 * small, and is learned again from time to time.  For a model with a large
 * step, the share of common prefixes that it delivers is learned as well.
 *
 * It is in shared memory, one for each upstream; each word is independent.
 */


#include "core/base/kvr_chain.h"


#define KVR_RESUME_STEP    256       /* tokens; smaller steps are blocks */
#define KVR_RESUME_ENOUGH  6         /* numbers needed for a step */
#define KVR_RESUME_AGAIN   64        /* numbers until a small step expires */
#define KVR_RESUME_LONG    (1 << 22) /* tokens at which sums are halved */


typedef struct {
    _Atomic uint32_t   step;         /* greatest common divisor, tokens; 0:
                                        none seen */
    _Atomic uint32_t   last;         /* cached tokens of the last response */
    _Atomic uint32_t   seen;         /* numbers that differ from the one before,
                                        or are less than what was inserted */
    _Atomic uint32_t   common;       /* tokens inserted before, decaying */
    _Atomic uint32_t   whole;        /* the same in whole steps */
    _Atomic uint32_t   kept;         /* of these, delivered */
} kvr_resume_t;


/* Returns the tokens between places to resume at; 0: any block. */
static inline uint32_t
kvr_resume_step(const kvr_resume_t *r)
{
    uint32_t  step;

    step = kvr_get(&r->step);

    return step >= KVR_RESUME_STEP && kvr_get(&r->seen) >= KVR_RESUME_ENOUGH
           ? step : 0;
}


/* Returns how many of the units a peer can deliver; bytes: of a token. */
static inline uint32_t
kvr_resume_units(const kvr_resume_t *r, uint32_t units, double bytes)
{
    double    step;
    uint32_t  whole;

    step = kvr_resume_step(r) * bytes / KVR_BLOCK;
    whole = kvr_get(&r->whole);

    if (!(step > 0)) {
        return units;
    }

    units = (uint32_t) ((uint32_t) (units / step) * step);

    return whole ? (uint32_t) ((uint64_t) units
                               * kvr_min(kvr_get(&r->kept), whole) / whole)
                 : units;
}


/* Returns the share of a common prefix that cannot be reused, 0 to 1. */
static inline double
kvr_resume_lost(const kvr_resume_t *r)
{
    double  common;

    common = kvr_get(&r->common);

    return common > 0 ? 1 - kvr_min(kvr_get(&r->kept), common) / common : 0;
}


/* Takes a response: tokens inserted before, and tokens delivered. */
static inline void
kvr_resume_take(kvr_resume_t *r, uint32_t common, uint32_t cached)
{
    uint32_t  a, b, t;

    if (cached && (cached != kvr_get(&r->last)
                   || common > cached + KVR_RESUME_STEP))
    {

        kvr_set(&r->last, cached);

        a = kvr_get(&r->step);

        if (a && a < KVR_RESUME_STEP && kvr_get(&r->seen) > KVR_RESUME_AGAIN) {
            a = 0;
            kvr_set(&r->seen, 0);
            kvr_set(&r->common, 0);
            kvr_set(&r->whole, 0);
            kvr_set(&r->kept, 0);
        }

        for (b = cached; a; t = b % a, b = a, a = t) { /* void */ }

        kvr_set(&r->step, b);
        kvr_add(&r->seen, 1);
    }

    t = kvr_resume_step(r);

    if (t == 0) {
        return;
    }

    /* whatever an engine reports, the sums do not overflow */

    common = kvr_min(common, KVR_RESUME_LONG);

    if (kvr_get(&r->common) > KVR_RESUME_LONG) {
        kvr_set(&r->common, kvr_get(&r->common) / 2);
        kvr_set(&r->whole, kvr_get(&r->whole) / 2);
        kvr_set(&r->kept, kvr_get(&r->kept) / 2);
    }

    kvr_add(&r->common, common);
    kvr_add(&r->whole, common / t * t);
    kvr_add(&r->kept, kvr_min(cached, common / t * t));
}


#endif /* _KVR_RESUME_H_INCLUDED_ */
