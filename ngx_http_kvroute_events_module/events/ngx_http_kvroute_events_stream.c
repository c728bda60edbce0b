
/*
 * Copyright (C) kvroute contributors
 */


/*
 * A connection to a publisher, or to its replay socket.
 *
 * What comes is read in slices, so that whatever a publisher sends the other
 * work of this worker goes on.  While much comes it is read each few ms, and not
 * each time there is some: that costs half as much.  No more is kept than what one read has brought,
 * and that only while the stream is held.
 */


#include "events/ngx_http_kvroute_events_int.h"


#define NGX_HTTP_KVROUTE_EVENTS_BUF    65536   /* a slice */

/* bytes that are much for one event, and ms until the next read then */
#define NGX_HTTP_KVROUTE_EVENTS_MUCH   8192
#define NGX_HTTP_KVROUTE_EVENTS_PAUSE  4
#define NGX_HTTP_KVROUTE_EVENTS_SOON   1        /* after a whole slice */

/* s: until the first probe of a silent connection, and between; so many probes */
#define NGX_HTTP_KVROUTE_EVENTS_KEEP   3


static void ngx_http_kvroute_events_stream_keep(ngx_socket_t fd);
static void ngx_http_kvroute_events_stream_failed(
    ngx_http_kvroute_conn_t *conn, ngx_int_t rc, const char *why);
static void ngx_http_kvroute_events_stream_write(ngx_event_t *ev);
static void ngx_http_kvroute_events_stream_read(ngx_event_t *ev);
static ngx_int_t ngx_http_kvroute_events_stream_pause(ngx_event_t *ev,
    size_t got);
static ngx_int_t ngx_http_kvroute_events_stream_take(
    ngx_http_kvroute_events_stream_t *stream, u_char *data, size_t len);
static void ngx_http_kvroute_events_stream_end(
    ngx_http_kvroute_events_stream_t *stream, const char *error);


void
ngx_http_kvroute_events_stream_open(ngx_http_kvroute_events_stream_t *stream,
    kvr_zmtp_role_e role, ngx_str_t *topic)
{
    ngx_connection_t         *c;
    ngx_http_kvroute_conn_t  *conn;

    kvr_subscription_init(&stream->subscription, role, topic->data,
                          topic->len);

    stream->held = 0;
    stream->refused = 0;

    conn = &stream->conn;

    conn->name = stream->source->name;
    conn->log = &ngx_http_kvroute_events_source_log;
    conn->read = ngx_http_kvroute_events_stream_read;
    conn->write = ngx_http_kvroute_events_stream_write;
    conn->failed = ngx_http_kvroute_events_stream_failed;
    conn->data = stream;

    ngx_http_kvroute_conn_open(conn);

    c = conn->pc.connection;

    if (c) {

        /* a worker that shuts down closes it at once */

        c->idle = 1;

        ngx_http_kvroute_events_stream_keep(c->fd);
    }
}


/* a publisher that knows no PING may be gone, and nobody has said so */
static void
ngx_http_kvroute_events_stream_keep(ngx_socket_t fd)
{
    int  value;

    value = 1;
    (void) setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, (const void *) &value,
                      sizeof(int));

#if (NGX_HAVE_KEEPALIVE_TUNABLE)
    value = NGX_HTTP_KVROUTE_EVENTS_KEEP;
    (void) setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, (const void *) &value,
                      sizeof(int));
    (void) setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, (const void *) &value,
                      sizeof(int));
    (void) setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, (const void *) &value,
                      sizeof(int));
#endif
}


void
ngx_http_kvroute_events_stream_close(ngx_http_kvroute_events_stream_t *stream)
{
    if (stream->rest) {
        ngx_free(stream->rest);
        stream->rest = NULL;
    }

    stream->held = 0;

    ngx_http_kvroute_conn_close(&stream->conn);
}


static void
ngx_http_kvroute_events_stream_end(ngx_http_kvroute_events_stream_t *stream,
    const char *error)
{
    ngx_http_kvroute_events_stream_close(stream);

    stream->closed(stream, error);
}


static void
ngx_http_kvroute_events_stream_failed(ngx_http_kvroute_conn_t *conn,
    ngx_int_t rc, const char *why)
{
    ngx_http_kvroute_events_stream_t *stream = conn->data;

    stream->refused = (rc == NGX_DECLINED);

    ngx_http_kvroute_events_stream_end(stream, stream->refused
                                               ? "nobody listens there"
                                               : "the connection has failed");
}


static void
ngx_http_kvroute_events_stream_write(ngx_event_t *ev)
{
    ngx_connection_t         *c;
    ngx_http_kvroute_conn_t  *conn;

    c = ev->data;
    conn = c->data;

    if (ngx_http_kvroute_events_stream_send(conn->data) != NGX_OK) {
        ngx_http_kvroute_events_stream_failed(conn, NGX_ERROR, NULL);
    }
}


