
/*
 * Copyright (C) kvroute contributors
 */


/*
 * Probes engines for their metrics (kvroute_probe) and health (kvroute_health).
 *
 * Only worker 0 does so.  It has a slot for each peer to probe, checks once a
 * second whether the peers have changed, and probes each peer at its own,
 * slightly random, times.  The results and their age go to the zone, for all
 * workers.
 */


#include "engine/ngx_http_kvroute_engine.h"
#include "engine/ngx_http_kvroute_probe_answer.h"
#include "zone/ngx_http_kvroute_zone.h"


#define NGX_HTTP_KVROUTE_PROBE_MAX     (1024 * 1024)   /* of an answer */
#define NGX_HTTP_KVROUTE_HEALTH_MAX    (64 * 1024)
#define NGX_HTTP_KVROUTE_PROBE_BUSY    32              /* at a time */
#define NGX_HTTP_KVROUTE_PROBE_LOOK    1000


static void ngx_http_kvroute_probe_look(ngx_event_t *ev);
static void ngx_http_kvroute_probe_peers(ngx_http_kvroute_srv_conf_t *conf,
    ngx_log_t *log);
static void ngx_http_kvroute_probe_peer(void *data,
    ngx_http_kvroute_srv_conf_t *conf, ngx_uint_t k, ngx_uint_t i,
    ngx_http_upstream_rr_peer_t *peer);
static void ngx_http_kvroute_probe_slot(ngx_http_kvroute_srv_conf_t *conf,
    ngx_http_kvroute_probe_conf_t *probe, ngx_uint_t health, uint32_t id,
    ngx_http_upstream_rr_peer_t *peer, ngx_log_t *log);
static void ngx_http_kvroute_probe_remove(ngx_http_kvroute_slot_t *slot);
static void ngx_http_kvroute_probe_before(ngx_http_kvroute_slot_t *slot);
static void ngx_http_kvroute_probe_ask(ngx_event_t *ev);
static void ngx_http_kvroute_probe_body(ngx_http_kvroute_fetch_t *fetch,
    u_char *data, size_t len);
static void ngx_http_kvroute_probe_done(ngx_http_kvroute_fetch_t *fetch,
    ngx_int_t rc);


static ngx_event_t               ngx_http_kvroute_probe_event;
static ngx_http_kvroute_slot_t  *ngx_http_kvroute_slots;

/* a reader for each probe in progress, and the slot that uses it, or NULL */
static kvr_metrics_reader_t     *ngx_http_kvroute_readers;
static ngx_http_kvroute_slot_t  *ngx_http_kvroute_reading[
                                     NGX_HTTP_KVROUTE_PROBE_BUSY];


ngx_int_t
ngx_http_kvroute_probe_init(ngx_cycle_t *cycle)
{
    ngx_uint_t                    i, n;
    ngx_event_t                  *ev;
    ngx_http_kvroute_srv_conf_t  *kscf;

    i = 0;
    n = 0;

    while ((kscf = ngx_http_kvroute_zone_next(NULL, &i)) != NULL) {
        n += (kscf->probe || kscf->health);
    }

    if (ngx_worker != 0 || n == 0) {
        return NGX_OK;
    }

    ngx_http_kvroute_readers = ngx_alloc(NGX_HTTP_KVROUTE_PROBE_BUSY
                                         * sizeof(kvr_metrics_reader_t),
                                         cycle->log);
    if (ngx_http_kvroute_readers == NULL) {
        return NGX_ERROR;
    }

    ev = &ngx_http_kvroute_probe_event;

    ngx_http_kvroute_timer_init(ev, NULL, ngx_http_kvroute_probe_look, NULL,
                                cycle->log);

    ngx_add_timer(ev, 1);

    return NGX_OK;
}


void
ngx_http_kvroute_probe_exit(void)
{
    ngx_http_kvroute_slot_t  *slot;

    while (ngx_http_kvroute_slots) {
        slot = ngx_http_kvroute_slots;
        ngx_http_kvroute_slots = slot->next;

        ngx_http_kvroute_probe_remove(slot);
    }

    free(ngx_http_kvroute_readers);
    ngx_http_kvroute_readers = NULL;
}


/* Adds slots for new peers, and removes those of removed peers. */
static void
ngx_http_kvroute_probe_look(ngx_event_t *ev)
{
    ngx_uint_t                    i;
    ngx_http_kvroute_slot_t      *slot, **last;
    ngx_http_kvroute_srv_conf_t  *kscf;

    if (ngx_exiting || ngx_terminate || ngx_quit) {
        return;
    }

    for (slot = ngx_http_kvroute_slots; slot; slot = slot->next) {
        slot->seen = 0;
    }

    i = 0;

    while ((kscf = ngx_http_kvroute_zone_next(NULL, &i)) != NULL) {

        if (kscf->probe || kscf->health) {
            ngx_http_kvroute_probe_peers(kscf, ev->log);
        }
    }

    last = &ngx_http_kvroute_slots;

    while (*last) {
        slot = *last;

        if (slot->seen) {
            last = &slot->next;
            continue;
        }

        *last = slot->next;
        ngx_http_kvroute_probe_remove(slot);
    }

    ngx_add_timer(ev, NGX_HTTP_KVROUTE_PROBE_LOOK);
}


