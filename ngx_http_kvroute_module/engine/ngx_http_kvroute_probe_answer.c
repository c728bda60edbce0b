
/*
 * Copyright (C) kvroute contributors
 */


/* Applies the results of probes and health checks. */


#include "engine/ngx_http_kvroute_probe_answer.h"
#include "engine/ngx_http_kvroute_engine.h"
#include "zone/ngx_http_kvroute_zone.h"
#include "core/route/kvr_route.h"


/* failures before the warning that a probe has never worked */
#define NGX_HTTP_KVROUTE_PROBE_BAD   5

/* consecutive checks that must pass */
#define NGX_HTTP_KVROUTE_HEALTH_PASSES  2


static uint32_t ngx_http_kvroute_probe_answer_ranks(
    ngx_http_kvroute_slot_t *slot, kvr_metrics_reader_t *r);
static void ngx_http_kvroute_probe_answer_take(ngx_http_kvroute_slot_t *slot,
    uint32_t id, uint32_t rank, kvr_metrics_t *m);
static void ngx_http_kvroute_probe_answer_ranked(ngx_http_kvroute_slot_t *slot,
    ngx_uint_t back);
static void ngx_http_kvroute_probe_answer_warn(ngx_http_kvroute_slot_t *slot,
    ngx_int_t rc, ngx_uint_t good);
static kvr_fault_e ngx_http_kvroute_probe_answer_fault(
    ngx_http_kvroute_slot_t *slot, ngx_int_t rc);
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

    registry = slot->conf->zone->core.registry;
    s = &registry->peer[slot->id].engine;

    kvr_add(&s->asked, 1);

    ngx_http_kvroute_probe_answer_refused(slot, rc);

    if (rc != NGX_OK || slot->fetch.status != 200) {
        slot->path += (rc == NGX_OK && slot->fetch.status == 404);
        kvr_add(&s->failed, 1);
        kvr_set(&s->probe_fault, ngx_http_kvroute_probe_answer_fault(slot, rc));
        ngx_http_kvroute_probe_answer_warn(slot, rc, 0);
        return;
    }

    kvr_metrics_end(r);

    if (slot->conf->engine.engine != KVR_DIALECT_AUTO && r->m.engine
        && r->m.engine != slot->conf->engine.engine)
    {
        r->m.set = 0;
    }

    kvr_set(&s->probe_fault, r->m.set ? KVR_FAULT_NONE : KVR_FAULT_NO_METRICS);

    /* without the number of running requests, try the next path */

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

            /* values for all ranks together say little about this one */

            m = r->m;
            m.set &= KVR_METRICS_START|KVR_METRICS_NO_CACHE|KVR_METRICS_LORA;
        }

        ngx_http_kvroute_probe_answer_take(slot, id, k, &m);
    }
}


/* Returns the number of ranks behind an address. */
static uint32_t
ngx_http_kvroute_probe_answer_ranks(ngx_http_kvroute_slot_t *slot,
    kvr_metrics_reader_t *r)
{
    ngx_uint_t  ranks;

    ranks = slot->conf->ranks;

    if (ranks != NGX_HTTP_KVROUTE_RANKS_AUTO) {
        return (uint32_t) ranks;
    }

    if (kvr_registry_ranks(slot->conf->zone->core.registry, slot->id,
                           ngx_max(r->ranks, 1)))
    {
        ngx_log_error(NGX_LOG_NOTICE, slot->event.log, 0,
                      "kvroute peer %V has %uD data-parallel ranks",
                      &slot->fetch.conn.name, ngx_max(r->ranks, 1));
    }

    return r->ranks;
}


