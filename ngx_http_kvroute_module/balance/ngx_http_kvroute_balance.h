
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _NGX_HTTP_KVROUTE_BALANCE_H_INCLUDED_
#define _NGX_HTTP_KVROUTE_BALANCE_H_INCLUDED_


/*
 * The balancer: what nginx calls for an upstream and for each request on it.
 *
 *     _upstream  init, get and free
 *     _shadow    beside another balancer, routing nothing
 *     _native    what is left to nginx's own round robin
 *     _rank      ranks of a server that are told apart
 *     _early     decides before the upstream request is made
 *     _prepare   what there is to find out before a decision
 *     _match     what a request has to do with which peer
 *     _choose    the peers put before the policy
 *     _receipt   what was decided, and why
 *     _attempt   one peer in use by one request
 *     _eject     what its end tells of the server, retries
 */


#include "request/ngx_http_kvroute_request.h"
#include "core/route/kvr_route.h"
#include "core/policy/kvr_policy.h"


/* the peers that have a request's model, and those that would unload another */
typedef struct {
    kvr_set_t                    loaded;
    kvr_set_t                    evicts;
} ngx_http_kvroute_models_t;


/* who decides where a request goes, and when */
typedef enum {
    NGX_HTTP_KVROUTE_DECIDE = 0,  /* the policy, in get() */
    NGX_HTTP_KVROUTE_AHEAD,       /* the policy, now: there is no upstream
                                     request yet */
    NGX_HTTP_KVROUTE_DECIDED,     /* it did so ahead, and get() keeps to it */
    NGX_HTTP_KVROUTE_BODYLESS,    /* nginx's round robin, and why */
    NGX_HTTP_KVROUTE_BYPASS
} ngx_http_kvroute_mode_e;


/* what was decided before the upstream request was made */
typedef struct {
    kvr_decision_t               d;
    kvr_begin_t                  begin;     /* where it is to begin */
    ngx_http_kvroute_list_t     *list;      /* primary servers, or backups */
    ngx_uint_t                   index;     /* of the peer in its list */
    ngx_uint_t                   offered;   /* that of its session was */
    ngx_uint_t                   config;    /* of the list */
    uint32_t                     rank;      /* as headers have it, or UNSET */
    uint64_t                     took;      /* ns */
    ngx_http_kvroute_reserve_t  *reserved;  /* to hold the place, if AHEAD */
} ngx_http_kvroute_early_t;


/* of a server with ranks */
typedef struct {
    uint32_t                     number;    /* of the engine, or UNSET */
    unsigned                     any:1;     /* the pin is any rank of it */
    unsigned                     wanted:1;  /* and these alone were offered */
    unsigned                     astray:1;  /* which of the engine's ranks has
                                               the request is not known */
} ngx_http_kvroute_rank_t;


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
    uint32_t                    *documents;  /* bytes, by peer; or NULL */
    kvr_hot_view_t              *hot;      /* for the next decision, or NULL */
    kvr_hot_keys_t              *counted;   /* when its answer begins */
    ngx_http_kvroute_models_t   *models;    /* NULL: all have its model */

    ngx_http_kvroute_session_t   session;   /* or the prefix: its key */
    kvr_home_t                   home;      /* credit 0: it has none */
    uint32_t                     pin;       /* peers, or UNSET */
    uint32_t                     owner;     /* of the response before */

    ngx_http_kvroute_mode_e      mode;
    ngx_http_kvroute_early_t    *early;     /* AHEAD, DECIDED; or NULL */
    ngx_http_kvroute_rank_t      rank;

    kvr_attempt_t                core;      /* of the peer in use */
    uint64_t                     began;     /* ns, this decision */
    uint64_t                     receipt;   /* its number */

    unsigned                     tries:8;
    unsigned                     busy:1;    /* the session's peer is full */
    unsigned                     over:1;    /* may go beyond max_conns */
    unsigned                     pinned:1;  /* or was to be */
    unsigned                     stream:1;  /* the response is one */
    unsigned                     stale:1;   /* one stale connection forgiven */
    unsigned                     watched:1; /* its response is looked at */
    unsigned                     named:1;   /* which has told its id */
    unsigned                     denied:1;  /* it is the last try: budget */
    uint32_t                     silent;    /* member that was put out */
    uint32_t                     member;    /* that counts it, the rank's */
};


/* whether nginx's round robin decides */
static ngx_inline ngx_uint_t
ngx_http_kvroute_balance_native(ngx_http_kvroute_attempt_t *at)
{
    return at->mode >= NGX_HTTP_KVROUTE_BODYLESS;
}


/* _upstream */

ngx_int_t ngx_http_kvroute_upstream_init(ngx_conf_t *cf,
    ngx_http_upstream_srv_conf_t *us);

/* _early */

ngx_int_t ngx_http_kvroute_early_init(ngx_conf_t *cf);

/*
 * Decides where a request goes at an upstream, before the upstream request is
 * made, and reserves a place there; what was reserved before is given back.
 * Variables of the request tell the decision from then on.  The body has been
 * read (ngx_http_kvroute_inspect()).
 *
 * If reserved is that of the context, get() of this upstream takes it over.
 * Another one is the caller's, who gives it back once by
 * ngx_http_kvroute_reserve_release(): in a cleanup of the request at the latest.
 *
 * NGX_DECLINED: there is nobody to be had, or nginx's own round robin decides;
 * what was reserved before is held still.
 */
ngx_int_t ngx_http_kvroute_early(ngx_http_kvroute_ctx_t *ctx,
    ngx_http_kvroute_srv_conf_t *conf, ngx_http_kvroute_reserve_t *reserved);

/* _shadow: wraps what an upstream has; before nginx sets upstreams up */
void ngx_http_kvroute_shadow_add(ngx_http_kvroute_srv_conf_t *kscf);

/* _prepare: a peer, by its number, is not offered to this attempt */
void ngx_http_kvroute_prepare_avoid(ngx_http_kvroute_attempt_t *at,
    uint32_t peer);

/* _choose: gives this worker's memory back */
void ngx_http_kvroute_choose_exit(void);

/* _attempt: the first event of the body, the prompt is computed */
void ngx_http_kvroute_attempt_first(ngx_http_kvroute_attempt_t *at);

/* it streams: checks that time out do not say that it is down */
void ngx_http_kvroute_attempt_alive(ngx_http_kvroute_attempt_t *at);


#endif /* _NGX_HTTP_KVROUTE_BALANCE_H_INCLUDED_ */
