
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _NGX_HTTP_KVROUTE_BUDGET_H_INCLUDED_
#define _NGX_HTTP_KVROUTE_BUDGET_H_INCLUDED_


/*
 * Budgets: a name, such as a tenant's, has tokens per time.
 *
 *     _budget_module   the directive, variables, the status
 *     _budget          decides what becomes of a request, and ends its budget
 *     _budget_charge   charges requests, at arrival and at the end
 *     _budget_wait     requests that wait for their budget
 *
 * A request is charged once, by the first location that has a budget.  It keeps
 * its budget over internal redirects.
 *
 *     (none)     over the limit, over=TIME            WAITING
 *     (none)     within the limit                     ADMITTED
 *     (none)     over the limit, over=low             LOWERED
 *     (none)     over the limit, over=429             REJECTED
 *     WAITING    within the limit                     ADMITTED
 *     WAITING    too long                             REJECTED
 *     WAITING    the client has closed the connection GONE
 */


#include "ngx_http_kvroute_extension.h"
#include "request/ngx_http_kvroute_request.h"
#include "core/budget/kvr_budget.h"


typedef enum {
    NGX_HTTP_KVROUTE_BUDGET_429 = 0,
    NGX_HTTP_KVROUTE_BUDGET_QUEUE,
    NGX_HTTP_KVROUTE_BUDGET_LOW
} ngx_http_kvroute_budget_over_e;


typedef enum {
    NGX_HTTP_KVROUTE_BUDGET_WAITING = 0,
    NGX_HTTP_KVROUTE_BUDGET_ADMITTED,
    NGX_HTTP_KVROUTE_BUDGET_LOWERED,
    NGX_HTTP_KVROUTE_BUDGET_REJECTED,
    NGX_HTTP_KVROUTE_BUDGET_GONE,
    NGX_HTTP_KVROUTE_BUDGET_STATES
} ngx_http_kvroute_budget_state_e;


/* kvroute_budget of a location */
typedef struct {
    ngx_http_complex_value_t    *name;      /* of the account; NULL: off */
    ngx_http_complex_value_t    *rate;
    double                       burst;     /* tokens; -1: the rate's */
    ngx_str_t                    zone_name;
    uint32_t                     charge;    /* kvr_budget_charge_e */
    uint32_t                     over;
    ngx_msec_t                   timeout;   /* of waiting */

    ngx_http_kvroute_zone_t     *zone;
    ngx_shm_zone_t              *shm_zone;  /* data: kvr_budget_t */
} ngx_http_kvroute_budget_conf_t;


/* a request, in its pool */
typedef struct {
    ngx_queue_t                  queue;     /* of waiting requests */
    ngx_event_t                  event;
    ngx_http_request_t          *request;
    ngx_http_kvroute_budget_conf_t  *conf;

    uint64_t                     key;       /* of the account */
    ngx_str_t                    name;
    kvr_budget_account_t        *account;
    kvr_budget_limit_t           limit;
    double                       reserved;  /* tokens */
    double                       charged;   /* at the end */

    ngx_msec_t                   start;
    ngx_uint_t                   uri_changes;  /* when it began to wait */
    ngx_http_kvroute_budget_state_e  state;

    unsigned                     again:1;   /* rejected before */
} ngx_http_kvroute_budget_t;


extern ngx_module_t  ngx_http_kvroute_budget_module;


/* _budget: The handler of a phase before the queue. */
ngx_int_t ngx_http_kvroute_budget_handler(ngx_http_request_t *r);

/* Returns the budget that the request has been charged to, or NULL. */
ngx_http_kvroute_budget_t *ngx_http_kvroute_budget_get(ngx_http_request_t *r);

/*
 * _charge: Reads the limit of a request.  Returns NGX_DECLINED if the rate is
 * invalid: the request has no limit.
 */
ngx_int_t ngx_http_kvroute_budget_charge_limit(ngx_http_request_t *r,
    ngx_http_kvroute_budget_conf_t *conf, kvr_budget_limit_t *limit);

/* Returns the tokens that the request will be charged. */
double ngx_http_kvroute_budget_charge_estimate(ngx_http_kvroute_budget_t *b,
    ngx_http_kvroute_ctx_t *ctx);

/* Charges the estimate.  NGX_DECLINED: the account is over the limit. */
ngx_int_t ngx_http_kvroute_budget_charge_take(ngx_http_kvroute_budget_t *b);

/* Charges the difference between the estimate and what the request used. */
void ngx_http_kvroute_budget_charge_settle(ngx_http_kvroute_budget_t *b);

/* Responds 429; returns what ngx_http_finalize_request() needs. */
ngx_int_t ngx_http_kvroute_budget_charge_reject(ngx_http_kvroute_budget_t *b);

/* _wait: Tells whether a request waits for the account of a key. */
ngx_uint_t ngx_http_kvroute_budget_wait_any(uint64_t key);

/* Lets a request wait; returns the result of the phase. */
ngx_int_t ngx_http_kvroute_budget_wait_start(ngx_http_kvroute_budget_t *b);

/* Removes a request, whose new state is set. */
void ngx_http_kvroute_budget_wait_leave(ngx_http_kvroute_budget_t *b);

/* Admits requests that wait for an account. */
void ngx_http_kvroute_budget_wait_run(uint64_t key);


#endif /* _NGX_HTTP_KVROUTE_BUDGET_H_INCLUDED_ */
