
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _NGX_HTTP_KVROUTE_CONN_H_INCLUDED_
#define _NGX_HTTP_KVROUTE_CONN_H_INCLUDED_


/*
 * A connection that a worker opens by itself: to an engine, the store or a
 * publisher.  It connects, sets up TLS if there is a context for it, and sends.
 *
 *     closed -> connecting -> (TLS) -> connected
 *
 * Any failure up to there is reported once, by failed(), which may be called
 * before ngx_http_kvroute_conn_open() returns.  Later ones are found by read()
 * and by ngx_http_kvroute_conn_send().  The callers log what fails, so nginx
 * itself logs no single attempt.  A timer of the read event expires in read(),
 * or during the TLS handshake in failed().  No timer delays the exit of a
 * worker.
 */


#include "ngx_http_kvroute.h"


typedef struct ngx_http_kvroute_conn_s  ngx_http_kvroute_conn_t;

/*
 * NGX_DECLINED: the peer refused; NGX_BUSY: the time is over; else NGX_ERROR.
 * why is the reason if TLS failed, else NULL.
 */
typedef void (*ngx_http_kvroute_conn_failed_pt)(ngx_http_kvroute_conn_t *conn,
    ngx_int_t rc, const char *why);


struct ngx_http_kvroute_conn_s {
    ngx_peer_connection_t             pc;
    ngx_sockaddr_t                    sockaddr;
    socklen_t                         socklen;
    ngx_str_t                         name;      /* of the peer, for logs */
    ngx_msec_t                        timeout;   /* 0: the caller sets it */

    void                             *ssl;       /* ngx_ssl_t, or NULL */
    ngx_str_t                        *host;      /* ends in '\0'; or empty */

    /* ev->data is the ngx_connection_t, whose data is this structure */

    ngx_event_handler_pt              read;
    ngx_event_handler_pt              write;     /* also once it is connected */
    ngx_http_kvroute_conn_failed_pt   failed;
    void                             *data;

    kvr_fault_e                       fault;     /* before failed() */
    unsigned                          verify:1;  /* the certificate */
    unsigned                          connected:1;
};


void ngx_http_kvroute_conn_open(ngx_http_kvroute_conn_t *conn);
void ngx_http_kvroute_conn_close(ngx_http_kvroute_conn_t *conn);

/*
 * Sends up to end, or what the socket takes; then write() is called again.
 * Moves *p behind what was sent.  NGX_ERROR: the connection has failed.
 */
ngx_int_t ngx_http_kvroute_conn_send(ngx_http_kvroute_conn_t *conn, u_char **p,
    u_char *end);

/*
 * Returns the time to wait before the next attempt, give or take a fifth, and
 * doubles it for the one after that.  A delay of 0 starts with min.
 */
ngx_msec_t ngx_http_kvroute_conn_delay(ngx_msec_t *delay, ngx_msec_t min,
    ngx_msec_t max);


#endif /* _NGX_HTTP_KVROUTE_CONN_H_INCLUDED_ */
