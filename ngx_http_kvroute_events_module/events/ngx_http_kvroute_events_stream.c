
/*
 * Copyright (C) kvroute contributors
 */


/*
 * A connection to a publisher, or to its replay socket.
 *
 * Input is read in slices, so a busy publisher does not delay the other work
 * of this worker.  While much arrives it is read every few milliseconds
 * instead of at each event, which halves the cost.  While the stream is on
 * hold, nothing is read beyond the current slice.
 */


#include "events/ngx_http_kvroute_events_int.h"


#define NGX_HTTP_KVROUTE_EVENTS_BUF    65536   /* a slice */

/* after this many bytes in one event the next read is delayed by these ms */
#define NGX_HTTP_KVROUTE_EVENTS_MUCH   8192
#define NGX_HTTP_KVROUTE_EVENTS_PAUSE  4
#define NGX_HTTP_KVROUTE_EVENTS_SOON   1        /* after a whole slice */


static void ngx_http_kvroute_events_stream_failed(
    ngx_http_kvroute_conn_t *conn, ngx_int_t rc, const char *why);
static void ngx_http_kvroute_events_stream_write(ngx_event_t *ev);
static void ngx_http_kvroute_events_stream_read(ngx_event_t *ev);
static ngx_int_t ngx_http_kvroute_events_stream_pause(ngx_event_t *ev,
    size_t got);
static ngx_int_t ngx_http_kvroute_events_stream_take(
    ngx_http_kvroute_events_stream_t *stream, u_char *data, size_t len);
static ngx_int_t ngx_http_kvroute_events_stream_hold(
    ngx_http_kvroute_events_stream_t *stream, const u_char *p, size_t len);
static ngx_int_t ngx_http_kvroute_events_stream_memory(
    ngx_http_kvroute_events_stream_t *stream);
static void ngx_http_kvroute_events_stream_free(
    ngx_http_kvroute_events_stream_t *stream);


void
ngx_http_kvroute_events_stream_open(ngx_http_kvroute_events_stream_t *stream,
    kvr_zmtp_role_e role)
{
    ngx_connection_t         *c;
    ngx_http_kvroute_conn_t  *conn;

    kvr_zmtp_init(&stream->zmtp, role);

    stream->held = 0;
    stream->refused = 0;

    conn = &stream->conn;

    conn->name = stream->source->name;
    conn->read = ngx_http_kvroute_events_stream_read;
    conn->write = ngx_http_kvroute_events_stream_write;
    conn->failed = ngx_http_kvroute_events_stream_failed;
    conn->data = stream;

    ngx_http_kvroute_conn_open(conn);

    c = conn->pc.connection;

    if (c) {

        /* a worker that shuts down closes it at once */

        c->idle = 1;
    }
}


void
ngx_http_kvroute_events_stream_close(ngx_http_kvroute_events_stream_t *stream)
{
    if (stream->rest) {
        ngx_free(stream->rest);
        stream->rest = NULL;
    }

    stream->held = 0;

    ngx_http_kvroute_events_stream_free(stream);
    ngx_http_kvroute_conn_close(&stream->conn);
}


void
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
                                               ? "connection refused"
                                               : "the connection failed");
}


static void
ngx_http_kvroute_events_stream_write(ngx_event_t *ev)
{
    ngx_connection_t         *c;
    ngx_http_kvroute_conn_t  *conn;

    c = ev->data;
    conn = c->data;

    if (ngx_http_kvroute_events_stream_send(conn->data) != NGX_OK) {
        ngx_http_kvroute_events_stream_end(conn->data, "the connection failed");
    }
}


ngx_int_t
ngx_http_kvroute_events_stream_send(ngx_http_kvroute_events_stream_t *stream)
{
    u_char      *p;
    ngx_int_t    rc;
    kvr_zmtp_t  *zmtp;

    zmtp = &stream->zmtp;
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

    /* used within one event only */
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
        ngx_http_kvroute_events_stream_end(stream, "the connection failed");
    }
}


