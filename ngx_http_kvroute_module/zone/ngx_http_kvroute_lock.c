
/*
 * Copyright (C) kvroute contributors
 */


/* nginx's lock of an upstream's peers: tried, and let go for the dead. */


#include "zone/ngx_http_kvroute_lock.h"


/* as nginx has it */
#define NGX_HTTP_KVROUTE_WRITER  ((ngx_atomic_uint_t) -1)

/* each time a little longer, so that a holder gets its turn meanwhile */
#define NGX_HTTP_KVROUTE_TRIES   64


static ngx_int_t ngx_http_kvroute_lock_try(ngx_http_kvroute_zone_t *zone,
    ngx_http_upstream_rr_peers_t *peers, ngx_uint_t write);


ngx_int_t
ngx_http_kvroute_lock_try_read(ngx_http_kvroute_zone_t *zone,
    ngx_http_upstream_rr_peers_t *peers)
{
    return ngx_http_kvroute_lock_try(zone, peers, 0);
}


ngx_int_t
ngx_http_kvroute_lock_try_write(ngx_http_kvroute_zone_t *zone,
    ngx_http_upstream_rr_peers_t *peers)
{
    return ngx_http_kvroute_lock_try(zone, peers, 1);
}


static ngx_int_t
ngx_http_kvroute_lock_try(ngx_http_kvroute_zone_t *zone,
    ngx_http_upstream_rr_peers_t *peers, ngx_uint_t write)
{
    ngx_uint_t          i, n;
    ngx_atomic_t       *lock;
    ngx_atomic_uint_t   was, set;

    lock = ngx_http_kvroute_peers_rwlock(peers);

    if (lock == NULL) {
        return NGX_OK;
    }

    for (i = 0; i < NGX_HTTP_KVROUTE_TRIES; i++) {

        was = write ? 0 : *lock;
        set = write ? NGX_HTTP_KVROUTE_WRITER : was + 1;

        if (was != NGX_HTTP_KVROUTE_WRITER
            && ngx_atomic_cmp_set(lock, was, set))
        {
            ngx_http_kvroute_lock_note(zone, lock);
            return NGX_OK;
        }

        for (n = 0; n < i; n++) {
            ngx_cpu_pause();
        }

        ngx_sched_yield();
    }

    return NGX_BUSY;
}


/*
 * Unlocks what a dead process of this configuration held, and returns whose
 * lock it was.  The note goes first: if it were done twice, the lock would be
 * taken from somebody who is alive.
 */
ngx_http_kvroute_srv_conf_t *
ngx_http_kvroute_lock_free(kvr_load_row_t *row)
{
    uint64_t                        held;
    ngx_uint_t                      i, n;
    ngx_atomic_t                   *lock;
    ngx_http_kvroute_srv_conf_t   **kscfp;
    ngx_http_kvroute_main_conf_t   *kmcf;
    ngx_http_upstream_rr_peers_t   *peers;

    held = kvr_get(&row->held);

    kvr_set(&row->held, 0);

    kmcf = ngx_http_cycle_get_module_main_conf(ngx_cycle,
                                               ngx_http_kvroute_module);

    kscfp = kmcf->upstreams.elts;

    for (i = 0; i < kmcf->upstreams.nelts; i++) {

        peers = kscfp[i]->upstream->peer.data;

        for (n = 0; peers && n < 2; peers = peers->next, n++) {

            lock = ngx_http_kvroute_peers_rwlock(peers);

            if (lock && (uintptr_t) lock == held) {
                ngx_rwlock_unlock(lock);
                return kscfp[i];
            }
        }
    }

    return NULL;
}
