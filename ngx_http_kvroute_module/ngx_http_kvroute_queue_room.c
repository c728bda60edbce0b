
/*
 * Copyright (C) kvroute contributors
 */


/*
 * Room is looked for when a request of this worker ends or begins to answer,
 * and every few milliseconds for as long as any wait here, since room may have
 * been made elsewhere.
 */


#include "ngx_http_kvroute_queue.h"


#define NGX_HTTP_KVROUTE_QUEUE_TICK  4      /* ms */


/* what there is to be had, from the least */
#define NGX_HTTP_KVROUTE_QUEUE_NOBODY   0
#define NGX_HTTP_KVROUTE_QUEUE_TAKEN    1      /* all at max_conns */
#define NGX_HTTP_KVROUTE_QUEUE_CAPPED   2
#define NGX_HTTP_KVROUTE_QUEUE_ROOM     3
#define NGX_HTTP_KVROUTE_QUEUE_CHANGED  4      /* the list is another */


static ngx_uint_t ngx_http_kvroute_queue_look(ngx_http_kvroute_wait_t *w,
    ngx_http_upstream_rr_peers_t *peers, ngx_uint_t backup, uint32_t *matched);
static double ngx_http_kvroute_queue_cost(ngx_http_kvroute_wait_t *w,
    ngx_http_upstream_rr_peer_t *peer, uint32_t id, uint32_t *matched,
    uint64_t *held);
static void ngx_http_kvroute_queue_tick(ngx_event_t *ev);
static ngx_uint_t ngx_http_kvroute_queue_any(
    ngx_http_kvroute_srv_conf_t *conf);
static void ngx_http_kvroute_queue_run(ngx_http_kvroute_srv_conf_t *conf);
static kvr_queue_item_t *ngx_http_kvroute_queue_next(
    ngx_http_kvroute_srv_conf_t *conf, kvr_queue_item_t *item,
    ngx_msec_t now);
static void ngx_http_kvroute_queue_shed(ngx_http_kvroute_srv_conf_t *conf);
static void ngx_http_kvroute_queue_let_in(ngx_http_kvroute_wait_t *w);


/* of a prompt that is not known nobody holds anything */

static uint32_t          ngx_http_kvroute_queue_none[KVR_INDEX_PEERS];

static ngx_event_t       ngx_http_kvroute_queue_timer;
static ngx_event_t       ngx_http_kvroute_queue_posted;
static ngx_connection_t  ngx_http_kvroute_queue_dummy;


/* one more waits here */
void
ngx_http_kvroute_queue_start(ngx_http_kvroute_wait_t *w)
{
    if (ngx_http_kvroute_queue_timer.timer_set) {
        return;
    }

    ngx_http_kvroute_queue_timer.handler = ngx_http_kvroute_queue_tick;
    ngx_http_kvroute_queue_timer.log = ngx_cycle->log;
    ngx_http_kvroute_queue_timer.data = &ngx_http_kvroute_queue_dummy;

    ngx_add_timer(&ngx_http_kvroute_queue_timer, NGX_HTTP_KVROUTE_QUEUE_TICK);
}


/* processes beyond the zone's rows share the last one */
uint32_t
ngx_http_kvroute_queue_row(ngx_http_kvroute_srv_conf_t *conf)
{
    return ngx_min(conf->zone->row, KVR_QUEUE_ROWS - 1);
}


/*
 * Reserves on the peer that costs least among those below their caps: of the
 * backup servers only if none of the others can be had at all, as in get().  If
 * there is none to be had for other reasons than a cap, waiting is of no use.
 */
