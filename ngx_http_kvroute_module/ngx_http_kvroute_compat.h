
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _NGX_HTTP_KVROUTE_COMPAT_H_INCLUDED_
#define _NGX_HTTP_KVROUTE_COMPAT_H_INCLUDED_


/* everything that depends on the version of nginx, 1.22 to 1.31 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>
#include <nginx.h>


/*
 * Since 1.27.3 names are resolved at run time: lists of peers change, with a
 * counter, and a reference keeps a peer in use.
 */

#ifndef NGX_HTTP_UPSTREAM_MODIFY
#define NGX_HTTP_UPSTREAM_MODIFY  0
#endif

#if (nginx_version < 1027003)
#define ngx_http_upstream_rr_peer_ref(peers, peer)
#endif

/* a function, so that older versions check the argument too */
static ngx_inline ngx_uint_t
ngx_http_kvroute_peers_config(ngx_http_upstream_rr_peers_t *peers)
{
#if (nginx_version >= 1027003 && NGX_HTTP_UPSTREAM_ZONE)
    return peers->config ? *peers->config : 0;
#else
    return 0;
#endif
}


/* with "resolve" a server has one address, of no host, until it is resolved */
static ngx_inline ngx_uint_t
ngx_http_kvroute_server_resolves(ngx_http_upstream_server_t *server)
{
#if (nginx_version >= 1027003 && NGX_HTTP_UPSTREAM_ZONE)
    return server->host.len != 0;
#else
    return 0;
#endif
}


/* Returns the workers' shared lock, or NULL without a "zone". */
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
 * Since 1.29.6 "down" is a bit mask, with a bit for peers that serve only known
 * sessions, and "sticky" names the peer of a session by an id, which balancers
 * must compare themselves.
 */

#ifdef NGX_HTTP_UPSTREAM_DRAINING
#define ngx_http_kvroute_draining_only(peer)                                  \
    ((peer)->down == NGX_HTTP_UPSTREAM_DRAINING)
#else
#define ngx_http_kvroute_draining_only(peer)     0
#endif

#if (NGX_HTTP_UPSTREAM_SID)

#define ngx_http_kvroute_hinted(pc, peer)                                     \
    ((pc) && (pc)->hint && (peer)->sid.len == (pc)->hint->len                 \
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
 * Modules whose directives wrap the method that the upstream has at that point,
 * so they are lost if the method is replaced later: "keepalive" until 1.29.7,
 * "sticky" since 1.29.6.  The first word of their configuration tells whether
 * the directive was used.
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
