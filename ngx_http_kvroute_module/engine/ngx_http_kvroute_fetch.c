
/*
 * Copyright (C) kvroute contributors
 */


#include "engine/ngx_http_kvroute_fetch.h"


static void ngx_http_kvroute_fetch_failed(ngx_http_kvroute_conn_t *conn,
    ngx_int_t rc, const char *why);
static void ngx_http_kvroute_fetch_write(ngx_event_t *ev);
static void ngx_http_kvroute_fetch_read(ngx_event_t *ev);
static ngx_int_t ngx_http_kvroute_fetch_data(ngx_http_kvroute_fetch_t *fetch,
    u_char *data, size_t len);
static ngx_int_t ngx_http_kvroute_fetch_chunks(
    ngx_http_kvroute_fetch_t *fetch, u_char *data, size_t len);
static ngx_int_t ngx_http_kvroute_fetch_parse(ngx_http_kvroute_fetch_t *fetch,
    u_char *end);
static void ngx_http_kvroute_fetch_end(ngx_http_kvroute_fetch_t *fetch,
    ngx_int_t rc);


void
ngx_http_kvroute_fetch_start(ngx_http_kvroute_fetch_t *fetch, ngx_str_t *path)
{
    ngx_http_kvroute_conn_t  *conn;

    conn = &fetch->conn;

    fetch->sent = fetch->request;
    fetch->request_end = ngx_snprintf(fetch->request, sizeof(fetch->request),
                     "GET %V HTTP/1.0" CRLF "Host: %V" CRLF
                     "User-Agent: kvroute/" NGX_HTTP_KVROUTE_VERSION CRLF
                     "%VConnection: close" CRLF CRLF, path,
                     fetch->conf->name.len ? &fetch->conf->name : &conn->name,
                     &fetch->conf->header);

    fetch->head_len = 0;
    fetch->headed = 0;
    fetch->framed = 0;
    fetch->why = NULL;
    fetch->status = 0;
    fetch->retry_after = -1;
    fetch->length = -1;
    fetch->received = 0;
    fetch->busy = 1;

    ngx_memzero(&fetch->chunked, sizeof(kvr_framing_t));

    conn->ssl = fetch->conf->ssl;
    conn->host = &fetch->conf->name;
    conn->verify = (fetch->conf->trusted.len != 0);
    conn->read = ngx_http_kvroute_fetch_read;
    conn->write = ngx_http_kvroute_fetch_write;
    conn->failed = ngx_http_kvroute_fetch_failed;
    conn->data = fetch;

    ngx_http_kvroute_conn_open(conn);
}


static void
ngx_http_kvroute_fetch_failed(ngx_http_kvroute_conn_t *conn, ngx_int_t rc,
    const char *why)
{
    ngx_http_kvroute_fetch_t *fetch = conn->data;

    fetch->why = why;

    ngx_http_kvroute_fetch_end(fetch, rc == NGX_BUSY
                                      ? NGX_HTTP_KVROUTE_FETCH_TIMEOUT : rc);
}


static void
ngx_http_kvroute_fetch_write(ngx_event_t *ev)
{
    ngx_connection_t          *c;
    ngx_http_kvroute_conn_t   *conn;
    ngx_http_kvroute_fetch_t  *fetch;

    c = ev->data;
    conn = c->data;
    fetch = conn->data;

    if (ngx_http_kvroute_conn_send(conn, &fetch->sent, fetch->request_end)
        != NGX_OK)
    {
        ngx_http_kvroute_fetch_end(fetch, NGX_ERROR);
    }
}


static void
ngx_http_kvroute_fetch_read(ngx_event_t *ev)
{
    ssize_t                    n;
    ngx_int_t                  rc;
    ngx_connection_t          *c;
    ngx_http_kvroute_conn_t   *conn;
    ngx_http_kvroute_fetch_t  *fetch;

    /* valid for one event */
    static u_char              buf[16384];

    c = ev->data;
    conn = c->data;
    fetch = conn->data;

    if (ev->timedout) {
        ngx_http_kvroute_fetch_end(fetch, NGX_HTTP_KVROUTE_FETCH_TIMEOUT);
        return;
    }

    for ( ;; ) {
        n = c->recv(c, buf, sizeof(buf));

        if (n == NGX_AGAIN) {
            break;
        }

        if (n == NGX_ERROR) {
            ngx_http_kvroute_fetch_end(fetch,
                                       ngx_socket_errno == NGX_ECONNREFUSED
                                       ? NGX_DECLINED : NGX_ERROR);
            return;
        }

        if (n == 0) {
            ngx_http_kvroute_fetch_end(fetch, fetch->headed && !fetch->framed
                                              && fetch->length == -1
                                              ? NGX_OK : NGX_ERROR);
            return;
        }

        rc = ngx_http_kvroute_fetch_data(fetch, buf, n);

        if (rc != NGX_AGAIN) {
            ngx_http_kvroute_fetch_end(fetch, rc);
            return;
        }
    }

    if (ngx_handle_read_event(c->read, 0) != NGX_OK) {
        ngx_http_kvroute_fetch_end(fetch, NGX_ERROR);
    }
}


