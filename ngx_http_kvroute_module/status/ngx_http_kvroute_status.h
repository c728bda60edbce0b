
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _NGX_HTTP_KVROUTE_STATUS_H_INCLUDED_
#define _NGX_HTTP_KVROUTE_STATUS_H_INCLUDED_


/*
 * What operators see: JSON, text for Prometheus, the page, which reads the
 * JSON, and the control API.
 *
 *     _status            selects the format of a request
 *     _status_snapshot   reads all values in one place
 *     _status_watch      does so every few seconds
 *     _status_health     health, its causes, savings, the last minutes
 *     _status_json       as JSON
 *     _status_json_text    its members
 *     _status_queue        of queues
 *     _status_prom       for Prometheus
 *     _status_prom_text    its lines
 *     _api               the control API
 *     _api_origin          rejects requests of other sites' pages
 *
 * Numbers have rows in the table of core/state/kvr_counter.h, which all formats
 * walk.
 */


#include "ngx_http_kvroute_extension.h"
#include "zone/ngx_http_kvroute_zone.h"
#include "request/ngx_http_kvroute_request.h"
#include "core/state/kvr_snapshot.h"
#include "core/watch/kvr_since.h"


typedef enum {
    NGX_HTTP_KVROUTE_STATE_UP = 0,
    NGX_HTTP_KVROUTE_STATE_UNAVAIL,      /* max_fails */
    NGX_HTTP_KVROUTE_STATE_DRAINING,
    NGX_HTTP_KVROUTE_STATE_DRAINED,
    NGX_HTTP_KVROUTE_STATE_DOWN,
    NGX_HTTP_KVROUTE_STATE_UNHEALTHY,    /* by checks */
    NGX_HTTP_KVROUTE_STATE_CHECKING,
    NGX_HTTP_KVROUTE_STATE_EJECTED,
    NGX_HTTP_KVROUTE_STATE_PROBED,       /* half-open */
    NGX_HTTP_KVROUTE_STATE_PLACEHOLDER,
    NGX_HTTP_KVROUTE_STATES
} ngx_http_kvroute_status_state_e;


/* a server in an upstream, or one of its ranks; all values are of one moment */
typedef struct {
    ngx_str_t                     server;
    ngx_str_t                     name;
    ngx_http_kvroute_status_state_e  state;
    const char                   *reason;   /* its last error, or NULL */
    uint32_t                      since;    /* of the state; 0: unknown */

    uint32_t                      id;       /* KVR_REGISTRY_NONE: no counters */
    uint32_t                      member;
    uint32_t                      head;     /* member of the address */
    uint32_t                      rank;
    ngx_uint_t                    ranks;    /* number of ranks of the address */

    ngx_uint_t                    backup;
    ngx_uint_t                    weight;
    ngx_uint_t                    max_conns;
    ngx_uint_t                    conns;

    kvr_snapshot_t                now;
    kvr_verdict_server_t         *judged;   /* with its last minute */
    kvr_member_t                 *counted;  /* a copy; zeros without a slot */
    kvr_engine_t                 *engine;   /* in the zone, or NULL */
    kvr_feedback_t               *feedback;

    uint32_t                      set;      /* KVR_COUNTER_... that apply */
    const void                   *base[KVR_COUNTER_GROUPS];

    ngx_http_kvroute_srv_conf_t  *conf;
} ngx_http_kvroute_status_peer_t;


typedef struct {
    ngx_str_t                        name;
    ngx_http_kvroute_srv_conf_t     *conf;
    ngx_http_kvroute_status_peer_t  *peer;
    ngx_uint_t                       number;
    ngx_uint_t                       locked;  /* some servers are missing
                                                 here */
    kvr_upstream_t                  *shared;  /* NULL: no counters */
    uint32_t                         set;     /* KVR_COUNTER_... that apply */
    kvr_verdict_t                   *verdict;
} ngx_http_kvroute_status_upstream_t;


/* text for Prometheus */
struct ngx_http_kvroute_status_prom_s {
    ngx_pool_t                  *pool;
    ngx_chain_t                 *first;
    ngx_chain_t                 *last;
    ngx_uint_t                   failed;
};


/* Reads everything about upstreams, in the order of kmcf->upstreams. */
ngx_http_kvroute_status_upstream_t *ngx_http_kvroute_status_snapshot(
    ngx_pool_t *pool, ngx_log_t *log);

/* Starts to look at all states, so that each is known since when. */
void ngx_http_kvroute_status_watch(ngx_cycle_t *cycle);

/* names of the states of a peer */
extern const char  *ngx_http_kvroute_status_states[NGX_HTTP_KVROUTE_STATES];

/* Reads the values of a zone itself. */
void ngx_http_kvroute_status_snapshot_zone(ngx_http_kvroute_zone_t *zone,
    kvr_counter_zone_t *z);

ngx_int_t ngx_http_kvroute_status_handler(ngx_http_request_t *r);
ngx_int_t ngx_http_kvroute_api_handler(ngx_http_request_t *r);

