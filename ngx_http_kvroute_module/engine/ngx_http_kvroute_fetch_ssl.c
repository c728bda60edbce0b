
/*
 * Copyright (C) kvroute contributors
 */


/*
 * TLS of a fetch, by nginx's own: the handshake, and what the certificate must
 * be.  The timer of the fetch goes on meanwhile.
 */


#include "engine/ngx_http_kvroute_fetch.h"


#if (NGX_HTTP_SSL)


static void ngx_http_kvroute_fetch_ssl_done(ngx_connection_t *c);
static ngx_int_t ngx_http_kvroute_fetch_ssl_check(
    ngx_http_kvroute_fetch_t *fetch);


/* of the only handshake that is begun within its event */
typedef void (*ngx_http_kvroute_fetch_next_pt)(ngx_http_kvroute_fetch_t *fetch,
    ngx_int_t rc);

static ngx_http_kvroute_fetch_next_pt  ngx_http_kvroute_fetch_ssl_next;


ngx_int_t
ngx_http_kvroute_fetch_ssl(ngx_http_kvroute_fetch_t *fetch,
    ngx_http_kvroute_fetch_next_pt next)
{
    ngx_int_t          rc;
    ngx_connection_t  *c;

    c = fetch->pc.connection;

    fetch->why = "TLS cannot be set up";

    /* nginx keeps what belongs to TLS in the connection's pool */

    c->pool = ngx_create_pool(512, fetch->log);

    if (c->pool == NULL
        || ngx_ssl_create_connection(fetch->conf->ssl, c,
                                     NGX_SSL_BUFFER|NGX_SSL_CLIENT) != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (fetch->conf->name.len
        && SSL_set_tlsext_host_name(c->ssl->connection,
                                    (char *) fetch->conf->name.data) == 0)
    {
        return NGX_ERROR;
    }

    fetch->why = "the TLS handshake failed: is this a TLS port?";

    ngx_http_kvroute_fetch_ssl_next = next;

    rc = ngx_ssl_handshake(c);

    if (rc == NGX_AGAIN) {
        c->ssl->handler = ngx_http_kvroute_fetch_ssl_done;
        return NGX_AGAIN;
    }

    return rc == NGX_OK ? ngx_http_kvroute_fetch_ssl_check(fetch) : NGX_ERROR;
}


static void
ngx_http_kvroute_fetch_ssl_done(ngx_connection_t *c)
{
    ngx_int_t                  rc;
    ngx_http_kvroute_fetch_t  *fetch;

    fetch = c->data;

    if (c->read->timedout) {
        rc = NGX_HTTP_KVROUTE_FETCH_TIMEOUT;

    } else {
        rc = c->ssl->handshaked ? ngx_http_kvroute_fetch_ssl_check(fetch)
                                : NGX_ERROR;
    }

    ngx_http_kvroute_fetch_ssl_next(fetch, rc);
}


static ngx_int_t
ngx_http_kvroute_fetch_ssl_check(ngx_http_kvroute_fetch_t *fetch)
{
    long               rc;
    ngx_connection_t  *c;

    fetch->why = NULL;

    if (!fetch->conf->verify) {
        return NGX_OK;
    }

    c = fetch->pc.connection;

    rc = SSL_get_verify_result(c->ssl->connection);

    if (rc != X509_V_OK) {
        fetch->why = X509_verify_cert_error_string(rc);
        return NGX_ERROR;
    }

    if (ngx_ssl_check_host(c, &fetch->conf->name) != NGX_OK) {
        fetch->why = "the certificate is not of the host that \"name\" says";
        return NGX_ERROR;
    }

    return NGX_OK;
}


void
ngx_http_kvroute_fetch_ssl_stop(ngx_http_kvroute_fetch_t *fetch)
{
    ngx_pool_t        *pool;
    ngx_connection_t  *c;

    c = fetch->pc.connection;
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
ngx_http_kvroute_fetch_ssl(ngx_http_kvroute_fetch_t *fetch,
    void (*next)(ngx_http_kvroute_fetch_t *fetch, ngx_int_t rc))
{
    return NGX_ERROR;
}


void
ngx_http_kvroute_fetch_ssl_stop(ngx_http_kvroute_fetch_t *fetch)
{
}


#endif
