
/*
 * Copyright (C) kvroute contributors
 */


#include "core/engine/kvr_metrics_text.h"

#include <stdlib.h>


const char *
kvr_metrics_text_label(const char *labels, const char *name, size_t *len)
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
kvr_metrics_text_label_number(const char *labels, const char *name)
{
    char         buf[32];
    size_t       len;
    double       value;
    const char  *p;

    p = kvr_metrics_text_label(labels, name, &len);

    if (p == NULL || len >= sizeof(buf)) {
        return 0;
    }

    memcpy(buf, p, len);
    buf[len] = '\0';

    return kvr_metrics_text_number(buf, &value) ? value : 0;
}


int
kvr_metrics_text_number(const char *p, double *value)
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
