
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _NGX_HTTP_KVROUTE_REQUEST_H_INCLUDED_
#define _NGX_HTTP_KVROUTE_REQUEST_H_INCLUDED_


/*
 * A request, before a decision.
 *
 *     _request    its context
 *     _prompt     its prompt and chain
 *     _body       its body, for the reader in core
 *     _headers    headers of requests and responses
 *     _inspect    reads the body before the content phase
 *     _pass       the upstream it will be passed to
 *     _lookup     what peers have cached of its prompt
 *     _reserve    its reservation at a peer
 *     _session    its session, and the peer that is bound to
 *     _tally      counts by model and tenant
 *     _variables  variables
 *     _send       responses of the module itself
 */


#include "ngx_http_kvroute.h"

#include "core/prompt/kvr_prompt.h"
#include "core/prompt/kvr_endpoint.h"
#include "core/response/kvr_response.h"
#include "core/response/kvr_reply.h"
#include "core/text/kvr_window.h"
#include "core/route/kvr_route.h"

#include <cjson/cJSON.h>


/* states of "inspected" */
#define NGX_HTTP_KVROUTE_READING   1
#define NGX_HTTP_KVROUTE_INSPECTED 2
#define NGX_HTTP_KVROUTE_AWAITED   3

/* an early decision: the request goes there, or elsewhere */
#define NGX_HTTP_KVROUTE_KEPT      1
#define NGX_HTTP_KVROUTE_MOVED     2


typedef struct ngx_http_kvroute_attempt_s  ngx_http_kvroute_attempt_t;
typedef struct ngx_http_kvroute_wait_s     ngx_http_kvroute_wait_t;
typedef struct ngx_http_kvroute_legs_s     ngx_http_kvroute_legs_t;
typedef struct ngx_http_kvroute_leg_s      ngx_http_kvroute_leg_t;

/*
 * Changes candidates for a leg.  rate: of kvr_view_t.  Returns the index of the
 * one that the leg wants the address of, or another number.
 */
typedef uint32_t (*ngx_http_kvroute_leg_price_pt)(ngx_http_kvroute_leg_t *leg,
    kvr_candidate_t *cand, uint32_t n, uint64_t bytes, uint32_t rate);

typedef void (*ngx_http_kvroute_leg_pt)(ngx_http_kvroute_leg_t *leg,
    ngx_http_request_t *r);

/* NGX_DECLINED: no other peer may be tried */
typedef ngx_int_t (*ngx_http_kvroute_leg_try_pt)(ngx_http_kvroute_leg_t *leg,
    ngx_http_request_t *r);

typedef ngx_int_t (*ngx_http_kvroute_leg_head_pt)(ngx_http_request_t *r,
    ngx_http_kvroute_legs_t *legs);
typedef ngx_int_t (*ngx_http_kvroute_leg_body_pt)(ngx_http_request_t *r,
    ngx_http_kvroute_legs_t *legs, ngx_chain_t *in);


/* The last look-up of a prompt at the peers of an upstream. */
typedef struct {
    ngx_http_kvroute_srv_conf_t *conf;      /* the upstream; NULL: none */
    ngx_uint_t                   edition;   /* of its peers */
    ngx_msec_t                   time;

    uint32_t                     best;      /* units, maximum of matched[] */

    /* requests with the same prefix; only if best is not 0 */

    ngx_uint_t                   counted;   /* the next two are set */
    kvr_hot_view_t               hot;
    kvr_hot_keys_t               keys;

    uint32_t                    *loads;     /* units, by peer; or NULL */

    ngx_uint_t                   room;      /* half the length of matched[] */
    uint32_t                     matched[];  /* units, by peer */
} ngx_http_kvroute_lookup_t;


/* a reservation at a peer */
typedef struct {
    kvr_reservation_t            core;
    ngx_http_kvroute_srv_conf_t *conf;      /* the upstream */
    ngx_http_kvroute_attempt_t  *attempt;   /* of an early decision; NULL: get()
                                               decides */
} ngx_http_kvroute_reserve_t;


/* a session at an upstream */
typedef struct {
    uint64_t                     key;
    uint32_t                     bound;     /* peer, or UNSET */
    unsigned                     keyed:1;   /* the request has a session */
} ngx_http_kvroute_session_t;