static void
ngx_http_kvroute_probe_peers(ngx_http_kvroute_srv_conf_t *conf, ngx_log_t *log)
{
    ngx_http_kvroute_slot_t  *slot;

    if (ngx_http_kvroute_peers_current(conf, 0, log) == NGX_OK
        && ngx_http_kvroute_peers_walk(conf, ngx_http_kvroute_probe_peer, log)
           == NGX_OK)
    {
        return;
    }

    /* the list cannot be read now: keep the slots */

    for (slot = ngx_http_kvroute_slots; slot; slot = slot->next) {
        slot->seen |= (slot->conf == conf);
    }
}


static void
ngx_http_kvroute_probe_peer(void *data, ngx_http_kvroute_srv_conf_t *conf,
    ngx_uint_t k, ngx_uint_t i, ngx_http_upstream_rr_peer_t *peer)
{
    uint32_t                  id;
    ngx_http_kvroute_list_t  *list;

    list = &conf->list[k];
    id = list->id[list->first[i]];

    if (peer->down || id == KVR_REGISTRY_NONE) {
        return;
    }

    if (conf->probe) {
        ngx_http_kvroute_probe_slot(conf, conf->probe, 0, id, peer, data);
    }

    if (conf->health) {
        ngx_http_kvroute_probe_slot(conf, conf->health, 1, id, peer, data);
    }
}


static void
ngx_http_kvroute_probe_slot(ngx_http_kvroute_srv_conf_t *conf,
    ngx_http_kvroute_probe_conf_t *probe, ngx_uint_t health, uint32_t id,
    ngx_http_upstream_rr_peer_t *peer, ngx_log_t *log)
{
    uint32_t                   generation;
    ngx_uint_t                 n;
    ngx_http_kvroute_slot_t   *slot;
    ngx_http_kvroute_fetch_t  *fetch;

    generation = conf->zone->core.registry->peer[id].generation;

    for (slot = ngx_http_kvroute_slots, n = 0; slot; slot = slot->next, n++) {

        /* an engine of two upstreams is probed once if the settings agree */

        if (slot->id == id && slot->generation == generation
            && slot->health == health
            && slot->conf->zone == conf->zone
            && slot->conf->ranks == conf->ranks
            && (slot->probe == probe
                || (slot->conf != conf
                    && slot->probe->port == probe->port
                    && slot->probe->addr == probe->addr
                    && slot->probe->path.len == probe->path.len
                    && ngx_strncmp(slot->probe->path.data, probe->path.data,
                                   probe->path.len) == 0
                    && !slot->conf->engine.secure && !conf->engine.secure
                    && !slot->conf->engine.header.len
                    && !conf->engine.header.len)))
        {
            /* by the shorter interval */

            slot->interval = slot->seen ? ngx_min(slot->interval,
                                                  probe->interval)
                                        : probe->interval;
            slot->seen = 1;
            return;
        }
    }

    if (peer->socklen > sizeof(ngx_sockaddr_t)) {
        return;
    }

    slot = ngx_calloc(sizeof(ngx_http_kvroute_slot_t) + peer->name.len, log);
    if (slot == NULL) {
        return;
    }

    slot->conf = conf;
    slot->probe = probe;
    slot->health = health;
    slot->interval = probe->interval;
    slot->id = id;
    slot->generation = generation;
    slot->seen = 1;

    fetch = &slot->fetch;

    fetch->conn.name.len = peer->name.len;
    fetch->conn.name.data = (u_char *) (slot + 1);
    ngx_memcpy(fetch->conn.name.data, peer->name.data, peer->name.len);

    ngx_memcpy(&fetch->conn.sockaddr, peer->sockaddr, peer->socklen);
    fetch->conn.socklen = peer->socklen;

    if (probe->addr) {
        ngx_memcpy(&fetch->conn.sockaddr, probe->addr->sockaddr,
                   probe->addr->socklen);
        fetch->conn.socklen = probe->addr->socklen;
    }

    if (probe->port) {
        ngx_inet_set_port(&fetch->conn.sockaddr.sockaddr, probe->port);
    }

    /* the path of a unix socket is no host name */

    if (ngx_strlchr(fetch->conn.name.data,
                    fetch->conn.name.data + fetch->conn.name.len, '/'))
    {
        ngx_str_set(&fetch->conn.name, "localhost");
    }

    fetch->conf = &conf->engine;
    fetch->conn.timeout = probe->timeout;
    fetch->max = health ? NGX_HTTP_KVROUTE_HEALTH_MAX
                        : NGX_HTTP_KVROUTE_PROBE_MAX;
    fetch->body = ngx_http_kvroute_probe_body;
    fetch->done = ngx_http_kvroute_probe_done;
    fetch->data = slot;

    ngx_http_kvroute_timer_init(&slot->event, &slot->dummy,
                                ngx_http_kvroute_probe_ask, slot, log);

    slot->next = ngx_http_kvroute_slots;
    ngx_http_kvroute_slots = slot;

    /* soon, but hundreds are spread at one per 2 ms */

    ngx_add_timer(&slot->event, 1 + (ngx_msec_t) ngx_random() % (50 + 2 * n));
}


