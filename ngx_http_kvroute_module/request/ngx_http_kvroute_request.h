
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _NGX_HTTP_KVROUTE_REQUEST_H_INCLUDED_
#define _NGX_HTTP_KVROUTE_REQUEST_H_INCLUDED_


/*
 * A request, before anything is decided about it.
 *
 *     _request    its context
 *     _prompt     its prompt, and the chain of that
 *     _body       its body, as core reads it
 *     _headers    headers of requests and responses
 *     _inspect    the body read before the content phase
 *     _pass       the upstream that it will go to
 *     _lookup     what peers hold of its prompt
 *     _reserve    what it holds at a peer before it is sent there
 *     _session    what names its session, and where that is bound
 *     _tally      whom it is counted for: its model and its tenant
 *     _variables  its context, for access logs
 *     _send       answers of our own
 */


#include "ngx_http_kvroute.h"

#include "core/prompt/kvr_prompt.h"
#include "core/prompt/kvr_endpoint.h"
#include "core/response/kvr_response.h"
#include "core/response/kvr_reply.h"
#include "core/text/kvr_window.h"
#include "core/route/kvr_route.h"


/* states of "inspected" */
#define NGX_HTTP_KVROUTE_READING   1
#define NGX_HTTP_KVROUTE_INSPECTED 2
#define NGX_HTTP_KVROUTE_AWAITED   3

/* an early decision: the request goes there, or somewhere else */
#define NGX_HTTP_KVROUTE_KEPT      1
#define NGX_HTTP_KVROUTE_MOVED     2


typedef struct ngx_http_kvroute_attempt_s  ngx_http_kvroute_attempt_t;
typedef struct ngx_http_kvroute_wait_s     ngx_http_kvroute_wait_t;
typedef struct ngx_http_kvroute_legs_s     ngx_http_kvroute_legs_t;
typedef struct ngx_http_kvroute_leg_s      ngx_http_kvroute_leg_t;

/* what of a peer counts otherwise for a leg, with its transfer */
typedef void (*ngx_http_kvroute_leg_price_pt)(kvr_candidate_t *c,
    uint64_t bytes, double transfer);

typedef void (*ngx_http_kvroute_leg_pt)(ngx_http_kvroute_leg_t *leg,
    ngx_http_request_t *r);

/* NGX_DECLINED: no other peer may be asked */
typedef ngx_int_t (*ngx_http_kvroute_leg_try_pt)(ngx_http_kvroute_leg_t *leg,
    ngx_http_request_t *r);

typedef ngx_int_t (*ngx_http_kvroute_leg_head_pt)(ngx_http_request_t *r,
    ngx_http_kvroute_legs_t *legs);
typedef ngx_int_t (*ngx_http_kvroute_leg_body_pt)(ngx_http_request_t *r,
    ngx_http_kvroute_legs_t *legs, ngx_chain_t *in);


/*
 * What the peers of an upstream hold of a prompt, as it was looked up last.  It
 * is in the request's pool.
 */
typedef struct {
    ngx_http_kvroute_srv_conf_t *conf;      /* the upstream; NULL: none */
    ngx_uint_t                   edition;   /* of its peers, then */
    ngx_msec_t                   time;

    uint32_t                     best;      /* units, the most that one holds */

    /* of how many requests that is the beginning; only if best is not 0 */

    ngx_uint_t                   counted;   /* the next two are set */
    kvr_hot_view_t               hot;
    kvr_hot_keys_t               keys;

    ngx_uint_t                   room;      /* numbers of peers in this: */
    uint32_t                     matched[];  /* units, by peer */
} ngx_http_kvroute_lookup_t;


/* a place at a peer of an upstream, before the request is sent there */
typedef struct {
    kvr_reservation_t            core;
    ngx_http_kvroute_srv_conf_t *conf;      /* the upstream */
    ngx_http_kvroute_attempt_t  *attempt;   /* get() takes that peer; or NULL:
                                               it decides */
} ngx_http_kvroute_reserve_t;


/* a session of an upstream */
typedef struct {
    uint64_t                     key;
    uint32_t                     bound;     /* to this peer, or UNSET */
    unsigned                     keyed:1;   /* the request has one */
} ngx_http_kvroute_session_t;


/*
 * One of several requests that serve one: what is different for the balancer and
 * the filter.  Each of the functions may be NULL.
 */
struct ngx_http_kvroute_leg_s {
    ngx_http_upstream_srv_conf_t  *upstream;  /* to go to instead, or NULL */
    ngx_http_upstream_conf_t    *conf;      /* to use instead, or NULL */