/*
 * One leg of a disaggregated request: what the balancer and the filter must do
 * differently.  Each function can be NULL.
 */
struct ngx_http_kvroute_leg_s {
    ngx_http_upstream_srv_conf_t  *upstream;  /* used instead, or NULL */
    ngx_http_upstream_conf_t    *conf;      /* used instead, or NULL */

    ngx_http_kvroute_leg_pt      enter;     /* called by init() there */
    ngx_http_kvroute_leg_try_pt  before;    /* before an attempt */
    ngx_http_kvroute_leg_head_pt  header;   /* NGX_DECLINED: send it */
    ngx_http_kvroute_leg_body_pt  answer;   /* likewise */
    ngx_http_kvroute_leg_pt      begun;     /* at the first token */
    ngx_http_kvroute_leg_pt      end;       /* when an attempt ends */

    ngx_http_kvroute_leg_price_pt  price;   /* before the policy is asked */
    ngx_http_kvroute_legs_t     *legs;
    ngx_str_t                    wanted;    /* the address that it wants; in
                                               NGX_SOCKADDR_STRLEN bytes */
    uint32_t                     rank;      /* there */

    double                       transfer;  /* decode: cost of transferring a
                                               byte, relative to computing it */
    unsigned                     decode:1;  /* another leg computes the
                                               prompt */
    unsigned                     fixed:1;   /* only the peer of the early
                                               decision */
};


/* the context of a request, which survives internal redirects */

typedef struct {
    ngx_http_request_t          *request;
    ngx_http_kvroute_attempt_t  *attempt;   /* the last one */
    ngx_pool_cleanup_pt          end;       /* ends the attempt */
    ngx_http_kvroute_wait_t     *wait;      /* in the queue, or NULL */
    ngx_http_kvroute_lookup_t   *lookup;    /* or NULL */
    ngx_http_kvroute_leg_t      *leg;       /* if it is one, or NULL */
    ngx_http_kvroute_legs_t     *legs;      /* if it has or is one, or NULL */
    ngx_http_kvroute_reserve_t   reserved;
    ngx_http_upstream_t         *created;   /* early decision is made, or is
                                               not possible */

    ngx_str_t                    uri;       /* for the endpoint */
    ngx_str_t                    salt;
    ngx_str_t                    model;
    ngx_str_t                    session;
    ngx_str_t                    tenant;    /* name in the status */
    ngx_str_t                    peer;

    uint64_t                     tenant_hash;

    uint64_t                     model_root;
    uint64_t                     hash;      /* of the whole prompt */
    uint64_t                     bytes;     /* of the prompt */
    uint64_t                     extra;     /* beyond the part read */
    uint64_t                     matched;   /* of the last decision */
    uint64_t                     best;
    double                       cost;

    uint64_t                    *chain;     /* a copy, or NULL: see _prompt */
    ngx_http_kvroute_zone_t     *zone;      /* of the chain */
    uint32_t                     units;
    uint32_t                     entries;
    uint32_t                     output;    /* max_tokens */
    uint32_t                     streams;   /* in flight at the pick */

    ngx_str_t                    hint[KVR_PROMPT_FIELDS];

    ngx_msec_t                   ttft;
    int32_t                      priority;  /* in the body */
    uint32_t                     rank;      /* of the engine, or UNSET */

    kvr_endpoint_e               endpoint;
    kvr_policy_e                 policy;
    kvr_reason_e                 reason;
    kvr_disaggregate_e           alone;     /* why one server serves it, if
                                               known before a decision */
    kvr_response_t               usage;
    kvr_reply_t                 *reply;     /* NULL: not inserted */

    unsigned                     inspected:2;
    unsigned                     moved:1;   /* to another location */
    unsigned                     salted:1;
    unsigned                     tenanted:1;
    unsigned                     read:1;    /* the body was read */
    unsigned                     parsed:1;  /* and has a prompt */
    unsigned                     no_prefill:1;  /* leaves no KV in the cache */
    unsigned                     skips:1;   /* see kvr_prompt_t */
    unsigned                     unsized:1;
    unsigned                     sampled:1;
    unsigned                     one_engine:1;
    unsigned                     stream:1;
    unsigned                     clean:1;
    unsigned                     passing:1; /* cannot be read again */
    unsigned                     decided:1;
    unsigned                     ranked:1;  /* $kvroute_rank was read */
    unsigned                     ttft_set:1;
    unsigned                     prioritized:1;
    unsigned                     lowest:1;  /* class of the queue */
    unsigned                     early:2;   /* _KEPT or _MOVED; 0: no early
                                               decision */
} ngx_http_kvroute_ctx_t;


