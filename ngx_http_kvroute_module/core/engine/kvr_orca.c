
/*
 * Copyright (C) kvroute contributors
 */


#include "core/engine/kvr_engine.h"
#include "core/engine/kvr_metrics_text.h"


uint32_t
kvr_orca_read(kvr_metrics_t *m, const uint8_t *value, size_t len)
{
    char         buf[32];
    size_t       n, i;
    double       v;
    unsigned     f;
    uint32_t     set;
    const char  *p;

    static const struct {
        const char  *name;
        uint32_t     field;
    } fields[] = {
        { "kv_cache_usage_perc", KVR_METRICS_KV },
        { "num_requests_waiting", KVR_METRICS_WAITING }
    };

    set = 0;

    for (f = 0; f < sizeof(fields) / sizeof(fields[0]); f++) {

        n = strlen(fields[f].name);
        p = memmem(value, len, fields[f].name, n);

        if (p == NULL) {
            continue;
        }

        i = (size_t) ((const uint8_t *) p - value) + n;

        /* the end of a quoted name, then "=" or ":" */

        i += (i < len && value[i] == '"');

        while (i < len && value[i] == ' ') {
            i++;
        }

        if (i == len || (value[i] != '=' && value[i] != ':')) {
            continue;
        }

        i++;
        n = kvr_min(len - i, sizeof(buf) - 1);

        memcpy(buf, value + i, n);
        buf[n] = '\0';
        n = strspn(buf, " ");
        buf[n + strspn(buf + n, "0123456789.eE+-")] = '\0';

        if (!kvr_metrics_text_number(buf, &v)) {
            continue;
        }

        if (fields[f].field == KVR_METRICS_KV && v <= 1.001) {
            m->kv = v;

        } else if (fields[f].field == KVR_METRICS_WAITING && v < 1e9) {
            m->waiting = (uint32_t) v;

        } else {
            continue;
        }

        set |= fields[f].field;
    }

    m->set |= set;

    return set;
}
