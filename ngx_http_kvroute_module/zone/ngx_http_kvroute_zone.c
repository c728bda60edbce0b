
/*
 * Copyright (C) kvroute contributors
 */


/*
 * The shared memory of a zone: its layout, reloads, the row of this process.
 *
 * A new zone is allocated at once.  On a reload with the same size nginx keeps
 * the memory.  Nothing can be written to it before the new configuration is
 * known to be valid, so the new workers register their peers themselves, under
 * the zone's mutex.
 */


#include "zone/ngx_http_kvroute_zone.h"
#include "core/base/kvr_pages.h"

#include <sys/random.h>


#define NGX_HTTP_KVROUTE_SWEEP_TIME    1000


static ngx_int_t ngx_http_kvroute_zone_init(ngx_shm_zone_t *shm_zone,
    void *data);
static ngx_int_t ngx_http_kvroute_zone_reuse(ngx_shm_zone_t *shm_zone,
    ngx_http_kvroute_zone_t *zone, ngx_http_kvroute_shm_t *shm);
static void ngx_http_kvroute_zone_view(ngx_http_kvroute_zone_t *zone,
    ngx_http_kvroute_shm_t *shm);
static void ngx_http_kvroute_zone_note_size(ngx_shm_zone_t *shm_zone);
static void ngx_http_kvroute_zone_fade(ngx_http_kvroute_zone_t *zone);
static void ngx_http_kvroute_zone_drained(ngx_http_kvroute_zone_t *zone,
    ngx_log_t *log);
static void ngx_http_kvroute_zone_timer(ngx_event_t *ev);


/*
 * The layout of a zone is a checksum of these.  nginx itself keeps memory only
 * for the same module, so this is a second check.
 */
static const size_t  ngx_http_kvroute_zone_parts[] = {
    sizeof(ngx_http_kvroute_shm_t),
    sizeof(kvr_receipts_t),
    sizeof(kvr_history_t),
    sizeof(kvr_history_member_t),
    sizeof(kvr_registry_shared_t),
    sizeof(kvr_member_t),
    sizeof(kvr_peer_t),
    sizeof(kvr_upstream_t),
    sizeof(kvr_sketch_t),
    sizeof(kvr_hot_t),
    sizeof(kvr_load_t),
    sizeof(kvr_load_row_t),
    KVR_REGISTRY_SHARED,
    KVR_REGISTRY_MEMBERS,
    sizeof(kvr_index_t),
    sizeof(kvr_index_peer_t),
    sizeof(kvr_index_line_t),
    KVR_BLOCK,
    KVR_CHAIN_RUN,
    KVR_SECRET_LEN
};

#define ngx_http_kvroute_zone_layout()                                        \
    kvr_layout(ngx_http_kvroute_zone_parts,                                   \
               kvr_nelts(ngx_http_kvroute_zone_parts))


static ngx_event_t       ngx_http_kvroute_zone_event;


ngx_int_t
ngx_http_kvroute_zone_add(ngx_conf_t *cf, ngx_http_kvroute_zone_t *zone,
    ngx_str_t *name, size_t size)
{
    ngx_shm_zone_t  *shm_zone;

    shm_zone = ngx_shared_memory_add(cf, name, size, &ngx_http_kvroute_module);
    if (shm_zone == NULL) {
        return NGX_ERROR;
    }

    if (shm_zone->data) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "duplicate kvroute_zone \"%V\"", name);
        return NGX_ERROR;
    }

    shm_zone->init = ngx_http_kvroute_zone_init;
    shm_zone->data = zone;

    zone->shm_zone = shm_zone;

    return NGX_OK;
}


