
/*
 * Copyright (C) kvroute contributors
 */


#include "engine/ngx_http_kvroute_tls.h"


#if (NGX_HTTP_SSL)


static void ngx_http_kvroute_tls_done(ngx_connection_t *c);
static ngx_int_t ngx_http_kvroute_tls_check(ngx_http_kvroute_tls_t *tls);


ngx_int_t
ngx_http_kvroute_tls_begin(ngx_http_kvroute_tls_t *tls)
{
    ngx_int_t          rc;
    ngx_connection_t  *c;

    c = tls->connection;

    tls->why = "TLS cannot be set up";

    /* nginx keeps what belongs to TLS in the connection's pool */

    c->pool = ngx_create_pool(512, c->log);

    if (c->pool == NULL
        || ngx_ssl_create_connection(tls->ssl, c, NGX_SSL_BUFFER|NGX_SSL_CLIENT)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (tls->name->len
        && SSL_set_tlsext_host_name(c->ssl->connection,
                                    (char *) tls->name->data) == 0)
    {
        return NGX_ERROR;
    }

    tls->why = "the TLS handshake failed: is this a TLS port?";

    rc = ngx_ssl_handshake(c);

    if (rc == NGX_AGAIN) {
        c->data = tls;
        c->ssl->handler = ngx_http_kvroute_tls_done;
        return NGX_AGAIN;
    }

    return rc == NGX_OK ? ngx_http_kvroute_tls_check(tls) : NGX_ERROR;
}


static void
ngx_http_kvroute_tls_done(ngx_connection_t *c)
{
    ngx_int_t                rc;
    ngx_http_kvroute_tls_t  *tls;

    tls = c->data;
    c->data = tls->data;

    if (c->read->timedout) {
        rc = NGX_BUSY;

    } else {
        rc = c->ssl->handshaked ? ngx_http_kvroute_tls_check(tls) : NGX_ERROR;
    }

    tls->next(tls->data, rc);
}


static ngx_int_t
ngx_http_kvroute_tls_check(ngx_http_kvroute_tls_t *tls)
{
    long               rc;
    ngx_connection_t  *c;

    tls->why = NULL;

    if (!tls->verify) {
        return NGX_OK;
    }

    c = tls->connection;

    rc = SSL_get_verify_result(c->ssl->connection);

    if (rc != X509_V_OK) {
        tls->why = X509_verify_cert_error_string(rc);
        return NGX_ERROR;
    }

    if (ngx_ssl_check_host(c, tls->name) != NGX_OK) {
        tls->why = "the certificate is not of the host that was meant";
        return NGX_ERROR;
    }

    return NGX_OK;
}


void
ngx_http_kvroute_tls_end(ngx_connection_t *c)
{
    ngx_pool_t  *pool;

    pool = c->pool;

    if (c->ssl) {

        /* at once: nobody waits for the other side's word */

        c->ssl->no_wait_shutdown = 1;
        c->ssl->no_send_shutdown = 1;

        (void) ngx_ssl_shutdown(c);
    }

    if (pool) {
        c->pool = NULL;
        ngx_destroy_pool(pool);
    }
}


#else


ngx_int_t
ngx_http_kvroute_tls_begin(ngx_http_kvroute_tls_t *tls)
{
    return NGX_ERROR;
}


void
ngx_http_kvroute_tls_end(ngx_connection_t *c)
{
}


#endif
