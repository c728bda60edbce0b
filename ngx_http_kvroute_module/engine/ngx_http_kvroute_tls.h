
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _NGX_HTTP_KVROUTE_TLS_H_INCLUDED_
#define _NGX_HTTP_KVROUTE_TLS_H_INCLUDED_


/*
 * TLS on a connection that this module has made, by nginx's own: the handshake,
 * and what the certificate must be.  A timer of the connection's read event
 * goes on meanwhile.
 */


#include "ngx_http_kvroute.h"


typedef struct {
    ngx_connection_t    *connection;
    void                *ssl;        /* ngx_ssl_t */
    ngx_str_t           *name;       /* of the host, ends in '\0'; or empty */
    unsigned             verify:1;

    const char          *why;        /* out: what failed, or NULL */

    /* NGX_OK, NGX_ERROR, or NGX_BUSY if the timer has expired */

    void               (*next)(void *data, ngx_int_t rc);
    void                *data;       /* of the connection */
} ngx_http_kvroute_tls_t;


/*
 * Begins.  NGX_AGAIN: next() is called when it is set up, until when the
 * connection's data are not the caller's; else it is as next() would say.
 */
ngx_int_t ngx_http_kvroute_tls_begin(ngx_http_kvroute_tls_t *tls);

/* lets go of TLS on a connection, if there is any */
void ngx_http_kvroute_tls_end(ngx_connection_t *c);


#endif /* _NGX_HTTP_KVROUTE_TLS_H_INCLUDED_ */