static ngx_int_t
ngx_http_kvroute_zone_init(ngx_shm_zone_t *shm_zone, void *data)
{
    u_char                    *p;
    size_t                     size, index;
    uint32_t                   max_peers;
    uint64_t                   lines;
    ngx_slab_pool_t           *shpool;
    ngx_http_kvroute_shm_t    *shm;
    ngx_http_kvroute_zone_t   *zone;
    ngx_http_kvroute_parts_t   parts;

    zone = shm_zone->data;
    shpool = (ngx_slab_pool_t *) shm_zone->shm.addr;

    zone->shpool = shpool;

    if (data) {
        return ngx_http_kvroute_zone_reuse(shm_zone, zone, shpool->data);
    }

    if (shm_zone->shm.exists) {
        ngx_http_kvroute_zone_view(zone, shpool->data);
        return NGX_OK;
    }

    ngx_http_kvroute_zone_note_size(shm_zone);

    /* all whole pages */

    size = shpool->pfree * ngx_pagesize;

    zone->processes = ngx_http_kvroute_zone_size_processes(zone, size);

    max_peers = (uint32_t) zone->max_peers;

    index = ngx_http_kvroute_zone_size_parts(zone, zone->processes, &parts);

    lines = (size > index) ? kvr_index_lines(size - index, max_peers) : 0;

    /* the directive was checked without a "worker_processes" behind it */

    if (lines < NGX_HTTP_KVROUTE_LINES) {
        ngx_log_error(NGX_LOG_EMERG, shm_zone->shm.log, 0,
                      "kvroute_zone \"%V\" is too small, it needs %uzk at "
                      "least", &shm_zone->shm.name,
                      ngx_http_kvroute_zone_size_min(zone) / 1024);
        return NGX_ERROR;
    }

    p = ngx_slab_alloc(shpool, size);
    if (p == NULL) {
        return NGX_ERROR;
    }

    /* before the pages are used; the slab allocator only counts them */

    kvr_pages_advise(p, size);

    ngx_memzero(p, size);

    shm = (ngx_http_kvroute_shm_t *) p;

    shm->max_peers = zone->max_peers;
    shm->processes = zone->processes;
    shm->lines = lines;

    if (zone->key) {
        ngx_memcpy(shm->secret, zone->key, KVR_SECRET_LEN);
        shm->keyed = 1;

    } else if (getrandom(shm->secret, KVR_SECRET_LEN, 0) != KVR_SECRET_LEN) {

        /* up to 256 bytes come at once */

        ngx_log_error(NGX_LOG_EMERG, shm_zone->shm.log, ngx_errno,
                      "kvroute_zone \"%V\": no random bytes for its secret",
                      &shm_zone->shm.name);
        return NGX_ERROR;
    }

    shm->parts = parts;
    shm->created = (uint64_t) ngx_time();
    shm->layout = ngx_http_kvroute_zone_layout();

    ngx_http_kvroute_zone_view(zone, shm);

    zone->history->max_members = zone->core.registry->max_members;
    kvr_load_init(zone->core.load, (uint32_t) zone->processes,
                  kvr_registry_columns(max_peers));
    kvr_index_init(zone->core.index, lines, max_peers);

    shpool->data = shm;

    if (zone->snapshot && !ngx_test_config) {
        ngx_http_kvroute_zone_snapshot_read(zone, shm_zone->shm.log);
    }

    return NGX_OK;
}


static void
ngx_http_kvroute_zone_view(ngx_http_kvroute_zone_t *zone,
    ngx_http_kvroute_shm_t *shm)
{
    u_char  *p;

    p = (u_char *) shm;

    kvr_registry_view(&zone->registry,
                      (kvr_registry_shared_t *) (p + shm->parts.registry),
                      (uint32_t) shm->max_peers);

    zone->core.registry = &zone->registry;
    zone->core.load = (kvr_load_t *) (p + shm->parts.load);
    zone->core.hot = (kvr_hot_t *) (p + shm->parts.hot);
    zone->core.index = (kvr_index_t *) (p + shm->parts.index);

    zone->secret = shm->secret;
    zone->sketch = (kvr_sketch_t *) (p + shm->parts.sketch);
    zone->history = (kvr_history_t *) (p + shm->parts.history);
    zone->processes = shm->processes;
    zone->shm = shm;
}


/*
 * Keeps the memory if the parameters that determine its layout are unchanged.
 */
static ngx_int_t
ngx_http_kvroute_zone_reuse(ngx_shm_zone_t *shm_zone,
    ngx_http_kvroute_zone_t *zone, ngx_http_kvroute_shm_t *shm)
{
    ngx_uint_t   processes;
    const char  *why;

    why = NULL;

    if (shm->layout != ngx_http_kvroute_zone_layout()) {
        why = "was made by another version of the module";

    } else if (zone->key == NULL && shm->keyed) {
        why = "uses no key_file while previously it used one";

    } else if (zone->key && !shm->keyed) {
        why = "uses a key_file while previously it used none";

    } else if (zone->key
               && ngx_memcmp(shm->secret, zone->key, KVR_SECRET_LEN) != 0)
    {
        why = "uses another key in its key_file than previously";
    }

    if (why) {
        ngx_log_error(NGX_LOG_EMERG, shm_zone->shm.log, 0,
                      "kvroute_zone \"%V\" %s, restart nginx or change its "
                      "size", &shm_zone->shm.name, why);
        return NGX_ERROR;
    }

    processes = ngx_http_kvroute_zone_size_processes(zone, shm_zone->shm.size);

    if (shm->processes < processes) {
        ngx_log_error(NGX_LOG_WARN, shm_zone->shm.log, 0,
                      "kvroute_zone \"%V\" has rows for %uL processes, "
                      "its workers need %ui: restart "
                      "nginx or change its size",
                      &shm_zone->shm.name, shm->processes, processes);
    }

    if (zone->max_peers != shm->max_peers) {
        ngx_log_error(NGX_LOG_EMERG, shm_zone->shm.log, 0,
                      "kvroute_zone \"%V\" uses max_peers=%ui while previously "
                      "it used max_peers=%uL", &shm_zone->shm.name,
                      zone->max_peers, shm->max_peers);
        return NGX_ERROR;
    }

    ngx_http_kvroute_zone_view(zone, shm);

    return NGX_OK;
}


