
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _NGX_HTTP_KVROUTE_H_INCLUDED_
#define _NGX_HTTP_KVROUTE_H_INCLUDED_


#include "ngx_http_kvroute_compat.h"

#include "core/prompt/kvr_endpoint.h"
#include "core/prompt/kvr_prompt.h"
#include "core/state/kvr_zone.h"
#include "core/policy/kvr_policy.h"
#include "core/response/kvr_response.h"
#include "core/response/kvr_reply.h"
#include "core/route/kvr_route.h"
#include "core/prompt/kvr_document.h"
#include "core/queue/kvr_queue.h"


#define NGX_HTTP_KVROUTE_VERSION      "0.1.0"

#define NGX_HTTP_KVROUTE_UNSET_PEER   ((uint32_t) -1)


typedef struct ngx_http_kvroute_zone_s     ngx_http_kvroute_zone_t;
typedef struct ngx_http_kvroute_attempt_s  ngx_http_kvroute_attempt_t;
typedef struct ngx_http_kvroute_ctx_s      ngx_http_kvroute_ctx_t;
typedef struct ngx_http_kvroute_wait_s     ngx_http_kvroute_wait_t;


typedef struct {
    ngx_array_t                  zones;     /* ngx_http_kvroute_zone_t * */
    ngx_array_t                  upstreams; /* ngx_http_upstream_srv_conf_t * */
    ngx_array_t                  named;     /* to be found by name */

    size_t                       max_body;  /* largest of all locations */
    ngx_uint_t                   queues;    /* there are any */
    ngx_uint_t                   tokens;    /* somebody asks for them: _TOKENS_ */
} ngx_http_kvroute_main_conf_t;


/* what a worker knows of one list of peers, by position in it */
typedef struct {
    ngx_uint_t                   number;    /* peers in the list */
    uint32_t                    *id;        /* number in the zone, or UNSET */
    uint32_t                    *member;
    kvr_ring_peer_t             *peer;
    kvr_ring_t                   ring;      /* made when first asked for */
} ngx_http_kvroute_list_t;


/* what is asked of peers, and how often */
typedef struct {
    ngx_msec_t                   interval;
    ngx_msec_t                   timeout;
    ngx_str_t                    path;      /* empty: what engines have */
    in_port_t                    port;      /* 0: the server's own */
    ngx_addr_t                  *addr;      /* NULL: the server's own */
    kvr_engine_e                 engine;
    uint32_t                     fails;     /* of health */
    uint32_t                     passes;
    unsigned                     mandatory:1;
} ngx_http_kvroute_probe_conf_t;


/* the queue of an upstream */
typedef struct {
    ngx_shm_zone_t              *shm_zone;  /* data: kvr_queue_shared_t */
    ngx_uint_t                   max;
    size_t                       max_bytes; /* 0: no limit */
    ngx_msec_t                   timeout;
    ngx_uint_t                   status;
    ngx_uint_t                   fifo;

    kvr_queue_t                  waiting;   /* in this worker */
    ngx_queue_t                  strict;    /* those that want one peer only */
} ngx_http_kvroute_queue_t;


/* a policy, of an upstream or a location */
typedef struct {
    kvr_policy_conf_t            conf;
    ngx_http_complex_value_t    *key;       /* of sticky; NULL: auto */
} ngx_http_kvroute_policy_t;


typedef struct {
    ngx_shm_zone_t              *shm_zone;
    ngx_http_kvroute_zone_t     *zone;
    ngx_http_kvroute_policy_t    policy;
    size_t                       capacity;  /* bytes a peer may hold */
    size_t                       max_pending;
    ngx_msec_t                   target_ttft;  /* for max_pending=auto */
    ngx_int_t                    max_waiting;  /* in the engine, or UNSET */
    time_t                       slow_start;
    ngx_http_kvroute_probe_conf_t  *probe;  /* NULL: not asked */
    ngx_http_kvroute_probe_conf_t  *health;
    ngx_http_kvroute_queue_t    *queue;     /* or NULL */

    /* per worker, made anew when the configuration of the peers changes */

    ngx_http_upstream_srv_conf_t  *upstream;
    ngx_http_kvroute_list_t      list[2];   /* primary, backup */
    ngx_uint_t                   config;
    uint64_t                     set;       /* peers in both, by number */
    kvr_pool_t                   pool;      /* for core: set, and what the
                                               configuration says */
    uint32_t                     number;    /* of the upstream in the zone */
    ngx_msec_t                   again;     /* if crowded */
    kvr_registry_limit_e         limit;     /* why */
    unsigned                     crowded:1; /* some have no number */
    unsigned                     stuck:2;   /* sweeps that found it locked */
    unsigned                     ready:1;
    unsigned                     in_use:1;  /* nginx has had it set up */
    unsigned                     doubled:1; /* an address is listed twice */
} ngx_http_kvroute_srv_conf_t;


