
/*
 * Copyright (C) kvroute contributors
 */


/*
 * The queue of an upstream: requests that wait before the content phase until
 * a peer has room for them.
 *
 * Who waits is in the heaps of this worker (core/kvr_queue.h has the order and
 * what the workers share).  A request that waits holds no connection to a peer,
 * and its own event: a timer for its end, posted when it is let in.  It is let
 * in by a reservation on a peer, counted in this process's row as any other
 * request; get() returns it for the peer that it takes, and if there never is a
 * get() the request's cleanup does.
 *
 * Room is looked for when a request of this worker ends or begins to answer,
 * and every few milliseconds for as long as any wait here, since room may have
 * been made elsewhere.
 */


#include "ngx_http_kvroute.h"


#define NGX_HTTP_KVROUTE_QUEUE_TICK  4


/* states of a request, as the access log has them */

typedef enum {
    NGX_HTTP_KVROUTE_QUEUE_NONE = 0,
    NGX_HTTP_KVROUTE_QUEUE_PASSED,
    NGX_HTTP_KVROUTE_QUEUE_WAITING,
    NGX_HTTP_KVROUTE_QUEUE_WAITED,
    NGX_HTTP_KVROUTE_QUEUE_FULL,
    NGX_HTTP_KVROUTE_QUEUE_TIMEOUT,
    NGX_HTTP_KVROUTE_QUEUE_LATE,
    NGX_HTTP_KVROUTE_QUEUE_SHED,
    NGX_HTTP_KVROUTE_QUEUE_ABORTED
} ngx_http_kvroute_queue_state_e;


struct ngx_http_kvroute_wait_s {
    kvr_queue_item_t             item;
    ngx_event_t                  event;
    ngx_queue_t                  link;      /* of strict ones */

    ngx_http_request_t          *request;
    ngx_http_kvroute_ctx_t      *ctx;
    ngx_http_kvroute_srv_conf_t *conf;

    ngx_msec_t                   start;
    ngx_msec_t                   time;      /* that it waited, in the end */

    uint32_t                     own;       /* the only peer, or UNSET */

    /* the reservation */

    uint32_t                     id;
    uint32_t                     seat;
    uint64_t                     pending;

    ngx_http_kvroute_queue_state_e  state;

    unsigned                     held:1;
    unsigned                     deadline:1;
    unsigned                     strict:1;
};


static ngx_int_t ngx_http_kvroute_queue_handler(ngx_http_request_t *r);
static ngx_http_kvroute_srv_conf_t *ngx_http_kvroute_queue_upstream(
    ngx_http_request_t *r);
static ngx_int_t ngx_http_kvroute_queue_enter(ngx_http_request_t *r,
    ngx_http_kvroute_ctx_t *ctx, ngx_http_kvroute_srv_conf_t *conf);
static uint32_t ngx_http_kvroute_queue_row(ngx_http_kvroute_srv_conf_t *conf);
static void ngx_http_kvroute_queue_own(ngx_http_request_t *r,
    ngx_http_kvroute_wait_t *w, ngx_http_kvroute_policy_t *policy);
static void ngx_http_kvroute_queue_item(ngx_http_request_t *r,
    ngx_http_kvroute_wait_t *w);
static ngx_int_t ngx_http_kvroute_queue_string(ngx_http_request_t *r,
    ngx_http_complex_value_t *cv, ngx_str_t *value);
static ngx_int_t ngx_http_kvroute_queue_park(ngx_http_request_t *r,
    ngx_http_kvroute_wait_t *w);
static int ngx_http_kvroute_queue_room(void *data, kvr_queue_item_t *item);
static ngx_uint_t ngx_http_kvroute_queue_match(ngx_http_kvroute_wait_t *w,
    uint32_t *matched);
static void ngx_http_kvroute_queue_count(ngx_http_kvroute_wait_t *w,
    int32_t sign);
static void ngx_http_kvroute_queue_tick(ngx_event_t *ev);
static void ngx_http_kvroute_queue_run(ngx_http_kvroute_srv_conf_t *conf);
static void ngx_http_kvroute_queue_shed(ngx_http_kvroute_srv_conf_t *conf);
static void ngx_http_kvroute_queue_let_in(ngx_http_kvroute_wait_t *w);
static void ngx_http_kvroute_queue_event(ngx_event_t *ev);
static void ngx_http_kvroute_queue_leave(ngx_http_kvroute_wait_t *w,
    ngx_http_kvroute_queue_state_e state);
static void ngx_http_kvroute_queue_cleanup(void *data);
static ngx_int_t ngx_http_kvroute_queue_reject(ngx_http_request_t *r,
    ngx_http_kvroute_wait_t *w);


