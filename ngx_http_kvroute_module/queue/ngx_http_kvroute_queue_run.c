
/*
 * Copyright (C) kvroute contributors
 */


/*
 * Admits waiting requests.  A run looks for room when a request of this
 * worker ends or gets its first event, and every few milliseconds while
 * requests wait here, because another worker may have made room.
 *
 * A run admits a few requests and continues in the next cycle of the event
 * loop, so that responses are not delayed.  The work per admission is
 * bounded: at most KVR_QUEUE_NEAR + 1 requests are looked up, by their kept
 * chains, and only if the last look-up is too old.
 */


#include "queue/ngx_http_kvroute_queue_int.h"


#define NGX_HTTP_KVROUTE_QUEUE_TICK  4      /* ms */
#define NGX_HTTP_KVROUTE_QUEUE_RUN   16     /* admissions */


static void ngx_http_kvroute_queue_tick(ngx_event_t *ev);
static ngx_uint_t ngx_http_kvroute_queue_run(
    ngx_http_kvroute_srv_conf_t *conf);
static kvr_queue_item_t *ngx_http_kvroute_queue_next(
    ngx_http_kvroute_srv_conf_t *conf, kvr_queue_item_t *item,
    ngx_msec_t now);
static void ngx_http_kvroute_queue_shed(ngx_http_kvroute_srv_conf_t *conf);
static void ngx_http_kvroute_queue_admitted(ngx_http_kvroute_wait_t *w);


static ngx_event_t       ngx_http_kvroute_queue_timer;
static ngx_event_t       ngx_http_kvroute_queue_posted;


void
ngx_http_kvroute_queue_start(ngx_http_kvroute_wait_t *w)
{
    ngx_event_t               *ev;
    ngx_http_kvroute_queue_t  *queue;

    queue = w->conf->queue;

    kvr_queue_insert(&queue->waiting, queue->shm_zone->data, &w->item);

    kvr_queue_publish(queue->shm_zone->data, w->conf->zone->core.row,
                      &queue->waiting, ngx_current_msec);

    ev = &ngx_http_kvroute_queue_posted;

    ngx_http_kvroute_timer_init(ev, NULL, ngx_http_kvroute_queue_tick, NULL,
                                ngx_cycle->log);

    queue->freed = ev;

    ev = &ngx_http_kvroute_queue_timer;

    if (!ev->timer_set) {
        ngx_http_kvroute_timer_init(ev, NULL, ngx_http_kvroute_queue_tick,
                                    NULL, ngx_cycle->log);

        /* a worker that exits admits its waiting requests first */

        ev->cancelable = 0;

        ngx_add_timer(ev, NGX_HTTP_KVROUTE_QUEUE_TICK);
    }
}


void
ngx_http_kvroute_queue_leave(ngx_http_kvroute_wait_t *w,
    ngx_http_kvroute_queue_state_e state)
{
    ngx_http_kvroute_queue_t  *queue;

    queue = w->conf->queue;

    kvr_queue_remove(&queue->waiting, &w->item);

    kvr_queue_publish(queue->shm_zone->data,
                      w->conf->zone->core.row, &queue->waiting,
                      ngx_current_msec);

    w->state = state;
    w->time = ngx_current_msec - w->start;

    if (w->event.timer_set) {
        ngx_del_timer(&w->event);
    }

    ngx_post_event(&w->event, &ngx_posted_events);
}


ngx_uint_t
ngx_http_kvroute_queue_over(ngx_http_kvroute_srv_conf_t *conf, ngx_uint_t n)
{
    ngx_http_kvroute_queue_t  *queue;

    queue = conf->queue;

    return kvr_queue_depth(queue->shm_zone->data, KVR_QUEUE_CLASSES - 1,
                           ngx_current_msec)
           + n > queue->max;
}


static void
ngx_http_kvroute_queue_tick(ngx_event_t *ev)
{
    ngx_uint_t                    i, any, more;
    ngx_http_kvroute_srv_conf_t  *conf;

    i = 0;
    any = 0;
    more = 0;

    while ((conf = ngx_http_kvroute_zone_next(NULL, &i)) != NULL) {

        if (conf->queue && ngx_http_kvroute_queue_any(conf)) {
            more |= ngx_http_kvroute_queue_run(conf);
            any |= ngx_http_kvroute_queue_any(conf);
        }
    }

    if (any && !ngx_http_kvroute_queue_timer.timer_set) {
        ngx_add_timer(&ngx_http_kvroute_queue_timer,
                      NGX_HTTP_KVROUTE_QUEUE_TICK);
    }

    if (more && !ngx_http_kvroute_queue_posted.posted) {
        ngx_post_event(&ngx_http_kvroute_queue_posted,
                       &ngx_posted_next_events);
    }
}


