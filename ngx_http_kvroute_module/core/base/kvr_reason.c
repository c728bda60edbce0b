
/*
 * Copyright (C) kvroute contributors
 */


#include "core/base/kvr_reason.h"


static const char *const  kvr_reasons[] = {
    "none", "affinity", "spill", "cold", "load", "turn", "random",
    "session", "bind", "overflow", "pinned", "unpinned", "full", "only",
    "retry", "unparsed", "bodyless", "bypass", "hot",
    "shadow", "moved", "home"
};

_Static_assert(kvr_nelts(kvr_reasons) == KVR_REASON_MAX, "kvr_reasons");


const char *
kvr_reason_name(uint32_t reason)
{
    return reason < KVR_REASON_MAX ? kvr_reasons[reason] : NULL;
}


static const char *const  kvr_reason_disaggregates[] = {
    "none", "yes", "unread", "kind", "short", "cached", "nobody", "cost",
    "failed", "answer", "retried", "expired"
};

_Static_assert(kvr_nelts(kvr_reason_disaggregates) == KVR_DISAGGREGATE_MAX,
               "kvr_reason_disaggregates");


const char *
kvr_reason_disaggregated(uint32_t outcome)
{
    return outcome < KVR_DISAGGREGATE_MAX ? kvr_reason_disaggregates[outcome]
                                          : NULL;
}
