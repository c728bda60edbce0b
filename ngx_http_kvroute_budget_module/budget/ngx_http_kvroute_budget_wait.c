
/*
 * Copyright (C) kvroute contributors
 */


/*
 * Requests that wait for their budget, in order of arrival in this worker.
 * Each has a timer: the first one of an account for the time when the account
 * admits it, the others for their timeout.
 */


#include "budget/ngx_http_kvroute_budget.h"


/* ms; another worker can have made room */
#define NGX_HTTP_KVROUTE_BUDGET_TICK  100


static ngx_http_kvroute_budget_t *ngx_http_kvroute_budget_wait_first(
    uint64_t key);
static void ngx_http_kvroute_budget_wait_timer(ngx_http_kvroute_budget_t *b,
    uint64_t wait);
static void ngx_http_kvroute_budget_wait_event(ngx_event_t *ev);


static ngx_queue_t  ngx_http_kvroute_budget_wait_queue = {
    &ngx_http_kvroute_budget_wait_queue, &ngx_http_kvroute_budget_wait_queue
};


static ngx_http_kvroute_budget_t *
ngx_http_kvroute_budget_wait_first(uint64_t key)
{
    ngx_queue_t                *q;
    ngx_http_kvroute_budget_t  *b;

    for (q = ngx_queue_head(&ngx_http_kvroute_budget_wait_queue);
         q != ngx_queue_sentinel(&ngx_http_kvroute_budget_wait_queue);
         q = ngx_queue_next(q))
    {
        b = ngx_queue_data(q, ngx_http_kvroute_budget_t, queue);

        if (b->key == key) {
            return b;
        }
    }

    return NULL;
}


ngx_uint_t
ngx_http_kvroute_budget_wait_any(uint64_t key)
{
    return ngx_http_kvroute_budget_wait_first(key) != NULL;
}


ngx_int_t
ngx_http_kvroute_budget_wait_start(ngx_http_kvroute_budget_t *b)
{
    ngx_http_request_t  *r;

    r = b->request;

    if (ngx_http_kvroute_request_park(r) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    b->state = NGX_HTTP_KVROUTE_BUDGET_WAITING;
    b->event.handler = ngx_http_kvroute_budget_wait_event;
    b->event.data = b;
    b->event.log = r->connection->log;

    ngx_queue_insert_tail(&ngx_http_kvroute_budget_wait_queue, &b->queue);

    ngx_http_kvroute_budget_wait_timer(b, b->conf->timeout);
    ngx_http_kvroute_budget_wait_run(b->key);

    return NGX_DONE;
}


void
ngx_http_kvroute_budget_wait_leave(ngx_http_kvroute_budget_t *b)
{
    ngx_queue_remove(&b->queue);

    if (b->event.timer_set) {
        ngx_del_timer(&b->event);
    }

    ngx_http_kvroute_budget_wait_run(b->key);
}


void
ngx_http_kvroute_budget_wait_run(uint64_t key)
{
    kvr_budget_t               *budget;
    ngx_http_kvroute_budget_t  *b;

    for ( ;; ) {
        b = ngx_http_kvroute_budget_wait_first(key);

        if (b == NULL) {
            return;
        }

        if (ngx_http_kvroute_budget_charge_take(b) != NGX_OK) {
            ngx_http_kvroute_budget_wait_timer(b,
                                       kvr_budget_wait(b->account, &b->limit,
                                               (uint64_t) ngx_current_msec));
            return;
        }

        budget = b->conf->shm_zone->data;
        kvr_add(&budget->stats.waited, 1);

        ngx_queue_remove(&b->queue);

        if (b->event.timer_set) {
            ngx_del_timer(&b->event);
        }

        ngx_post_event(&b->event, &ngx_posted_events);
    }
}


static void
ngx_http_kvroute_budget_wait_timer(ngx_http_kvroute_budget_t *b, uint64_t wait)
{
    ngx_msec_t  timeout, waited;

    waited = ngx_current_msec - b->start;
    timeout = b->conf->timeout - ngx_min(waited, b->conf->timeout);

    if (wait < timeout) {
        timeout = ngx_max(ngx_min(wait, NGX_HTTP_KVROUTE_BUDGET_TICK), 1);
    }

    /* nginx keeps a timer that differs little */

    if (b->event.timer_set) {
        ngx_del_timer(&b->event);
    }

    ngx_add_timer(&b->event, timeout);
}


static void
ngx_http_kvroute_budget_wait_event(ngx_event_t *ev)
{
    ngx_connection_t           *c;
    ngx_http_request_t         *r;
    ngx_http_kvroute_budget_t  *b;

    b = ev->data;
    r = b->request;
    c = r->connection;

    ngx_http_set_log_request(c->log, r);

    /* a post_action has taken over the request */

    if (b->uri_changes != r->uri_changes) {

        if (b->state == NGX_HTTP_KVROUTE_BUDGET_WAITING) {
            b->state = NGX_HTTP_KVROUTE_BUDGET_GONE;
            ngx_http_kvroute_budget_wait_leave(b);
        }

        return;
    }

    if (b->state == NGX_HTTP_KVROUTE_BUDGET_WAITING) {

        if (ngx_current_msec - b->start < b->conf->timeout) {
            ngx_http_kvroute_budget_wait_run(b->key);
            return;
        }

        b->state = NGX_HTTP_KVROUTE_BUDGET_REJECTED;
        ngx_http_kvroute_budget_wait_leave(b);

        ngx_http_finalize_request(r, ngx_http_kvroute_budget_charge_reject(b));

    } else {
        ngx_http_kvroute_request_resume(r);
    }

    ngx_http_run_posted_requests(c);
}
