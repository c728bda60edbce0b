
/*
 * Copyright (C) kvroute contributors
 */


#include "core/legs/kvr_disaggregate.h"
#include "core/learn/kvr_prefill.h"


static int kvr_disaggregate_high(const kvr_disaggregate_t *d,
    kvr_demand_t *demand, uint64_t now);


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


double
kvr_disaggregate_transfer(double transfer, double link, uint32_t rate)
{
    if (link > 0 && rate) {
        transfer = (double) (int32_t) rate / KVR_PREFILL_RATE / link;
    }

    return kvr_min(transfer, KVR_DISAGGREGATE_SLOWEST);
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

    /* a copy does not make the prefix hot */

    c->shared = 0;
}


kvr_disaggregate_e
kvr_disaggregate(const kvr_disaggregate_t *d, kvr_demand_t *demand,
    uint64_t now)
{
    int     high;
    double  lacks, more, time, streams;

    if (d->always) {
        return KVR_DISAGGREGATE_YES;
    }

    lacks = (double) (int64_t) d->plain.lacks;
    more = (double) (int64_t) d->prefill.lacks - lacks;
    time = KVR_DISAGGREGATE_HOP + d->transfer * lacks;
    streams = (double) (int32_t) d->streams;

    high = kvr_disaggregate_high(d, demand, now);

    if (high ? (double) (int64_t) d->prefill.ahead + time
               < (double) (int64_t) d->plain.ahead
                 + streams * lacks / KVR_DISAGGREGATE_STREAM
             : time + KVR_DISAGGREGATE_MORE * more < streams * lacks)
    {
        return KVR_DISAGGREGATE_YES;
    }

    return KVR_DISAGGREGATE_COST;
}


/*
 * whether the prefill servers, or the links of either pool, have too much work
 */
static int
kvr_disaggregate_high(const kvr_disaggregate_t *d, kvr_demand_t *demand,
    uint64_t now)
{
    int     high;
    double  rate, computed, moved;

    if (d->rate == 0) {
        return 0;
    }

    rate = (double) (int32_t) d->rate / KVR_PREFILL_RATE;

    computed = (double) (int64_t) d->prefill.lacks
               / (double) (int32_t) kvr_max(d->prefills, 1);
    moved = d->transfer * (double) (int64_t) d->plain.lacks
            / (double) (int32_t) kvr_max(kvr_min(d->prefills, d->decodes), 1);

    high = kvr_demand_add(demand, kvr_max(computed, moved) / rate, now);

    /* or they are slower than they were */

    return high || (double) (int64_t) d->prefill.ahead > KVR_DEMAND_MOST * rate;
}