/* waits for more input, or for a few milliseconds if there was much */
static ngx_int_t
ngx_http_kvroute_events_stream_pause(ngx_event_t *ev, size_t got)
{
    ngx_uint_t  flags;

    if (got < NGX_HTTP_KVROUTE_EVENTS_MUCH) {
        return ngx_handle_read_event(ev, 0);
    }

    /* the flag keeps the write event */

    flags = ngx_event_flags & NGX_USE_CLEAR_EVENT ? NGX_CLEAR_EVENT : 0;

    if (ev->active && ngx_del_event(ev, NGX_READ_EVENT, flags) != NGX_OK) {
        return NGX_ERROR;
    }

    /* the timer causes a read, whether or not there is input */

    ev->ready = 1;

    ngx_add_timer(ev, got < NGX_HTTP_KVROUTE_EVENTS_BUF
                      ? NGX_HTTP_KVROUTE_EVENTS_PAUSE
                      : NGX_HTTP_KVROUTE_EVENTS_SOON);

    return NGX_OK;
}


/* returns NGX_AGAIN if the stream is on hold, NGX_DONE if it is closed */
static ngx_int_t
ngx_http_kvroute_events_stream_take(ngx_http_kvroute_events_stream_t *stream,
    u_char *data, size_t len)
{
    ngx_int_t       rc;
    kvr_zmtp_e      found;
    const uint8_t  *p, *end;

    p = data;
    end = data + len;

    for ( ;; ) {
        found = kvr_zmtp_read(&stream->zmtp, &p, end);

        if (found == KVR_ZMTP_AGAIN) {
            return NGX_OK;
        }

        if (found == KVR_ZMTP_FAILED) {
            ngx_http_kvroute_events_stream_end(stream, stream->zmtp.error);
            return NGX_DONE;
        }

        if (found == KVR_ZMTP_LAST) {
            stream->skip = 0;
        }

        rc = stream->found(stream, found);

        if (rc == NGX_AGAIN) {
            rc = ngx_http_kvroute_events_stream_hold(stream, p,
                                                     (size_t) (end - p));

        } else if (rc == NGX_OK && found == KVR_ZMTP_LAST) {
            rc = ngx_http_kvroute_events_stream_memory(stream);
        }

        if (rc == NGX_ERROR) {
            ngx_http_kvroute_events_stream_end(stream, "the connection failed");
            return NGX_DONE;
        }

        if (rc != NGX_OK) {
            return rc;
        }

        if (found == KVR_ZMTP_END) {
            ngx_http_kvroute_events_stream_free(stream);
        }
    }
}


/* keeps what was not read */
static ngx_int_t
ngx_http_kvroute_events_stream_hold(ngx_http_kvroute_events_stream_t *stream,
    const u_char *p, size_t len)
{
    stream->rest = ngx_alloc(len + 1, stream->conn.pc.log);
    if (stream->rest == NULL) {
        return NGX_ERROR;
    }

    ngx_memcpy(stream->rest, p, len);

    stream->rest_len = len;
    stream->held = 1;

    return NGX_AGAIN;
}


/*
 * Allocates memory for the payload of a message, unless it is skipped, or the
 * stream was put on hold before the first message.
 */
static ngx_int_t
ngx_http_kvroute_events_stream_memory(ngx_http_kvroute_events_stream_t *stream)
{
    if (stream->skip || !stream->zmtp.numbered) {
        return NGX_OK;
    }

    stream->payload = ngx_alloc(stream->zmtp.size + 1, stream->conn.pc.log);
    stream->zmtp.memory = stream->payload;

    return stream->payload ? NGX_OK : NGX_ERROR;
}


static void
ngx_http_kvroute_events_stream_free(ngx_http_kvroute_events_stream_t *stream)
{
    if (stream->payload) {
        ngx_free(stream->payload);
        stream->payload = NULL;
    }
}


void
ngx_http_kvroute_events_stream_resume(ngx_http_kvroute_events_stream_t *stream)
{
    u_char     *rest;
    ngx_int_t   rc;

    rest = stream->rest;

    stream->rest = NULL;
    stream->held = 0;

    rc = ngx_http_kvroute_events_stream_memory(stream);

    if (rc != NGX_OK) {
        ngx_http_kvroute_events_stream_end(stream, "the connection failed");

    } else {
        rc = ngx_http_kvroute_events_stream_take(stream, rest,
                                                 stream->rest_len);
    }

    ngx_free(rest);

    if (rc == NGX_OK) {
        ngx_http_kvroute_events_stream_read(stream->conn.pc.connection->read);
    }
}
