
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _NGX_HTTP_KVROUTE_BALANCE_H_INCLUDED_
#define _NGX_HTTP_KVROUTE_BALANCE_H_INCLUDED_


/*
 * The balancer: what nginx calls for an upstream and for each request on it.
 *
 *     _upstream  init, get and free
 *     _shadow    observes another balancer without routing
 *     _rank      data-parallel ranks of a server
 *     _early     decides before nginx creates the upstream request
 *     _prepare   gathers everything a decision needs
 *     _match     what each peer has cached of the prompt, session and model
 *     _choose    makes candidates of the peers and asks the policy
 *     _receipt   records the decision and its reason
 *     _attempt   one peer in use by one request
 *     _eject     what the end of an attempt says about the peer; retries
 */


#include "request/ngx_http_kvroute_request.h"
#include "core/route/kvr_route.h"
#include "core/policy/kvr_policy.h"


/* peers that have loaded the model, and peers that would unload another one */
typedef struct {
    kvr_set_t                    loaded;
    kvr_set_t                    evicts;
} ngx_http_kvroute_models_t;


/* how and when a peer is chosen */
typedef enum {
    NGX_HTTP_KVROUTE_DECIDE = 0,  /* by the policy, in get() */
    NGX_HTTP_KVROUTE_AHEAD,       /* by the policy, before the upstream request
                                     exists */
    NGX_HTTP_KVROUTE_DECIDED,     /* AHEAD is done: get() takes that peer */
    NGX_HTTP_KVROUTE_BODYLESS,    /* fallback, round robin: no body */
    NGX_HTTP_KVROUTE_BYPASS       /* the same: kvroute_policy off */
} ngx_http_kvroute_mode_e;


/* an early decision */
typedef struct {
    kvr_decision_t               d;
    kvr_begin_t                  begin;
    ngx_http_kvroute_list_t     *list;      /* primary servers, or backups */
    ngx_uint_t                   index;     /* of the peer in its list */
    ngx_uint_t                   offered;   /* the session's peer was offered */
    ngx_uint_t                   config;    /* of the list */
    uint32_t                     rank;      /* in the headers, or UNSET */
    uint64_t                     took;      /* ns */
    ngx_http_kvroute_reserve_t  *reserved;  /* gets the reservation, if AHEAD */
} ngx_http_kvroute_early_t;


/* rank of the peer in use */
typedef struct {
    uint32_t                     number;    /* of the engine, or UNSET */
    unsigned                     any:1;     /* the pin allows any rank */
    unsigned                     wanted:1;  /* only the pin's ranks were
                                               offered */
    unsigned                     unknown:1; /* the engine chooses the rank */
} ngx_http_kvroute_rank_t;


/*
 * One request on one upstream: the data of get() and free(), in the request's
 * pool.
 */
struct ngx_http_kvroute_attempt_s {
    /* the round robin data must be first */
    ngx_http_upstream_rr_peer_data_t   rrp;

    ngx_http_kvroute_ctx_t      *ctx;
    ngx_http_kvroute_srv_conf_t *conf;
    ngx_http_kvroute_policy_t   *policy;

    uint32_t                    *matched;   /* units, by peer; or NULL */
    uint32_t                    *loads;     /* of kvr_view_t, or NULL */
    kvr_hot_view_t              *hot;       /* for the next decision, or NULL */
    kvr_hot_keys_t              *counted;   /* once, or NULL */
    ngx_http_kvroute_models_t   *models;    /* NULL: all have the model */

    ngx_http_kvroute_session_t   session;   /* or the key of the prefix */
    kvr_home_t                   home;      /* credit 0: none */
    uint32_t                     pin;       /* peer, or UNSET */
    uint32_t                     owner;     /* peer of the previous response */

    ngx_http_kvroute_mode_e      mode;
    ngx_http_kvroute_early_t    *early;     /* AHEAD, DECIDED; or NULL */
    ngx_http_kvroute_rank_t      rank;

    kvr_attempt_t                core;      /* of the peer in use */
    uint64_t                     began;     /* ns, start of the decision */
    uint64_t                     receipt;   /* its number */

    unsigned                     tries:8;
    unsigned                     busy:1;    /* the session's peer is full */
    unsigned                     over:1;    /* may exceed max_conns */
    unsigned                     pinned:1;  /* kvroute_pin names a peer */
    unsigned                     stream:1;  /* the response is a stream */
    unsigned                     stale:1;   /* one stale connection forgiven */
    unsigned                     watched:1; /* the response is being read */
    unsigned                     named:1;   /* the response's id is known */
    unsigned                     denied:1;  /* retry budget spent: last try */
    uint32_t                     silent;    /* 1 + member that was ejected, not
                                               logged yet; 0: none */
    uint32_t                     member;    /* for counters; the rank's */
};


/* Tells whether round robin chooses instead of a policy. */
static ngx_inline ngx_uint_t
ngx_http_kvroute_balance_fallback(ngx_http_kvroute_attempt_t *at)
{
    return at->mode >= NGX_HTTP_KVROUTE_BODYLESS;
}


/* _upstream */

ngx_int_t ngx_http_kvroute_upstream_init(ngx_conf_t *cf,
    ngx_http_upstream_srv_conf_t *us);

/*
 * _early: Decides where the upstream request goes that is being created, if
 * that is known and was not done yet.
 */
void ngx_http_kvroute_early_decide(ngx_http_request_t *r);

/*
 * Decides where a request goes at an upstream before nginx creates the upstream
 * request, and makes a reservation there in place of an older one.  From then
 * on variables have the decision.  The body must have been read
 * (ngx_http_kvroute_inspect()).
 *
 * If reserved is the context's, get() of this upstream takes it over.  The
 * caller owns any other reservation and calls
 * ngx_http_kvroute_reserve_release() once, at the latest in a cleanup of the
 * request.
 *
 * NGX_DECLINED: no usable peer, or a fallback; an older reservation is kept.
 */
ngx_int_t ngx_http_kvroute_early(ngx_http_kvroute_ctx_t *ctx,
    ngx_http_kvroute_srv_conf_t *conf, ngx_http_kvroute_reserve_t *reserved);

/* Wraps the method of an upstream; called before nginx sets up upstreams. */
void ngx_http_kvroute_shadow_add(ngx_http_kvroute_srv_conf_t *kscf);

/* Excludes a peer, by its slot, from an attempt. */
void ngx_http_kvroute_prepare_avoid(ngx_http_kvroute_attempt_t *at,
    uint32_t peer);

/* Frees the candidates of this worker. */
void ngx_http_kvroute_choose_exit(void);

/* Called at the first event of the response: the prompt is computed. */
void ngx_http_kvroute_attempt_first(ngx_http_kvroute_attempt_t *at);

/*
 * Notes that the peer sends, so that health checks that time out do not count.
 */
void ngx_http_kvroute_attempt_alive(ngx_http_kvroute_attempt_t *at);


#endif /* _NGX_HTTP_KVROUTE_BALANCE_H_INCLUDED_ */