/* upstreams of others, by name */
typedef struct {
    ngx_str_t                    name;
#if (NGX_PCRE)
    ngx_regex_t                 *regex;     /* NULL: equal to the name */
#endif
    ngx_http_kvroute_srv_conf_t  conf;
    ngx_uint_t                   found;
    u_char                      *file;
    ngx_uint_t                   line;
} ngx_http_kvroute_named_t;


typedef struct {
    size_t                       max_body;
    ngx_http_complex_value_t    *salt;
    ngx_http_complex_value_t    *pin;
    ngx_http_kvroute_policy_t   *policy;    /* NULL: that of the upstream */
    ngx_array_t                 *bypass;    /* predicates */
    ngx_http_complex_value_t    *priority;
    ngx_http_complex_value_t    *priority_max;
    ngx_http_complex_value_t    *tenant;
    ngx_http_complex_value_t    *weight;    /* of the tenant */
    ngx_http_complex_value_t    *deadline;
    ngx_http_complex_value_t    *queue_for; /* upstream, if not literal */
    ngx_flag_t                   inspect;
    ngx_flag_t                   learn_reply;
    ngx_flag_t                   api;
    ngx_flag_t                   write;     /* of the API */
    ngx_uint_t                   status;    /* format */
    ngx_uint_t                   prefix;    /* its paths begin alike */
} ngx_http_kvroute_loc_conf_t;


/*
 * One request on one upstream: what nginx hands to get() and free().  It is in
 * the request's pool and lives as long as that.
 */

struct ngx_http_kvroute_attempt_s {
    /* the round robin data must be first */
    ngx_http_upstream_rr_peer_data_t   rrp;

    ngx_http_kvroute_ctx_t      *ctx;
    ngx_http_kvroute_srv_conf_t *conf;
    ngx_http_kvroute_policy_t   *policy;

    uint32_t                    *matched;   /* units, by peer; or NULL */
    uint32_t                    *chunks;    /* bytes, by peer; or NULL */
    kvr_popular_view_t          *popular;   /* for the next decision, or NULL */
    kvr_popular_keys_t           counted;   /* when its answer begins */
    uint64_t                     models;    /* peers that have the model */
    uint64_t                     evicts;    /* or would unload another */

    uint64_t                     key;       /* of the prefix, or session */
    uint32_t                     bound;     /* peers, or UNSET */
    uint32_t                     pin;
    uint32_t                     owner;     /* of the response before */

    kvr_attempt_t                core;      /* of the peer in use */
    uint64_t                     began;     /* ns, this decision */
    uint64_t                     receipt;   /* its number */

    unsigned                     tries:8;
    unsigned                     native:2;  /* nginx's own round robin */
    unsigned                     keyed:1;
    unsigned                     busy:1;    /* the session's peer is full */
    unsigned                     over:1;    /* may go beyond max_conns */
    unsigned                     pinned:1;  /* or was to be */
    unsigned                     stream:1;  /* the response is one */
    unsigned                     stale:1;   /* one stale connection forgiven */
    unsigned                     watched:1; /* its response is looked at */
    unsigned                     named:1;   /* which has told its id */
};


/* what is kept of a request, found again after internal redirects */

struct ngx_http_kvroute_ctx_s {
    ngx_http_request_t          *request;
    ngx_http_kvroute_attempt_t  *attempt;   /* the last one */
    ngx_http_kvroute_wait_t     *wait;      /* of the queue, or NULL */

