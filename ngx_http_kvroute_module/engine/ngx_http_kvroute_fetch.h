
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _NGX_HTTP_KVROUTE_FETCH_H_INCLUDED_
#define _NGX_HTTP_KVROUTE_FETCH_H_INCLUDED_


/*
 * One GET request at a time to a peer.  The timers are cancelable, so a worker
 * that exits does not wait for them.
 */


#include "ngx_http_kvroute.h"
#include "engine/ngx_http_kvroute_conn.h"
#include "core/engine/kvr_framing.h"


#define NGX_HTTP_KVROUTE_FETCH_HEAD  4096

/* a result, besides NGX_OK and NGX_ERROR; NGX_DECLINED: refused */
#define NGX_HTTP_KVROUTE_FETCH_TIMEOUT     -100


typedef struct ngx_http_kvroute_fetch_s  ngx_http_kvroute_fetch_t;

/* a piece of the body */
typedef void (*ngx_http_kvroute_fetch_body_pt)(
    ngx_http_kvroute_fetch_t *fetch, u_char *data, size_t len);

/* NGX_OK: there was a response */
typedef void (*ngx_http_kvroute_fetch_done_pt)(
    ngx_http_kvroute_fetch_t *fetch, ngx_int_t rc);


struct ngx_http_kvroute_fetch_s {
    ngx_http_kvroute_conn_t          conn;         /* address, timeout */
    off_t                            max;          /* bytes of the body */
    ngx_http_kvroute_engine_conf_t  *conf;         /* TLS and header */

    ngx_http_kvroute_fetch_body_pt   body;
    ngx_http_kvroute_fetch_done_pt   done;
    void                            *data;

    const char                      *why;          /* TLS failed; or NULL */
    ngx_uint_t                       status;
    time_t                           retry_after;  /* s; -1: not given */

    ngx_msec_t                       end;
    off_t                            length;       /* of the body, or -1 */
    off_t                            received;     /* with framing */
    kvr_framing_t                    chunked;
    u_char                          *sent;         /* end of what was sent */
    u_char                          *request_end;
    size_t                           head_len;
    unsigned                         headed:1;     /* the head is complete */
    unsigned                         framed:1;     /* the body is chunked */
    unsigned                         busy:1;

    u_char                           request[1024
                                             + NGX_HTTP_KVROUTE_PROBE_HEADER];
    u_char                           head[NGX_HTTP_KVROUTE_FETCH_HEAD];
};


/* Starts a request for a path; done() may be called before it returns. */
void ngx_http_kvroute_fetch_start(ngx_http_kvroute_fetch_t *fetch,
    ngx_str_t *path);

/* Aborts the request; done() is not called. */
void ngx_http_kvroute_fetch_stop(ngx_http_kvroute_fetch_t *fetch);


#endif /* _NGX_HTTP_KVROUTE_FETCH_H_INCLUDED_ */