static ngx_event_t       ngx_http_kvroute_queue_timer;
static ngx_event_t       ngx_http_kvroute_queue_posted;
static ngx_connection_t  ngx_http_kvroute_queue_dummy;
static ngx_uint_t        ngx_http_kvroute_queue_waiting;  /* in this worker */


/* modules that pass requests on, and their index if they are there */

static struct {
    const char  *name;
    ngx_uint_t   index;
} ngx_http_kvroute_queue_modules[] = {
    { "ngx_http_proxy_module", 0 },
    { "ngx_http_grpc_module", 0 },
    { "ngx_http_fastcgi_module", 0 },
    { "ngx_http_uwsgi_module", 0 },
    { "ngx_http_scgi_module", 0 },
    { NULL, 0 }
};


static const char  *ngx_http_kvroute_queue_states[] = {
    "", "passed", "waiting", "waited", "full", "timeout", "deadline", "shed",
    "aborted"
};


ngx_int_t
ngx_http_kvroute_queue_init(ngx_conf_t *cf)
{
    ngx_uint_t                  i, k;
    ngx_module_t              **modules;
    ngx_http_handler_pt        *h;
    ngx_http_core_main_conf_t  *cmcf;

    modules = cf->cycle->modules;

    for (i = 0; ngx_http_kvroute_queue_modules[i].name; i++) {

        ngx_http_kvroute_queue_modules[i].index = NGX_MODULE_UNSET_INDEX;

        for (k = 0; modules[k]; k++) {

            if (ngx_strcmp(modules[k]->name,
                           ngx_http_kvroute_queue_modules[i].name) == 0)
            {
                ngx_http_kvroute_queue_modules[i].index
                                                       = modules[k]->ctx_index;
            }
        }
    }

    cmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module);

    h = ngx_array_push(&cmcf->phases[NGX_HTTP_PRECONTENT_PHASE].handlers);
    if (h == NULL) {
        return NGX_ERROR;
    }

    *h = ngx_http_kvroute_queue_handler;

    return NGX_OK;
}


/* whether the body has to be read early for the queue */
ngx_int_t
ngx_http_kvroute_queue_wanted(ngx_http_request_t *r)
{
    ngx_http_kvroute_srv_conf_t  *conf;

    conf = ngx_http_kvroute_queue_upstream(r);

    return conf && conf->queue;
}


