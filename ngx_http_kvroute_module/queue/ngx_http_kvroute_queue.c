
/*
 * Copyright (C) kvroute contributors
 */


/* Decides which requests wait, and ends waiting. */


#include "queue/ngx_http_kvroute_queue_int.h"
#include "conf/ngx_http_kvroute_conf.h"


static ngx_int_t ngx_http_kvroute_queue_handler(ngx_http_request_t *r);
static ngx_int_t ngx_http_kvroute_queue_enter(ngx_http_request_t *r,
    ngx_http_kvroute_ctx_t *ctx, ngx_http_kvroute_srv_conf_t *conf);
static ngx_uint_t ngx_http_kvroute_queue_passes(ngx_http_kvroute_wait_t *w);
static ngx_int_t ngx_http_kvroute_queue_make_place(
    ngx_http_kvroute_wait_t *w);
static ngx_int_t ngx_http_kvroute_queue_park(ngx_http_request_t *r,
    ngx_http_kvroute_wait_t *w);
static void ngx_http_kvroute_queue_event(ngx_event_t *ev);
static void ngx_http_kvroute_queue_unpark(void *data);


ngx_int_t
ngx_http_kvroute_queue_init(ngx_conf_t *cf)
{
    ngx_http_kvroute_main_conf_t  *kmcf;

    kmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_kvroute_module);

    if (!kmcf->queues) {
        return NGX_OK;
    }

    return ngx_http_kvroute_request_phase(cf, ngx_http_kvroute_queue_handler);
}


/* Subrequests use the reservation of the main request. */
static ngx_int_t
ngx_http_kvroute_queue_handler(ngx_http_request_t *r)
{
    return r == r->main ? ngx_http_kvroute_queue_request(r) : NGX_DECLINED;
}