/* _request: Adds a handler that runs before the content phase. */
ngx_int_t ngx_http_kvroute_request_phase(ngx_conf_t *cf,
    ngx_http_handler_pt handler);

/* Returns the context, also after internal redirects; or NULL. */
ngx_http_kvroute_ctx_t *ngx_http_kvroute_request_get_ctx(
    ngx_http_request_t *r);
ngx_http_kvroute_ctx_t *ngx_http_kvroute_request_create_ctx(
    ngx_http_request_t *r);

/*
 * Returns the next context of a request and its subrequests, whose cleanups
 * begin at *cln; or NULL.
 */
ngx_http_kvroute_ctx_t *ngx_http_kvroute_request_next(
    ngx_pool_cleanup_t **cln);

/* Lets a request wait in its phase, while the client may leave. */
ngx_int_t ngx_http_kvroute_request_park(ngx_http_request_t *r);

/* Continues with the phases. */
void ngx_http_kvroute_request_resume(ngx_http_request_t *r);

/* Clears values of another location; called before the body is used. */
void ngx_http_kvroute_request_enter(ngx_http_kvroute_ctx_t *ctx);

/*
 * Estimates the work by the path and the length, unless the prompt was read.
 * Returns whether there is a body.
 */
ngx_uint_t ngx_http_kvroute_request_weigh(ngx_http_request_t *r,
    ngx_http_kvroute_ctx_t *ctx);

/* Returns bytes of context, including the reply. */
uint64_t ngx_http_kvroute_request_resident(ngx_http_kvroute_ctx_t *ctx);

/* Returns the policy at an upstream; bypass: "off", so use round robin. */
ngx_http_kvroute_policy_t *ngx_http_kvroute_request_policy(
    ngx_http_request_t *r, ngx_http_kvroute_srv_conf_t *conf,
    ngx_uint_t *bypass);

/* Evaluates kvroute_salt, once per location. */
ngx_int_t ngx_http_kvroute_request_salt(ngx_http_request_t *r,
    ngx_http_kvroute_ctx_t *ctx);

/*
 * Closes a request's upstream connection without an answer, as nginx does when
 * a client leaves, so the server has not failed.  Returns 0 if there is none;
 * else the caller finalizes the request.
 */
ngx_uint_t ngx_http_kvroute_request_close(ngx_http_request_t *r);

/* Reads the body, or the part that was received, once per location. */
void ngx_http_kvroute_request_read(ngx_http_request_t *r,
    ngx_http_kvroute_ctx_t *ctx, ngx_http_kvroute_zone_t *zone);

/*
 * _body: Tells whether the body can be read.  NGX_DECLINED: there is none; else
 * NGX_OK, or a status with the reason.
 */
ngx_int_t ngx_http_kvroute_request_readable(ngx_http_request_t *r);

/* Returns the bytes that a body may have to be read. */
size_t ngx_http_kvroute_request_limit(ngx_http_request_t *r);

/* Sets a window over a complete body.  NGX_DECLINED: no memory. */
ngx_int_t ngx_http_kvroute_request_window(ngx_http_request_t *r,
    kvr_window_t *window);

/*
 * Gives a request another body; header: its Content-Length, or NULL.  nginx's
 * variables of the body are forgotten, which all subrequests share.  The
 * configuration must have called _body_init().
 */
ngx_int_t ngx_http_kvroute_request_body_init(ngx_conf_t *cf);
void ngx_http_kvroute_request_body_set(ngx_http_request_t *r,
    ngx_http_request_body_t *body, off_t length, ngx_table_elt_t *header);
void ngx_http_kvroute_request_body_forget(ngx_http_request_t *r);

/* _headers: Returns the next header of a name; after: NULL for the first. */
ngx_table_elt_t *ngx_http_kvroute_headers_next(ngx_list_t *headers,
    ngx_str_t *name, ngx_table_elt_t *after);

/* Adds a header to the response; NULL: no memory. */
ngx_table_elt_t *ngx_http_kvroute_headers_add(ngx_http_request_t *r,
    const char *name, const char *value);