ngx_int_t
ngx_http_kvroute_events_stream_send(ngx_http_kvroute_events_stream_t *stream)
{
    u_char      *p;
    ngx_int_t    rc;
    kvr_zmtp_t  *zmtp;

    zmtp = &stream->subscription.zmtp;
    p = zmtp->out;

    rc = ngx_http_kvroute_conn_send(&stream->conn, &p, p + zmtp->out_len);

    kvr_zmtp_sent(zmtp, (size_t) (p - zmtp->out));

    return rc;
}


static void
ngx_http_kvroute_events_stream_read(ngx_event_t *ev)
{
    size_t                             got;
    ssize_t                            n;
    ngx_int_t                          rc;
    ngx_connection_t                  *c;
    ngx_http_kvroute_conn_t           *conn;
    ngx_http_kvroute_events_stream_t  *stream;

    /* of no use after an event is handled */
    static u_char                      buf[NGX_HTTP_KVROUTE_EVENTS_BUF];

    c = ev->data;
    conn = c->data;
    stream = conn->data;

    if (c->close || ngx_exiting || ngx_terminate || ngx_quit) {
        ngx_http_kvroute_events_stream_close(stream);
        return;
    }

    ev->timedout = 0;

    if (stream->held) {
        return;
    }

    for (got = 0; got < NGX_HTTP_KVROUTE_EVENTS_BUF; got += (size_t) n) {

        n = c->recv(c, buf, sizeof(buf) - got);

        if (n == NGX_AGAIN) {
            break;
        }

        if (n == NGX_ERROR || n == 0) {
            ngx_http_kvroute_events_stream_failed(conn,
                                       n && ngx_socket_errno == NGX_ECONNREFUSED
                                       ? NGX_DECLINED : NGX_ERROR, NULL);
            return;
        }

        rc = ngx_http_kvroute_events_stream_take(stream, buf, (size_t) n);

        if (rc == NGX_DONE) {
            return;
        }

        if (rc == NGX_AGAIN) {
            break;
        }
    }

    if (ngx_http_kvroute_events_stream_pause(ev, got) != NGX_OK
        || ngx_http_kvroute_events_stream_send(stream) != NGX_OK)
    {
        ngx_http_kvroute_events_stream_failed(conn, NGX_ERROR, NULL);
    }
}


/* waits for more, or for a few ms if there was much */
static ngx_int_t
ngx_http_kvroute_events_stream_pause(ngx_event_t *ev, size_t got)
{
    ngx_uint_t  flags;

    if (got < NGX_HTTP_KVROUTE_EVENTS_MUCH) {
        return ngx_handle_read_event(ev, 0);
    }

    /* the flag is for the write event: that is to stay as it was */

    flags = ngx_event_flags & NGX_USE_CLEAR_EVENT ? NGX_CLEAR_EVENT : 0;

    if (ev->active && ngx_del_event(ev, NGX_READ_EVENT, flags) != NGX_OK) {
        return NGX_ERROR;
    }

    /* it is read when the time is over, whether or not there is anything */

    ev->ready = 1;

    ngx_add_timer(ev, got < NGX_HTTP_KVROUTE_EVENTS_BUF
                      ? NGX_HTTP_KVROUTE_EVENTS_PAUSE
                      : NGX_HTTP_KVROUTE_EVENTS_SOON);

    return NGX_OK;
}


/* NGX_AGAIN: the stream is held; NGX_DONE: it is closed */
static ngx_int_t
ngx_http_kvroute_events_stream_take(ngx_http_kvroute_events_stream_t *stream,
    u_char *data, size_t len)
{
    size_t               left;
    u_char              *rest;
    ngx_int_t            rc;
    const uint8_t       *p, *end;
    kvr_subscription_e   found;

    p = data;
    end = data + len;

    do {
        found = kvr_subscription_read(&stream->subscription, &p, end);

        if (found == KVR_SUBSCRIPTION_AGAIN) {
            return NGX_OK;
        }

        if (found == KVR_SUBSCRIPTION_FAILED) {
            ngx_http_kvroute_events_stream_end(stream,
                                           stream->subscription.zmtp.error);
            return NGX_DONE;
        }

        rc = stream->found(stream, found);

        if (rc == NGX_DONE) {
            return NGX_DONE;
        }

    } while (rc == NGX_OK);

    /* there may be nothing left, of which memory is asked for as well */

    left = (size_t) (end - p);
    rest = ngx_alloc(left + 1, stream->conn.pc.log);

    if (rest == NULL) {
        ngx_http_kvroute_events_stream_failed(&stream->conn, NGX_ERROR, NULL);
        return NGX_DONE;
    }

    ngx_memcpy(rest, p, left);

    stream->rest = rest;
    stream->rest_len = left;
    stream->held = 1;

    return NGX_AGAIN;
}


void
ngx_http_kvroute_events_stream_resume(ngx_http_kvroute_events_stream_t *stream)
{
    u_char     *rest;
    ngx_int_t   rc;

    rest = stream->rest;

    stream->rest = NULL;
    stream->held = 0;

    rc = ngx_http_kvroute_events_stream_take(stream, rest, stream->rest_len);

    ngx_free(rest);

    if (rc == NGX_OK) {
        ngx_http_kvroute_events_stream_read(stream->conn.pc.connection->read);
    }
}
