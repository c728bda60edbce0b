
/*
 * Copyright (C) kvroute contributors
 */


#include "engine/ngx_http_kvroute_conn.h"


static void ngx_http_kvroute_conn_write(ngx_event_t *ev);
static void ngx_http_kvroute_conn_connected(ngx_http_kvroute_conn_t *conn);

#if (NGX_HTTP_SSL)

static void ngx_http_kvroute_conn_secure(ngx_http_kvroute_conn_t *conn);
static void ngx_http_kvroute_conn_secured(ngx_connection_t *c);

#endif


static ngx_log_t  ngx_http_kvroute_conn_log;


void
ngx_http_kvroute_conn_open(ngx_http_kvroute_conn_t *conn)
{
    ngx_int_t          rc;
    ngx_log_t         *log;
    ngx_connection_t  *c;

    log = &ngx_http_kvroute_conn_log;

    *log = *ngx_cycle->log;
    log->log_level = ngx_min(log->log_level, NGX_LOG_ALERT);

    conn->connected = 0;
    conn->fault = KVR_FAULT_NONE;

    ngx_memzero(&conn->pc, sizeof(ngx_peer_connection_t));

    conn->pc.sockaddr = &conn->sockaddr.sockaddr;
    conn->pc.socklen = conn->socklen;
    conn->pc.name = &conn->name;
    conn->pc.get = ngx_event_get_peer;
    conn->pc.log = log;
    conn->pc.log_error = NGX_ERROR_ERR;

    rc = ngx_event_connect_peer(&conn->pc);

    /* any error of connect(), such as that no local port is free */

    if (rc == NGX_DECLINED && ngx_socket_errno != NGX_ECONNREFUSED
        && ngx_socket_errno != NGX_ENOENT)
    {
        rc = NGX_ERROR;
    }

    if (rc == NGX_ERROR || rc == NGX_BUSY || rc == NGX_DECLINED) {
        conn->fault = (rc == NGX_DECLINED) ? KVR_FAULT_REFUSED
                                           : KVR_FAULT_UNREACHABLE;
        conn->failed(conn, rc == NGX_DECLINED ? NGX_DECLINED : NGX_ERROR, NULL);
        return;
    }

    c = conn->pc.connection;

    c->data = conn;
    c->pool = NULL;
    c->log = log;
    c->read->log = log;
    c->write->log = log;
    c->sendfile = 0;

    c->read->handler = conn->read;
    c->write->handler = ngx_http_kvroute_conn_write;

    c->read->cancelable = 1;
    c->write->cancelable = 1;

    if (conn->timeout) {
        ngx_add_timer(c->read, conn->timeout);
    }

    if (rc == NGX_OK) {
        ngx_http_kvroute_conn_write(c->write);
    }
}


/* The connection is established, or has failed. */
static void
ngx_http_kvroute_conn_write(ngx_event_t *ev)
{
    int                       err;
    socklen_t                 len;
    ngx_connection_t         *c;
    ngx_http_kvroute_conn_t  *conn;

    c = ev->data;
    conn = c->data;

    err = 0;
    len = sizeof(int);

    if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, (void *) &err, &len) == -1) {
        err = ngx_socket_errno;
    }

    if (err) {
        conn->fault = (err == NGX_ECONNREFUSED) ? KVR_FAULT_REFUSED
                                                : KVR_FAULT_UNREACHABLE;
        conn->failed(conn, err == NGX_ECONNREFUSED ? NGX_DECLINED : NGX_ERROR,
                     NULL);
        return;
    }

#if (NGX_HTTP_SSL)

    if (conn->ssl) {
        ngx_http_kvroute_conn_secure(conn);
        return;
    }

#endif

    ngx_http_kvroute_conn_connected(conn);
}


static void
ngx_http_kvroute_conn_connected(ngx_http_kvroute_conn_t *conn)
{
    ngx_connection_t  *c;

    c = conn->pc.connection;

    conn->connected = 1;

    c->read->handler = conn->read;
    c->write->handler = conn->write;

    conn->write(c->write);
}