/*
 * _prompt: Returns the chain of a prompt that was read, in the units and hashes
 * of a zone, computed again if necessary; or NULL.  Valid for this event.
 */
uint64_t *ngx_http_kvroute_prompt_chain(ngx_http_request_t *r,
    ngx_http_kvroute_ctx_t *ctx, ngx_http_kvroute_zone_t *zone);

/* Keeps a copy of the chain with the request, if there is memory. */
void ngx_http_kvroute_prompt_keep_chain(ngx_http_request_t *r,
    ngx_http_kvroute_ctx_t *ctx, ngx_http_kvroute_zone_t *zone);

/* Frees the copy once the prompt is computed. */
void ngx_http_kvroute_prompt_free_chain(ngx_http_kvroute_ctx_t *ctx);

/* Frees the scratch memory of this worker. */
void ngx_http_kvroute_prompt_exit(void);

/* _inspect */

ngx_int_t ngx_http_kvroute_inspect_init(ngx_conf_t *cf);

/*
 * Reads the body in a phase before the content phase.  NGX_DECLINED: done; else
 * the phase's handler must return the result.
 */
ngx_int_t ngx_http_kvroute_inspect(ngx_http_request_t *r);

/*
 * _lookup: Returns what peers have cached, looked up once per event; NULL if it
 * is unknown.  hot: also look up hot prefixes.
 */
ngx_http_kvroute_lookup_t *ngx_http_kvroute_lookup(ngx_http_kvroute_ctx_t *ctx,
    ngx_http_kvroute_srv_conf_t *conf, ngx_uint_t hot);

/* Returns a result that is at most age ms old, or NULL. */
ngx_http_kvroute_lookup_t *ngx_http_kvroute_lookup_kept(
    ngx_http_kvroute_ctx_t *ctx, ngx_http_kvroute_srv_conf_t *conf,
    ngx_msec_t age);

/* _reserve: Returns the reservation if it is at this upstream, or NULL. */
kvr_reservation_t *ngx_http_kvroute_reserve_held(
    ngx_http_kvroute_reserve_t *reserved, ngx_http_kvroute_srv_conf_t *conf);

/* Releases the reservation, if any. */
void ngx_http_kvroute_reserve_release(ngx_http_kvroute_reserve_t *reserved);

/* Called when get() has counted the request at the peer it takes. */
void ngx_http_kvroute_reserve_consume(ngx_http_kvroute_reserve_t *reserved,
    ngx_http_kvroute_srv_conf_t *conf, uint32_t peer);

/* Wakes the queue, because this worker has made room. */
void ngx_http_kvroute_reserve_freed(ngx_http_kvroute_srv_conf_t *conf);

/* _session: Finds the session of a request, and its peer. */
void ngx_http_kvroute_session_find(ngx_http_kvroute_ctx_t *ctx,
    ngx_http_kvroute_srv_conf_t *conf, ngx_http_kvroute_policy_t *policy,
    ngx_http_kvroute_session_t *s);

void ngx_http_kvroute_session_bind(ngx_http_kvroute_srv_conf_t *conf,
    uint64_t key, uint32_t peer, time_t seconds);

/* Returns the peer that made the response referred to, or UNSET. */
uint32_t ngx_http_kvroute_session_owner(ngx_http_kvroute_ctx_t *ctx,
    ngx_http_kvroute_srv_conf_t *conf, ngx_http_kvroute_policy_t *policy);

/* Binds the id of a response to the peer that made it. */
void ngx_http_kvroute_session_name(ngx_http_kvroute_ctx_t *ctx,
    ngx_http_kvroute_srv_conf_t *conf, uint32_t peer, u_char *id, size_t len);

/*
 * _tally: Finds the tenant, once per location.  NGX_DECLINED: there is
 * none.  The zone's secret keys the hash, so clients cannot choose
 * collisions.
 */
ngx_int_t ngx_http_kvroute_tally_tenant(ngx_http_kvroute_ctx_t *ctx,
    ngx_http_kvroute_zone_t *zone);

/*
 * Adds counts for the model and the tenant in an upstream, by its slot.  ok: a
 * successful response, so new names may be added.
 */
