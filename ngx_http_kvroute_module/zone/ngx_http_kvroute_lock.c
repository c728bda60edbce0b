
/*
 * Copyright (C) kvroute contributors
 */


/*
 * nginx's lock of an upstream's peers: trying it, and releasing it for the
 * dead.
 */


#include "zone/ngx_http_kvroute_zone.h"


/* nginx's value for a writer */
#define NGX_HTTP_KVROUTE_WRITER  ((ngx_atomic_uint_t) -1)

/* with growing pauses, so that the holder can run */
#define NGX_HTTP_KVROUTE_TRIES   64


ngx_int_t
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
 * The note is cleared first, because unlocking twice would take the lock from a
 * live process.
 */
ngx_http_kvroute_srv_conf_t *
ngx_http_kvroute_lock_free(kvr_load_row_t *row)
{
    uint64_t                       held;
    ngx_uint_t                     i, n;
    ngx_atomic_t                  *lock;
    ngx_http_kvroute_srv_conf_t   *kscf;
    ngx_http_upstream_rr_peers_t  *peers;

    held = kvr_get(&row->held);

    kvr_set(&row->held, 0);

    i = 0;

    while ((kscf = ngx_http_kvroute_zone_next(NULL, &i)) != NULL) {

        peers = kscf->upstream->peer.data;

        for (n = 0; peers && n < 2; peers = peers->next, n++) {

            lock = ngx_http_kvroute_peers_rwlock(peers);

            if (lock && (uintptr_t) lock == held) {
                ngx_rwlock_unlock(lock);
                return kscf;
            }
        }
    }

    return NULL;
}
