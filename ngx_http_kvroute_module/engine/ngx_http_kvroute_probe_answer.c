
/*
 * Copyright (C) kvroute contributors
 */


/*
 * What follows from what engines answer, or that they do not: to their metrics
 * being asked for, and to being asked whether they are in health.
 */


#include "engine/ngx_http_kvroute_probe_answer.h"
#include "engine/ngx_http_kvroute_engine.h"
#include "core/route/kvr_route.h"


/* failures before it is said that a probe has never worked */
#define NGX_HTTP_KVROUTE_PROBE_BAD   5

/* s */
#define NGX_HTTP_KVROUTE_PROBE_WARN  60


static uint32_t ngx_http_kvroute_probe_answer_ranks(
    ngx_http_kvroute_slot_t *slot, kvr_metrics_reader_t *r);
static void ngx_http_kvroute_probe_answer_take(ngx_http_kvroute_slot_t *slot,
    uint32_t id, uint32_t rank, kvr_metrics_t *m);
static void ngx_http_kvroute_probe_answer_back(ngx_http_kvroute_slot_t *slot);
static void ngx_http_kvroute_probe_answer_success(kvr_registry_t *registry,
    uint32_t address);
static void ngx_http_kvroute_probe_answer_warn(ngx_http_kvroute_slot_t *slot,
    ngx_int_t rc, ngx_uint_t good);
static const char *ngx_http_kvroute_probe_answer_why(
    ngx_http_kvroute_slot_t *slot, ngx_int_t rc);
static void ngx_http_kvroute_probe_answer_refused(ngx_http_kvroute_slot_t *slot,
    ngx_int_t rc);


void
ngx_http_kvroute_probe_answer_metrics(ngx_http_kvroute_slot_t *slot,
    ngx_int_t rc, kvr_metrics_reader_t *r)
{
    uint32_t                   k, id, ranks;
    kvr_engine_t              *s;
    kvr_metrics_t              m;
    kvr_registry_t            *registry;

    registry = slot->conf->zone->sh->registry;
    s = &registry->peer[slot->id].engine;

    kvr_add(&s->asked, 1);

    ngx_http_kvroute_probe_answer_refused(slot, rc);

    if (rc != NGX_OK || slot->fetch.status != 200 || r == NULL) {
        slot->path += (rc == NGX_OK && slot->fetch.status == 404);
        kvr_add(&s->failed, 1);
        ngx_http_kvroute_probe_answer_warn(slot, rc, 0);
        return;
    }

    kvr_metrics_end(r);

    if (slot->probe->engine != KVR_DIALECT_AUTO && r->m.engine
        && r->m.engine != slot->probe->engine)
    {
        r->m.set = 0;
    }

    /* it tells nothing of what is running: perhaps another path does */

    if (!(r->m.set & KVR_METRICS_RUNNING)) {
        slot->path++;
        kvr_add(&s->failed, 1);

        if (r->m.set == 0) {
            ngx_http_kvroute_probe_answer_warn(slot, rc, 0);
            return;
        }
    }

    ngx_http_kvroute_probe_answer_warn(slot, rc, 1);

    ranks = ngx_http_kvroute_probe_answer_ranks(slot, r);

    if (ranks <= 1) {
        ngx_http_kvroute_probe_answer_take(slot, slot->id, 0, &r->m);
        return;
    }

    for (k = 0; k < ranks; k++) {
        id = kvr_registry_find_rank(registry, slot->id, k);

        if (id == KVR_REGISTRY_NONE) {
            continue;
        }

        if (k < r->ranks) {
            kvr_metrics_rank(r, k, &m);

        } else {

            /* all of them together are nothing to go by for one */

            m = r->m;
            m.set &= KVR_METRICS_START|KVR_METRICS_NO_CACHE|KVR_METRICS_LORA;
        }

        ngx_http_kvroute_probe_answer_take(slot, id, k, &m);
    }
}


/* how many ranks there are to be told apart behind an address */
static uint32_t
ngx_http_kvroute_probe_answer_ranks(ngx_http_kvroute_slot_t *slot,
    kvr_metrics_reader_t *r)
{
    ngx_uint_t  ranks;

    ranks = slot->conf->ranks;

    if (ranks != NGX_HTTP_KVROUTE_RANKS_AUTO) {
        return (uint32_t) ranks;
    }

    if (kvr_registry_ranks(slot->conf->zone->sh->registry, slot->id,
                           ngx_max(r->ranks, 1)))
    {
        ngx_log_error(NGX_LOG_NOTICE, slot->event.log, 0,
                      "kvroute peer %V has %uD data-parallel ranks",
                      &slot->fetch.conn.name, ngx_max(r->ranks, 1));
    }

    return r->ranks;
}