    ngx_http_kvroute_leg_pt      enter;     /* called at that upstream */
    ngx_http_kvroute_leg_try_pt  before;    /* before an attempt */
    ngx_http_kvroute_leg_head_pt  header;   /* NGX_DECLINED: send it */
    ngx_http_kvroute_leg_body_pt  answer;   /* likewise */
    ngx_http_kvroute_leg_pt      begun;     /* at the first token */
    ngx_http_kvroute_leg_pt      end;       /* when an attempt ends */

    ngx_http_kvroute_leg_price_pt  price;   /* of each candidate */

    double                       transfer;  /* decode: cost of a byte that is
                                               not held, by computing it */
    unsigned                     decode:1;  /* the prompt is computed by
                                               another leg */
    unsigned                     fixed:1;   /* the peer that was decided on
                                               early, or none */
};


/* what is kept of a request, found again after internal redirects */

typedef struct {
    ngx_http_request_t          *request;
    ngx_http_kvroute_attempt_t  *attempt;   /* the last one */
    ngx_pool_cleanup_pt          end;       /* ends it, if there is one */
    ngx_http_kvroute_wait_t     *wait;      /* of the queue, or NULL */
    ngx_http_kvroute_lookup_t   *lookup;    /* or NULL */
    ngx_http_kvroute_leg_t      *leg;       /* that it is; or NULL */
    ngx_http_kvroute_legs_t     *legs;      /* that it has or is of; or NULL */
    ngx_http_kvroute_reserve_t   reserved;

    ngx_str_t                    uri;       /* that the endpoint is of */
    ngx_str_t                    salt;
    ngx_str_t                    model;
    ngx_str_t                    session;
    ngx_str_t                    tenant;    /* what the status calls it */
    ngx_str_t                    peer;

    uint64_t                     tenant_hash;

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
    uint32_t                     streams;   /* at the pick, before it */

    ngx_str_t                    hint[KVR_PROMPT_FIELDS];

    ngx_msec_t                   ttft;
    int32_t                      priority;  /* as the body has it */
    uint32_t                     rank;      /* of the engine, or UNSET */

    kvr_endpoint_e               endpoint;
    kvr_policy_e                 policy;
    kvr_reason_e                 reason;
    kvr_disaggregate_e           alone;     /* why one server serves it, if
                                               that was clear at once */
    kvr_response_t               usage;
    kvr_reply_t                 *reply;     /* NULL: it is not learned */

    unsigned                     inspected:2;
    unsigned                     moved:1;   /* to another location */
    unsigned                     salted:1;
    unsigned                     tenanted:1;
    unsigned                     read:1;    /* the body was looked at */
    unsigned                     parsed:1;  /* and gave a prompt */
    unsigned                     light:1;   /* nothing is computed for it that
                                               stays in the KV cache */
    unsigned                     skips:1;   /* see kvr_prompt_t */
    unsigned                     odd:1;
    unsigned                     sampled:1;
    unsigned                     joint:1;
    unsigned                     clean:1;
    unsigned                     passing:1; /* it cannot be read again */
    unsigned                     decided:1;
    unsigned                     ranked:1;  /* its rank was asked for since */
    unsigned                     ttft_set:1;
    unsigned                     prioritized:1;
    unsigned                     early:2;   /* decided before headers were
                                               made: _KEPT or _MOVED */
} ngx_http_kvroute_ctx_t;


/* _request: adds a handler that runs before what makes the content */
ngx_int_t ngx_http_kvroute_request_phase(ngx_conf_t *cf,
    ngx_http_handler_pt handler);

/* the context, as it is found after internal redirects, or NULL */
ngx_http_kvroute_ctx_t *ngx_http_kvroute_request_get_ctx(
    ngx_http_request_t *r);
ngx_http_kvroute_ctx_t *ngx_http_kvroute_request_create_ctx(
    ngx_http_request_t *r);

/* before anything is asked of the body in a location */
void ngx_http_kvroute_request_enter(ngx_http_kvroute_ctx_t *ctx);

/*
 * What the path and the length of a request say of the work that it is, as long
 * as nothing else does.  Returns whether there is a body.
 */
ngx_uint_t ngx_http_kvroute_request_weigh(ngx_http_request_t *r,
    ngx_http_kvroute_ctx_t *ctx);

/* bytes of context that the request comes to with its reply */
uint64_t ngx_http_kvroute_request_resident(ngx_http_kvroute_ctx_t *ctx);

