
/*
 * Copyright (C) kvroute contributors
 */


#include "share/ngx_http_kvroute_share_int.h"
#include "core/state/kvr_zone_snapshot.h"


/* ms between two checks for silent hosts */
#define NGX_HTTP_KVROUTE_SHARE_TICK   200

/* ms; without own batches for this time sharing does not work */
#define NGX_HTTP_KVROUTE_SHARE_DOWN   3000


static ngx_http_kvroute_share_t *ngx_http_kvroute_share_create(
    ngx_cycle_t *cycle, ngx_http_kvroute_share_conf_t *conf);
static void ngx_http_kvroute_share_timer(ngx_event_t *ev);
static void ngx_http_kvroute_share_stop(ngx_http_kvroute_share_t *share);
static void ngx_http_kvroute_share_look(ngx_http_kvroute_share_t *share);
static void ngx_http_kvroute_share_foreign(ngx_http_kvroute_share_t *share);
static uint64_t ngx_http_kvroute_share_ignored(kvr_share_t *s);


/* of worker 0 */
static ngx_array_t  *ngx_http_kvroute_shares;  /* ngx_http_kvroute_share_t * */


ngx_int_t
ngx_http_kvroute_share_init_process(ngx_cycle_t *cycle)
{
    ngx_uint_t                       i;
    kvr_share_t                     *s;
    ngx_array_t                     *shares;
    ngx_http_kvroute_share_t        *share, **sharep;
    ngx_http_kvroute_share_conf_t  **conf;

    shares = ngx_http_kvroute_share_confs(cycle);
    conf = shares->elts;

    for (i = 0; i < shares->nelts; i++) {
        s = conf[i]->shm_zone->data;
        conf[i]->zone->core.united = &s->stats.united;
    }

    ngx_http_kvroute_shares = NULL;

    if (ngx_worker != 0) {
        return NGX_OK;
    }

    ngx_http_kvroute_shares = ngx_array_create(cycle->pool, shares->nelts + 1,
                                           sizeof(ngx_http_kvroute_share_t *));
    if (ngx_http_kvroute_shares == NULL) {
        return NGX_ERROR;
    }

    for (i = 0; i < shares->nelts; i++) {

        share = ngx_http_kvroute_share_create(cycle, conf[i]);
        if (share == NULL) {
            return NGX_ERROR;
        }

        sharep = ngx_array_push(ngx_http_kvroute_shares);
        *sharep = share;
    }

    return NGX_OK;
}


static ngx_http_kvroute_share_t *
ngx_http_kvroute_share_create(ngx_cycle_t *cycle,
    ngx_http_kvroute_share_conf_t *conf)
{
    ngx_http_conf_ctx_t       *ctx;
    ngx_http_kvroute_share_t  *share;
    ngx_http_core_loc_conf_t  *clcf;

    share = ngx_pcalloc(cycle->pool, sizeof(ngx_http_kvroute_share_t));
    if (share == NULL) {
        return NULL;
    }

    share->zone = conf->zone;
    share->conf = conf;
    share->core = conf->shm_zone->data;
    share->log = cycle->log;

    share->self.zone = &conf->zone->core;
    share->self.share = share->core;
    share->self.lease = NGX_HTTP_KVROUTE_SHARE_LEASE;

    ngx_memcpy(share->self.name, share->conf->name.data,
               share->conf->name.len);

    kvr_share_batch_key(&share->self.key, conf->zone->secret,
                        KVR_ZONE_SNAPSHOT_FORMAT);

    ctx = (ngx_http_conf_ctx_t *) ngx_get_conf(cycle->conf_ctx,
                                               ngx_http_module);
    clcf = ctx->loc_conf[ngx_http_core_module.ctx_index];

    if (clcf->resolver && clcf->resolver->connections.nelts) {
        share->resolver = clcf->resolver;
        share->resolver_timeout = clcf->resolver_timeout;
    }

    ngx_http_kvroute_timer_init(&share->timer, &share->dummy,
                                ngx_http_kvroute_share_timer, share,
                                share->log);

    ngx_http_kvroute_share_stream_init(share);

    share->since = ngx_current_msec;
    share->foreign = ngx_http_kvroute_share_ignored(share->core);
    share->ticked = ngx_current_msec - NGX_HTTP_KVROUTE_SHARE_TICK;

    ngx_http_kvroute_share_conn_open(&share->add);
    ngx_http_kvroute_share_conn_open(&share->read);

    ngx_add_timer(&share->timer, 1);

    return share;
}