/* what an engine, or one of its ranks, has told */
static void
ngx_http_kvroute_probe_answer_take(ngx_http_kvroute_slot_t *slot, uint32_t id,
    uint32_t rank, kvr_metrics_t *m)
{
    uint32_t                  after;
    kvr_engine_t             *s;
    kvr_index_source_e        source;
    ngx_http_kvroute_zone_t  *zone;

    zone = slot->conf->zone;
    s = &zone->sh->registry->peer[id].engine;

    if (kvr_engine_past(s, slot->asked)) {
        return;
    }

    after = kvr_load_get(zone->sh->load, id).active;

    if (kvr_engine_take(s, m, slot->before[rank], after, ngx_current_msec)
        & KVR_ENGINE_RESTARTED)
    {
        ngx_http_kvroute_engine_flush(zone, id, slot->event.log);
    }

    source = kvr_get(&kvr_index_peer(zone->sh->index, id)->source);

    if (m->set & (KVR_METRICS_CAPACITY|KVR_METRICS_NO_CACHE)
        || source == KVR_INDEX_REPORTED)
    {
        kvr_capacity_update(&zone->core, &slot->conf->pool, id,
                            (uint64_t) ngx_current_msec);
    }
}


void
ngx_http_kvroute_probe_answer_health(ngx_http_kvroute_slot_t *slot,
    ngx_int_t rc)
{
    size_t                          i;
    ngx_uint_t                      status;
    kvr_peer_t                     *peer;
    kvr_check_e                     result;
    kvr_health_e                    was, health;
    kvr_engine_t                   *s;
    kvr_registry_t                 *registry;
    ngx_http_kvroute_probe_conf_t  *conf;

    conf = slot->probe;
    registry = slot->conf->zone->sh->registry;
    peer = &registry->peer[slot->id];
    s = &peer->engine;
    status = slot->fetch.status;

    was = (kvr_health_e) kvr_get(&s->health);

    if (rc == NGX_HTTP_KVROUTE_FETCH_TIMEOUT) {
        result = KVR_CHECK_TIMEOUT;

    } else if (rc != NGX_OK && status == 0) {
        result = KVR_CHECK_FAIL;

    } else {

        result = (status >= conf->first && status <= conf->last)
                 ? KVR_CHECK_PASS : KVR_CHECK_FAIL;

        if (status == 503) {

            for (i = 0; i + 7 <= slot->body_len; i++) {
                if (ngx_strncasecmp(slot->body + i, (u_char *) "loading", 7)
                    == 0)
                {
                    result = KVR_CHECK_LOADING;
                }
            }
        }

        if ((status == 503 || status == 429) && slot->fetch.retry_after >= 0) {
            ngx_http_kvroute_engine_throttle(registry, slot->id,
                                             slot->fetch.retry_after);

            if (result != KVR_CHECK_LOADING) {
                result = KVR_CHECK_PASS;
            }
        }
    }

    ngx_http_kvroute_probe_answer_refused(slot, rc);
    ngx_http_kvroute_probe_answer_warn(slot, rc, result == KVR_CHECK_PASS
                                                 || result
                                                    == KVR_CHECK_LOADING);

    if (result == KVR_CHECK_PASS) {
        ngx_http_kvroute_probe_answer_back(slot);
    }

    ngx_http_kvroute_probe_answer_success(registry, slot->id);

    if (kvr_engine_check(s, result, conf->fails, conf->passes, conf->interval,
                         ngx_current_msec))
    {
        /* it is warmed up */

        kvr_set(&peer->since, (uint32_t) ngx_time());
    }

    kvr_registry_share(registry, slot->id);

    health = (kvr_health_e) kvr_get(&s->health);

    if (was != health) {
        ngx_log_error(NGX_LOG_NOTICE, slot->event.log, 0,
                      "kvroute peer %V is %s", &slot->fetch.conn.name,
                      kvr_engine_health_name(health));
    }
}


