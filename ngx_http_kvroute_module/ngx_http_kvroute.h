
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _NGX_HTTP_KVROUTE_H_INCLUDED_
#define _NGX_HTTP_KVROUTE_H_INCLUDED_


#include "ngx_http_kvroute_compat.h"

#include "core/hash/kvr_block.h"
#include "core/state/kvr_zone.h"
#include "core/text/kvr_json.h"
#include "core/policy/kvr_policy.h"
#include "core/queue/kvr_queue.h"
#include "core/watch/kvr_history.h"


#define NGX_HTTP_KVROUTE_VERSION      "0.1.0"

/* identifies a build; config makes a checksum of the headers */
#define NGX_HTTP_KVROUTE_BUILD                                                \
    NGX_HTTP_KVROUTE_VERSION " build " NGX_HTTP_KVROUTE_HEADERS

#define NGX_HTTP_KVROUTE_UNSET_PEER   ((uint32_t) -1)
#define NGX_HTTP_KVROUTE_UNSET_RANK   ((uint32_t) -1)

/* as many as the engine reports */
#define NGX_HTTP_KVROUTE_RANKS_AUTO   ((ngx_uint_t) -1)

/* maximum length of the header lines added to probes */
#define NGX_HTTP_KVROUTE_PROBE_HEADER  2048


typedef struct ngx_http_kvroute_zone_s  ngx_http_kvroute_zone_t;
typedef struct ngx_http_kvroute_shm_s   ngx_http_kvroute_shm_t;
typedef struct ngx_http_kvroute_snapshot_s  ngx_http_kvroute_snapshot_t;


typedef struct {
    ngx_array_t                  zones;     /* ngx_http_kvroute_zone_t * */
    ngx_array_t                  upstreams; /* ngx_http_kvroute_srv_conf_t * */
    ngx_array_t                  named;     /* ngx_http_kvroute_conf_named_t */
    ngx_array_t                  extensions;  /* their tables */
    ngx_array_t                  attached;  /* ngx_http_kvroute_extension_at_t */
    ngx_http_upstream_init_pt    init_upstream;
    ngx_http_event_handler_pt    decide;    /* before the balancer is asked */

    ngx_uint_t                   early;     /* reservations before the content
                                               phase are possible */
    ngx_uint_t                   tokens;    /* variables: _TOKENS_... */
    ngx_uint_t                   queues;    /* there is a kvroute_queue */
    ngx_uint_t                   expected;  /* there is an upstream= of
                                               kvroute_request */
    ngx_uint_t                   variable;  /* a "proxy_pass" has a variable */
    ngx_int_t                    body;      /* indices of $request_body, */
    ngx_int_t                    length;    /* and $content_length */
} ngx_http_kvroute_main_conf_t;


/*
 * A worker's copy of a list of peers.  A peer is one target, or with
 * kvroute_ranks a target per rank: those of peer i start at first[i] and end
 * before first[i + 1].  The first one stands for the address.
 */
typedef struct {
    ngx_uint_t                   number;    /* peers in the list */
    ngx_uint_t                   targets;
    uint32_t                    *first;     /* by peer, and one more */
    uint32_t                    *max_conns; /* by peer; 0: no limit */
    uint32_t                    *shared_conns;  /* sum of a server listed
                                                   several times, else 0 */

    /* by target */

    uint32_t                    *id;        /* slot in the zone, or UNSET */
    uint32_t                    *member;
    kvr_home_peer_t             *peer;
} ngx_http_kvroute_list_t;


/* kvroute_probe or kvroute_health */
typedef struct {
    ngx_msec_t                   interval;
    ngx_msec_t                   timeout;
    ngx_str_t                    path;      /* empty: the engine's default */
    in_port_t                    port;      /* 0: the server's */
    ngx_addr_t                  *addr;      /* NULL: the server's */
    uint32_t                     fails;     /* health: consecutive checks */
} ngx_http_kvroute_probe_conf_t;


/* kvroute_engine */
typedef struct {
    uint32_t                     engine;    /* a dialect */
    ngx_str_t                    header;    /* lines to send, with line ends */
    ngx_str_t                    name;      /* of the host; empty: none */
    ngx_str_t                    trusted;   /* file of certificates */
    void                        *ssl;       /* ngx_ssl_t; NULL: no TLS */
    uint32_t                     secure;    /* "ssl" */
} ngx_http_kvroute_engine_conf_t;


/* the queue of an upstream */
typedef struct {
    ngx_shm_zone_t              *shm_zone;  /* data: kvr_queue_shared_t */
    ngx_uint_t                   max;
    ngx_msec_t                   timeout;

    kvr_queue_t                  waiting;   /* in this worker */
    ngx_event_t                 *freed;     /* posted when there is room */
} ngx_http_kvroute_queue_t;


/* the policy of an upstream or a location */
typedef struct {
    kvr_policy_e                 kind;
    uint32_t                     timeout;   /* s; of sticky */
    ngx_http_complex_value_t    *key;       /* of sticky; NULL: auto */
} ngx_http_kvroute_policy_t;


/* kvroute_request; NULL: not set */
typedef struct {
    ngx_http_complex_value_t    *tenant;
    ngx_http_complex_value_t    *weight;    /* of the tenant */
    ngx_http_complex_value_t    *name;      /* of the tenant in the status */
    ngx_http_complex_value_t    *priority;
    ngx_http_complex_value_t    *max_priority;
    ngx_http_complex_value_t    *deadline;
    ngx_http_complex_value_t    *upstream;
} ngx_http_kvroute_words_t;


