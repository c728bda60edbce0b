
/*
 * Copyright (C) kvroute contributors
 */


#include "core/state/kvr_counter_name.h"
#include "core/policy/kvr_policy.h"


const char *
kvr_counter_name_class(uint32_t place)
{
    static const char *const  names[] = { "1xx", "2xx", "3xx", "4xx", "5xx" };

    _Static_assert(kvr_nelts(names) == KVR_STATUS_CLASSES, "classes");

    return names[place];
}


const char *
kvr_counter_name_reason(uint32_t place)
{
    return kvr_reason_name((kvr_reason_e) place);
}


const char *
kvr_counter_name_disaggregated(uint32_t place)
{
    return kvr_reason_disaggregated((kvr_disaggregate_e) place);
}


const char *
kvr_counter_name_policy(uint32_t place)
{
    return kvr_policy_name((kvr_policy_e) place);
}
