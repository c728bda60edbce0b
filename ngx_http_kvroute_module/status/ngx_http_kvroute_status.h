
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _NGX_HTTP_KVROUTE_STATUS_H_INCLUDED_
#define _NGX_HTTP_KVROUTE_STATUS_H_INCLUDED_


#include "ngx_http_kvroute.h"

#include <cjson/cJSON.h>


/* what can be said of a peer in an upstream, copied at one time */
typedef struct {
    ngx_str_t            server;
    ngx_str_t            name;
    const char          *state;

    uint32_t             id;        /* KVR_REGISTRY_NONE: has no counters */
    uint32_t             member;

    ngx_uint_t           backup;
    ngx_uint_t           weight;
    ngx_uint_t           max_conns;
    ngx_uint_t           conns;

    uint64_t             active;    /* from this upstream */
    uint64_t             pending;
    kvr_load_sum_t       all;       /* from all upstreams */
    uint32_t             unanswered;  /* of those, without a first event yet */

    uint64_t             requests;
    uint64_t             fails;
    uint64_t             unavail;
    uint64_t             responses[KVR_STATUS_CLASSES];
    uint64_t             prompt;
    uint64_t             matched;
    uint64_t             best;
    uint64_t             reason[KVR_REASON_MAX];
    uint64_t             selected;
    uint64_t             firsts[2];  /* wholes, streams */
    uint64_t             ttft[2];    /* ms together, as those below */
    uint64_t             headers;
    uint64_t             header_ms;
    uint64_t             ends;
    uint64_t             end_ms;
    uint64_t             sent;
    uint64_t             received;

    kvr_prefill_load_t   prefill;

    uint64_t             capacity;  /* bytes */
    ngx_uint_t           reported;  /* by the engine itself */

    ngx_http_kvroute_srv_conf_t  *conf;
    kvr_engine_t        *signal;    /* in the zone */
    kvr_feedback_t      *feedback;
} ngx_http_kvroute_fleet_peer_t;


typedef struct {
    ngx_str_t                       name;
    ngx_http_kvroute_srv_conf_t    *conf;
    ngx_http_kvroute_fleet_peer_t  *peer;
    ngx_uint_t                      number;
    ngx_uint_t                      locked;   /* and so not all are here */
    kvr_upstream_t                 *shared;   /* NULL: has no counters */
    uint64_t                        reason[KVR_REASON_MAX];
} ngx_http_kvroute_fleet_t;


/* text for Prometheus, as it grows */
typedef struct {
    ngx_pool_t                 *pool;
    ngx_chain_t                *first;
    ngx_chain_t                *last;
    ngx_uint_t                  failed;

    ngx_http_kvroute_fleet_t   *fleet;
    ngx_uint_t                  upstreams;
    ngx_str_t                  *names;     /* of upstreams, escaped */
} ngx_http_kvroute_prom_t;


/* all that the formats show of upstreams: of kmcf->upstreams, in this order */
ngx_http_kvroute_fleet_t *ngx_http_kvroute_fleet_read(ngx_http_request_t *r);

/* names of states that a peer may be in, ends in NULL */
extern const char  *ngx_http_kvroute_states[];

/* each serves its format; the path is what follows that of the format */
ngx_int_t ngx_http_kvroute_status_json(ngx_http_request_t *r, ngx_str_t *path);
ngx_int_t ngx_http_kvroute_status_prom(ngx_http_request_t *r);

/*
 * _status_prom: a line, or several short ones; what comes before a family; the
 * histograms of all upstreams, with a label of their own, ",name=\"value\"", or
 * none
 */

void ngx_http_kvroute_prom_add(ngx_http_kvroute_prom_t *prom,
    const char *fmt, ...);
void ngx_http_kvroute_prom_head(ngx_http_kvroute_prom_t *prom,
    const char *name, const char *type, const char *help);
void ngx_http_kvroute_prom_histogram(ngx_http_kvroute_prom_t *prom,
    kvr_stats_e kind, const char *name, const char *label);

/* _status_prom_more; labels: of each peer, in the order of the fleet */

void ngx_http_kvroute_prom_signals(ngx_http_kvroute_prom_t *prom,
    ngx_str_t *labels);
void ngx_http_kvroute_prom_queues(ngx_http_kvroute_prom_t *prom);

/* the page, made of status/page.html by status/embed during the build */
extern const u_char  ngx_http_kvroute_status_page[];
extern const size_t  ngx_http_kvroute_status_page_len;

/* _queue_status */

cJSON *ngx_http_kvroute_queue_json(ngx_http_kvroute_srv_conf_t *conf);


#endif /* _NGX_HTTP_KVROUTE_STATUS_H_INCLUDED_ */