typedef struct {
    ngx_shm_zone_t              *shm_zone;
    ngx_http_kvroute_zone_t     *zone;
    ngx_http_kvroute_policy_t    policy;
    size_t                       capacity;  /* bytes of a peer's cache */
    size_t                       host;      /* the same, in host memory */
    size_t                       disk;      /* and on disk */
    ngx_uint_t                   fixed;     /* not what engines report */
    size_t                       max_pending;
    ngx_msec_t                   target_ttft;  /* for max_pending=auto */
    ngx_int_t                    max_waiting;  /* in the engine, or UNSET */
    time_t                       slow_start;
    kvr_outlier_conf_t           eject;
    ngx_http_kvroute_engine_conf_t  engine;
    ngx_http_kvroute_probe_conf_t  *probe;  /* or NULL */
    ngx_http_kvroute_probe_conf_t  *health;
    ngx_http_kvroute_queue_t    *queue;     /* or NULL */
    ngx_uint_t                   ranks;     /* per server; 0: no ranks; or
                                               _RANKS_AUTO */

    ngx_str_t                    api;       /* of server {}: path of the API
                                               with actions, or empty */

    /* of a shadow: the other balancer's functions */

    ngx_http_upstream_init_pt    real_upstream;
    ngx_http_upstream_init_peer_pt  real_peer;

    /* per worker, rebuilt when the list of peers changes */

    ngx_http_upstream_srv_conf_t  *upstream;
    ngx_http_kvroute_list_t      list[2];   /* primary, backup */
    ngx_uint_t                   config;
    uint32_t                     ranked;    /* the registry's, at that time */
    kvr_set_t                    set;       /* slots of the peers in both */
    ngx_uint_t                   numbered;  /* their number */
    ngx_uint_t                   edition;   /* of the set */
    kvr_pool_t                   pool;      /* for core: set and parameters */
    uint32_t                     number;    /* slot of the upstream */
    ngx_msec_t                   again;     /* next search for slots */
    kvr_registry_limit_e         limit;     /* why peers have none */
    unsigned                     crowded:1; /* some peers have no slot */
    unsigned                     unranked:1;  /* a location sends no rank */
    unsigned                     stuck:2;   /* sweeps that found it locked */
    unsigned                     ready:1;
    unsigned                     eject_set:1;
    unsigned                     engine_set:1;
    unsigned                     engine_used:1;  /* by an extension */
    unsigned                     in_use:1;  /* initialized by nginx */
    unsigned                     shadow:1;  /* another balancer routes */
    unsigned                     matched:1; /* by kvroute_upstream */
    unsigned                     named:1;   /* by a literal "proxy_pass" */

    /* names of upstreams (ngx_str_t *), or NULL */

    ngx_array_t                 *prefill;   /* compute prompts for this one */
    ngx_array_t                 *decode;    /* this one computes prompts for */
} ngx_http_kvroute_srv_conf_t;


typedef struct {
    ngx_http_complex_value_t    *salt;
    ngx_http_complex_value_t    *pin;
    ngx_http_kvroute_policy_t   *policy;    /* NULL: the upstream's */
    ngx_http_kvroute_words_t    *request;   /* or NULL */
    ngx_uint_t                   variable;  /* "proxy_pass" has a variable */
    ngx_flag_t                   api;
    ngx_flag_t                   write;     /* of the API */
    ngx_uint_t                   status;    /* format */
    ngx_uint_t                   prefix;    /* all paths start with its name */
    const kvr_json_names_t      *names;     /* members of the body that an
                                               extension needs; or NULL */
} ngx_http_kvroute_loc_conf_t;


struct ngx_http_kvroute_zone_s {
    ngx_http_kvroute_shm_t      *shm;       /* the head of its memory */
    const uint8_t               *secret;    /* in there */
    kvr_sketch_t                *sketch;
    kvr_history_t               *history;
    kvr_registry_t               registry;  /* this process's view, of core */

    ngx_slab_pool_t             *shpool;
    ngx_shm_zone_t              *shm_zone;
    ngx_str_t                    name;      /* ends in '\0' */

    ngx_uint_t                   max_peers;
    ngx_uint_t                   processes;
    ngx_uint_t                   hosts;     /* hosts with the same peers */
    uint8_t                     *key;       /* KVR_SECRET_LEN bytes, or NULL */
    ngx_http_kvroute_snapshot_t  *snapshot; /* or NULL */
    ngx_uint_t                   all_hosts; /* max_conns is for all hosts */
    ngx_cycle_t                 *cycle;

    kvr_zone_t                   core;      /* for core, with the row of this
                                               process */
    uint64_t                     generation;

    unsigned                     claimed:1;
};


/* formats of the status */
#define NGX_HTTP_KVROUTE_STATUS_ALL   1
#define NGX_HTTP_KVROUTE_STATUS_JSON  2
#define NGX_HTTP_KVROUTE_STATUS_PROM  3
#define NGX_HTTP_KVROUTE_STATUS_HTML  4

/* whether the configuration uses a variable with tokens */
#define NGX_HTTP_KVROUTE_TOKENS_UNKNOWN  0
#define NGX_HTTP_KVROUTE_TOKENS_NO       1
#define NGX_HTTP_KVROUTE_TOKENS_YES      2


/* Tells whether a request of this worker waits in the queue. */
static ngx_inline ngx_uint_t
ngx_http_kvroute_queue_any(ngx_http_kvroute_srv_conf_t *conf)
{
    return conf->queue->waiting.n != 0;
}


extern ngx_module_t  ngx_http_kvroute_module;
extern ngx_module_t  ngx_http_kvroute_filter_module;


#endif /* _NGX_HTTP_KVROUTE_H_INCLUDED_ */
