
/*
 * Copyright (C) kvroute contributors
 */


#include "core/legs/kvr_pull.h"


static int kvr_pull_less(const kvr_candidate_t *a, const kvr_candidate_t *b);


void
kvr_pull(kvr_pull_t *p, kvr_candidate_t *cand, uint32_t n)
{
    uint32_t          i;
    uint64_t          bytes, shared, load;
    kvr_candidate_t  *c, *source;

    p->source = KVR_PULL_NONE;
    p->held = 0;
    source = NULL;

    for (i = 0; i < n && p->transfer < 1; i++) {
        c = &cand[i];

        if (c->matched > c->pending && !c->unhealthy && !c->sick
            && (source == NULL || kvr_pull_less(c, source)))
        {
            source = c;
            p->source = i;
        }
    }

    if (source == NULL) {
        return;
    }

    p->held = source->matched;

    for (i = 0; i < n; i++) {
        c = &cand[i];

        if (c->matched + p->min > p->held) {
            continue;
        }

        bytes = p->held - c->matched;
        shared = kvr_min(c->shared, bytes);
        load = (uint64_t) (int64_t) (p->transfer
                                     * (double) (int64_t) (bytes - shared));

        c->matched = p->held;
        c->shared -= shared;
        c->load += load;
        c->fetch = load;

        /* the load itself counts as uncached */

        c->pending += (bytes - shared - load) * KVR_SCORE_MOVE / 4
                      + (uint64_t) (int64_t) ((double) (int64_t) (bytes - load)
                                              * (double) c->turnover);
    }
}


/* Tells whether a is the better source. */
static int
kvr_pull_less(const kvr_candidate_t *a, const kvr_candidate_t *b)
{
    return a->matched > b->matched
           || (a->matched == b->matched && a->active > b->active);
}
