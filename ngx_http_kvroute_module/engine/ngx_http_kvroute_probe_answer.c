
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
    uint32_t                   after;
    unsigned                   found;
    kvr_engine_t              *s;
    ngx_http_kvroute_shctx_t  *sh;

    sh = slot->conf->zone->sh;
    s = &sh->registry->peer[slot->id].engine;

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

    after = kvr_load_get(sh->load, slot->id).active;

    found = kvr_engine_take(s, &r->m, slot->before, after, ngx_current_msec);

    if (found & KVR_ENGINE_RESTARTED) {
        ngx_http_kvroute_engine_flush(slot->conf->zone, slot->id,
                                      slot->event.log);
    }

    if (r->m.set & (KVR_METRICS_CAPACITY|KVR_METRICS_NO_CACHE)) {
        kvr_capacity_told(&slot->conf->zone->core, slot->id);
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
    ngx_http_kvroute_probe_conf_t  *conf;

    conf = slot->probe;
    peer = &slot->conf->zone->sh->registry->peer[slot->id];
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
            ngx_http_kvroute_engine_throttle(peer, slot->fetch.retry_after);

            if (result != KVR_CHECK_LOADING) {
                result = KVR_CHECK_PASS;
            }
        }
    }

    ngx_http_kvroute_probe_answer_refused(slot, rc);
    ngx_http_kvroute_probe_answer_warn(slot, rc, result == KVR_CHECK_PASS
                                                 || result
                                                    == KVR_CHECK_LOADING);

    if (result == KVR_CHECK_PASS
        && kvr_engine_back(s, (uint64_t) ngx_current_msec))
    {
        ngx_http_kvroute_engine_flush(slot->conf->zone, slot->id,
                                      slot->event.log);
    }

    if (kvr_engine_check(s, result, conf->fails, conf->passes, conf->interval,
                         ngx_current_msec))
    {
        /* it is warmed up */

        kvr_set(&peer->since, (uint32_t) ngx_time());
    }

    health = (kvr_health_e) kvr_get(&s->health);

    if (was != health) {
        ngx_log_error(NGX_LOG_NOTICE, slot->event.log, 0,
                      "kvroute peer %V is %s", &slot->fetch.name,
                      kvr_engine_health_name(health));
    }
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
                  slot->health ? "health check" : "probe", &slot->fetch.name,
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
    kvr_engine_t  *s;

    s = &slot->conf->zone->sh->registry->peer[slot->id].engine;

    if (rc == NGX_DECLINED && slot->probe->port == 0
        && slot->probe->addr == NULL)
    {
        kvr_engine_gone(s, slot->asked);
    }
}