/* Applies the metrics of an engine or of one of its ranks. */
static void
ngx_http_kvroute_probe_answer_take(ngx_http_kvroute_slot_t *slot, uint32_t id,
    uint32_t rank, kvr_metrics_t *m)
{
    uint32_t                  after;
    kvr_engine_t             *s;
    kvr_index_source_e        source;
    ngx_http_kvroute_zone_t  *zone;

    zone = slot->conf->zone;
    s = &zone->core.registry->peer[id].engine;

    if (kvr_engine_past(s, slot->asked)) {
        return;
    }

    after = kvr_load_get(zone->core.load, id).active;

    if (kvr_engine_take(s, m, slot->before[rank], after, ngx_current_msec)
        & KVR_ENGINE_RESTARTED)
    {
        ngx_http_kvroute_engine_flush(zone, id, slot->event.log);
    }

    source = kvr_get(&kvr_index_peer(zone->core.index, id)->source);

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
    registry = slot->conf->zone->core.registry;
    peer = &registry->peer[slot->id];
    s = &peer->engine;
    status = slot->fetch.status;

    was = (kvr_health_e) kvr_get(&s->health);

    if (rc == NGX_HTTP_KVROUTE_FETCH_TIMEOUT) {
        result = KVR_CHECK_TIMEOUT;

    } else if (rc != NGX_OK && status == 0) {
        result = KVR_CHECK_FAIL;

    } else {

        result = (status >= 200 && status <= 299)
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

    kvr_set(&s->check_fault,
            result == KVR_CHECK_PASS ? KVR_FAULT_NONE
            : result == KVR_CHECK_LOADING
            ? KVR_FAULT_LOADING
            : ngx_http_kvroute_probe_answer_fault(slot, rc));

    ngx_http_kvroute_probe_answer_refused(slot, rc);
    ngx_http_kvroute_probe_answer_warn(slot, rc, result == KVR_CHECK_PASS
                                                 || result
                                                    == KVR_CHECK_LOADING);

    ngx_http_kvroute_probe_answer_ranked(slot, result == KVR_CHECK_PASS);

    if (kvr_engine_check(s, result, conf->fails,
                         NGX_HTTP_KVROUTE_HEALTH_PASSES, conf->interval,
                         ngx_current_msec))
    {
        /* slow start */

        kvr_set(&peer->since, (uint32_t) ngx_time());
    }

    kvr_registry_share(registry, slot->id);

    health = (kvr_health_e) kvr_get(&s->health);

    if (was != health) {

        /* it begins anew */

        for (i = 0; i < registry->max_members; i++) {
            if (kvr_registry_behind(registry, registry->member[i].peer,
                                    slot->id))
            {
                kvr_set(&registry->member[i].outlier.owed, 0);
            }
        }

        ngx_log_error(NGX_LOG_NOTICE, slot->event.log, 0,
                      "kvroute peer %V is %s", &slot->fetch.conn.name,
                      kvr_engine_health_name(health));
    }
}


/*
 * Goes through the ranks of an address.  If the engine is back, their caches
 * are empty.  A response of any rank to a client counts for the address.
 */
static void
ngx_http_kvroute_probe_answer_ranked(ngx_http_kvroute_slot_t *slot,
    ngx_uint_t back)
{
    uint32_t                  i;
    uint64_t                  last;
    kvr_engine_t             *s;
    kvr_registry_t           *registry;
    ngx_http_kvroute_zone_t  *zone;

    zone = slot->conf->zone;
    registry = zone->core.registry;
    last = 0;

    for (i = 0; i < registry->max_peers; i++) {

        if (!kvr_registry_behind(registry, i, slot->id)) {
            continue;
        }

        s = &registry->peer[i].engine;

        if (back && !kvr_engine_past(s, slot->asked)
            && kvr_engine_back(s, (uint64_t) ngx_current_msec))
        {
            ngx_http_kvroute_engine_flush(zone, i, slot->event.log);
        }

        last = ngx_max(last, kvr_get(&s->success));
    }

    kvr_set(&registry->peer[slot->id].engine.success, last);
}


/*
 * Warns of a probe that has never worked, usually an error in the
 * configuration: once, after some failures.  Failures of TLS are logged once
 * a minute.
 */
static void
ngx_http_kvroute_probe_answer_warn(ngx_http_kvroute_slot_t *slot, ngx_int_t rc,
    ngx_uint_t good)
{
    if (good) {
        slot->bad = 0;
        slot->good = 1;
        return;
    }

    if ((slot->fetch.why == NULL
         && (slot->good || slot->warned
             || ++slot->bad < NGX_HTTP_KVROUTE_PROBE_BAD))
        || !ngx_http_kvroute_timer_minute(&slot->warned))
    {
        return;
    }

    ngx_log_error(NGX_LOG_WARN, slot->event.log, 0,
                  "kvroute %s of %V %s: %s",
                  slot->health ? "health check" : "probe",
                  &slot->fetch.conn.name,
                  slot->good ? "failed" : "has never worked",
                  ngx_http_kvroute_probe_answer_why(slot, rc));
}


/* Returns what has failed. */
static kvr_fault_e
ngx_http_kvroute_probe_answer_fault(ngx_http_kvroute_slot_t *slot, ngx_int_t rc)
{
    if (slot->fetch.conn.fault) {
        return slot->fetch.conn.fault;
    }

    if (rc == NGX_DECLINED) {
        return KVR_FAULT_REFUSED;
    }

    if (rc == NGX_HTTP_KVROUTE_FETCH_TIMEOUT) {
        return KVR_FAULT_TIMEOUT;
    }

    if (slot->fetch.status == 0) {
        return slot->fetch.head_len ? KVR_FAULT_NOT_HTTP : KVR_FAULT_CLOSED;
    }

    return slot->fetch.status == 200 && rc != NGX_OK
           ? KVR_FAULT_CLOSED : kvr_fault_status((uint32_t) slot->fetch.status);
}


/* Returns the likely reason of a failure. */
static const char *
ngx_http_kvroute_probe_answer_why(ngx_http_kvroute_slot_t *slot, ngx_int_t rc)
{
    if (slot->fetch.why) {
        return slot->fetch.why;
    }

    if (rc == NGX_DECLINED) {
        return "connection refused";
    }

    if (rc == NGX_HTTP_KVROUTE_FETCH_TIMEOUT) {
        return "timed out";
    }

    if (slot->fetch.conn.fault == KVR_FAULT_UNREACHABLE) {
        return "unreachable";
    }

    switch (slot->fetch.status) {

    case 0:
        return slot->conf->engine.secure ? "the response is not HTTP"
               : "the response is not HTTP: is this a TLS port, without "
                 "\"kvroute_engine ssl\"?";

    case 400:
        return slot->conf->engine.secure ? "the status is 400"
               : "the status is 400: is this a TLS port, without "
                 "\"kvroute_engine ssl\"?";

    case 401:
    case 403:
        return "a key is required: write it to \"header=\" of "
               "\"kvroute_engine\"";

    case 404:
        return "the path is unknown there";

    default:
        return rc == NGX_OK ? "the response has no usable values"
                            : "the response is incomplete, or too long";
    }
}


/*
 * Marks the engine as not running if the connection was refused.  With addr=
 * the process that refuses may not be the engine.
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

    registry = slot->conf->zone->core.registry;

    for (i = 0; i < registry->max_peers; i++) {
        if (kvr_registry_behind(registry, i, slot->id)) {
            kvr_engine_refused(&registry->peer[i].engine, slot->asked);
        }
    }

    /* the next engine at this address can have other ranks */

    if (slot->conf->ranks == NGX_HTTP_KVROUTE_RANKS_AUTO) {
        (void) kvr_registry_ranks(registry, slot->id, 0);
    }
}