void ngx_http_kvroute_tally(ngx_http_kvroute_ctx_t *ctx,
    ngx_http_kvroute_zone_t *zone, uint32_t upstream,
    const kvr_tally_counts_t *counts, ngx_uint_t ok);

/* _variables */

ngx_int_t ngx_http_kvroute_variables_add(ngx_conf_t *cf,
    ngx_http_variable_t *v);
ngx_int_t ngx_http_kvroute_variables_init(ngx_conf_t *cf);

/* Tells whether the configuration uses a variable of a list that NULL ends. */
ngx_uint_t ngx_http_kvroute_variables_used(ngx_conf_t *cf,
    const char *const *names);

/*
 * Tells whether the configuration uses a variable with tokens.  A script that
 * reads one by its name counts from then on.
 */
ngx_uint_t ngx_http_kvroute_variables_tokens(ngx_http_request_t *r);

/*
 * Set a value: text, which is "not found" if it is empty or has control bytes;
 * a number; a time in ms, shown as seconds; "not found".
 */
ngx_int_t ngx_http_kvroute_variables_string(ngx_http_variable_value_t *v,
    ngx_str_t *s);
ngx_int_t ngx_http_kvroute_variables_name(ngx_http_variable_value_t *v,
    const char *name);
ngx_int_t ngx_http_kvroute_variables_number(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, int64_t n);
ngx_int_t ngx_http_kvroute_variables_time(ngx_http_request_t *r,
    ngx_http_variable_value_t *v, ngx_msec_t time);
ngx_int_t ngx_http_kvroute_variables_none(ngx_http_variable_value_t *v);

/* _pass: Finds modules with a "pass" directive, before the configuration. */
void ngx_http_kvroute_pass_init(ngx_conf_t *cf);

/*
 * Return how a location passes requests to a literal upstream: the
 * configuration, or NULL; the upstream, or NULL; the directive, or NULL;
 * whether that is grpc_pass.
 */
ngx_http_upstream_conf_t *ngx_http_kvroute_pass_conf(void **loc_conf);
ngx_http_upstream_srv_conf_t *ngx_http_kvroute_pass_upstream(void **loc_conf);
const char *ngx_http_kvroute_pass_directive(void **loc_conf);
ngx_uint_t ngx_http_kvroute_pass_grpc(void **loc_conf);

/*
 * Returns the upstream of a request before the content phase, if it is known
 * and reservations are made there; or NULL.
 */
ngx_http_kvroute_srv_conf_t *ngx_http_kvroute_pass_expected(
    ngx_http_request_t *r);

/* Returns the configuration of an upstream that has a block, or NULL. */
ngx_http_kvroute_srv_conf_t *ngx_http_kvroute_pass_routed(
    ngx_http_upstream_srv_conf_t *uscf);

/* Returns the upstream with "kvroute" of a name, or NULL. */
ngx_http_kvroute_srv_conf_t *ngx_http_kvroute_pass_named(
    ngx_http_kvroute_main_conf_t *kmcf, ngx_str_t *name);

/* Returns the upstream of an upstream request that is being created. */
ngx_http_kvroute_srv_conf_t *ngx_http_kvroute_pass_created(
    ngx_http_request_t *r);

/* _send: Sends a part of a JSON tree, and deletes the tree. */
ngx_int_t ngx_http_kvroute_send_json(ngx_http_request_t *r, cJSON *json,
    cJSON *part);

/* Tells whether an error_page responds to 429. */
ngx_uint_t ngx_http_kvroute_send_paged(ngx_http_request_t *r);

/* Sends an error, with a text of at most 128 bytes. */
ngx_int_t ngx_http_kvroute_send_error(ngx_http_request_t *r, ngx_uint_t status,
    const char *text);

/* Sends a text that is JSON, with a line end. */
ngx_int_t ngx_http_kvroute_send_text(ngx_http_request_t *r, ngx_uint_t status,
    const char *text);

/* allow: names of the methods that are allowed */
ngx_int_t ngx_http_kvroute_send_not_allowed(ngx_http_request_t *r,
    const char *allow, const char *text);

/* Sends a complete response, whose type is set; the chain is not empty. */
ngx_int_t ngx_http_kvroute_send_chain(ngx_http_request_t *r, ngx_uint_t status,
    ngx_chain_t *out);


#endif /* _NGX_HTTP_KVROUTE_REQUEST_H_INCLUDED_ */