/* Reads a part of the response.  NGX_AGAIN: it is not complete. */
static ngx_int_t
ngx_http_kvroute_fetch_data(ngx_http_kvroute_fetch_t *fetch, u_char *data,
    size_t len)
{
    size_t   n, old;
    u_char  *p;

    if (!fetch->headed) {

        old = fetch->head_len;
        n = ngx_min(len, NGX_HTTP_KVROUTE_FETCH_HEAD - old);

        ngx_memcpy(fetch->head + old, data, n);
        fetch->head_len += n;

        p = memmem(fetch->head, fetch->head_len, CRLF CRLF, 4);

        if (p == NULL) {
            return fetch->head_len == NGX_HTTP_KVROUTE_FETCH_HEAD ? NGX_ERROR
                                                                  : NGX_AGAIN;
        }

        if (ngx_http_kvroute_fetch_parse(fetch, p + 2) != NGX_OK) {
            return NGX_ERROR;
        }

        fetch->headed = 1;

        n = p + 4 - fetch->head - old;
        data += n;
        len -= n;
    }

    if (!fetch->framed && fetch->length >= 0
        && (off_t) len > fetch->length - fetch->received)
    {
        len = (size_t) (fetch->length - fetch->received);
    }

    /* includes framing */

    fetch->received += len;

    if (fetch->received > fetch->max) {
        return NGX_ERROR;
    }

    if (fetch->framed) {
        return ngx_http_kvroute_fetch_chunks(fetch, data, len);
    }

    if (len) {
        fetch->body(fetch, data, len);
    }

    return fetch->received == fetch->length ? NGX_OK : NGX_AGAIN;
}


static ngx_int_t
ngx_http_kvroute_fetch_chunks(ngx_http_kvroute_fetch_t *fetch, u_char *data,
    size_t len)
{
    int             rc;
    size_t          n;
    const uint8_t  *p, *end, *piece;

    p = data;
    end = data + len;

    for ( ;; ) {
        rc = kvr_framing_read(&fetch->chunked, &p, end, &piece, &n);

        if (rc != KVR_OK) {
            return rc == KVR_DECLINED ? NGX_OK
                                      : rc == KVR_AGAIN ? NGX_AGAIN : NGX_ERROR;
        }

        fetch->body(fetch, (u_char *) piece, n);
    }
}


static ngx_int_t
ngx_http_kvroute_fetch_parse(ngx_http_kvroute_fetch_t *fetch, u_char *end)
{
    u_char     *p, *eol;
    ngx_int_t   n;

    p = fetch->head;

    if (end - p < 14 || ngx_strncmp(p, "HTTP/1.", 7) != 0 || p[8] != ' ') {
        return NGX_ERROR;
    }

    n = ngx_atoi(p + 9, 3);

    if (n < 100 || n > 599) {
        return NGX_ERROR;
    }

    fetch->status = n;

    for ( /* void */ ; p < end; p = eol + 2) {

        eol = memmem(p, end - p, CRLF, 2);

        if (eol == NULL) {
            break;
        }

        if (eol - p > 15
            && ngx_strncasecmp(p, (u_char *) "content-length:", 15) == 0)
        {
            for (p += 15; *p == ' '; p++) { /* void */ }

            fetch->length = ngx_atoof(p, eol - p);

            if (fetch->length == NGX_ERROR) {
                return NGX_ERROR;
            }

        } else if (eol - p > 18
                   && ngx_strncasecmp(p, (u_char *) "transfer-encoding:", 18)
                      == 0)
        {
            fetch->framed = (ngx_strlcasestrn(p + 18, eol,
                                              (u_char *) "chunked", 6)
                             != NULL);

        } else if (eol - p > 12
                   && ngx_strncasecmp(p, (u_char *) "retry-after:", 12) == 0)
        {
            for (p += 12; *p == ' '; p++) { /* void */ }

            n = ngx_atoi(p, eol - p);
            fetch->retry_after = (n == NGX_ERROR) ? 1 : n;
        }
    }

    return NGX_OK;
}


static void
ngx_http_kvroute_fetch_end(ngx_http_kvroute_fetch_t *fetch, ngx_int_t rc)
{
    ngx_http_kvroute_fetch_stop(fetch);

    fetch->done(fetch, rc);
}


void
ngx_http_kvroute_fetch_stop(ngx_http_kvroute_fetch_t *fetch)
{
    fetch->busy = 0;

    ngx_http_kvroute_conn_close(&fetch->conn);
}
