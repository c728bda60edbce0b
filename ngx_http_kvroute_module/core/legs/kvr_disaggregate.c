
/*
 * Copyright (C) kvroute contributors
 */


#include "core/legs/kvr_disaggregate.h"


kvr_disaggregate_e
kvr_disaggregate_worth(const kvr_disaggregate_t *d)
{
    if (d->bytes < d->min) {
        return KVR_DISAGGREGATE_SHORT;
    }

    if (d->bytes - kvr_min(d->held, d->bytes) < d->min) {
        return KVR_DISAGGREGATE_CACHED;
    }

    return KVR_DISAGGREGATE_YES;
}


void
kvr_disaggregate_candidate(kvr_candidate_t *c, uint64_t bytes, double transfer)
{
    double    time;
    uint64_t  lacks;

    lacks = bytes - kvr_min(c->matched, bytes);

    time = transfer * (double) (int64_t) lacks
           * (1 + KVR_DISAGGREGATE_ENDS * (double) (int32_t) c->unanswered);

    c->pending += (uint64_t) (int64_t) kvr_min(time, KVR_DISAGGREGATE_MOST);
    c->matched = bytes;

    /* nobody gains by what is only copied there */

    c->shared = 0;
}


kvr_disaggregate_e
kvr_disaggregate(const kvr_disaggregate_t *d, double plain, double prefill,
    double decode)
{
    uint64_t  lacks;

    lacks = d->bytes - kvr_min(d->held, d->bytes);

    plain += KVR_DISAGGREGATE_STREAM * (double) (int64_t) lacks
             * (double) (int32_t) d->streams;

    if (d->always || prefill + decode + KVR_DISAGGREGATE_HOP < plain) {
        return KVR_DISAGGREGATE_YES;
    }

    return KVR_DISAGGREGATE_COST;
}