/* its policy at an upstream; bypass: the request is to be left to nginx */
ngx_http_kvroute_policy_t *ngx_http_kvroute_request_policy(
    ngx_http_request_t *r, ngx_http_kvroute_srv_conf_t *conf,
    ngx_uint_t *bypass);

/* evaluates what keeps tenants apart, once in a location */
ngx_int_t ngx_http_kvroute_request_salt(ngx_http_request_t *r,
    ngx_http_kvroute_ctx_t *ctx);

/* reads the body, once in a location, as far as it is there */
void ngx_http_kvroute_request_read(ngx_http_request_t *r,
    ngx_http_kvroute_ctx_t *ctx, ngx_http_kvroute_zone_t *zone);

/*
 * _body: NGX_OK: there is a body, which may be read; NGX_DECLINED: there is
 * none; else the status that says why it is not read.
 */
ngx_int_t ngx_http_kvroute_request_readable(ngx_http_request_t *r);

/* its bytes, of which all have been received; NGX_DECLINED: there is no memory */
ngx_int_t ngx_http_kvroute_request_window(ngx_http_request_t *r,
    kvr_window_t *window);

/* _headers: the first one of a name in a list, or NULL */
ngx_table_elt_t *ngx_http_kvroute_headers_find(ngx_list_t *headers,
    ngx_str_t *name);

/* the next one of that name behind one, or NULL */
ngx_table_elt_t *ngx_http_kvroute_headers_next(ngx_list_t *headers,
    ngx_str_t *name, ngx_table_elt_t *after);

/*
 * _prompt: the chain of a request that was read, in a zone's units and hashes:
 * still there, or made again; NULL if that cannot be. Good for this event only.
 */
uint64_t *ngx_http_kvroute_prompt_chain(ngx_http_request_t *r,
    ngx_http_kvroute_ctx_t *ctx, ngx_http_kvroute_zone_t *zone);
kvr_documents_t *ngx_http_kvroute_prompt_documents(ngx_http_request_t *r,
    ngx_http_kvroute_ctx_t *ctx, ngx_http_kvroute_zone_t *zone);

/* keeps the chain with the request, if there is memory for it */
void ngx_http_kvroute_prompt_keep_chain(ngx_http_request_t *r,
    ngx_http_kvroute_ctx_t *ctx, ngx_http_kvroute_zone_t *zone);

/* the prompt is computed: nobody will ask for its chain any more */
void ngx_http_kvroute_prompt_free_chain(ngx_http_kvroute_ctx_t *ctx);

/* gives this worker's memory back */
void ngx_http_kvroute_prompt_exit(void);

/* _inspect */

ngx_int_t ngx_http_kvroute_inspect_init(ngx_conf_t *cf);

/*
 * Reads the body in a phase before the content phase.  NGX_DECLINED: it is
 * read; else it is what the handler of the phase returns.
 */
ngx_int_t ngx_http_kvroute_inspect(ngx_http_request_t *r);

/*
 * _lookup: what the peers of an upstream hold of the prompt, looked up once in
 * an event; NULL if that cannot be known.  hot: look up hot prefixes as well.
 */
ngx_http_kvroute_lookup_t *ngx_http_kvroute_lookup(ngx_http_kvroute_ctx_t *ctx,
    ngx_http_kvroute_srv_conf_t *conf, ngx_uint_t hot);

/* what was looked up in the last ms, age at most, or NULL */
ngx_http_kvroute_lookup_t *ngx_http_kvroute_lookup_kept(
    ngx_http_kvroute_ctx_t *ctx, ngx_http_kvroute_srv_conf_t *conf,
    ngx_msec_t age);

/* _reserve: what is held at a peer of this upstream, or NULL */
kvr_reservation_t *ngx_http_kvroute_reserve_held(
    ngx_http_kvroute_reserve_t *reserved, ngx_http_kvroute_srv_conf_t *conf);

/* gives it back, if anything is held */
void ngx_http_kvroute_reserve_release(ngx_http_kvroute_reserve_t *reserved);

/* get() has counted the request on the peer that it takes */
void ngx_http_kvroute_reserve_consume(ngx_http_kvroute_reserve_t *reserved,
    ngx_http_kvroute_srv_conf_t *conf, uint32_t peer);

/* a request of this worker has made room: who waits in the queue has to look */
void ngx_http_kvroute_reserve_freed(ngx_http_kvroute_srv_conf_t *conf);