#if (NGX_HTTP_SSL)


static void
ngx_http_kvroute_conn_secure(ngx_http_kvroute_conn_t *conn)
{
    ngx_connection_t  *c;

    c = conn->pc.connection;

    /* nginx keeps what belongs to TLS in the connection's pool */

    c->pool = ngx_create_pool(512, c->log);

    if (c->pool == NULL
        || ngx_ssl_create_connection(conn->ssl, c,
                                     NGX_SSL_BUFFER|NGX_SSL_CLIENT)
           != NGX_OK
        || (conn->host->len
            && SSL_set_tlsext_host_name(c->ssl->connection,
                                        (char *) conn->host->data)
               == 0))
    {
        conn->fault = KVR_FAULT_TLS;
        conn->failed(conn, NGX_ERROR, "TLS cannot be set up");
        return;
    }

    if (ngx_ssl_handshake(c) == NGX_AGAIN) {
        c->ssl->handler = ngx_http_kvroute_conn_secured;
        return;
    }

    ngx_http_kvroute_conn_secured(c);
}


static void
ngx_http_kvroute_conn_secured(ngx_connection_t *c)
{
    long                      rc;
    ngx_http_kvroute_conn_t  *conn;

    conn = c->data;

    if (!c->ssl->handshaked) {

        if (c->read->timedout) {
            conn->fault = KVR_FAULT_TIMEOUT;
            conn->failed(conn, NGX_BUSY, "the TLS handshake timed out");
            return;
        }

        conn->fault = KVR_FAULT_TLS;
        conn->failed(conn, NGX_ERROR,
                     "TLS handshake failed: is this a TLS port?");
        return;
    }

    if (conn->verify) {
        rc = SSL_get_verify_result(c->ssl->connection);

        if (rc != X509_V_OK) {
            conn->fault = (rc == X509_V_ERR_CERT_HAS_EXPIRED)
                          ? KVR_FAULT_EXPIRED : KVR_FAULT_UNTRUSTED;
            conn->failed(conn, NGX_ERROR, X509_verify_cert_error_string(rc));
            return;
        }

        if (ngx_ssl_check_host(c, conn->host) != NGX_OK) {
            conn->fault = KVR_FAULT_OTHER_HOST;
            conn->failed(conn, NGX_ERROR,
                         "the certificate is for another host");
            return;
        }
    }

    ngx_http_kvroute_conn_connected(conn);
}


#endif


void
ngx_http_kvroute_conn_close(ngx_http_kvroute_conn_t *conn)
{
    ngx_pool_t        *pool;
    ngx_connection_t  *c;

    c = conn->pc.connection;

    if (c == NULL) {
        return;
    }

    pool = c->pool;

#if (NGX_HTTP_SSL)

    if (c->ssl) {

        /* do not wait for the peer's close_notify */

        c->ssl->no_wait_shutdown = 1;
        c->ssl->no_send_shutdown = 1;

        (void) ngx_ssl_shutdown(c);
    }

#endif

    if (pool) {
        c->pool = NULL;
        ngx_destroy_pool(pool);
    }

    ngx_close_connection(c);

    conn->pc.connection = NULL;
    conn->connected = 0;
}


ngx_int_t
ngx_http_kvroute_conn_send(ngx_http_kvroute_conn_t *conn, u_char **p,
    u_char *end)
{
    ssize_t            n;
    ngx_connection_t  *c;

    c = conn->pc.connection;

    while (*p < end) {

        n = c->send(c, *p, end - *p);

        if (n == NGX_AGAIN) {
            break;
        }

        if (n <= 0) {
            return NGX_ERROR;
        }

        *p += n;
    }

    return ngx_handle_write_event(c->write, 0);
}


ngx_msec_t
ngx_http_kvroute_conn_delay(ngx_msec_t *delay, ngx_msec_t min, ngx_msec_t max)
{
    ngx_msec_t  now;

    now = ngx_max(*delay, min);

    *delay = ngx_min(2 * now, max);

    return now - now / 5 + (ngx_msec_t) ngx_random() % (2 * now / 5 + 1);
}
