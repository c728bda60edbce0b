
/*
 * Copyright (C) kvroute contributors
 */


#include "core/base/kvr_fault.h"


const char *
kvr_fault_name(uint32_t fault)
{
    static const char *const  names[] = {
        NULL, "refused", "unreachable", "timeout", "closed", "tls", "expired",
        "untrusted", "other_host", "not_http", "no_metrics", "loading",
        "unresolved", "password", "rejected", "400", "401", "403", "404", "429",
        "503", "4xx", "5xx", "status"
    };

    _Static_assert(kvr_nelts(names) == KVR_FAULT_MAX, "names");

    return fault < KVR_FAULT_MAX ? names[fault] : NULL;
}


kvr_fault_e
kvr_fault_status(uint32_t status)
{
    switch (status) {

    case 400:
        return KVR_FAULT_400;

    case 401:
        return KVR_FAULT_401;

    case 403:
        return KVR_FAULT_403;

    case 404:
        return KVR_FAULT_404;

    case 429:
        return KVR_FAULT_429;

    case 503:
        return KVR_FAULT_503;

    default:
        return status / 100 == 4 ? KVR_FAULT_4XX
                                 : status / 100 == 5 ? KVR_FAULT_5XX
                                                     : KVR_FAULT_STATUS;
    }
}