int
ngx_http_kvroute_queue_room(void *data, kvr_queue_item_t *item)
{
    uint32_t                      *matched;
    ngx_uint_t                     i, rc, full;
    ngx_http_kvroute_wait_t       *w;
    ngx_http_kvroute_srv_conf_t   *conf;
    ngx_http_upstream_rr_peers_t  *peers;

    w = data;

    if (item == NULL) {
        ngx_http_kvroute_queue_count(w, -1);
        return 1;
    }

    conf = w->conf;
    peers = conf->upstream->peer.data;
    full = 0;

    /* past the knee engines' caches are full: then there is more to look at */

    w->bytes = 0;
    w->rather = 0;

    if (kvr_queue_depth(conf->queue->shm_zone->data, KVR_QUEUE_CLASSES - 1,
                        ngx_current_msec)
        > KVR_QUEUE_LONG * conf->list[0].number)
    {
        w->bytes = w->ctx->bytes + w->ctx->extra;
    }

    matched = ngx_http_kvroute_queue_matched(w->ctx, conf);

    for (i = 0; peers && i < 2; i++, peers = peers->next) {

        rc = ngx_http_kvroute_queue_look(w, peers, i, matched);

        if (rc == NGX_HTTP_KVROUTE_QUEUE_ROOM && !w->held) {

            /* it is looked up if there is any room, the peers read again */

            matched = ngx_http_kvroute_queue_match(w);

            rc = ngx_http_kvroute_queue_look(w, peers, i,
                                             matched ? matched
                                             : ngx_http_kvroute_queue_none);
        }

        switch (rc) {

        case NGX_HTTP_KVROUTE_QUEUE_ROOM:
            return 1;

        case NGX_HTTP_KVROUTE_QUEUE_CAPPED:
            return 0;

        case NGX_HTTP_KVROUTE_QUEUE_TAKEN:
            full = 1;
            /* fall through */

        case NGX_HTTP_KVROUTE_QUEUE_NOBODY:
            continue;
        }

        /* the list is another */

        full = 0;
        break;
    }

    if (full) {
        return 0;
    }

    /* get() will see */

    w->id = KVR_REGISTRY_NONE;
    w->seat = KVR_REGISTRY_NONE;
    w->held = 1;

    return 1;
}


/* with matched it reserves, under the lock that get() has for writing */
static ngx_uint_t
ngx_http_kvroute_queue_look(ngx_http_kvroute_wait_t *w,
    ngx_http_upstream_rr_peers_t *peers, ngx_uint_t backup, uint32_t *matched)
{
    time_t                        now;
    double                        cost, least, best;
    uint32_t                      id;
    uint64_t                      bytes, held, most, here, need;
    ngx_uint_t                    i, rc, draining, capped;
    kvr_queue_board_t            *board;
    ngx_http_kvroute_list_t      *list;
    ngx_http_kvroute_srv_conf_t  *conf;
    ngx_http_upstream_rr_peer_t  *peer;

    conf = w->conf;
    board = conf->queue->shm_zone->data;
    list = &conf->list[backup];
    bytes = w->ctx->bytes + w->ctx->extra;
    need = ngx_http_kvroute_attempt_resident(w->ctx);

    now = ngx_time();
    rc = NGX_HTTP_KVROUTE_QUEUE_NOBODY;
    least = 0;
    best = 0;
    most = 0;
    here = 0;

    ngx_http_upstream_rr_peers_rlock(peers);

    if (ngx_http_kvroute_peers_config(peers) != conf->config) {
        ngx_http_upstream_rr_peers_unlock(peers);
        return NGX_HTTP_KVROUTE_QUEUE_CHANGED;
    }

    /* those being drained, or ill, are for when there are no others */

    for (draining = 0; draining < 2; draining++) {

        if (rc != NGX_HTTP_KVROUTE_QUEUE_NOBODY) {
            break;
        }

        for (peer = peers->peer, i = 0;
             peer && i < list->number;
             peer = peer->next, i++)
        {
            id = list->id[i];

            if (peer->down
                || (!peers->single
                    && peer->max_fails
                    && peer->fails >= peer->max_fails
                    && now - peer->checked <= peer->fail_timeout))
            {
                continue;
            }

            if (w->strict
                ? id != w->own
                : (ngx_http_kvroute_draining(conf, id)
                   || ngx_http_kvroute_signal_sick(conf, id)) != draining)
            {
                continue;
            }

            if (ngx_http_kvroute_full(conf, peer, list->seat[i], NULL)) {
                rc = ngx_max(rc, NGX_HTTP_KVROUTE_QUEUE_TAKEN);
                continue;
            }

            capped = ngx_http_kvroute_capped(conf, id, w->bytes, NULL)
                     || kvr_queue_claimed(board, id, &w->item,
                                          ngx_current_msec);

            if (matched == NULL) {

                if (!capped) {
                    rc = NGX_HTTP_KVROUTE_QUEUE_ROOM;
                    break;
                }

                rc = ngx_max(rc, NGX_HTTP_KVROUTE_QUEUE_CAPPED);
                continue;
            }

            cost = ngx_http_kvroute_queue_cost(w, peer, id, matched, &held);

            best = (best == 0) ? cost : ngx_min(best, cost);
            most = ngx_max(most, held);

            if (capped) {
                rc = ngx_max(rc, NGX_HTTP_KVROUTE_QUEUE_CAPPED);
                continue;
            }

            if (rc != NGX_HTTP_KVROUTE_QUEUE_ROOM || cost < least) {
                rc = NGX_HTTP_KVROUTE_QUEUE_ROOM;
                least = cost;
                here = held;
                w->id = id;
                w->seat = list->seat[i];
                w->pending = bytes - held;
                w->resident = need;
            }
        }
    }

    /* there is room, but soon a better place for it */

    if (matched && rc == NGX_HTTP_KVROUTE_QUEUE_ROOM
        && ((w->taste == NGX_HTTP_KVROUTE_QUEUE_WARM
             && here + KVR_SCORE_FLOOR < most)
            || (w->taste == NGX_HTTP_KVROUTE_QUEUE_CHEAP && best < least)))
    {
        w->rather = 1;
        rc = NGX_HTTP_KVROUTE_QUEUE_CAPPED;
    }

    if (matched && rc == NGX_HTTP_KVROUTE_QUEUE_ROOM) {
        ngx_http_kvroute_queue_count(w, 1);
    }

    ngx_http_upstream_rr_peers_unlock(peers);

    return rc;
}


