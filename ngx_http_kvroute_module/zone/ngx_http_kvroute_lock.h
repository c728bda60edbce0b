
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _NGX_HTTP_KVROUTE_LOCK_H_INCLUDED_
#define _NGX_HTTP_KVROUTE_LOCK_H_INCLUDED_


/*
 * nginx's lock of an upstream's peers.
 *
 * It is a counter of readers, or -1 for a writer, in the "zone" of the
 * upstream.  It has no owner, and nginx does not let it go when its holder is
 * killed: then others wait for ever.  So whoever takes it here notes its
 * address in this process's row, after it is taken, and clears the note before
 * it is let go.  A note in the row of a dead process says that the lock is held
 * on its behalf: a writer's word is -1 until somebody lets it go, and a
 * reader's is 1 of what is counted, whatever others do meanwhile.  So to
 * unlock it once, as the dead process would have done, is right for both.
 *
 * It is never let go without a note.  A process that is killed in the few
 * instructions between the lock and the note leaves it held, and so does one
 * that is killed inside nginx's own functions.  That is why nothing that serves
 * other upstreams too (the start of a worker, its timers, the status) may wait
 * for this lock: it is tried there, for some microseconds.
 *
 * What is behind the lock may be half done then: weights, counts and times, of
 * which none is relied on.  Lists are changed by nginx's own functions only.
 *
 * A process holds one lock at a time.  Addresses are the same in all workers
 * of one configuration, and mean nothing to those of another, which have a
 * "zone" of their own.  The row shared by those without one is never swept.
 */


#include "ngx_http_kvroute.h"


static ngx_inline void
ngx_http_kvroute_lock_note(ngx_http_kvroute_zone_t *zone, ngx_atomic_t *lock)
{
    kvr_load_hold(zone->sh->load, zone->core.row, (uintptr_t) lock);
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


/* NGX_BUSY: somebody else has it, and maybe for ever */
ngx_int_t ngx_http_kvroute_lock_try_read(ngx_http_kvroute_zone_t *zone,
    ngx_http_upstream_rr_peers_t *peers);
ngx_int_t ngx_http_kvroute_lock_try_write(ngx_http_kvroute_zone_t *zone,
    ngx_http_upstream_rr_peers_t *peers);

/* unlocks what a dead process held, and returns whose it was, or NULL */
ngx_http_kvroute_srv_conf_t *ngx_http_kvroute_lock_free(kvr_load_row_t *row);


#endif /* _NGX_HTTP_KVROUTE_LOCK_H_INCLUDED_ */
