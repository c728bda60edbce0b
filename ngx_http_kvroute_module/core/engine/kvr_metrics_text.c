
/*
 * Copyright (C) kvroute contributors
 */


#include "core/engine/kvr_metrics_text.h"

#include <stdlib.h>


const char *
kvr_metrics_label(const char *labels, const char *name, size_t *len)
{
    size_t       n, k;
    const char  *p, *q;

    n = strlen(name);

    for (p = labels; p && *p; /* void */ ) {

        p += strspn(p, ", ");
        k = strcspn(p, "=");

        if (p[k] == '\0' || p[k + 1] != '"') {
            break;
        }

        q = p + k + 2;

        for (*len = 0; q[*len] && q[*len] != '"'; (*len)++) {
            if (q[*len] == '\\' && q[*len + 1]) {
                (*len)++;
            }
        }

        if (k == n && memcmp(p, name, n) == 0) {
            return q;
        }

        if (q[*len] == '\0') {
            break;
        }

        p = q + *len + 1;
    }

    return NULL;
}


double
kvr_metrics_label_number(const char *labels, const char *name)
{
    char         buf[32];
    size_t       len;
    double       value;
    const char  *p;

    p = kvr_metrics_label(labels, name, &len);

    if (p == NULL || len >= sizeof(buf)) {
        return 0;
    }

    memcpy(buf, p, len);
    buf[len] = '\0';

    return kvr_metrics_number(buf, &value) ? value : 0;
}


int
kvr_metrics_number(const char *p, double *value)
{
    char        *end;
    const char  *q;

    p += strspn(p, " \t");

    for (q = p; *q && strchr("0123456789.eE+-", *q); q++) { /* void */ }

    if (q == p || (*q && *q != ' ' && *q != '\t' && *q != '\r')) {
        return 0;
    }

    *value = strtod(p, &end);

    return end == q && *value >= 0 && *value < 1e18;
}


uint32_t
kvr_metrics_orca(kvr_metrics_t *m, const uint8_t *value, size_t len)
{
    char         buf[32];
    size_t       n, i, k;
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

        for (i++; i < len && value[i] == ' '; i++) { /* void */ }

        for (k = 0; i < len && k < sizeof(buf) - 1
                    && value[i] && strchr("0123456789.eE+-", value[i]); k++)
        {
            buf[k] = (char) value[i++];
        }

        buf[k] = '\0';

        if (!kvr_metrics_number(buf, &v)) {
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
