#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "metrics/engine_prom.h"


/*
 * Prometheus' text format, as Python's client writes it: labels in
 * alphabetical order, all numbers as floats, large ones in Go's spelling.
 */


void
kve_metrics_number(kve_buf_t *b, double x)
{
    int    n, dot, e;
    char   s[64], *p;

    if (isinf(x) || isnan(x)) {
        kve_buf_str(b, isnan(x) ? "NaN" : x > 0 ? "+Inf" : "-Inf");
        return;
    }

    for (n = 15; n <= 17; n++) {
        snprintf(s, sizeof(s), "%.*g", n, x);
        if (strtod(s, NULL) == x) {
            break;
        }
    }

    if (fabs(x) >= 1e16 || strchr(s, 'e')) {
        kve_buf_str(b, s);
        return;
    }

    p = strchr(s, '.');
    dot = p ? (int) (p - s) : (int) strlen(s);

    if (x > 0 && dot > 6) {
        /* 1788626457.7368872 is written 1.7886264577368872e+09 */

        if (p) {
            memmove(p, p + 1, strlen(p));
        }

        e = dot - 1;
        for (n = (int) strlen(s); n > 1 && s[n - 1] == '0'; n--) {
            /* void */
        }

        kve_buf_printf(b, "%c%s%.*se+%02d", s[0], n > 1 ? "." : "", n - 1,
                       s + 1, e);
        return;
    }

    kve_buf_str(b, s);
    kve_buf_str(b, p ? "" : ".0");
}


void
kve_metrics_head(kve_scrape_t *m, const char *name, const char *type,
    const char *help)
{
    kve_buf_printf(m->b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name,
                   type);
}


/*
 * Writes a series.  "extra" is another label with its value, which is sorted
 * in; "" for none.
 */

void
kve_metrics_series(kve_scrape_t *m, const char *name, const char *suffix,
    int engine, const char *extra, double value)
{
    int         i, n;
    char        rank[32];
    kve_buf_t  *b;
    const char *label[3], *spare;

    b = m->b;
    n = 0;

    if (m->ranked) {
        snprintf(rank, sizeof(rank), "engine=\"%d\"", m->rank + engine);
        label[n++] = rank;

    } else if (m->early[0]) {
        label[n++] = m->early;
    }

    if (m->late[0]) {
        label[n++] = m->late;
    }

    if (*extra) {
        label[n++] = extra;

        for (i = n - 1; i > 0 && strcmp(label[i], label[i - 1]) < 0; i--) {
            spare = label[i];
            label[i] = label[i - 1];
            label[i - 1] = spare;
        }
    }

    kve_buf_printf(b, "%s%s", name, suffix);

    for (i = 0; i < n; i++) {
        kve_buf_printf(b, "%s%s", i ? "," : "{", label[i]);
    }

    kve_buf_str(b, n ? "} " : " ");
    kve_metrics_number(b, value);
    kve_buf_str(b, "\n");
}


/* an integer is divided among the ranks, a fraction is the same for all */

double
kve_metrics_share(kve_scrape_t *m, int engine, double value)
{
    uint64_t  v;

    if (m->engines == 1 || value != floor(value)) {
        return value;
    }

    v = (uint64_t) value;

    return v / m->engines + ((uint64_t) engine < v % m->engines);
}


void
kve_metrics_gauge(kve_scrape_t *m, const char *name, const char *help,
    double value)
{
    int  e;

    kve_metrics_head(m, name, "gauge", help);

    for (e = 0; e < m->engines; e++) {
        kve_metrics_series(m, name, "", e, "",
                           kve_metrics_share(m, e, value));
    }
}


void
kve_metrics_counter_of(kve_scrape_t *m, const char *base, const char *help,
    const char *extra, double value)
{
    int   e;
    char  name[128];

    snprintf(name, sizeof(name), "%s_total", base);
    kve_metrics_head(m, name, "counter", help);

    for (e = 0; e < m->engines; e++) {
        kve_metrics_series(m, name, "", e, extra,
                           kve_metrics_share(m, e, value));
    }

    if (m->created) {
        snprintf(name, sizeof(name), "%s_created", base);
        kve_metrics_head(m, name, "gauge", help);

        for (e = 0; e < m->engines; e++) {
            kve_metrics_series(m, name, "", e, extra, m->s->started);
        }
    }
}


void
kve_metrics_counter(kve_scrape_t *m, const char *base, const char *help,
    double value)
{
    kve_metrics_counter_of(m, base, help, "", value);
}


void
kve_metrics_hist(kve_scrape_t *m, const char *name, const char *help,
    const kve_hist_t *h)
{
    int        i;
    char       le[64];
    uint64_t   sum;
    kve_buf_t  number = { 0 };

    kve_metrics_head(m, name, "histogram", help);

    for (i = 0, sum = 0; i <= h->n; i++) {
        sum += h->count[i];
        number.len = 0;
        kve_metrics_number(&number, i < h->n ? h->le[i] : INFINITY);
        snprintf(le, sizeof(le), "le=\"%s\"", number.data);
        kve_metrics_series(m, name, "_bucket", 0, le, sum);
    }

    kve_metrics_series(m, name, "_count", 0, "", h->total);
    kve_metrics_series(m, name, "_sum", 0, "", h->sum);
    kve_buf_free(&number);

    if (m->created) {
        snprintf(le, sizeof(le), "%s_created", name);
        kve_metrics_head(m, le, "gauge", help);
        kve_metrics_series(m, name, "_created", 0, "", m->s->started);
    }
}