ngx_int_t
ngx_http_kvroute_queue_request(ngx_http_request_t *r)
{
    ngx_int_t                     rc;
    ngx_http_kvroute_ctx_t       *ctx;
    ngx_http_kvroute_wait_t      *w;
    ngx_http_kvroute_srv_conf_t  *conf;

    conf = ngx_http_kvroute_pass_expected(r);

    ctx = ngx_http_kvroute_request_get_ctx(r);
    w = ctx ? ctx->wait : NULL;

    /* a post_action: the request may still be parked in the old location */

    if (w && w->uri_changes != r->uri_changes) {
        ngx_http_kvroute_queue_unpark(w);
    }

    /* a redirect: release a reservation at another upstream */

    if (ctx && ctx->reserved.conf != conf) {
        ngx_http_kvroute_reserve_release(&ctx->reserved);
    }

    /* another upstream responds, without Retry-After of the old queue */

    if (w && w->conf != conf && w->retry
        && (r->err_status == 0 || (conf && conf->queue)))
    {
        w->retry->hash = 0;
        w->retry = NULL;
    }

    if (conf == NULL || conf->queue == NULL) {
        return NGX_DECLINED;
    }

    rc = ngx_http_kvroute_inspect(r);

    if (rc != NGX_DECLINED) {
        return rc;
    }

    ctx = ngx_http_kvroute_request_create_ctx(r);
    if (ctx == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    /* after an internal redirect w can be that of another upstream */

    if (w == NULL || w->conf != conf
        || w->state == NGX_HTTP_KVROUTE_QUEUE_ABORTED)
    {
        return ngx_http_kvroute_queue_enter(r, ctx, conf);
    }

    switch (w->state) {

    case NGX_HTTP_KVROUTE_QUEUE_WAITING:
        return NGX_DONE;

    case NGX_HTTP_KVROUTE_QUEUE_FULL:
    case NGX_HTTP_KVROUTE_QUEUE_TIMEOUT:
    case NGX_HTTP_KVROUTE_QUEUE_DEADLINE:
    case NGX_HTTP_KVROUTE_QUEUE_SHED:

        /* an error_page led back here, which must not bypass the queue */

        w->again = 1;

        ngx_http_finalize_request(r, ngx_http_kvroute_queue_reject(r, w));

        return NGX_DONE;

    default:
        return NGX_DECLINED;
    }
}


static ngx_int_t
ngx_http_kvroute_queue_enter(ngx_http_request_t *r,
    ngx_http_kvroute_ctx_t *ctx, ngx_http_kvroute_srv_conf_t *conf)
{
    ngx_uint_t                bypass;
    kvr_queue_stats_t        *stats;
    kvr_queue_shared_t       *shared;
    ngx_http_cleanup_t       *cln;
    ngx_http_kvroute_wait_t  *w;

    (void) ngx_http_kvroute_request_policy(r, conf, &bypass);

    if (bypass) {
        return NGX_DECLINED;
    }

    if (ngx_http_kvroute_peers_current(conf, 1, r->connection->log) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    cln = ngx_http_cleanup_add(r, sizeof(ngx_http_kvroute_wait_t));
    if (cln == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    w = cln->data;
    ngx_memzero(w, sizeof(ngx_http_kvroute_wait_t));

    w->request = r;
    w->ctx = ctx;
    w->conf = conf;
    w->uri_changes = r->uri_changes;
    w->start = ngx_current_msec;

    cln->handler = ngx_http_kvroute_queue_unpark;
    ctx->wait = w;

    ngx_http_kvroute_queue_item(w);

    shared = conf->queue->shm_zone->data;
    stats = &shared->stats[w->item.class];

    if (ngx_http_kvroute_queue_passes(w)) {
        w->state = NGX_HTTP_KVROUTE_QUEUE_PASSED;
        kvr_add(&stats->passed, 1);

        return NGX_DECLINED;
    }

    if (ngx_http_kvroute_queue_make_place(w) != NGX_OK) {
        w->state = NGX_HTTP_KVROUTE_QUEUE_FULL;
        kvr_add(&stats->full, 1);

        ngx_http_finalize_request(r, ngx_http_kvroute_queue_reject(r, w));

        return NGX_DONE;
    }

    return ngx_http_kvroute_queue_park(r, w);
}


/* Tells whether the request need not wait, and has a reservation. */
static ngx_uint_t
ngx_http_kvroute_queue_passes(ngx_http_kvroute_wait_t *w)
{
    ngx_http_kvroute_queue_t     *queue;
    ngx_http_kvroute_srv_conf_t  *conf;

    conf = w->conf;
    queue = conf->queue;

    /* if it can wait, it can wait for a peer that costs less */

    if (ngx_http_kvroute_queue_by_cost(conf)
        && !ngx_http_kvroute_queue_over(conf, 1))
    {
        w->prefer = KVR_ADMISSION_CHEAP;
    }

    return kvr_queue_admit(queue->shm_zone->data, conf->zone->core.row,
                           &queue->waiting, &w->item, ngx_current_msec,
                           ngx_http_kvroute_queue_room, w)
           == KVR_OK;
}


/*
 * Makes room in the queue for one more request, by displacing less urgent ones,
 * here or in another worker, or else one of a tenant above its share.
 * NGX_DECLINED: the queue is full.
 */
static ngx_int_t
ngx_http_kvroute_queue_make_place(ngx_http_kvroute_wait_t *w)
{
    ngx_uint_t                 class;
    kvr_queue_item_t          *item;
    kvr_queue_shared_t        *shared;
    ngx_http_kvroute_queue_t  *queue;

    queue = w->conf->queue;
    shared = queue->shm_zone->data;
    class = w->item.class;

    while (ngx_http_kvroute_queue_over(w->conf, 1)) {

        item = kvr_queue_last(&queue->waiting, class);
        item = item ? item : kvr_queue_rival(&queue->waiting, &w->item);

        if (item == NULL) {
            return kvr_queue_want(shared, class, ngx_current_msec) == KVR_OK
                   ? NGX_OK : NGX_DECLINED;
        }

        kvr_add(&shared->stats[item->class].shed, 1);

        ngx_http_kvroute_queue_leave((ngx_http_kvroute_wait_t *) item,
                                     NGX_HTTP_KVROUTE_QUEUE_SHED);
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_kvroute_queue_park(ngx_http_request_t *r, ngx_http_kvroute_wait_t *w)
{
    ngx_msec_t                 timeout;
    ngx_http_kvroute_queue_t  *queue;

    queue = w->conf->queue;

    if (ngx_http_kvroute_request_park(r) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    timeout = queue->timeout;

    if (w->deadline) {
        timeout = ngx_min(timeout, w->item.due - w->item.arrival);
    }

    w->state = NGX_HTTP_KVROUTE_QUEUE_WAITING;

    ngx_http_kvroute_prompt_keep_chain(r, w->ctx, w->conf->zone);

    w->event.handler = ngx_http_kvroute_queue_event;
    w->event.data = w;
    w->event.log = r->connection->log;

    ngx_add_timer(&w->event, timeout);

    ngx_http_kvroute_queue_start(w);

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "kvroute queue: wait, class %d work %uL",
                   (int) w->item.class, w->item.work);

    return NGX_DONE;
}


/* Called on a timeout, and when the request was admitted or rejected. */
static void
ngx_http_kvroute_queue_event(ngx_event_t *ev)
{
    ngx_connection_t              *c;
    kvr_queue_stats_t             *stats;
    kvr_queue_shared_t            *shared;
    ngx_http_request_t            *r;
    ngx_http_kvroute_wait_t       *w;
    ngx_http_kvroute_queue_state_e state;

    w = ev->data;
    r = w->request;
    c = r->connection;

    ngx_http_set_log_request(c->log, r);

    /* a post_action has taken over the request */

    if (w->uri_changes != r->uri_changes) {
        ngx_http_kvroute_queue_unpark(w);
        return;
    }

    if (w->state == NGX_HTTP_KVROUTE_QUEUE_WAITING) {

        shared = w->conf->queue->shm_zone->data;
        stats = &shared->stats[w->item.class];

        state = NGX_HTTP_KVROUTE_QUEUE_TIMEOUT;

        if (w->deadline
            && (int32_t) ((uint32_t) ngx_current_msec - w->item.due) >= 0)
        {
            state = NGX_HTTP_KVROUTE_QUEUE_DEADLINE;
            kvr_add(&stats->deadline, 1);

        } else {
            kvr_add(&stats->timeouts, 1);
        }

        ngx_http_kvroute_queue_leave(w, state);

        /* posted by queue_leave() */

        ngx_delete_posted_event(ev);
    }

    if (w->state == NGX_HTTP_KVROUTE_QUEUE_WAITED) {
        ngx_http_kvroute_request_resume(r);

    } else {
        ngx_http_finalize_request(r, ngx_http_kvroute_queue_reject(r, w));
    }

    ngx_http_run_posted_requests(c);
}


/*
 * Removes the request from the queue, and its events.  If the client closes the
 * connection, nginx ends the request or continues in the location of a
 * post_action, where an event of the queue would run the phases again.  Each
 * redirect to a location decreases uri_changes, so a wait with another value is
 * over.
 */
static void
ngx_http_kvroute_queue_unpark(void *data)
{
    ngx_http_kvroute_wait_t *w = data;

    kvr_queue_shared_t  *shared;

    if (w->state == NGX_HTTP_KVROUTE_QUEUE_WAITING) {
        shared = w->conf->queue->shm_zone->data;

        kvr_add(&shared->stats[w->item.class].gone, 1);

        ngx_http_kvroute_queue_leave(w, NGX_HTTP_KVROUTE_QUEUE_ABORTED);
    }

    if (w->event.timer_set) {
        ngx_del_timer(&w->event);
    }

    if (w->event.posted) {
        ngx_delete_posted_event(&w->event);
    }
}
