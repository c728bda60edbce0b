
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _NGX_HTTP_KVROUTE_LOCK_H_INCLUDED_
#define _NGX_HTTP_KVROUTE_LOCK_H_INCLUDED_


/*
 * nginx's lock of an upstream's peers.
 *
 * It is a word in the "zone" of the upstream: the number of readers, or -1 for
 * a writer.  It has no owner, and nginx does not release it when its holder
 * is killed, so other processes would wait for ever.  Therefore the functions
 * below note the address of the lock in this process's row after taking the
 * lock, and clear the note before releasing it.  A note in the row of a dead
 * process means that the lock is still held for it.  Unlocking once, as the
 * dead process would have done, is right for a writer and for a reader.
 *
 * A lock is never released without a note.  A process killed in the few
 * instructions between lock and note leaves it locked, and so does one killed
 * inside nginx's own functions.  So code that also serves other upstreams
 * (the start of a worker, timers, the status) only tries the lock, for some
 * microseconds.
 *
 * The data behind a released lock can be half written: weights, counts and
 * times.  Nothing relies on them.  Only nginx's functions change lists.
 *
 * A process holds one lock at a time.  Addresses are the same in all workers
 * of one configuration; another configuration has its own "zone".  The row
 * that processes without a row share is never swept.
 */


#include "ngx_http_kvroute.h"


static ngx_inline void
ngx_http_kvroute_lock_note(ngx_http_kvroute_zone_t *zone, ngx_atomic_t *lock)
{
    kvr_load_hold(zone->core.load, zone->core.row, (uintptr_t) lock);
}


static ngx_inline void
ngx_http_kvroute_lock_read(ngx_http_kvroute_zone_t *zone,
    ngx_http_upstream_rr_peers_t *peers)
{
    ngx_atomic_t  *lock;

    lock = ngx_http_kvroute_peers_rwlock(peers);

    if (lock) {
        ngx_rwlock_rlock(lock);
        ngx_http_kvroute_lock_note(zone, lock);
    }
}


static ngx_inline void
ngx_http_kvroute_lock_write(ngx_http_kvroute_zone_t *zone,
    ngx_http_upstream_rr_peers_t *peers)
{
    ngx_atomic_t  *lock;

    lock = ngx_http_kvroute_peers_rwlock(peers);

    if (lock) {
        ngx_rwlock_wlock(lock);
        ngx_http_kvroute_lock_note(zone, lock);
    }
}


static ngx_inline void
ngx_http_kvroute_lock_release(ngx_http_kvroute_zone_t *zone,
    ngx_http_upstream_rr_peers_t *peers)
{
    ngx_atomic_t  *lock;

    lock = ngx_http_kvroute_peers_rwlock(peers);

    if (lock) {
        ngx_http_kvroute_lock_note(zone, NULL);
        ngx_rwlock_unlock(lock);
    }
}


/* Takes the lock, for writing or reading.  NGX_BUSY: another process has it. */
ngx_int_t ngx_http_kvroute_lock_try(ngx_http_kvroute_zone_t *zone,
    ngx_http_upstream_rr_peers_t *peers, ngx_uint_t write);

/*
 * Releases the lock that a dead process of this configuration held.  Returns
 * its upstream, or NULL.
 */
ngx_http_kvroute_srv_conf_t *ngx_http_kvroute_lock_free(kvr_load_row_t *row);


#endif /* _NGX_HTTP_KVROUTE_LOCK_H_INCLUDED_ */
