/*
 * A response in Prometheus' format, while it is written.
 */

#ifndef KVE_ENGINE_PROM_H
#define KVE_ENGINE_PROM_H


#include "base/engine_server.h"


typedef struct {
    kve_buf_t      *b;
    kve_server_t   *s;
    kve_stats_t     st;
    double          running;
    double          waiting;
    double          kv_usage;
    const char     *early;              /* labels up to "l" */
    char            late[512];          /* and the rest, no braces */
    int             engines;            /* series per name */
    int             rank;               /* the first of them */
    unsigned        ranked:1;           /* with a label "engine" */
    unsigned        created:1;          /* _created beside counters */
} kve_scrape_t;


void kve_metrics_number(kve_buf_t *b, double x);
void kve_metrics_head(kve_scrape_t *m, const char *name, const char *type,
    const char *help);
void kve_metrics_series(kve_scrape_t *m, const char *name,
    const char *suffix, int engine, const char *extra, double value);
double kve_metrics_share(kve_scrape_t *m, int engine, double value);
void kve_metrics_gauge(kve_scrape_t *m, const char *name, const char *help,
    double value);
void kve_metrics_counter(kve_scrape_t *m, const char *base,
    const char *help, double value);
void kve_metrics_counter_of(kve_scrape_t *m, const char *base,
    const char *help, const char *extra, double value);
void kve_metrics_hist(kve_scrape_t *m, const char *name, const char *help,
    const kve_hist_t *h);


#endif