    ngx_str_t                    salt;
    ngx_str_t                    model;
    ngx_str_t                    session;
    ngx_str_t                    peer;

    uint64_t                     model_root;
    uint64_t                     hash;      /* of all of the prompt */
    uint64_t                     bytes;     /* of prompt */
    uint64_t                     extra;
    uint64_t                     matched;   /* receipt of the last decision */
    uint64_t                     best;
    double                       cost;

    uint64_t                    *chain;     /* see _request, may be NULL */
    ngx_http_kvroute_zone_t     *zone;      /* that the chain was made for */
    uint32_t                     units;
    uint32_t                     entries;
    uint32_t                     output;    /* tokens asked for at most */

    ngx_str_t                    hint[KVR_PROMPT_FIELDS];
    int32_t                      priority;  /* as the body has it */

    ngx_msec_t                   ttft;

    kvr_endpoint_e               endpoint;
    kvr_policy_e                 policy;
    kvr_reason_e                 reason;
    kvr_response_t               usage;
    kvr_reply_t                 *reply;     /* NULL: it is not learned */

    unsigned                     inspected:2;
    unsigned                     moved:1;   /* to another location */
    unsigned                     salted:1;
    unsigned                     read:1;    /* the body was looked at */
    unsigned                     parsed:1;  /* and gave a prompt */
    unsigned                     light:1;   /* nothing is computed for it that
                                               stays in the KV cache */
    unsigned                     skips:1;   /* see kvr_prompt_t */
    unsigned                     odd:1;
    unsigned                     passing:1; /* it cannot be read again */
    unsigned                     decided:1;
    unsigned                     ttft_set:1;
    unsigned                     prioritized:1;
};


/*
 * A zone.  What all processes share begins with its head, in which parts are
 * told by their distance in bytes from the head, never by an address.
 */

typedef struct {
    uint64_t                     layout;    /* of all that is shared */
    uint64_t                     unit;
    uint64_t                     max_peers;
    uint64_t                     processes;
    uint64_t                     lines;
    ngx_atomic_t                 generation;

    uint8_t                      secret[KVR_SECRET_LEN];
    uint64_t                     keyed;     /* 1: it is that of a key_file */

    uint64_t                     created;   /* s */

    uint64_t                     registry;
    uint64_t                     load;
    uint64_t                     hot;
    uint64_t                     popular;
    uint64_t                     index;

    kvr_receipts_t               receipts;
} ngx_http_kvroute_shm_t;


/*
 * This process's view of a zone: what never changes is copied, and what does
 * is pointed to.  It is filled when the zone is initialized.
 */
typedef struct {
    ngx_http_kvroute_shm_t      *shm;

    uint64_t                     unit;
    uint64_t                     max_peers;
    uint64_t                     processes;
    uint64_t                     lines;
    uint64_t                     created;

    const uint8_t               *secret;

    kvr_registry_t              *registry;
    kvr_load_t                  *load;
    kvr_sketch_t                *hot;
    kvr_popular_t               *popular;
    kvr_index_t                 *index;
    kvr_receipts_t              *receipts;
} ngx_http_kvroute_shctx_t;


struct ngx_http_kvroute_zone_s {
    ngx_http_kvroute_shctx_t    *sh;        /* NULL, or the view */
    ngx_http_kvroute_shctx_t     view;
    ngx_slab_pool_t             *shpool;
    ngx_shm_zone_t              *shm_zone;
    ngx_str_t                    name;      /* ends in '\0' */

    ngx_uint_t                   unit;      /* blocks to an entry */
    ngx_uint_t                   max_peers;
    ngx_uint_t                   processes; /* 0: by worker_processes */
    uint8_t                     *key;       /* KVR_SECRET_LEN bytes, or NULL */
    ngx_cycle_t                 *cycle;

    kvr_zone_t                   core;      /* for core, with this process's
                                               row */
    uint64_t                     generation;

    unsigned                     claimed:1;
};


/* formats of the status */
#define NGX_HTTP_KVROUTE_STATUS_ALL   1
#define NGX_HTTP_KVROUTE_STATUS_JSON  2
#define NGX_HTTP_KVROUTE_STATUS_PROM  3
#define NGX_HTTP_KVROUTE_STATUS_HTML  4