/* as it would be chosen by, but with what is left of prefills under way */
static double
ngx_http_kvroute_queue_cost(ngx_http_kvroute_wait_t *w,
    ngx_http_upstream_rr_peer_t *peer, uint32_t id, uint32_t *matched,
    uint64_t *held)
{
    uint32_t                   unanswered;
    uint64_t                   bytes;
    kvr_load_sum_t             sum;
    ngx_http_kvroute_shctx_t  *sh;

    sh = w->conf->zone->sh;
    bytes = w->ctx->bytes + w->ctx->extra;

    *held = 0;
    sum.active = peer->conns;
    sum.pending = 0;
    unanswered = 0;

    if (id != KVR_REGISTRY_NONE) {
        sum = kvr_load_get(sh->load, id);
        sum.pending = kvr_pace_left(&sh->registry->peer[id].pace, sum.pending,
                                    (uint64_t) ngx_current_msec);
        unanswered = kvr_load_get(sh->load, kvr_registry_resident(id)).active;
        *held = (uint64_t) matched[id] * sh->unit * KVR_BLOCK;
        *held = ngx_min(*held, bytes);
    }

    return kvr_score_cost(sum.pending, bytes - *held, sum.active, unanswered,
                          (uint32_t) peer->weight);
}


/* reserves, sign 1, or gives back, -1 */
void
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
    kvr_load_add(load, zone->row, kvr_registry_resident(w->id), sign,
                 sign * (int64_t) w->resident);
}


/* whether what is reserved is just what get() would count: then it is its */
ngx_uint_t
ngx_http_kvroute_queue_take(ngx_http_kvroute_attempt_t *at)
{
    ngx_http_kvroute_wait_t  *w;

    w = at->ctx->wait;

    if (w == NULL || !w->held || w->conf != at->conf
        || w->id != at->id || w->seat != at->seat
        || w->pending != at->pending || w->resident != at->resident)
    {
        return 0;
    }

    w->held = 0;

    return 1;
}


/* get() has counted the request on the peer that it takes */
void
ngx_http_kvroute_queue_consume(ngx_http_kvroute_attempt_t *at)
{
    ngx_http_kvroute_wait_t  *w;

    w = at->ctx->wait;

    if (w && w->held) {
        ngx_http_kvroute_queue_count(w, -1);

        if (w->id != at->id) {
            ngx_http_kvroute_queue_freed(w->conf);
        }
    }
}


