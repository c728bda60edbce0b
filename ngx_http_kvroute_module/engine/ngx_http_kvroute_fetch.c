
/*
 * Copyright (C) kvroute contributors
 */


#include "engine/ngx_http_kvroute_fetch.h"


static void ngx_http_kvroute_check_write(ngx_event_t *ev);
static void ngx_http_kvroute_check_read(ngx_event_t *ev);
static ngx_int_t ngx_http_kvroute_check_data(ngx_http_kvroute_check_t *check,
    u_char *data, size_t len);
static ngx_int_t ngx_http_kvroute_check_chunks(
    ngx_http_kvroute_check_t *check, u_char *data, size_t len);
static ngx_int_t ngx_http_kvroute_check_parse(ngx_http_kvroute_check_t *check,
    u_char *end);
static void ngx_http_kvroute_check_end(ngx_http_kvroute_check_t *check,
    ngx_int_t rc);


void
ngx_http_kvroute_check_start(ngx_http_kvroute_check_t *check, ngx_str_t *path)
{
    u_char            *p;
    ngx_int_t          rc;
    ngx_connection_t  *c;

    p = ngx_snprintf(check->request, sizeof(check->request),
                     "GET %V HTTP/1.0" CRLF "Host: %V" CRLF
                     "User-Agent: kvroute/" NGX_HTTP_KVROUTE_VERSION CRLF
                     "Connection: close" CRLF CRLF, path, &check->name);

    check->request_len = p - check->request;
    check->sent = 0;
    check->head_len = 0;
    check->headed = 0;
    check->framed = 0;
    check->status = 0;
    check->retry_after = -1;
    check->length = -1;
    check->received = 0;
    check->busy = 1;

    ngx_memzero(&check->chunked, sizeof(kvr_framing_t));
    ngx_memzero(&check->pc, sizeof(ngx_peer_connection_t));

    check->pc.sockaddr = &check->sockaddr.sockaddr;
    check->pc.socklen = check->socklen;
    check->pc.name = &check->name;
    check->pc.get = ngx_event_get_peer;
    check->pc.log = check->log;
    check->pc.log_error = NGX_ERROR_ERR;

    rc = ngx_event_connect_peer(&check->pc);

    if (rc == NGX_ERROR || rc == NGX_BUSY || rc == NGX_DECLINED) {
        ngx_http_kvroute_check_end(check, rc == NGX_DECLINED ? NGX_DECLINED
                                                             : NGX_ERROR);
        return;
    }

    c = check->pc.connection;

    c->data = check;
    c->pool = NULL;
    c->log = check->log;
    c->read->log = c->log;
    c->write->log = c->log;
    c->sendfile = 0;

    c->read->handler = ngx_http_kvroute_check_read;
    c->write->handler = ngx_http_kvroute_check_write;

    /* one timer, for all of it */

    c->read->cancelable = 1;
    ngx_add_timer(c->read, check->timeout);

    if (rc == NGX_OK) {
        ngx_http_kvroute_check_write(c->write);
    }
}


static void
ngx_http_kvroute_check_write(ngx_event_t *ev)
{
    int                        err;
    ssize_t                    n;
    socklen_t                  len;
    ngx_connection_t          *c;
    ngx_http_kvroute_check_t  *check;

    c = ev->data;
    check = c->data;

    if (check->sent == 0) {

        err = 0;
        len = sizeof(int);

        if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, (void *) &err, &len) == -1)
        {
            err = ngx_socket_errno;
        }

        if (err) {
            ngx_http_kvroute_check_end(check, err == NGX_ECONNREFUSED
                                              ? NGX_DECLINED : NGX_ERROR);
            return;
        }
    }

    while (check->sent < check->request_len) {

        n = c->send(c, check->request + check->sent,
                    check->request_len - check->sent);

        if (n == NGX_AGAIN) {
            break;
        }

        if (n <= 0) {
            ngx_http_kvroute_check_end(check, NGX_ERROR);
            return;
        }

        check->sent += n;
    }

    if (ngx_handle_write_event(c->write, 0) != NGX_OK) {
        ngx_http_kvroute_check_end(check, NGX_ERROR);
    }
}


static void
ngx_http_kvroute_check_read(ngx_event_t *ev)
{
    ssize_t                    n;
    ngx_int_t                  rc;
    ngx_connection_t          *c;
    ngx_http_kvroute_check_t  *check;

    /* of no use after an event is handled */
    static u_char              buf[16384];

    c = ev->data;
    check = c->data;

    if (ev->timedout) {
        ngx_http_kvroute_check_end(check, NGX_HTTP_KVROUTE_TIMEOUT);
        return;
    }

    for ( ;; ) {
        n = c->recv(c, buf, sizeof(buf));

        if (n == NGX_AGAIN) {
            break;
        }

        if (n == NGX_ERROR) {
            ngx_http_kvroute_check_end(check,
                                       ngx_socket_errno == NGX_ECONNREFUSED
                                       ? NGX_DECLINED : NGX_ERROR);
            return;
        }

        if (n == 0) {
            ngx_http_kvroute_check_end(check, check->headed && !check->framed
                                              && check->length == -1
                                              ? NGX_OK : NGX_ERROR);
            return;
        }

        rc = ngx_http_kvroute_check_data(check, buf, n);

        if (rc != NGX_AGAIN) {
            ngx_http_kvroute_check_end(check, rc);
            return;
        }
    }

    if (ngx_handle_read_event(c->read, 0) != NGX_OK) {
        ngx_http_kvroute_check_end(check, NGX_ERROR);
    }
}


