
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _NGX_HTTP_KVROUTE_STATUS_H_INCLUDED_
#define _NGX_HTTP_KVROUTE_STATUS_H_INCLUDED_


/*
 * What operators see: JSON, text for Prometheus and the page, which reads the
 * JSON; and the control API.
 *
 *     _status            which format a request is for
 *     _status_snapshot   what there is to say, read in one place
 *     _status_health     is it working, and why not; saved; the last minutes
 *     _status_json       as JSON
 *     _status_json_text    its members
 *     _status_queue        of queues
 *     _status_prom       for Prometheus
 *     _status_prom_text    its lines
 *     _api               the control API
 *     _api_origin          and whose page a request for it is of
 *
 * Numbers have rows in the table of core/state/kvr_counter.h, which all formats
 * walk.
 */


#include "ngx_http_kvroute_extension.h"
#include "zone/ngx_http_kvroute_zone.h"
#include "request/ngx_http_kvroute_request.h"
#include "core/state/kvr_snapshot.h"
#include "core/watch/kvr_verdict.h"


/*
 * What can be said of a server in an upstream, or of one of its ranks, copied
 * at one time.
 */
typedef struct {
    ngx_str_t                     server;
    ngx_str_t                     name;
    const char                   *state;

    uint32_t                      id;       /* KVR_REGISTRY_NONE: it has no
                                               counters */
    uint32_t                      member;
    uint32_t                      head;     /* member of the address */
    uint32_t                      rank;
    ngx_uint_t                    ranks;    /* of the address */

    ngx_uint_t                    backup;
    ngx_uint_t                    weight;
    ngx_uint_t                    max_conns;
    ngx_uint_t                    conns;

    kvr_snapshot_t                now;
    kvr_history_minute_t          minute;   /* the last one */
    kvr_member_t                 *counted;  /* a copy; zeros without a number */
    kvr_engine_t                 *engine;   /* in the zone, or NULL */
    kvr_feedback_t               *feedback;

    uint32_t                      set;      /* KVR_COUNTER_... that hold */
    const void                   *base[KVR_COUNTER_GROUPS];

    ngx_http_kvroute_srv_conf_t  *conf;
} ngx_http_kvroute_status_peer_t;


typedef struct {
    ngx_str_t                        name;
    ngx_http_kvroute_srv_conf_t     *conf;
    ngx_http_kvroute_status_peer_t  *peer;
    ngx_uint_t                       number;
    ngx_uint_t                       locked;  /* and so not all are here */
    kvr_upstream_t                  *shared;  /* NULL: it has no counters */
    uint32_t                         set;     /* KVR_COUNTER_... that hold */
    kvr_verdict_t                   *verdict;
} ngx_http_kvroute_status_upstream_t;


/* text for Prometheus, as it grows */
struct ngx_http_kvroute_status_prom_s {
    ngx_pool_t                  *pool;
    ngx_chain_t                 *first;
    ngx_chain_t                 *last;
    ngx_uint_t                   failed;
};


/* all that the formats show of upstreams: of kmcf->upstreams, in this order */
ngx_http_kvroute_status_upstream_t *ngx_http_kvroute_status_snapshot(
    ngx_http_request_t *r);

/* names of states that a peer may be in, ends in NULL */
extern const char  *ngx_http_kvroute_status_states[];

/* what the formats show of a zone itself */
void ngx_http_kvroute_status_snapshot_zone(ngx_http_kvroute_zone_t *zone,
    kvr_counter_zone_t *z);

ngx_int_t ngx_http_kvroute_status_handler(ngx_http_request_t *r);
ngx_int_t ngx_http_kvroute_api_handler(ngx_http_request_t *r);

/* why an action is not taken, as another site's page may ask for it; or NULL */
const char *ngx_http_kvroute_api_origin(ngx_http_request_t *r);

/* each serves its format; the path is what follows that of the format */
ngx_int_t ngx_http_kvroute_status_json(ngx_http_request_t *r, ngx_str_t *path);
ngx_int_t ngx_http_kvroute_status_prom(ngx_http_request_t *r);

/*
 * The rows of a group that have all they need, from the structure at base: of the
 * router's table, or of so many others.
 */
void ngx_http_kvroute_status_json_rows(cJSON *json, kvr_counter_group_e group,
    const void *base, uint32_t set);
void ngx_http_kvroute_status_json_table(cJSON *json, const kvr_counter_t *row,
    uint32_t rows, kvr_counter_group_e group, const void *base, uint32_t set);

/* buckets are as in Prometheus: each has those before */
cJSON *ngx_http_kvroute_status_json_histogram(const kvr_histogram_t *h,
    kvr_stats_e kind);

/* a time is as RFC 3339 has it, in UTC; the data needs no '\0' */
void ngx_http_kvroute_status_json_string(cJSON *json, const char *name,
    const u_char *data, size_t len);
cJSON *ngx_http_kvroute_status_json_text(const u_char *data, size_t len);
void ngx_http_kvroute_status_json_time(cJSON *json, const char *name,
    uint64_t ms);

/* decides how an upstream is: once all else of it is known */
ngx_int_t ngx_http_kvroute_status_health(ngx_pool_t *pool,
    ngx_http_kvroute_status_upstream_t *u);

/*
 * Members: "health" of one and of all, in codes and numbers, of which the page
 * makes sentences; "minute" of a server; "saved" and "history" of an upstream
 */
void ngx_http_kvroute_status_json_health(cJSON *json,
    ngx_http_kvroute_status_upstream_t *u);
void ngx_http_kvroute_status_json_healths(cJSON *json,
    ngx_http_kvroute_status_upstream_t *u, ngx_uint_t n);
void ngx_http_kvroute_status_json_minute(cJSON *json,
    ngx_http_kvroute_status_peer_t *p);
void ngx_http_kvroute_status_json_saved(cJSON *json,
    ngx_http_kvroute_status_upstream_t *u);
void ngx_http_kvroute_status_json_history(cJSON *json,
    ngx_http_kvroute_status_upstream_t *u);

/* the queue of an upstream; NULL: it has none */
cJSON *ngx_http_kvroute_status_queue(ngx_http_kvroute_srv_conf_t *conf);

/* a line, or several short ones; what comes before a family; a label's value */
void ngx_http_kvroute_status_prom_add(ngx_http_kvroute_status_prom_t *prom,
    const char *fmt, ...);
void ngx_http_kvroute_status_prom_head(ngx_http_kvroute_status_prom_t *prom,
    const char *name, const char *type, const char *help);
ngx_int_t ngx_http_kvroute_status_prom_label(ngx_pool_t *pool, ngx_str_t *dst,
    ngx_str_t *src);

/* a row's value, or values, with its labels and those given */
void ngx_http_kvroute_status_prom_row(ngx_http_kvroute_status_prom_t *prom,
    const kvr_counter_t *row, ngx_str_t *labels, const void *base);

/* the page, made of status/page.html by status/embed during the build */
extern const u_char  ngx_http_kvroute_status_page[];
extern const size_t  ngx_http_kvroute_status_page_len;


#endif /* _NGX_HTTP_KVROUTE_STATUS_H_INCLUDED_ */