/*
 * Whether a request has been let in before: its first peer has failed, and the
 * others have all that they may have, as always when there is a queue.  It had
 * its place, and goes to one of them all the same.
 */
ngx_uint_t
ngx_http_kvroute_queue_again(ngx_http_kvroute_attempt_t *at)
{
    ngx_http_kvroute_wait_t  *w;

    w = at->ctx->wait;

    return w && w->conf == at->conf && !w->held && !at->over
           && (w->state == NGX_HTTP_KVROUTE_QUEUE_PASSED
               || w->state == NGX_HTTP_KVROUTE_QUEUE_WAITED);
}


/* there will be no get() for it */
void
ngx_http_kvroute_queue_return(ngx_http_kvroute_wait_t *w)
{
    if (w->held) {
        ngx_http_kvroute_queue_count(w, -1);
        ngx_http_kvroute_queue_freed(w->conf);
    }
}


/* those that wait for one peer, in a list */
void
ngx_http_kvroute_queue_apart(ngx_http_kvroute_wait_t *w, ngx_uint_t in)
{
    ngx_http_kvroute_queue_t  *queue;

    queue = w->conf->queue;

    if (in) {
        ngx_queue_insert_tail(&queue->strict, &w->link);

        queue->waiting.apart[w->item.class]++;
        queue->waiting.bytes += w->item.bytes;

        return;
    }

    ngx_queue_remove(&w->link);

    queue->waiting.apart[w->item.class]--;
    queue->waiting.bytes -= w->item.bytes;

    kvr_queue_unclaim(queue->shm_zone->data, w->own, &w->item);
}


/* whether there are more than may wait, with so many more of so many bytes */
ngx_uint_t
ngx_http_kvroute_queue_over(ngx_http_kvroute_srv_conf_t *conf, ngx_uint_t n,
    uint64_t bytes)
{
    ngx_msec_t                 now;
    kvr_queue_board_t         *board;
    ngx_http_kvroute_queue_t  *queue;

    now = ngx_current_msec;
    queue = conf->queue;
    board = queue->shm_zone->data;

    if (kvr_queue_depth(board, KVR_QUEUE_CLASSES - 1, now) + n > queue->max) {
        return 1;
    }

    return queue->max_bytes
           && kvr_queue_bytes(board, now) + bytes > queue->max_bytes;
}