/* NGX_AGAIN: there is more to come */
static ngx_int_t
ngx_http_kvroute_check_data(ngx_http_kvroute_check_t *check, u_char *data,
    size_t len)
{
    size_t   n, old;
    u_char  *p;

    if (!check->headed) {

        old = check->head_len;
        n = ngx_min(len, NGX_HTTP_KVROUTE_CHECK_HEAD - old);

        ngx_memcpy(check->head + old, data, n);
        check->head_len += n;

        p = memmem(check->head, check->head_len, CRLF CRLF, 4);

        if (p == NULL) {
            return check->head_len == NGX_HTTP_KVROUTE_CHECK_HEAD ? NGX_ERROR
                                                                  : NGX_AGAIN;
        }

        if (ngx_http_kvroute_check_parse(check, p + 2) != NGX_OK) {
            return NGX_ERROR;
        }

        check->headed = 1;

        n = p + 4 - check->head - old;
        data += n;
        len -= n;
    }

    if (!check->framed && check->length >= 0
        && (off_t) len > check->length - check->received)
    {
        len = (size_t) (check->length - check->received);
    }

    /* framing may be all that comes */

    check->received += len;

    if (check->received > check->max) {
        return NGX_ERROR;
    }

    if (check->framed) {
        return ngx_http_kvroute_check_chunks(check, data, len);
    }

    if (len) {
        check->body(check, data, len);
    }

    return check->received == check->length ? NGX_OK : NGX_AGAIN;
}


static ngx_int_t
ngx_http_kvroute_check_chunks(ngx_http_kvroute_check_t *check, u_char *data,
    size_t len)
{
    int             rc;
    size_t          n;
    const uint8_t  *p, *end, *piece;

    p = data;
    end = data + len;

    for ( ;; ) {
        rc = kvr_framing_read(&check->chunked, &p, end, &piece, &n);

        if (rc != KVR_OK) {
            return rc == KVR_DECLINED ? NGX_OK
                                      : rc == KVR_AGAIN ? NGX_AGAIN : NGX_ERROR;
        }

        check->body(check, (u_char *) piece, n);
    }
}


static ngx_int_t
ngx_http_kvroute_check_parse(ngx_http_kvroute_check_t *check, u_char *end)
{
    u_char     *p, *eol;
    ngx_int_t   n;

    p = check->head;

    if (end - p < 14 || ngx_strncmp(p, "HTTP/1.", 7) != 0 || p[8] != ' ') {
        return NGX_ERROR;
    }

    n = ngx_atoi(p + 9, 3);

    if (n < 100 || n > 599) {
        return NGX_ERROR;
    }

    check->status = n;

    for ( /* void */ ; p < end; p = eol + 2) {

        eol = memmem(p, end - p, CRLF, 2);

        if (eol == NULL) {
            break;
        }

        if (eol - p > 15
            && ngx_strncasecmp(p, (u_char *) "content-length:", 15) == 0)
        {
            for (p += 15; *p == ' '; p++) { /* void */ }

            check->length = ngx_atoof(p, eol - p);

            if (check->length == NGX_ERROR) {
                return NGX_ERROR;
            }

        } else if (eol - p > 18
                   && ngx_strncasecmp(p, (u_char *) "transfer-encoding:", 18)
                      == 0)
        {
            check->framed = (ngx_strlcasestrn(p + 18, eol,
                                              (u_char *) "chunked", 6)
                             != NULL);

        } else if (eol - p > 12
                   && ngx_strncasecmp(p, (u_char *) "retry-after:", 12) == 0)
        {
            for (p += 12; *p == ' '; p++) { /* void */ }

            n = ngx_atoi(p, eol - p);
            check->retry_after = (n == NGX_ERROR) ? 1 : n;
        }
    }

    return NGX_OK;
}


static void
ngx_http_kvroute_check_end(ngx_http_kvroute_check_t *check, ngx_int_t rc)
{
    ngx_http_kvroute_check_stop(check);

    check->done(check, rc);
}


void
ngx_http_kvroute_check_stop(ngx_http_kvroute_check_t *check)
{
    check->busy = 0;

    if (check->pc.connection) {
        ngx_close_connection(check->pc.connection);
        check->pc.connection = NULL;
    }
}