/* Admits requests while there is room.  Returns whether to continue soon. */
static ngx_uint_t
ngx_http_kvroute_queue_run(ngx_http_kvroute_srv_conf_t *conf)
{
    ngx_msec_t                 now;
    ngx_uint_t                 n;
    kvr_queue_key_t            key;
    kvr_queue_item_t          *item;
    kvr_queue_shared_t        *shared;
    ngx_http_kvroute_queue_t  *queue;

    queue = conf->queue;
    shared = queue->shm_zone->data;
    now = ngx_current_msec;

    (void) ngx_http_kvroute_peers_current(conf, 0, ngx_cycle->log);

    kvr_queue_publish(shared, conf->zone->core.row, &queue->waiting,
                      now);

    ngx_http_kvroute_queue_shed(conf);

    for (n = 0; n < NGX_HTTP_KVROUTE_QUEUE_RUN; n++) {
        item = kvr_queue_first(&queue->waiting, shared, &key);

        if (item) {
            item = ngx_http_kvroute_queue_next(conf, item, now);
        }

        if (item == NULL) {
            break;
        }

        ngx_http_kvroute_queue_admitted((ngx_http_kvroute_wait_t *) item);
    }

    if (n) {
        ngx_log_debug1(NGX_LOG_DEBUG_HTTP, ngx_cycle->log, 0,
                       "kvroute queue: admitted %ui", n);
    }

    return n == NGX_HTTP_KVROUTE_QUEUE_RUN;
}


/*
 * Admits the first request, or another one of its tenant whose prompt is cached
 * where there is room.  Returns NULL if there is no room.
 */
static kvr_queue_item_t *
ngx_http_kvroute_queue_next(ngx_http_kvroute_srv_conf_t *conf,
    kvr_queue_item_t *item, ngx_msec_t now)
{
    uint32_t                   i, n, row;
    kvr_queue_item_t          *near[KVR_QUEUE_NEAR];
    kvr_queue_shared_t        *shared;
    ngx_http_kvroute_wait_t   *w;
    ngx_http_kvroute_queue_t  *queue;

    queue = conf->queue;
    shared = queue->shm_zone->data;
    row = conf->zone->core.row;

    n = 0;

    if (ngx_http_kvroute_queue_by_cost(conf)) {
        n = kvr_queue_near(item, now, near, KVR_QUEUE_NEAR);
    }

    for (i = 0; i < n; i++) {
        w = (ngx_http_kvroute_wait_t *) near[i];
        w->prefer = KVR_ADMISSION_WARM;

        if (kvr_queue_admit(shared, row, &queue->waiting, &w->item, now,
                            ngx_http_kvroute_queue_room, w)
            == KVR_OK)
        {
            return near[i];
        }

        if (!w->later) {
            return NULL;
        }
    }

    w = (ngx_http_kvroute_wait_t *) item;

    w->prefer = n ? KVR_ADMISSION_CHEAP : KVR_ADMISSION_ANY;

    return kvr_queue_admit(shared, row, &queue->waiting, item, now,
                           ngx_http_kvroute_queue_room, w)
           == KVR_OK ? item : NULL;
}


ngx_uint_t
ngx_http_kvroute_queue_by_cost(ngx_http_kvroute_srv_conf_t *conf)
{
    return conf->target_ttft != 0;
}


/* Displaces requests for a more urgent one that another worker has. */
static void
ngx_http_kvroute_queue_shed(ngx_http_kvroute_srv_conf_t *conf)
{
    ngx_uint_t           class;
    kvr_queue_item_t    *item;
    kvr_queue_shared_t  *shared;

    shared = conf->queue->shm_zone->data;

    for (class = 0; class < KVR_QUEUE_CLASSES; class++) {

        while (kvr_get(&shared->wanted[class])) {

            /* there is room now, or the other worker has died */

            if (!ngx_http_kvroute_queue_over(conf, 0)) {
                (void) kvr_queue_take(shared, class);
                continue;
            }

            item = kvr_queue_last(&conf->queue->waiting, class);

            if (item == NULL || kvr_queue_take(shared, class) != KVR_OK) {
                break;
            }

            kvr_add(&shared->stats[item->class].shed, 1);

            ngx_http_kvroute_queue_leave((ngx_http_kvroute_wait_t *) item,
                                         NGX_HTTP_KVROUTE_QUEUE_SHED);
        }
    }
}


/* Called when a request has left the heap and has a reservation. */
static void
ngx_http_kvroute_queue_admitted(ngx_http_kvroute_wait_t *w)
{
    kvr_upstream_t      *upstream;
    kvr_queue_stats_t   *stats;
    kvr_queue_shared_t  *shared;

    shared = w->conf->queue->shm_zone->data;
    stats = &shared->stats[w->item.class];
    upstream = ngx_http_kvroute_zone_upstream(w->conf);

    w->state = NGX_HTTP_KVROUTE_QUEUE_WAITED;
    w->time = ngx_current_msec - w->start;

    kvr_add(&stats->waited, 1);
    kvr_add(&stats->wait_ms, w->time);

    if (upstream) {
        kvr_stats_observe(&upstream->stats, KVR_STATS_QUEUE, w->time);
    }

    if (w->event.timer_set) {
        ngx_del_timer(&w->event);
    }

    ngx_post_event(&w->event, &ngx_posted_events);
}