static void
ngx_http_kvroute_probe_remove(ngx_http_kvroute_slot_t *slot)
{
    if (slot->fetch.busy) {
        ngx_http_kvroute_fetch_stop(&slot->fetch);
        ngx_http_kvroute_reading[slot->reader] = NULL;
    }

    if (slot->event.timer_set) {
        ngx_del_timer(&slot->event);
    }

    ngx_free(slot);
}


/* Notes the requests in flight, by rank. */
static void
ngx_http_kvroute_probe_before(ngx_http_kvroute_slot_t *slot)
{
    uint32_t     k, id, ranks;
    kvr_zone_t  *zone;

    zone = &slot->conf->zone->core;

    ranks = slot->conf->ranks == NGX_HTTP_KVROUTE_RANKS_AUTO
            ? kvr_get(&zone->registry->peer[slot->id].ranks)
            : (uint32_t) slot->conf->ranks;

    for (k = 0; k < ngx_max(ranks, 1); k++) {
        id = kvr_registry_find_rank(zone->registry, slot->id, k);

        slot->before[k] = id == KVR_REGISTRY_NONE
                          ? 0 : kvr_load_get(zone->load, id).active;
    }
}


static void
ngx_http_kvroute_probe_ask(ngx_event_t *ev)
{
    ngx_str_t                 path;
    ngx_uint_t                i;
    ngx_connection_t         *c;
    ngx_http_kvroute_slot_t  *slot;

    c = ev->data;
    slot = c->data;

    if (ngx_exiting || ngx_terminate || ngx_quit) {
        return;
    }

    i = 0;

    while (i < NGX_HTTP_KVROUTE_PROBE_BUSY && ngx_http_kvroute_reading[i]) {
        i++;
    }

    if (i == NGX_HTTP_KVROUTE_PROBE_BUSY) {
        ngx_add_timer(ev, 20);
        return;
    }

    ngx_http_kvroute_reading[i] = slot;
    slot->reader = i;

    kvr_metrics_init(&ngx_http_kvroute_readers[i]);

    slot->body_len = 0;
    slot->asked = (uint64_t) ngx_current_msec;

    ngx_http_kvroute_probe_before(slot);

    path = slot->probe->path;

    if (path.len == 0) {
        path.data = (u_char *) kvr_dialect_path(slot->conf->engine.engine,
                                                (uint32_t) slot->path);
        path.len = ngx_strlen(path.data);
    }

    ngx_http_kvroute_fetch_start(&slot->fetch, &path);
}


static void
ngx_http_kvroute_probe_body(ngx_http_kvroute_fetch_t *fetch, u_char *data,
    size_t len)
{
    size_t                    n;
    ngx_http_kvroute_slot_t  *slot;

    slot = fetch->data;

    if (slot->health) {
        n = ngx_min(len, NGX_HTTP_KVROUTE_PROBE_BODY - slot->body_len);
        ngx_memcpy(slot->body + slot->body_len, data, n);
        slot->body_len += n;

    } else if (fetch->status == 200) {
        kvr_metrics_read(&ngx_http_kvroute_readers[slot->reader], data, len);
    }
}


static void
ngx_http_kvroute_probe_done(ngx_http_kvroute_fetch_t *fetch, ngx_int_t rc)
{
    ngx_msec_t                interval;
    kvr_registry_t           *registry;
    ngx_http_kvroute_slot_t  *slot;

    slot = fetch->data;
    registry = slot->conf->zone->core.registry;

    if (slot->generation == registry->peer[slot->id].generation) {

        if (slot->health) {
            ngx_http_kvroute_probe_answer_health(slot, rc);

        } else {
            ngx_http_kvroute_probe_answer_metrics(slot, rc,
                                      &ngx_http_kvroute_readers[slot->reader]);
        }
    }

    ngx_http_kvroute_reading[slot->reader] = NULL;

    if (ngx_exiting || ngx_terminate || ngx_quit) {
        return;
    }

    /* plus or minus a tenth, so that peers are not probed at the same time */

    interval = slot->interval;

    ngx_add_timer(&slot->event,
                  interval - interval / 10
                  + (ngx_msec_t) ngx_random() % (interval / 5 + 1));
}