/* "native" requests differ in why */
#define NGX_HTTP_KVROUTE_BODYLESS  1
#define NGX_HTTP_KVROUTE_BYPASS    2

/* why a peer was flushed */
#define NGX_HTTP_KVROUTE_FLUSH_API    0
#define NGX_HTTP_KVROUTE_FLUSH_PROBE  1

/* whether a variable that tells tokens is in use */
#define NGX_HTTP_KVROUTE_TOKENS_UNKNOWN  0
#define NGX_HTTP_KVROUTE_TOKENS_NO       1
#define NGX_HTTP_KVROUTE_TOKENS_YES      2

/* states of "inspected" */
#define NGX_HTTP_KVROUTE_READING   1
#define NGX_HTTP_KVROUTE_INSPECTED 2
#define NGX_HTTP_KVROUTE_AWAITED   3


extern ngx_module_t  ngx_http_kvroute_module;
extern ngx_module_t  ngx_http_kvroute_filter_module;


/* _module */

void *ngx_http_kvroute_create_srv_conf(ngx_conf_t *cf);
char *ngx_http_kvroute_zone(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_kvroute(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_kvroute_upstream_params(ngx_conf_t *cf, ngx_command_t *cmd,
    ngx_http_kvroute_srv_conf_t *kscf, ngx_uint_t first);

/* _conf_key */

ngx_int_t ngx_http_kvroute_conf_key(ngx_conf_t *cf,
    ngx_http_kvroute_zone_t *zone, ngx_str_t *file);

/* _attach */

char *ngx_http_kvroute_attach(ngx_conf_t *cf,
    ngx_http_upstream_srv_conf_t *uscf, ngx_http_kvroute_srv_conf_t *kscf);
char *ngx_http_kvroute_attach_named(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
ngx_int_t ngx_http_kvroute_attach_init(ngx_conf_t *cf);
void ngx_http_kvroute_attach_replace(ngx_conf_t *cf,
    ngx_http_upstream_srv_conf_t *uscf);
ngx_int_t ngx_http_kvroute_attach_check(ngx_conf_t *cf);

/* _zone */

ngx_int_t ngx_http_kvroute_zone_add(ngx_conf_t *cf,
    ngx_http_kvroute_zone_t *zone, ngx_str_t *name, size_t size);
ngx_int_t ngx_http_kvroute_zone_init_module(ngx_cycle_t *cycle);
ngx_int_t ngx_http_kvroute_zone_init_process(ngx_cycle_t *cycle);
void ngx_http_kvroute_zone_exit_process(ngx_cycle_t *cycle);

/* takes back what dead processes have counted */
void ngx_http_kvroute_zone_sweep(ngx_http_kvroute_zone_t *zone,
    ngx_log_t *log);

/* a process, told from others that had its id before */
kvr_load_owner_t ngx_http_kvroute_zone_owner(ngx_pid_t pid);

/* _peers */

ngx_int_t ngx_http_kvroute_peers_find(ngx_http_kvroute_srv_conf_t *conf,
    ngx_uint_t wait, ngx_log_t *log);
ngx_int_t ngx_http_kvroute_peers_current(ngx_http_kvroute_srv_conf_t *conf,
    ngx_uint_t wait, ngx_log_t *log);
void ngx_http_kvroute_peers_free(ngx_http_kvroute_list_t *list);
ngx_http_upstream_rr_peers_t *ngx_http_kvroute_peers_lock(
    ngx_peer_connection_t *pc, ngx_http_kvroute_attempt_t *at);

/* _request */

ngx_http_kvroute_ctx_t *ngx_http_kvroute_get_ctx(ngx_http_request_t *r);
ngx_http_kvroute_ctx_t *ngx_http_kvroute_create_ctx(ngx_http_request_t *r);
void ngx_http_kvroute_request_enter(ngx_http_kvroute_ctx_t *ctx);
void ngx_http_kvroute_request_read(ngx_http_request_t *r,
    ngx_http_kvroute_ctx_t *ctx, ngx_http_kvroute_zone_t *zone);
ngx_int_t ngx_http_kvroute_request_salt(ngx_http_request_t *r,
    ngx_http_kvroute_ctx_t *ctx);
void ngx_http_kvroute_request_exit(void);
void ngx_http_kvroute_request_firm(ngx_http_kvroute_ctx_t *ctx);
uint64_t *ngx_http_kvroute_request_chain(ngx_http_request_t *r,
    ngx_http_kvroute_ctx_t *ctx, ngx_http_kvroute_zone_t *zone);
kvr_documents_t *ngx_http_kvroute_request_chunks(ngx_http_request_t *r,
    ngx_http_kvroute_ctx_t *ctx, ngx_http_kvroute_zone_t *zone);

/* _body */

ngx_int_t ngx_http_kvroute_body_scratch(size_t size, ngx_log_t *log);
void ngx_http_kvroute_body_exit(void);
ngx_uint_t ngx_http_kvroute_body_readable(ngx_http_request_t *r);
ngx_int_t ngx_http_kvroute_body_read(ngx_http_request_t *r, kvr_prompt_t *pr,
    kvr_prompt_conf_t *conf);

/* _policy */

ngx_int_t ngx_http_kvroute_policy_name(ngx_conf_t *cf,
    ngx_http_kvroute_policy_t *policy, ngx_str_t *value);
ngx_int_t ngx_http_kvroute_policy_param(ngx_conf_t *cf,
    ngx_http_kvroute_policy_t *policy, ngx_str_t *value);
ngx_int_t ngx_http_kvroute_policy_check(ngx_conf_t *cf,
    ngx_http_kvroute_policy_t *policy);
ngx_int_t ngx_http_kvroute_number(ngx_conf_t *cf, ngx_str_t *value,
    size_t prefix, ngx_int_t min, ngx_int_t max);
ngx_int_t ngx_http_kvroute_params_once(ngx_conf_t *cf, ngx_uint_t first);

/* _session */

void ngx_http_kvroute_session_find(ngx_http_request_t *r,
    ngx_http_kvroute_attempt_t *at);
void ngx_http_kvroute_session_keep(ngx_http_kvroute_attempt_t *at,
    ngx_uint_t offered);
void ngx_http_kvroute_session_owner(ngx_http_request_t *r,
    ngx_http_kvroute_attempt_t *at);
void ngx_http_kvroute_session_name(ngx_http_kvroute_attempt_t *at,
    u_char *id, size_t len);

/* _inspect */

ngx_int_t ngx_http_kvroute_inspect_init(ngx_conf_t *cf);

/* _queue */

ngx_int_t ngx_http_kvroute_queue_init(ngx_conf_t *cf);
void ngx_http_kvroute_queue_exit(void);
void ngx_http_kvroute_queue_consume(ngx_http_kvroute_attempt_t *at);
ngx_int_t ngx_http_kvroute_queue_wanted(ngx_http_request_t *r);
ngx_uint_t ngx_http_kvroute_queue_again(ngx_http_kvroute_attempt_t *at);
void ngx_http_kvroute_queue_answered(ngx_http_request_t *r);
uint32_t *ngx_http_kvroute_queue_matched(ngx_http_kvroute_ctx_t *ctx,
    ngx_http_kvroute_srv_conf_t *conf);
void ngx_http_kvroute_queue_forget(ngx_http_kvroute_ctx_t *ctx);
void ngx_http_kvroute_queue_freed(ngx_http_kvroute_srv_conf_t *conf);
const char *ngx_http_kvroute_queue_status(ngx_http_kvroute_ctx_t *ctx,
    ngx_msec_t *time);

/* _queue_conf */

void ngx_http_kvroute_queue_check(ngx_conf_t *cf,
    ngx_http_upstream_srv_conf_t *uscf, ngx_http_kvroute_srv_conf_t *kscf);
char *ngx_http_kvroute_queue(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_kvroute_priority(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_kvroute_tenant(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
ngx_int_t ngx_http_kvroute_queue_class(ngx_str_t *value);

/* _upstream */

ngx_int_t ngx_http_kvroute_upstream_init(ngx_conf_t *cf,
    ngx_http_upstream_srv_conf_t *us);

/* _choose */

ngx_int_t ngx_http_kvroute_choose_init(ngx_http_kvroute_srv_conf_t *conf,
    ngx_log_t *log);
void ngx_http_kvroute_choose_exit(void);
ngx_uint_t ngx_http_kvroute_weigh(ngx_http_request_t *r,
    ngx_http_kvroute_ctx_t *ctx);
void ngx_http_kvroute_match(ngx_http_request_t *r,
    ngx_http_kvroute_attempt_t *at);
uint32_t ngx_http_kvroute_match_best(uint32_t *matched, uint64_t set);
void ngx_http_kvroute_match_popular(ngx_http_kvroute_zone_t *zone,
    uint64_t *chain, uint32_t units, kvr_popular_keys_t *keys,
    kvr_popular_view_t *view);
void ngx_http_kvroute_choose_prepare(ngx_http_kvroute_attempt_t *at,
    ngx_log_t *log);
ngx_http_upstream_rr_peer_t *ngx_http_kvroute_choose(
    ngx_http_kvroute_attempt_t *at, ngx_uint_t *index, ngx_uint_t *offered,
    kvr_decision_t *d);
ngx_uint_t ngx_http_kvroute_full(ngx_http_kvroute_srv_conf_t *conf,
    ngx_http_upstream_rr_peer_t *peer, uint32_t member,
    ngx_http_kvroute_wait_t *own);

/* _attempt */

void ngx_http_kvroute_attempt_begin(ngx_http_kvroute_attempt_t *at,
    kvr_begin_t *begin);
uint64_t ngx_http_kvroute_attempt_resident(ngx_http_kvroute_ctx_t *ctx);
void ngx_http_kvroute_attempt_insert(ngx_http_kvroute_attempt_t *at);
void ngx_http_kvroute_attempt_first(ngx_http_kvroute_attempt_t *at);
void ngx_http_kvroute_attempt_alive(ngx_http_kvroute_attempt_t *at);
void ngx_http_kvroute_attempt_end(ngx_http_kvroute_attempt_t *at,
    ngx_peer_connection_t *pc, ngx_uint_t state);
ngx_uint_t ngx_http_kvroute_attempt_status(ngx_http_kvroute_attempt_t *at);
void ngx_http_kvroute_attempt_result(ngx_http_kvroute_attempt_t *at,
    ngx_uint_t state);

/* _probe_conf, _probe */

char *ngx_http_kvroute_probe(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
char *ngx_http_kvroute_health(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);
ngx_int_t ngx_http_kvroute_probe_init(ngx_cycle_t *cycle);
void ngx_http_kvroute_probe_exit(void);

/* _signal */

void ngx_http_kvroute_flush(ngx_http_kvroute_zone_t *zone, uint32_t id,
    ngx_uint_t why, ngx_log_t *log);
void ngx_http_kvroute_pressed(kvr_peer_t *peer, time_t seconds);
ngx_uint_t ngx_http_kvroute_busy(ngx_http_kvroute_attempt_t *at);
void ngx_http_kvroute_orca(ngx_http_kvroute_attempt_t *at, ngx_str_t *value);
void ngx_http_kvroute_signal_status(void *json,
    ngx_http_kvroute_srv_conf_t *conf, uint32_t id);

/* _variables */

ngx_int_t ngx_http_kvroute_add_variables(ngx_conf_t *cf);
ngx_uint_t ngx_http_kvroute_tokens_wanted(ngx_http_request_t *r);

/* _status */

ngx_int_t ngx_http_kvroute_status_handler(ngx_http_request_t *r);
ngx_int_t ngx_http_kvroute_send_json(ngx_http_request_t *r, ngx_uint_t status,
    char *text);
ngx_int_t ngx_http_kvroute_send_error(ngx_http_request_t *r, ngx_uint_t status,
    const char *text);
ngx_int_t ngx_http_kvroute_send_not_allowed(ngx_http_request_t *r,
    const char *allow, const char *text);
ngx_int_t ngx_http_kvroute_send_chain(ngx_http_request_t *r, ngx_uint_t status,
    ngx_chain_t *out);

/* _api */

ngx_int_t ngx_http_kvroute_api_handler(ngx_http_request_t *r);


#endif /* _NGX_HTTP_KVROUTE_H_INCLUDED_ */