/* Logs at a reload that a zone of another size or module starts empty. */
static void
ngx_http_kvroute_zone_note_size(ngx_shm_zone_t *shm_zone)
{
    ngx_uint_t        i;
    ngx_shm_zone_t   *old;
    ngx_list_part_t  *part;

    if (ngx_cycle == NULL || ngx_cycle->shared_memory.part.elts == NULL) {
        return;
    }

    part = (ngx_list_part_t *) &ngx_cycle->shared_memory.part;

    for ( /* void */ ; part; part = part->next) {
        old = part->elts;

        for (i = 0; i < part->nelts; i++) {

            if (old[i].shm.name.len != shm_zone->shm.name.len
                || ngx_strncmp(old[i].shm.name.data, shm_zone->shm.name.data,
                               shm_zone->shm.name.len)
                   != 0)
            {
                continue;
            }

            if (old[i].tag != shm_zone->tag) {
                ngx_log_error(NGX_LOG_NOTICE, shm_zone->shm.log, 0,
                              "kvroute_zone \"%V\" was made by another module "
                              "and starts empty", &shm_zone->shm.name);

            } else {
                ngx_log_error(NGX_LOG_NOTICE, shm_zone->shm.log, 0,
                              "kvroute_zone \"%V\" was resized from %uz to %uz "
                              "and starts empty", &shm_zone->shm.name,
                              old[i].shm.size, shm_zone->shm.size);
            }
        }
    }
}


ngx_int_t
ngx_http_kvroute_zone_init_module(ngx_cycle_t *cycle)
{
    ngx_uint_t                     i;
    ngx_core_conf_t               *ccf;
    ngx_http_kvroute_zone_t      **zone;
    ngx_http_kvroute_srv_conf_t   *kscf, **kscfp;
    ngx_http_kvroute_main_conf_t  *kmcf;

    kmcf = ngx_http_cycle_get_module_main_conf(cycle, ngx_http_kvroute_module);

    if (kmcf == NULL) {
        return NGX_OK;
    }

    /* this number identifies the workers of one configuration */

    zone = kmcf->zones.elts;

    for (i = 0; i < kmcf->zones.nelts; i++) {
        zone[i]->generation = 1 + ngx_atomic_fetch_add(
                                          &zone[i]->shm->generation, 1);
    }

    ccf = (ngx_core_conf_t *) ngx_get_conf(cycle->conf_ctx, ngx_core_module);

    kscfp = kmcf->upstreams.elts;

    for (i = 0; i < kmcf->upstreams.nelts; i++) {

        kscf = kscfp[i];

#if (NGX_HTTP_UPSTREAM_ZONE)
        if (kscf->upstream->shm_zone) {
            continue;
        }
#endif

        if (ccf->worker_processes > 1 && !kscf->shadow) {
            /* nginx -t shows it, like other warnings of the configuration */

            ngx_log_error(NGX_LOG_WARN, ngx_cycle->log, 0,
                          "upstream \"%V\" in %s:%ui has \"kvroute\" but no "
                          "\"zone\": workers do not share failures and "
                          "weights of its servers",
                          &kscf->upstream->host, kscf->upstream->file_name,
                          kscf->upstream->line);
        }
    }

    return NGX_OK;
}


