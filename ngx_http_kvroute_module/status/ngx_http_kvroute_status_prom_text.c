
/*
 * Copyright (C) kvroute contributors
 */


/* The lines of the text for Prometheus. */


#include "status/ngx_http_kvroute_status.h"


/* the longest line, with all of its labels escaped */
#define NGX_HTTP_KVROUTE_PROM_LINE  2048
#define NGX_HTTP_KVROUTE_PROM_BUF   (32 * 1024)


static void ngx_http_kvroute_prom_value(ngx_http_kvroute_status_prom_t *prom,
    double value);
static void ngx_http_kvroute_prom_histogram(
    ngx_http_kvroute_status_prom_t *prom, const kvr_counter_t *row,
    ngx_str_t *labels, const kvr_histogram_t *h);


void
ngx_http_kvroute_status_prom_add(ngx_http_kvroute_status_prom_t *prom,
    const char *fmt, ...)
{
    va_list       args;
    ngx_buf_t    *b;
    ngx_chain_t  *cl;

    cl = prom->last;

    if (cl == NULL
        || cl->buf->end - cl->buf->last < NGX_HTTP_KVROUTE_PROM_LINE)
    {
        cl = ngx_alloc_chain_link(prom->pool);
        b = ngx_create_temp_buf(prom->pool, NGX_HTTP_KVROUTE_PROM_BUF);

        if (cl == NULL || b == NULL) {
            prom->failed = 1;
            return;
        }

        cl->buf = b;
        cl->next = NULL;

        if (prom->last) {
            prom->last->next = cl;

        } else {
            prom->first = cl;
        }

        prom->last = cl;
    }

    b = cl->buf;

    va_start(args, fmt);
    b->last = ngx_vslprintf(b->last, b->last + NGX_HTTP_KVROUTE_PROM_LINE, fmt,
                            args);
    va_end(args);
}


void
ngx_http_kvroute_status_prom_head(ngx_http_kvroute_status_prom_t *prom,
    const char *name, const char *type, const char *help)
{
    ngx_http_kvroute_status_prom_add(prom, "# HELP %s %s\n# TYPE %s %s\n",
                              name, help, name, type);
}


ngx_int_t
ngx_http_kvroute_status_prom_label(ngx_pool_t *pool, ngx_str_t *dst,
    ngx_str_t *src)
{
    u_char      *p;
    ngx_uint_t   i;

    p = ngx_pnalloc(pool, 2 * src->len + 1);
    if (p == NULL) {
        return NGX_ERROR;
    }

    dst->data = p;

    for (i = 0; i < src->len; i++) {

        switch (src->data[i]) {

        case '\\':
        case '"':
            *p++ = '\\';
            *p++ = src->data[i];
            break;

        case LF:
            *p++ = '\\';
            *p++ = 'n';
            break;

        default:
            *p++ = src->data[i];
        }
    }

    dst->len = p - dst->data;

    return NGX_OK;
}


void
ngx_http_kvroute_status_prom_row(ngx_http_kvroute_status_prom_t *prom,
    const kvr_counter_t *row, ngx_str_t *labels, const void *base)
{
    double         value;
    uint32_t       i;
    const char    *label;
    const u_char  *p;

    label = row->label ? row->label : "";

    if (row->metric_type == KVR_COUNTER_HISTOGRAM) {
        p = (const u_char *) base + row->offset;
        ngx_http_kvroute_prom_histogram(prom, row, labels,
                                        (const kvr_histogram_t *) p);
        return;
    }

    value = kvr_counter_get(row, base, 0);

    if (row->metric_type == KVR_COUNTER_SUMMARY) {
        ngx_http_kvroute_status_prom_add(prom, "%s_sum{%V%s} %.3f\n"
                                         "%s_count{%V%s} %.0f\n",
                                         row->metric, labels, label,
                                         kvr_counter_sum(row, base) / 1e3,
                                         row->metric, labels, label, value);
        return;
    }

    if (row->n == 0) {
        ngx_http_kvroute_status_prom_add(prom, "%s{%V%s} ", row->metric,
                                         labels, label);
        ngx_http_kvroute_prom_value(prom, value);
        return;
    }

    for (i = row->first; i < row->n; i++) {
        value = kvr_counter_get(row, base, i);

        if (value > 0 || !row->sparse) {
            ngx_http_kvroute_status_prom_add(prom, "%s{%V,%s=\"%s\"} ",
                                             row->metric, labels, row->by,
                                             row->name(i));
            ngx_http_kvroute_prom_value(prom, value);
        }
    }
}


static void
ngx_http_kvroute_prom_value(ngx_http_kvroute_status_prom_t *prom, double value)
{
    ngx_http_kvroute_status_prom_add(prom, value == (double) (uint64_t) value
                                           ? "%.0f\n" : "%.6f\n", value);
}


static void
ngx_http_kvroute_prom_histogram(ngx_http_kvroute_status_prom_t *prom,
    const kvr_counter_t *row, ngx_str_t *labels, const kvr_histogram_t *h)
{
    char             le[32];
    double           scale;
    uint32_t         n, bounds;
    uint64_t         count;
    const char      *label;
    const uint64_t  *bound;

    bound = kvr_stats_bounds(kvr_counter_kind(row), &bounds);
    scale = kvr_stats_scale(kvr_counter_kind(row));
    label = row->label ? row->label : "";
    count = 0;

    for (n = 0; n <= bounds; n++) {
        count += kvr_get(&h->bucket[n]);

        if (n < bounds) {
            (void) snprintf(le, sizeof(le), "%g", (double) bound[n] / scale);
        }

        ngx_http_kvroute_status_prom_add(prom, "%s_bucket{%V%s,le=\"%s\"} "
                                         "%uL\n", row->metric, labels, label,
                                         n < bounds ? le : "+Inf", count);
    }

    ngx_http_kvroute_status_prom_add(prom, "%s_sum{%V%s} %.9f\n"
                                     "%s_count{%V%s} %uL\n",
                                     row->metric, labels, label,
                                     (double) kvr_get(&h->sum) / scale,
                                     row->metric, labels, label, count);
}
