
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _NGX_HTTP_KVROUTE_COMPAT_H_INCLUDED_
#define _NGX_HTTP_KVROUTE_COMPAT_H_INCLUDED_


/* all that depends on the version of nginx, 1.22 to 1.31 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>
#include <nginx.h>


/*
 * Since 1.27.3 names are resolved at run time: peers come and go, the counter
 * tells when, and a peer in use is held by a reference.
 */

#ifndef NGX_HTTP_UPSTREAM_MODIFY
#define NGX_HTTP_UPSTREAM_MODIFY  0
#endif

#if (nginx_version < 1027003)
#define ngx_http_upstream_rr_peer_ref(peers, peer)
#endif

/* a function, so that older versions check its argument as newer ones do */
static ngx_inline ngx_uint_t
ngx_http_kvroute_peers_config(ngx_http_upstream_rr_peers_t *peers)
{
#if (nginx_version >= 1027003 && NGX_HTTP_UPSTREAM_ZONE)
    return peers->config ? *peers->config : 0;
#else
    return 0;
#endif
}


/* the lock that workers share, if the upstream has a "zone"; else NULL */
static ngx_inline ngx_atomic_t *
ngx_http_kvroute_peers_rwlock(ngx_http_upstream_rr_peers_t *peers)
{
#if (NGX_HTTP_UPSTREAM_ZONE)
    return peers->shpool ? &peers->rwlock : NULL;
#else
    return NULL;
#endif
}


/*
 * Since 1.29.6 "down" is a bit mask, one of its bits says that only sessions
 * known before are to be served, and "sticky" asks for the peer of a session
 * by an id.  All balancers but nginx's own have to compare it themselves.
 */

#ifdef NGX_HTTP_UPSTREAM_DRAINING
#define ngx_http_kvroute_draining_only(peer)                                  \
    ((peer)->down == NGX_HTTP_UPSTREAM_DRAINING)
#else
#define ngx_http_kvroute_draining_only(peer)     0
#endif

#if (NGX_HTTP_UPSTREAM_SID)

#define ngx_http_kvroute_hinted(pc, peer)                                     \
    ((pc) && (pc)->hint && (peer)->sid.len == (pc)->hint->len                         \
     && ngx_strncmp((peer)->sid.data, (pc)->hint->data,                       \
                    (pc)->hint->len) == 0)

#define ngx_http_kvroute_hinted_away(pc, peer)                                \
    ((pc)->hint && !ngx_http_kvroute_hinted(pc, peer))

#define ngx_http_kvroute_set_sid(pc, peer)       (pc)->sid = &(peer)->sid

#else

#define ngx_http_kvroute_hinted(pc, peer)        ((void) (pc), 0)
#define ngx_http_kvroute_hinted_away(pc, peer)   ((void) (pc), 0)
#define ngx_http_kvroute_set_sid(pc, peer)       (void) (pc)

#endif


/*
 * Directives that put themselves around the method that the upstream has when
 * they are read, and are lost if that is replaced afterwards.  "keepalive" does
 * so no more since 1.29.7; "sticky" came with 1.29.6.  The configuration of
 * both begins with a word that is set by the directive: as of 1.22.0, and not
 * looked at in other modules.
 */

#if (nginx_version < 1029007)
#define ngx_http_kvroute_keepalive_module  "ngx_http_upstream_keepalive_module"
#else
#define ngx_http_kvroute_keepalive_module  NULL
#endif

#define ngx_http_kvroute_sticky_module     "ngx_http_upstream_sticky_module"


/* headers got a next pointer in 1.23.0, not cleared by ngx_list_push() */

#if (nginx_version >= 1023000)
#define ngx_http_kvroute_header_end(h)  (h)->next = NULL
#else
#define ngx_http_kvroute_header_end(h)
#endif


#endif /* _NGX_HTTP_KVROUTE_COMPAT_H_INCLUDED_ */