ngx_int_t
ngx_http_kvroute_zone_init_process(ngx_cycle_t *cycle)
{
    ngx_uint_t                     i;
    ngx_event_t                   *ev;
    kvr_load_t                    *load;
    kvr_load_owner_t               self;
    ngx_http_kvroute_zone_t      **zone;
    ngx_http_kvroute_main_conf_t  *kmcf;

    kmcf = ngx_http_cycle_get_module_main_conf(cycle, ngx_http_kvroute_module);

    if (kmcf->zones.nelts == 0) {
        return NGX_OK;
    }

    zone = kmcf->zones.elts;

    for (i = 0; i < kmcf->zones.nelts; i++) {

        load = zone[i]->core.load;
        self = ngx_http_kvroute_zone_owner(ngx_pid);

        /* before the sweep, because locks are noted in the row */

        zone[i]->core.row = kvr_load_claim(load, self, zone[i]->generation);

        ngx_http_kvroute_zone_sweep(zone[i], cycle->log);

        if (zone[i]->core.row == zone[i]->processes) {
            zone[i]->core.row = kvr_load_claim(load, self, zone[i]->generation);
        }

        zone[i]->claimed = 1;

        if (zone[i]->core.row == zone[i]->processes) {
            ngx_log_error(NGX_LOG_WARN, cycle->log, 0,
                          "kvroute_zone \"%V\" has no row for this process, "
                          "its load counters will not heal if it is killed: "
                          "it has %ui rows, restart nginx or change its size",
                          &zone[i]->name, zone[i]->processes);
        }
    }

    if (ngx_http_kvroute_peers_begin(&kmcf->upstreams, cycle->log) != NGX_OK) {
        return NGX_ERROR;
    }

    if (ngx_worker != 0) {
        return NGX_OK;
    }

    ev = &ngx_http_kvroute_zone_event;

    ngx_http_kvroute_timer_init(ev, NULL, ngx_http_kvroute_zone_timer, NULL,
                                cycle->log);

    ngx_add_timer(ev, NGX_HTTP_KVROUTE_SWEEP_TIME);

    ngx_http_kvroute_zone_snapshot_start(cycle);

    return NGX_OK;
}


void
ngx_http_kvroute_zone_exit_process(ngx_cycle_t *cycle)
{
    ngx_uint_t                     i, k;
    ngx_http_kvroute_zone_t      **zone;
    ngx_http_kvroute_srv_conf_t   *kscf;
    ngx_http_kvroute_main_conf_t  *kmcf;

    kmcf = ngx_http_cycle_get_module_main_conf(cycle, ngx_http_kvroute_module);

    if (kmcf == NULL) {
        return;
    }

    ngx_http_kvroute_zone_snapshot_exit(cycle);

    zone = kmcf->zones.elts;

    for (i = 0; i < kmcf->zones.nelts; i++) {
        if (zone[i]->claimed) {
            zone[i]->claimed = 0;
            kvr_load_release(zone[i]->core.load, zone[i]->core.row);
        }
    }

    i = 0;

    while ((kscf = ngx_http_kvroute_zone_next(NULL, &i)) != NULL) {

        for (k = 0; k < 2; k++) {
            ngx_http_kvroute_peers_free(&kscf->list[k]);
        }

        kscf->ready = 0;
    }
}


static void
ngx_http_kvroute_zone_timer(ngx_event_t *ev)
{
    ngx_uint_t                      i;
    ngx_http_kvroute_zone_t       **zone;
    ngx_http_kvroute_main_conf_t   *kmcf;

    kmcf = ngx_http_cycle_get_module_main_conf(ngx_cycle,
                                               ngx_http_kvroute_module);

    zone = kmcf->zones.elts;

    for (i = 0; i < kmcf->zones.nelts; i++) {
        ngx_http_kvroute_zone_sweep(zone[i], ev->log);
        ngx_http_kvroute_zone_drained(zone[i], ev->log);
        ngx_http_kvroute_zone_look(zone[i]);
        ngx_http_kvroute_zone_fade(zone[i]);
    }

    ngx_add_timer(ev, NGX_HTTP_KVROUTE_SWEEP_TIME);
}


/* Forgets capacities that engines no longer report. */
static void
ngx_http_kvroute_zone_fade(ngx_http_kvroute_zone_t *zone)
{
    uint32_t                      id;
    kvr_set_t                     set;
    ngx_uint_t                    i;
    ngx_http_kvroute_srv_conf_t  *kscf;

    i = 0;

    while ((kscf = ngx_http_kvroute_zone_next(zone, &i)) != NULL) {

        set = kscf->pool.set;

        while (kvr_set_next(&set, &id)) {
            kvr_capacity_fade(&zone->core, &kscf->pool, id,
                              (uint64_t) ngx_current_msec,
                              (uint32_t) ngx_time());
        }
    }
}


/* Logs peers that have been drained. */
static void
ngx_http_kvroute_zone_drained(ngx_http_kvroute_zone_t *zone, ngx_log_t *log)
{
    uint32_t         i, active;
    kvr_peer_t      *peer;
    kvr_registry_t  *registry;

    registry = zone->core.registry;

    for (i = 0; i < registry->max_peers; i++) {
        peer = &registry->peer[i];

        if (kvr_get(&peer->len) == 0) {
            continue;
        }

        /* includes other hosts */

        active = kvr_load_get(zone->core.load, i).active;

        if (kvr_drain_report(&peer->drain, active,
                             (uint64_t) ngx_current_msec))
        {
            ngx_log_error(NGX_LOG_NOTICE, log, 0,
                          "kvroute peer %*s is drained: no request is left "
                          "there", (size_t) peer->len, peer->name);
        }
    }
}