/* a request of this worker has made room */
void
ngx_http_kvroute_queue_freed(ngx_http_kvroute_srv_conf_t *conf)
{
    if (conf->queue == NULL || !ngx_http_kvroute_queue_any(conf)) {
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
    ngx_uint_t                      i, any;
    ngx_http_upstream_srv_conf_t  **uscfp;
    ngx_http_kvroute_srv_conf_t    *conf;
    ngx_http_kvroute_main_conf_t   *kmcf;

    kmcf = ngx_http_cycle_get_module_main_conf(ngx_cycle,
                                               ngx_http_kvroute_module);

    any = 0;
    uscfp = kmcf->upstreams.elts;

    for (i = 0; i < kmcf->upstreams.nelts; i++) {
        conf = ngx_http_conf_upstream_srv_conf(uscfp[i],
                                               ngx_http_kvroute_module);

        if (conf->queue && ngx_http_kvroute_queue_any(conf)) {
            ngx_http_kvroute_queue_run(conf);
            any |= ngx_http_kvroute_queue_any(conf);
        }
    }

    if (any && !ngx_http_kvroute_queue_timer.timer_set)
    {
        ngx_add_timer(&ngx_http_kvroute_queue_timer,
                      NGX_HTTP_KVROUTE_QUEUE_TICK);
    }
}


static ngx_uint_t
ngx_http_kvroute_queue_any(ngx_http_kvroute_srv_conf_t *conf)
{
    return conf->queue->waiting.n || !ngx_queue_empty(&conf->queue->strict);
}


/* lets in whom there is room for */
static void
ngx_http_kvroute_queue_run(ngx_http_kvroute_srv_conf_t *conf)
{
    uint32_t                   row;
    ngx_msec_t                 now;
    ngx_uint_t                 any;
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

    for (q = ngx_queue_head(&queue->strict);
         q != ngx_queue_sentinel(&queue->strict);
         q = ngx_queue_next(q))
    {
        w = ngx_queue_data(q, ngx_http_kvroute_wait_t, link);
        kvr_queue_claim(board, w->own, &w->item, now);
    }

    for ( ;; ) {
        item = kvr_queue_first(&queue->waiting, board, &key);

        if (item) {
            item = ngx_http_kvroute_queue_next(conf, item, now);
        }

        if (item == NULL) {
            break;
        }

        ngx_http_kvroute_queue_let_in((ngx_http_kvroute_wait_t *) item);
    }

    any = 0;

    for (q = ngx_queue_head(&queue->strict);
         q != ngx_queue_sentinel(&queue->strict);
         q = next)
    {
        next = ngx_queue_next(q);
        w = ngx_queue_data(q, ngx_http_kvroute_wait_t, link);

        if (ngx_http_kvroute_queue_room(w, &w->item)) {
            ngx_http_kvroute_queue_apart(w, 0);
            ngx_http_kvroute_queue_let_in(w);
            any = 1;
        }
    }

    if (any) {
        kvr_queue_publish(board, row, &queue->waiting, now);
    }
}


/*
 * Lets in the first one, or another of its tenant that finds all that is held
 * of its prompt where there is room.  NULL if there is none to be let in.
 */
static kvr_queue_item_t *
ngx_http_kvroute_queue_next(ngx_http_kvroute_srv_conf_t *conf,
    kvr_queue_item_t *item, ngx_msec_t now)
{
    uint32_t                   i, n, row;
    kvr_queue_item_t          *near[KVR_QUEUE_NEAR];
    kvr_queue_board_t         *board;
    ngx_http_kvroute_wait_t   *w;
    ngx_http_kvroute_queue_t  *queue;

    queue = conf->queue;
    board = queue->shm_zone->data;
    row = ngx_http_kvroute_queue_row(conf);

    n = 0;

    if (ngx_http_kvroute_queue_choosy(conf)) {
        n = kvr_queue_near(item, now, near, KVR_QUEUE_NEAR);
    }

    for (i = 0; i < n; i++) {
        w = (ngx_http_kvroute_wait_t *) near[i];
        w->taste = NGX_HTTP_KVROUTE_QUEUE_WARM;

        if (kvr_queue_admit(board, row, &queue->waiting, &w->item, now,
                            ngx_http_kvroute_queue_room, w)
            == KVR_OK)
        {
            return near[i];
        }

        if (!w->rather) {
            return NULL;
        }
    }

    w = (ngx_http_kvroute_wait_t *) item;

    w->taste = (n && kvr_queue_young(item, now))
               ? NGX_HTTP_KVROUTE_QUEUE_CHEAP : NGX_HTTP_KVROUTE_QUEUE_ANY;

    return kvr_queue_admit(board, row, &queue->waiting, item, now,
                           ngx_http_kvroute_queue_room, w)
           == KVR_OK ? item : NULL;
}


/* whether what peers hold counts for who is let in, and when it is known */
ngx_uint_t
ngx_http_kvroute_queue_choosy(ngx_http_kvroute_srv_conf_t *conf)
{
    return conf->target_ttft && !conf->queue->fifo;
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

            /* others have left by themselves, or who wanted it has died */

            if (!ngx_http_kvroute_queue_over(conf, 0, 0)) {
                (void) kvr_queue_take(board, class);
                continue;
            }

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
    kvr_upstream_t     *upstream;
    kvr_queue_stats_t  *stats;
    kvr_queue_board_t  *board;

    board = w->conf->queue->shm_zone->data;
    stats = &board->stats[w->item.class];
    upstream = &w->conf->zone->sh->registry->upstream[w->conf->number];

    w->state = NGX_HTTP_KVROUTE_QUEUE_WAITED;
    w->time = ngx_current_msec - w->start;

    kvr_add(&stats->waited, 1);
    kvr_add(&stats->wait_ms, w->time);
    kvr_stats_observe(&upstream->stats, KVR_STATS_QUEUE, w->time);

    if (w->event.timer_set) {
        ngx_del_timer(&w->event);
    }

    ngx_post_event(&w->event, &ngx_posted_events);
}