/* _session: finds the session of a request, and the peer it is bound to */
void ngx_http_kvroute_session_find(ngx_http_kvroute_ctx_t *ctx,
    ngx_http_kvroute_srv_conf_t *conf, ngx_http_kvroute_policy_t *policy,
    ngx_http_kvroute_session_t *s);

/* binds a session to a peer, for so many seconds */
void ngx_http_kvroute_session_bind(ngx_http_kvroute_srv_conf_t *conf,
    uint64_t key, uint32_t peer, time_t seconds);

/* the peer that has made the response which is referred to, or UNSET */
uint32_t ngx_http_kvroute_session_owner(ngx_http_kvroute_ctx_t *ctx,
    ngx_http_kvroute_srv_conf_t *conf, ngx_http_kvroute_policy_t *policy);

/* the response has told by which id it may be referred to */
void ngx_http_kvroute_session_name(ngx_http_kvroute_ctx_t *ctx,
    ngx_http_kvroute_srv_conf_t *conf, uint32_t peer, u_char *id, size_t len);

/*
 * _tally: finds the tenant, once in a location; NGX_DECLINED: there is none.
 * Its hash is keyed by the zone's secret: nobody shall be able to choose whose
 * place it is.
 */
ngx_int_t ngx_http_kvroute_tally_tenant(ngx_http_kvroute_ctx_t *ctx,
    ngx_http_kvroute_zone_t *zone);

/*
 * Adds counts to those of the request's model and tenant in an upstream, by its
 * number.  ok: it was answered with success, so that its names may be kept.
 */
void ngx_http_kvroute_tally(ngx_http_kvroute_ctx_t *ctx,
    ngx_http_kvroute_zone_t *zone, uint32_t upstream,
    const kvr_tally_counts_t *counts, ngx_uint_t ok);

/* _variables */

ngx_int_t ngx_http_kvroute_variables_add(ngx_conf_t *cf,
    ngx_http_variable_t *v);
ngx_int_t ngx_http_kvroute_variables_init(ngx_conf_t *cf);

/* whether the configuration has $kvroute_rank anywhere */
ngx_uint_t ngx_http_kvroute_variables_ranks(ngx_conf_t *cf);

/* values: a text, if it can stand in a header, a number, nothing */
ngx_int_t ngx_http_kvroute_variables_string(ngx_http_variable_value_t *v,
    ngx_str_t *s);
ngx_int_t ngx_http_kvroute_variables_number(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, int64_t n);
ngx_int_t ngx_http_kvroute_variables_none(ngx_http_variable_value_t *v);

/* a time in seconds, with milliseconds */
ngx_int_t ngx_http_kvroute_variables_time(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, ngx_msec_t time);

/* whether a variable that tells tokens is in use */
ngx_uint_t ngx_http_kvroute_variables_tokens(ngx_http_request_t *r);

/*
 * _pass: finds the modules that pass requests on, before a configuration is
 * read; the configuration by which a location passes them to a literal
 * upstream, or NULL; that upstream, or NULL; whether it does so by grpc_pass
 */
void ngx_http_kvroute_pass_init(ngx_conf_t *cf);
ngx_http_upstream_conf_t *ngx_http_kvroute_pass_conf(void **loc_conf);
ngx_http_upstream_srv_conf_t *ngx_http_kvroute_pass_upstream(void **loc_conf);
ngx_uint_t ngx_http_kvroute_pass_grpc(void **loc_conf);

/*
 * Returns the upstream that a request will be passed to, if that is known
 * before the content phase, and if anything is reserved there; or NULL.
 */
ngx_http_kvroute_srv_conf_t *ngx_http_kvroute_pass_expected(
    ngx_http_request_t *r);

/* _send: a text that cJSON has made, which is freed */
ngx_int_t ngx_http_kvroute_send_json(ngx_http_request_t *r, ngx_uint_t status,
    char *text);
ngx_int_t ngx_http_kvroute_send_error(ngx_http_request_t *r, ngx_uint_t status,
    const char *text);

/* allow: the methods that may be used here, by their names */
ngx_int_t ngx_http_kvroute_send_not_allowed(ngx_http_request_t *r,
    const char *allow, const char *text);

/* all of an answer whose type is set; the chain is not empty */
ngx_int_t ngx_http_kvroute_send_chain(ngx_http_request_t *r, ngx_uint_t status,
    ngx_chain_t *out);


#endif /* _NGX_HTTP_KVROUTE_REQUEST_H_INCLUDED_ */
