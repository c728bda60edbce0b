
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

#define ngx_http_kvroute_peers_config(peers)     0
#define ngx_http_upstream_rr_peer_ref(peers, peer)

#elif (NGX_HTTP_UPSTREAM_ZONE)

#define ngx_http_kvroute_peers_config(peers)                                  \
    ((peers)->config ? *(peers)->config : 0)

#else

#define ngx_http_kvroute_peers_config(peers)     0

#endif


/* headers got a next pointer in 1.23.0, not cleared by ngx_list_push() */

#if (nginx_version >= 1023000)
#define ngx_http_kvroute_header_end(h)  (h)->next = NULL
#else
#define ngx_http_kvroute_header_end(h)
#endif


#endif /* _NGX_HTTP_KVROUTE_COMPAT_H_INCLUDED_ */