/* somebody is listening again: none of its ranks has what it had before */
static void
ngx_http_kvroute_probe_answer_back(ngx_http_kvroute_slot_t *slot)
{
    uint32_t                  i;
    kvr_peer_t               *peer;
    kvr_registry_t           *registry;
    ngx_http_kvroute_zone_t  *zone;

    zone = slot->conf->zone;
    registry = zone->sh->registry;

    for (i = 0; i < registry->max_peers; i++) {
        peer = &registry->peer[i];

        if (kvr_registry_behind(registry, i, slot->id)
            && !kvr_engine_past(&peer->engine, slot->asked)
            && kvr_engine_back(&peer->engine, (uint64_t) ngx_current_msec))
        {
            ngx_http_kvroute_engine_flush(zone, i, slot->event.log);
        }
    }
}


/* an engine that answers clients is well, whichever of its ranks does */
static void
ngx_http_kvroute_probe_answer_success(kvr_registry_t *registry,
    uint32_t address)
{
    uint32_t     i;
    uint64_t     last;
    kvr_peer_t  *peer;

    for (i = 0, last = 0; i < registry->max_peers; i++) {
        peer = &registry->peer[i];

        if (kvr_registry_behind(registry, i, address)) {
            last = ngx_max(last, kvr_get(&peer->engine.success));
        }
    }

    kvr_set(&registry->peer[address].engine.success, last);
}


/*
 * What has never worked is a mistake in the configuration as a rule: that is
 * said once, after some failures; and of TLS once a minute.
 */
static void
ngx_http_kvroute_probe_answer_warn(ngx_http_kvroute_slot_t *slot, ngx_int_t rc,
    ngx_uint_t good)
{
    time_t  now;

    if (good) {
        slot->bad = 0;
        slot->good = 1;
        return;
    }

    now = ngx_time();

    if (slot->fetch.why) {

        if (slot->warned && now - slot->warned < NGX_HTTP_KVROUTE_PROBE_WARN) {
            return;
        }

    } else if (slot->good || slot->warned
               || ++slot->bad < NGX_HTTP_KVROUTE_PROBE_BAD)
    {
        return;
    }

    slot->warned = now;

    ngx_log_error(NGX_LOG_WARN, slot->event.log, 0,
                  "kvroute %s of %V %s: %s",
                  slot->health ? "health check" : "probe", &slot->fetch.conn.name,
                  slot->good ? "failed" : "has never worked",
                  ngx_http_kvroute_probe_answer_why(slot, rc));
}


/* the likely reason of a failure */
static const char *
ngx_http_kvroute_probe_answer_why(ngx_http_kvroute_slot_t *slot, ngx_int_t rc)
{
    if (slot->fetch.why) {
        return slot->fetch.why;
    }

    if (rc == NGX_DECLINED) {
        return "nobody listens there";
    }

    if (rc == NGX_HTTP_KVROUTE_FETCH_TIMEOUT) {
        return "there was no answer in time";
    }

    switch (slot->fetch.status) {

    case 0:
        return slot->probe->secure ? "what came is not HTTP"
               : "what came is not HTTP: is this a TLS port, without \"ssl\"?";

    case 400:
        return slot->probe->secure ? "it answers 400"
               : "it answers 400: is this a TLS port, without \"ssl\"?";

    case 401:
    case 403:
        return "it wants a key: write it to \"header_file\"";

    case 404:
        return "it does not know this path";

    default:
        return rc == NGX_OK ? "its answer is not as it should be"
                            : "its answer has no end, or is too long";
    }
}


/*
 * Nobody is listening there.  At another address a process may have gone that
 * is not the engine.
 */
static void
ngx_http_kvroute_probe_answer_refused(ngx_http_kvroute_slot_t *slot,
    ngx_int_t rc)
{
    uint32_t         i;
    kvr_registry_t  *registry;

    if (rc != NGX_DECLINED || slot->probe->port || slot->probe->addr) {
        return;
    }

    registry = slot->conf->zone->sh->registry;

    for (i = 0; i < registry->max_peers; i++) {
        if (kvr_registry_behind(registry, i, slot->id)) {
            kvr_engine_gone(&registry->peer[i].engine, slot->asked);
        }
    }

    /* what listens there next may have other ranks, or none */

    if (slot->conf->ranks == NGX_HTTP_KVROUTE_RANKS_AUTO) {
        (void) kvr_registry_ranks(registry, slot->id, 0);
    }
}