static ngx_int_t
ngx_http_kvroute_queue_handler(ngx_http_request_t *r)
{
    ngx_http_kvroute_ctx_t       *ctx;
    ngx_http_kvroute_wait_t      *w;
    ngx_http_kvroute_srv_conf_t  *conf;

    if (r != r->main) {
        return NGX_DECLINED;
    }

    conf = ngx_http_kvroute_queue_upstream(r);

    if (conf == NULL || conf->queue == NULL) {
        return NGX_DECLINED;
    }

    ctx = ngx_http_kvroute_create_ctx(r);
    if (ctx == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    w = ctx->wait;

    /* after an internal redirect it may be another upstream's */

    if (w == NULL || w->conf != conf) {
        return ngx_http_kvroute_queue_enter(r, ctx, conf);
    }

    return w->state == NGX_HTTP_KVROUTE_QUEUE_WAITING ? NGX_DONE
                                                      : NGX_DECLINED;
}


/*
 * The upstream that the request will be passed to: with a literal "proxy_pass"
 * it is known, as the configuration of each module that passes requests begins
 * with that of the upstream; else kvroute_queue_for tells.
 */
static ngx_http_kvroute_srv_conf_t *
ngx_http_kvroute_queue_upstream(ngx_http_request_t *r)
{
    ngx_str_t                       name;
    ngx_uint_t                      i, index;
    ngx_http_upstream_conf_t       *ucf;
    ngx_http_upstream_srv_conf_t   *uscf, **uscfp;
    ngx_http_kvroute_loc_conf_t    *klcf;
    ngx_http_kvroute_main_conf_t   *kmcf;

    kmcf = ngx_http_get_module_main_conf(r, ngx_http_kvroute_module);

    if (!kmcf->queues) {
        return NULL;
    }

    for (i = 0; ngx_http_kvroute_queue_modules[i].name; i++) {
        index = ngx_http_kvroute_queue_modules[i].index;

        if (index == NGX_MODULE_UNSET_INDEX) {
            continue;
        }

        ucf = r->loc_conf[index];
        uscf = ucf ? ucf->upstream : NULL;

        if (uscf && uscf != NGX_CONF_UNSET_PTR && uscf->srv_conf) {
            return ngx_http_conf_upstream_srv_conf(uscf,
                                                   ngx_http_kvroute_module);
        }
    }

    klcf = ngx_http_get_module_loc_conf(r, ngx_http_kvroute_module);

    if (klcf->queue_for == NULL
        || ngx_http_complex_value(r, klcf->queue_for, &name) != NGX_OK)
    {
        return NULL;
    }

    uscfp = kmcf->upstreams.elts;

    for (i = 0; i < kmcf->upstreams.nelts; i++) {

        if (uscfp[i]->host.len == name.len
            && ngx_strncasecmp(uscfp[i]->host.data, name.data, name.len) == 0)
        {
            return ngx_http_conf_upstream_srv_conf(uscfp[i],
                                                   ngx_http_kvroute_module);
        }
    }

    return NULL;
}


static ngx_int_t
ngx_http_kvroute_queue_enter(ngx_http_request_t *r,
    ngx_http_kvroute_ctx_t *ctx, ngx_http_kvroute_srv_conf_t *conf)
{
    ngx_msec_t                    now;
    ngx_uint_t                    class;
    kvr_queue_stats_t            *stats;
    kvr_queue_board_t            *board;
    kvr_queue_item_t             *item;
    ngx_http_cleanup_t           *cln;
    ngx_http_kvroute_wait_t      *w;
    ngx_http_kvroute_queue_t     *queue;
    ngx_http_kvroute_loc_conf_t  *klcf;
    ngx_http_kvroute_policy_t    *policy;

    klcf = ngx_http_get_module_loc_conf(r, ngx_http_kvroute_module);

    policy = klcf->policy ? klcf->policy : &conf->policy;

    if (policy->conf.policy == KVR_POLICY_OFF
        || ngx_http_test_predicates(r, klcf->bypass) != NGX_OK)
    {
        return NGX_DECLINED;
    }

    if (!conf->ready
        && ngx_http_kvroute_peers_find(conf, r->connection->log) != NGX_OK)
    {
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
    w->start = ngx_current_msec;

    cln->handler = ngx_http_kvroute_queue_cleanup;
    ctx->wait = w;

    ngx_http_kvroute_queue_item(r, w);
    ngx_http_kvroute_queue_own(r, w, policy);

    queue = conf->queue;
    board = queue->shm_zone->data;
    class = w->item.class;
    stats = &board->stats[class];
    now = ngx_current_msec;

    if (w->strict) {
        if (ngx_http_kvroute_queue_room(w, &w->item)) {
            goto passed;
        }

    } else if (kvr_queue_admit(board, ngx_http_kvroute_queue_row(conf),
                               &queue->waiting, &w->item, now,
                               ngx_http_kvroute_queue_room, w)
               == KVR_OK)
    {
        goto passed;
    }

    if (kvr_queue_depth(board, KVR_QUEUE_CLASSES - 1, now) >= queue->max
        || (queue->max_bytes
            && kvr_queue_bytes(board, now) + w->item.bytes
               > queue->max_bytes))
    {
        /* one of a lower class has to go for it, here or in another worker */

        item = kvr_queue_last(&queue->waiting, class);

        if (item) {
            ngx_http_kvroute_queue_leave((ngx_http_kvroute_wait_t *) item,
                                         NGX_HTTP_KVROUTE_QUEUE_SHED);
            kvr_add(&board->stats[item->class].shed, 1);

        } else if (kvr_queue_want(board, class, now) != KVR_OK) {
            w->state = NGX_HTTP_KVROUTE_QUEUE_FULL;
            kvr_add(&stats->full, 1);

            ngx_http_finalize_request(r, ngx_http_kvroute_queue_reject(r, w));

            return NGX_DONE;
        }
    }

    return ngx_http_kvroute_queue_park(r, w);

passed:

    w->state = NGX_HTTP_KVROUTE_QUEUE_PASSED;
    kvr_add(&stats->passed, 1);

    return NGX_DECLINED;
}


/* processes beyond the zone's rows share the last one */
static uint32_t
ngx_http_kvroute_queue_row(ngx_http_kvroute_srv_conf_t *conf)
{
    return ngx_min(conf->zone->row, KVR_QUEUE_ROWS - 1);
}


/* a session that may go to one peer only waits for that one */
static void
ngx_http_kvroute_queue_own(ngx_http_request_t *r, ngx_http_kvroute_wait_t *w,
    ngx_http_kvroute_policy_t *policy)
{
    ngx_http_kvroute_attempt_t  at;

    if (policy->conf.policy != KVR_POLICY_STICKY || !policy->conf.strict) {
        return;
    }

    ngx_memzero(&at, sizeof(ngx_http_kvroute_attempt_t));

    at.ctx = w->ctx;
    at.conf = w->conf;
    at.policy = policy;
    at.bound = NGX_HTTP_KVROUTE_UNSET_PEER;

    ngx_http_kvroute_session_find(r, &at);

    if (at.bound != NGX_HTTP_KVROUTE_UNSET_PEER) {
        w->own = at.bound;
        w->strict = 1;
    }
}


/* where in the order the request belongs */
static void
ngx_http_kvroute_queue_item(ngx_http_request_t *r, ngx_http_kvroute_wait_t *w)
{
    off_t                         bytes;
    uint8_t                       tenant;
    uint32_t                      deadline, matched[KVR_INDEX_PEERS];
    uint64_t                      work;
    ngx_int_t                     class, n, weight;
    ngx_str_t                     value;
    ngx_uint_t                    i;
    kvr_queue_board_t            *board;
    ngx_http_kvroute_ctx_t       *ctx;
    ngx_http_kvroute_queue_t     *queue;
    ngx_http_kvroute_loc_conf_t  *klcf;

    ctx = w->ctx;
    queue = w->conf->queue;
    board = queue->shm_zone->data;

    klcf = ngx_http_get_module_loc_conf(r, ngx_http_kvroute_module);

    class = KVR_QUEUE_NORMAL;
    tenant = KVR_QUEUE_TENANTS - 1;
    weight = 1;
    deadline = 0;

    if (queue->fifo) {
        kvr_queue_item(&w->item, w->start, class, tenant, 1, 0, 0);
        goto bytes;
    }

    if (ngx_http_kvroute_queue_string(r, klcf->priority, &value) == NGX_OK) {
        n = ngx_http_kvroute_queue_class(&value);
        class = (n == NGX_ERROR) ? class : n;
    }

    if (ngx_http_kvroute_queue_string(r, klcf->priority_max, &value)
        == NGX_OK)
    {
        n = ngx_http_kvroute_queue_class(&value);
        class = (n == NGX_ERROR) ? class : ngx_max(class, n);
    }

    if (ngx_http_kvroute_queue_string(r, klcf->tenant, &value) == NGX_OK) {
        tenant = kvr_queue_tenant(board,
                                  (uint64_t) ngx_crc32_long(value.data,
                                                            value.len)
                                  << 32
                                  | ngx_murmur_hash2(value.data, value.len),
                                  w->start);
    }

    if (ngx_http_kvroute_queue_string(r, klcf->weight, &value) == NGX_OK) {
        n = ngx_atoi(value.data, value.len);
        weight = (n < 1) ? 1 : ngx_min(n, 1000);
    }

    if (ngx_http_kvroute_queue_string(r, klcf->deadline, &value) == NGX_OK) {
        n = ngx_parse_time(&value, 0);

        if (n != NGX_ERROR && n > 0) {
            deadline = (uint32_t) ngx_min(n, INT32_MAX / 2);
            w->deadline = 1;
        }
    }

    /* what the peer that holds most of it would still have to compute */

    work = ctx->bytes + ctx->extra;

    if (ngx_http_kvroute_queue_match(w, matched)) {
        n = 0;

        for (i = 0; i < KVR_INDEX_PEERS; i++) {
            if (w->conf->set >> i & 1) {
                n = ngx_max(n, (ngx_int_t) matched[i]);
            }
        }

        n *= w->conf->zone->sh->unit * KVR_BLOCK;
        work -= ngx_min(work, (uint64_t) n);
    }

    kvr_queue_item(&w->item, w->start, class, tenant, weight, work, deadline);

bytes:

    bytes = r->headers_in.content_length_n;
    w->item.bytes = bytes > 0 ? bytes : 0;
}


static ngx_int_t
ngx_http_kvroute_queue_string(ngx_http_request_t *r,
    ngx_http_complex_value_t *cv, ngx_str_t *value)
{
    if (cv == NULL || ngx_http_complex_value(r, cv, value) != NGX_OK) {
        return NGX_DECLINED;
    }

    return value->len ? NGX_OK : NGX_DECLINED;
}


static ngx_int_t
ngx_http_kvroute_queue_park(ngx_http_request_t *r, ngx_http_kvroute_wait_t *w)
{
    ngx_msec_t                 timeout;
    ngx_http_kvroute_queue_t  *queue;

    queue = w->conf->queue;

    if (ngx_handle_read_event(r->connection->read, 0) != NGX_OK) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    /* what the client does meanwhile: it may only leave */

    r->read_event_handler = ngx_http_test_reading;
    r->write_event_handler = ngx_http_request_empty_handler;

    if (r->connection->read->ready && !r->connection->read->posted) {
        ngx_post_event(r->connection->read, &ngx_posted_events);
    }

    timeout = queue->timeout;

    if (w->deadline) {
        timeout = ngx_min(timeout, w->item.due - w->item.arrival);
    }

    w->state = NGX_HTTP_KVROUTE_QUEUE_WAITING;

    w->event.handler = ngx_http_kvroute_queue_event;
    w->event.data = w;
    w->event.log = r->connection->log;

    ngx_add_timer(&w->event, timeout);

    if (w->strict) {
        ngx_queue_insert_tail(&queue->strict, &w->link);

    } else {
        kvr_queue_insert(&queue->waiting, queue->shm_zone->data, &w->item);
        kvr_queue_publish(queue->shm_zone->data,
                          ngx_http_kvroute_queue_row(w->conf),
                          &queue->waiting, ngx_current_msec);
    }

    ngx_http_kvroute_queue_waiting++;

    if (!ngx_http_kvroute_queue_timer.timer_set) {
        ngx_http_kvroute_queue_timer.handler = ngx_http_kvroute_queue_tick;
        ngx_http_kvroute_queue_timer.log = ngx_cycle->log;
        ngx_http_kvroute_queue_timer.data = &ngx_http_kvroute_queue_dummy;

        ngx_add_timer(&ngx_http_kvroute_queue_timer,
                      NGX_HTTP_KVROUTE_QUEUE_TICK);
    }

    ngx_log_debug2(NGX_LOG_DEBUG_HTTP, r->connection->log, 0,
                   "kvroute queue: wait, class %d work %uL",
                   (int) w->item.class, w->item.work);

    return NGX_DONE;
}


/*
 * Reserves on the peer that costs least among those below their caps.  If none
 * can be had at all, for other reasons than a cap, waiting is of no use.
 */
static int
ngx_http_kvroute_queue_room(void *data, kvr_queue_item_t *item)
{
    time_t                         now;
    double                         cost, least;
    uint32_t                       id, matched[KVR_INDEX_PEERS];
    uint64_t                       bytes, held;
    ngx_uint_t                     i, pass, found, capped, known;
    kvr_load_sum_t                 sum;
    ngx_http_kvroute_list_t       *list;
    ngx_http_kvroute_wait_t       *w;
    ngx_http_kvroute_shctx_t      *sh;
    ngx_http_kvroute_srv_conf_t   *conf;
    ngx_http_upstream_rr_peer_t   *peer;
    ngx_http_upstream_rr_peers_t  *peers;

    w = data;

    if (item == NULL) {
        ngx_http_kvroute_queue_count(w, -1);
        return 1;
    }

    conf = w->conf;
    sh = conf->zone->sh;
    bytes = w->ctx->bytes + w->ctx->extra;

    now = ngx_time();
    found = 0;
    capped = 0;
    known = 0;
    least = 0;

    /* the look-up is made when there is any room, and the peers read again */

    for (pass = 0; pass < 2; pass++) {

        peers = conf->upstream->peer.data;
        list = &conf->list[0];

        ngx_http_upstream_rr_peers_rlock(peers);

        if (ngx_http_kvroute_peers_config(peers) != conf->config) {
            ngx_http_upstream_rr_peers_unlock(peers);

            /* get() will look at the new list */

            goto through;
        }

        for (peer = peers->peer, i = 0;
             peer && i < list->number;
             peer = peer->next, i++)
        {
            id = list->id[i];

            if (peer->down
                || (peer->max_fails
                    && peer->fails >= peer->max_fails
                    && now - peer->checked <= peer->fail_timeout))
            {
                continue;
            }

            if (w->strict && id != w->own) {
                continue;
            }

            if (ngx_http_kvroute_full(conf, peer, list->seat[i])
                || ngx_http_kvroute_capped(conf, id))
            {
                capped++;
                continue;
            }

            if (pass == 0) {
                found = 1;
                break;
            }

            held = 0;
            sum.active = peer->conns;
            sum.pending = 0;

            if (id != KVR_REGISTRY_NONE) {
                sum = kvr_load_get(sh->load, id);
                held = known ? (uint64_t) matched[id] * sh->unit * KVR_BLOCK
                             : 0;
                held = ngx_min(held, bytes);
            }

            cost = kvr_score_cost(sum.pending, bytes - held, sum.active,
                                  (uint32_t) peer->weight);

            if (found == 1 || cost < least) {
                found = 2;
                least = cost;
                w->id = id;
                w->seat = list->seat[i];
                w->pending = bytes - held;
            }
        }

        ngx_http_upstream_rr_peers_unlock(peers);

        if (!found) {

            if (capped) {
                return 0;
            }

            goto through;
        }

        if (pass == 0) {
            known = ngx_http_kvroute_queue_match(w, matched);
        }
    }

    if (found != 2) {
        return 0;
    }

    ngx_http_kvroute_queue_count(w, 1);

    return 1;

through:

    w->id = KVR_REGISTRY_NONE;
    ngx_http_kvroute_queue_count(w, 1);

    return 1;
}


/* how much of the prompt each peer holds; 0: nobody knows */
static ngx_uint_t
ngx_http_kvroute_queue_match(ngx_http_kvroute_wait_t *w, uint32_t *matched)
{
    uint64_t                *chain;
    ngx_http_kvroute_ctx_t  *ctx;

    ctx = w->ctx;

    if (!ctx->parsed || ctx->entries == 0 || w->conf->set == 0) {
        return 0;
    }

    chain = ngx_http_kvroute_request_chain(w->request, ctx, w->conf->zone);
    if (chain == NULL) {
        return 0;
    }

    kvr_index_lookup(w->conf->zone->sh->index, chain, ctx->entries,
                     w->conf->set, matched);

    return 1;
}


/* reserves, sign 1, or gives back, -1 */
static void
ngx_http_kvroute_queue_count(ngx_http_kvroute_wait_t *w, int32_t sign)
{
    kvr_load_t               *load;
    ngx_http_kvroute_zone_t  *zone;

    w->held = (sign > 0);

    if (w->id == KVR_REGISTRY_NONE) {
        return;
    }

    zone = w->conf->zone;
    load = zone->sh->load;

    kvr_load_add(load, zone->row, w->id, sign, sign * (int64_t) w->pending);
    kvr_load_add(load, zone->row, kvr_registry_column(w->seat), sign,
                 sign * (int64_t) w->pending);
}


/* get() takes the reservation's place */
void
ngx_http_kvroute_queue_consume(ngx_http_kvroute_attempt_t *at)
{
    ngx_http_kvroute_wait_t  *w;

    w = at->ctx->wait;

    if (w && w->held) {
        ngx_http_kvroute_queue_count(w, -1);
    }
}


/* a request of this worker has made room */
void
ngx_http_kvroute_queue_freed(ngx_http_kvroute_srv_conf_t *conf)
{
    if (conf->queue == NULL || ngx_http_kvroute_queue_waiting == 0) {
        return;
    }

    if (!ngx_http_kvroute_queue_posted.posted) {
        ngx_http_kvroute_queue_posted.handler = ngx_http_kvroute_queue_tick;
        ngx_http_kvroute_queue_posted.log = ngx_cycle->log;
        ngx_http_kvroute_queue_posted.data = &ngx_http_kvroute_queue_dummy;

        ngx_post_event(&ngx_http_kvroute_queue_posted, &ngx_posted_events);
    }
}


static void
ngx_http_kvroute_queue_tick(ngx_event_t *ev)
{
    ngx_uint_t                      i;
    ngx_http_upstream_srv_conf_t  **uscfp;
    ngx_http_kvroute_srv_conf_t    *conf;
    ngx_http_kvroute_main_conf_t   *kmcf;

    kmcf = ngx_http_cycle_get_module_main_conf(ngx_cycle,
                                               ngx_http_kvroute_module);

    uscfp = kmcf->upstreams.elts;

    for (i = 0; i < kmcf->upstreams.nelts; i++) {
        conf = ngx_http_conf_upstream_srv_conf(uscfp[i],
                                               ngx_http_kvroute_module);

        if (conf->queue
            && (conf->queue->waiting.n
                || !ngx_queue_empty(&conf->queue->strict)))
        {
            ngx_http_kvroute_queue_run(conf);
        }
    }

    if (ngx_http_kvroute_queue_waiting
        && !ngx_http_kvroute_queue_timer.timer_set)
    {
        ngx_add_timer(&ngx_http_kvroute_queue_timer,
                      NGX_HTTP_KVROUTE_QUEUE_TICK);
    }
}


/* lets in whom there is room for */
static void
ngx_http_kvroute_queue_run(ngx_http_kvroute_srv_conf_t *conf)
{
    uint32_t                   row;
    ngx_msec_t                 now;
    ngx_queue_t               *q, *next;
    kvr_queue_key_t            key;
    kvr_queue_item_t          *item;
    kvr_queue_board_t         *board;
    ngx_http_kvroute_wait_t   *w;
    ngx_http_kvroute_queue_t  *queue;

    queue = conf->queue;
    board = queue->shm_zone->data;
    row = ngx_http_kvroute_queue_row(conf);
    now = ngx_current_msec;

    if (!conf->ready
        || conf->config
           != ngx_http_kvroute_peers_config(conf->upstream->peer.data))
    {
        (void) ngx_http_kvroute_peers_find(conf, ngx_cycle->log);
    }

    kvr_queue_publish(board, row, &queue->waiting, now);

    ngx_http_kvroute_queue_shed(conf);

    for ( ;; ) {
        item = kvr_queue_first(&queue->waiting, board, &key);

        if (item == NULL
            || kvr_queue_admit(board, row, &queue->waiting, item, now,
                               ngx_http_kvroute_queue_room, item)
               != KVR_OK)
        {
            break;
        }

        ngx_http_kvroute_queue_let_in((ngx_http_kvroute_wait_t *) item);
    }

    for (q = ngx_queue_head(&queue->strict);
         q != ngx_queue_sentinel(&queue->strict);
         q = next)
    {
        next = ngx_queue_next(q);
        w = ngx_queue_data(q, ngx_http_kvroute_wait_t, link);

        if (ngx_http_kvroute_queue_room(w, &w->item)) {
            ngx_queue_remove(q);
            ngx_http_kvroute_queue_let_in(w);
        }
    }
}


/* another worker has one of a higher class and no place for it */
static void
ngx_http_kvroute_queue_shed(ngx_http_kvroute_srv_conf_t *conf)
{
    ngx_uint_t          class;
    kvr_queue_item_t   *item;
    kvr_queue_board_t  *board;

    board = conf->queue->shm_zone->data;

    for (class = 0; class < KVR_QUEUE_CLASSES; class++) {

        while (kvr_get(&board->wanted[class])) {
            item = kvr_queue_last(&conf->queue->waiting, class);

            if (item == NULL || kvr_queue_take(board, class) != KVR_OK) {
                break;
            }

            kvr_add(&board->stats[item->class].shed, 1);

            ngx_http_kvroute_queue_leave((ngx_http_kvroute_wait_t *) item,
                                         NGX_HTTP_KVROUTE_QUEUE_SHED);
        }
    }
}


/* it has left the heap and holds a reservation */
static void
ngx_http_kvroute_queue_let_in(ngx_http_kvroute_wait_t *w)
{
    kvr_queue_stats_t  *stats;
    kvr_queue_board_t  *board;

    board = w->conf->queue->shm_zone->data;
    stats = &board->stats[w->item.class];

    w->state = NGX_HTTP_KVROUTE_QUEUE_WAITED;
    w->time = ngx_current_msec - w->start;

    ngx_http_kvroute_queue_waiting--;

    kvr_add(&stats->waited, 1);
    kvr_add(&stats->wait_ms, w->time);

    if (w->event.timer_set) {
        ngx_del_timer(&w->event);
    }

    ngx_post_event(&w->event, &ngx_posted_events);
}


/* its time is up, or it was let in or turned away */
static void
ngx_http_kvroute_queue_event(ngx_event_t *ev)
{
    ngx_connection_t              *c;
    kvr_queue_stats_t             *stats;
    kvr_queue_board_t             *board;
    ngx_http_request_t            *r;
    ngx_http_kvroute_wait_t       *w;
    ngx_http_kvroute_queue_state_e state;

    w = ev->data;
    r = w->request;
    c = r->connection;

    ngx_http_set_log_request(c->log, r);

    if (w->state == NGX_HTTP_KVROUTE_QUEUE_WAITING) {

        board = w->conf->queue->shm_zone->data;
        stats = &board->stats[w->item.class];

        state = NGX_HTTP_KVROUTE_QUEUE_TIMEOUT;

        if (w->deadline
            && (int32_t) ((uint32_t) ngx_current_msec - w->item.due) >= 0)
        {
            state = NGX_HTTP_KVROUTE_QUEUE_LATE;
            kvr_add(&stats->late, 1);

        } else {
            kvr_add(&stats->timeouts, 1);
        }

        ngx_http_kvroute_queue_leave(w, state);

        /* which has posted the event */

        ngx_delete_posted_event(ev);
    }

    if (w->state == NGX_HTTP_KVROUTE_QUEUE_WAITED) {

        r->read_event_handler = ngx_http_block_reading;
        r->write_event_handler = ngx_http_core_run_phases;

        ngx_http_core_run_phases(r);

    } else {
        ngx_http_finalize_request(r, ngx_http_kvroute_queue_reject(r, w));
    }

    ngx_http_run_posted_requests(c);
}


/* takes one that waits out of the queue; its event will say so */
static void
ngx_http_kvroute_queue_leave(ngx_http_kvroute_wait_t *w,
    ngx_http_kvroute_queue_state_e state)
{
    ngx_http_kvroute_queue_t  *queue;

    queue = w->conf->queue;

    if (w->strict) {
        ngx_queue_remove(&w->link);

    } else {
        kvr_queue_remove(&queue->waiting, &w->item);
        kvr_queue_publish(queue->shm_zone->data,
                          ngx_http_kvroute_queue_row(w->conf),
                          &queue->waiting, ngx_current_msec);
    }

    ngx_http_kvroute_queue_waiting--;

    w->state = state;
    w->time = ngx_current_msec - w->start;

    if (w->event.timer_set) {
        ngx_del_timer(&w->event);
    }

    ngx_post_event(&w->event, &ngx_posted_events);
}


static void
ngx_http_kvroute_queue_cleanup(void *data)
{
    ngx_http_kvroute_wait_t *w = data;

    kvr_queue_board_t  *board;

    if (w->state == NGX_HTTP_KVROUTE_QUEUE_WAITING) {
        board = w->conf->queue->shm_zone->data;

        kvr_add(&board->stats[w->item.class].gone, 1);

        ngx_http_kvroute_queue_leave(w, NGX_HTTP_KVROUTE_QUEUE_ABORTED);
    }

    if (w->event.timer_set) {
        ngx_del_timer(&w->event);
    }

    if (w->event.posted) {
        ngx_delete_posted_event(&w->event);
    }

    if (w->held) {
        ngx_http_kvroute_queue_count(w, -1);
        ngx_http_kvroute_queue_freed(w->conf);
    }
}


/* an answer in the form that clients of the OpenAI API read */
static ngx_int_t
ngx_http_kvroute_queue_reject(ngx_http_request_t *r,
    ngx_http_kvroute_wait_t *w)
{
    char                      *text;
    ngx_str_t                  type = ngx_string("application/json");
    ngx_uint_t                 i, status;
    const char                *message;
    ngx_table_elt_t           *h;
    kvr_queue_board_t         *board;
    ngx_http_err_page_t       *page;
    ngx_http_core_loc_conf_t  *clcf;

    status = w->conf->queue->status;
    board = w->conf->queue->shm_zone->data;

    h = ngx_list_push(&r->headers_out.headers);
    if (h == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    h->hash = 1;
    ngx_str_set(&h->key, "Retry-After");

    h->value.data = ngx_pnalloc(r->pool, NGX_INT32_LEN);
    if (h->value.data == NULL) {
        h->hash = 0;
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    h->value.len = ngx_sprintf(h->value.data, "%uD",
                               kvr_queue_retry_after(board, ngx_current_msec))
                   - h->value.data;

    ngx_http_kvroute_header_end(h);

    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);

    if (clcf->error_pages) {
        page = clcf->error_pages->elts;

        for (i = 0; i < clcf->error_pages->nelts; i++) {
            if (page[i].status == (ngx_int_t) status) {
                return status;
            }
        }
    }

    switch (w->state) {

    case NGX_HTTP_KVROUTE_QUEUE_FULL:
        message = "too many requests are waiting";
        break;

    case NGX_HTTP_KVROUTE_QUEUE_SHED:
        message = "requests of higher priority took the place";
        break;

    case NGX_HTTP_KVROUTE_QUEUE_LATE:
        message = "the deadline passed while waiting";
        break;

    default:
        message = "waited too long for a free engine";
    }

    text = malloc(256);
    if (text == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    snprintf(text, 256, "{\"error\":{\"message\":\"%s\",\"type\":"
                        "\"overloaded_error\",\"param\":null,\"code\":"
                        "\"queue_%s\"}}",
             message, ngx_http_kvroute_queue_states[w->state]);

    return ngx_http_kvroute_send(r, status, &type, text);
}


/* NULL: the request has nothing to do with a queue */
const char *
ngx_http_kvroute_queue_status(ngx_http_kvroute_ctx_t *ctx, ngx_msec_t *time)
{
    ngx_http_kvroute_wait_t  *w;

    w = ctx->wait;

    if (w == NULL || w->state == NGX_HTTP_KVROUTE_QUEUE_NONE) {
        return NULL;
    }

    *time = w->time;

    return ngx_http_kvroute_queue_states[w->state];
}