static void
ngx_http_kvroute_share_timer(ngx_event_t *ev)
{
    ngx_connection_t          *c;
    ngx_http_kvroute_share_t  *share;

    c = ev->data;
    share = c->data;

    /* after a reload, the new worker 0 is the owner */

    if (!ngx_http_kvroute_zone_latest(share->zone)) {
        ngx_http_kvroute_share_stop(share);
        return;
    }

    if (ngx_current_msec - share->ticked >= NGX_HTTP_KVROUTE_SHARE_TICK) {
        share->ticked = ngx_current_msec;

        kvr_share_tick(&share->self, &share->owner,
                       (uint64_t) ngx_current_msec);
        ngx_http_kvroute_share_look(share);
    }

    ngx_http_kvroute_share_stream_ask(share);

    if (kvr_share_due(&share->self, &share->owner,
                      (uint64_t) ngx_current_msec))
    {
        ngx_http_kvroute_share_stream_add(share, 0);
    }

    ngx_add_timer(ev, NGX_HTTP_KVROUTE_SHARE_INTERVAL);
}


static void
ngx_http_kvroute_share_stop(ngx_http_kvroute_share_t *share)
{
    ngx_http_kvroute_share_conn_close(&share->add);
    ngx_http_kvroute_share_conn_close(&share->read);
    ngx_http_kvroute_share_stream_drop(share);
}


/* finds out whether sharing works: an own batch was received recently */
static void
ngx_http_kvroute_share_look(ngx_http_kvroute_share_t *share)
{
    uint64_t     echoed;
    ngx_uint_t   up;
    kvr_share_t  *s;

    s = share->core;

    echoed = kvr_get(&s->echoed);
    up = echoed && kvr_share_since(echoed, (uint64_t) ngx_current_msec)
                   < NGX_HTTP_KVROUTE_SHARE_DOWN;

    if (up && !share->up) {
        ngx_log_error(NGX_LOG_NOTICE, share->log, 0,
                      "kvroute_share of zone \"%V\" works with \"%V\"",
                      &share->zone->name, &share->conf->store);
        share->warned = 0;
        share->reason[0] = '\0';

    } else if (!up
               && ngx_current_msec - share->since > NGX_HTTP_KVROUTE_SHARE_DOWN)
    {
        ngx_http_kvroute_share_conn_log(share);

        if (kvr_get(&s->stats.united.failing) == 0) {
            kvr_set(&s->stats.united.failing,
                    (uint64_t) ngx_current_msec);
        }
    }

    if (up) {
        kvr_set(&s->stats.united.failing, 0);
    }

    share->up = up;
    kvr_set(&s->stats.united.up, up);

    ngx_http_kvroute_share_foreign(share);
}


/* warns of ignored batches: the configuration of a host is wrong */
static void
ngx_http_kvroute_share_foreign(ngx_http_kvroute_share_t *share)
{
    u_char        name[KVR_SHARE_NAME + 1];
    uint64_t      word, ignored;
    ngx_uint_t    i;
    kvr_share_t  *s;

    s = share->core;
    ignored = ngx_http_kvroute_share_ignored(s);

    if (ignored == share->foreign
        || !ngx_http_kvroute_timer_minute(&share->warned_foreign))
    {
        return;
    }

    share->foreign = ignored;

    if (kvr_get(&s->stats.ignored[KVR_SHARE_FOREIGN - KVR_SHARE_NONE]) == 0) {
        ngx_log_error(NGX_LOG_WARN, share->log, 0,
                      "kvroute_share of zone \"%V\": ignoring batches of "
                      "another version of the module", &share->zone->name);
        return;
    }

    for (i = 0; i < kvr_nelts(s->foreign_name); i++) {
        word = kvr_get(&s->foreign_name[i]);
        ngx_memcpy(name + 8 * i, &word, 8);
    }

    name[KVR_SHARE_NAME] = '\0';

    ngx_log_error(NGX_LOG_WARN, share->log, 0,
                  "kvroute_share of zone \"%V\": ignoring host \"%s\": it has "
                  "another key_file or version of the module",
                  &share->zone->name, name);
}


/* returns the number of batches of another version or key */
static uint64_t
ngx_http_kvroute_share_ignored(kvr_share_t *s)
{
    return kvr_get(&s->stats.ignored[KVR_SHARE_OTHER - KVR_SHARE_NONE])
           + kvr_get(&s->stats.ignored[KVR_SHARE_FOREIGN - KVR_SHARE_NONE]);
}


void
ngx_http_kvroute_share_exit_process(ngx_cycle_t *cycle)
{
    ngx_uint_t                  i;
    ngx_http_kvroute_share_t  **share;

    if (ngx_http_kvroute_shares == NULL) {
        return;
    }

    share = ngx_http_kvroute_shares->elts;

    for (i = 0; i < ngx_http_kvroute_shares->nelts; i++) {

        /* no new worker waits: tell the others to forget this host's load */

        if (ngx_http_kvroute_zone_latest(share[i]->zone)
            && kvr_get(&share[i]->core->number)
               == kvr_get(&share[i]->core->acked))
        {
            ngx_http_kvroute_share_stream_add(share[i], KVR_SHARE_BYE);
        }

        if (share[i]->timer.timer_set) {
            ngx_del_timer(&share[i]->timer);
        }

        ngx_http_kvroute_share_stop(share[i]);
    }

    ngx_http_kvroute_shares = NULL;
}