/* Returns why an action is refused as another site's request, or NULL. */
const char *ngx_http_kvroute_api_origin(ngx_http_request_t *r);

/* Each serves a format. path is the rest of the path behind the format. */
ngx_int_t ngx_http_kvroute_status_json(ngx_http_request_t *r, ngx_str_t *path);
ngx_int_t ngx_http_kvroute_status_prom(ngx_http_request_t *r);

/*
 * Add the rows of a group that apply, from the structure at base: those of the
 * router's table, or of another table.
 */
void ngx_http_kvroute_status_json_rows(cJSON *json, kvr_counter_group_e group,
    const void *base, uint32_t set);
void ngx_http_kvroute_status_json_table(cJSON *json, const kvr_counter_t *row,
    uint32_t rows, kvr_counter_group_e group, const void *base, uint32_t set);

/* Makes a histogram; buckets are cumulative, as in Prometheus. */
cJSON *ngx_http_kvroute_status_json_histogram(const kvr_histogram_t *h,
    kvr_stats_e kind);

/* Add a string, which needs no '\0', and a time by RFC 3339, in UTC. */
void ngx_http_kvroute_status_json_string(cJSON *json, const char *name,
    const u_char *data, size_t len);
cJSON *ngx_http_kvroute_status_json_text(const u_char *data, size_t len);
void ngx_http_kvroute_status_json_time(cJSON *json, const char *name,
    uint64_t ms);

/* Judges an upstream; called once all else is known of it. */
ngx_int_t ngx_http_kvroute_status_health(ngx_pool_t *pool,
    ngx_http_kvroute_status_upstream_t *u);

/*
 * "health" of one upstream and of all, as codes and numbers of which the page
 * makes sentences; the state and "minute" of a server; "saved" and "history"
 * of an upstream
 */
void ngx_http_kvroute_status_json_health(cJSON *json,
    ngx_http_kvroute_status_upstream_t *u);
void ngx_http_kvroute_status_json_healths(cJSON *json,
    ngx_http_kvroute_status_upstream_t *u, ngx_uint_t n);
void ngx_http_kvroute_status_json_since(cJSON *json,
    ngx_http_kvroute_status_peer_t *p);
void ngx_http_kvroute_status_json_ages(cJSON *json,
    ngx_http_kvroute_zone_t *zone, double fill);
void ngx_http_kvroute_status_json_minute(cJSON *json,
    ngx_http_kvroute_status_peer_t *p);
void ngx_http_kvroute_status_json_saved(cJSON *json,
    ngx_http_kvroute_status_upstream_t *u);
void ngx_http_kvroute_status_json_history(cJSON *json,
    ngx_http_kvroute_status_upstream_t *u);

/* Returns the queue of an upstream; NULL: it has none. */
cJSON *ngx_http_kvroute_status_queue(ngx_http_kvroute_srv_conf_t *conf);

/*
 * Adds what another fleet would bring, once it is known; the same for one of
 * its metrics.
 */
#define NGX_HTTP_KVROUTE_WHATIF_METRICS  7

typedef struct {
    const char                  *name;
    const char                  *help;
    size_t                       value;   /* in kvr_whatif_estimate_t */
} ngx_http_kvroute_status_metric_t;

extern const ngx_http_kvroute_status_metric_t
    ngx_http_kvroute_status_whatif_metrics[NGX_HTTP_KVROUTE_WHATIF_METRICS];

void ngx_http_kvroute_status_whatif(cJSON *json,
    ngx_http_kvroute_status_upstream_t *u);
void ngx_http_kvroute_status_prom_whatif(ngx_http_kvroute_status_prom_t *prom,
    ngx_uint_t kind, const ngx_str_t *labels, kvr_whatif_estimate_t **whatif);

/* Returns the estimates by change, NULL where there is none; NULL: no memory. */
kvr_whatif_estimate_t **ngx_http_kvroute_status_estimates(ngx_pool_t *pool,
    ngx_http_kvroute_status_upstream_t *u);

/* Add lines; the head of a family; make the value of a label. */
void ngx_http_kvroute_status_prom_add(ngx_http_kvroute_status_prom_t *prom,
    const char *fmt, ...);
void ngx_http_kvroute_status_prom_head(ngx_http_kvroute_status_prom_t *prom,
    const char *name, const char *type, const char *help);
ngx_int_t ngx_http_kvroute_status_prom_label(ngx_pool_t *pool, ngx_str_t *dst,
    ngx_str_t *src);

/* Adds the values of a row, with its own labels and those given. */
void ngx_http_kvroute_status_prom_row(ngx_http_kvroute_status_prom_t *prom,
    const kvr_counter_t *row, ngx_str_t *labels, const void *base);

/* the page, made from status/page.html by status/embed during the build */
extern const u_char  ngx_http_kvroute_status_page[];
extern const size_t  ngx_http_kvroute_status_page_len;


#endif /* _NGX_HTTP_KVROUTE_STATUS_H_INCLUDED_ */
