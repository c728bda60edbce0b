#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "base/engine_http.h"


/*
 * libevent does not notice a client that closes the connection while its reply
 * is being made; it closes a connection by one timeout in any state; and it
 * cannot cut a reply.  This file does.
 */


#define kve_conn_slot(p)                                                     \
    ((kve_mix((uint64_t) (uintptr_t) (p))) % KVE_CONN_SLOTS)


static void kve_conn_closed(struct evhttp_connection *evcon, void *data);
static void kve_conn_free(kve_conn_t *c);


const char *
kve_http_header(struct evhttp_request *req, const char *name)
{
    return evhttp_find_header(evhttp_request_get_input_headers(req), name);
}


static struct bufferevent *
kve_conn_accept(struct event_base *base, void *data)
{
    kve_server_t  *s;

    s = data;
    s->counters.connections++;

    return bufferevent_socket_new(base, -1, BEV_OPT_CLOSE_ON_FREE);
}


static kve_conn_t *
kve_conn_get(kve_server_t *s, struct evhttp_request *req)
{
    int                        one;
    kve_conn_t                *c, **slot;
    struct evhttp_connection  *evcon;

    evcon = evhttp_request_get_connection(req);
    slot = &s->conns[kve_conn_slot(evcon)];

    for (c = *slot; c; c = c->next) {
        if (c->evcon == evcon) {
            return c;
        }
    }

    c = calloc(1, sizeof(kve_conn_t));
    if (c == NULL) {
        abort();
    }

    c->server = s;
    c->evcon = evcon;
    c->bev = evhttp_connection_get_bufferevent(evcon);
    c->next = *slot;

    if (c->next) {
        c->next->prev = c;
    }

    *slot = c;
    s->nconns++;

    one = 1;
    (void) setsockopt(bufferevent_getfd(c->bev), IPPROTO_TCP, TCP_NODELAY,
                      &one, sizeof(int));

    evhttp_connection_set_closecb(evcon, kve_conn_closed, c);

    return c;
}


/* while a reply is being made, only the end of the connection matters */

static void
kve_conn_busy(kve_conn_t *c, struct evhttp_request *req)
{
    void                *arg;
    bufferevent_data_cb  reader, writer;
    bufferevent_event_cb event;

    c->http = req;
    c->requests++;

    bufferevent_set_timeouts(c->bev, NULL, NULL);
    bufferevent_getcb(c->bev, &reader, &writer, &event, &arg);
    bufferevent_setcb(c->bev, NULL, writer, event, arg);
    bufferevent_enable(c->bev, EV_READ);
}


/* the reply is sent, or cut: the connection waits for the next request */

static void
kve_conn_complete(struct evhttp_request *req, void *data)
{
    double          seconds;
    kve_conn_t     *c;
    struct timeval  tv;

    (void) req;

    c = data;
    c->http = NULL;
    seconds = c->server->settings.keepalive_timeout;

    if (seconds > 0) {
        tv.tv_sec = (time_t) seconds;
        tv.tv_usec = (suseconds_t) ((seconds - tv.tv_sec) * 1e6);
        bufferevent_set_timeouts(c->bev, &tv, NULL);
    }
}


static void
kve_conn_closed(struct evhttp_connection *evcon, void *data)
{
    kve_job_t              *job;
    kve_conn_t             *c;
    struct evhttp_request  *req;

    (void) evcon;

    c = data;
    job = c->job;
    req = c->http;

    if (job) {
        c->job = NULL;
        c->gone(job, c->closing);
    }

    /*
     * after a close by the client we free the request, otherwise libevent does
     */

    if (req && !c->closing) {
        evhttp_request_free(req);
    }

    kve_conn_free(c);
}


static void
kve_conn_free(kve_conn_t *c)
{
    kve_server_t  *s;

    s = c->server;

    if (c->prev) {
        c->prev->next = c->next;

    } else {
        s->conns[kve_conn_slot(c->evcon)] = c->next;
    }

    if (c->next) {
        c->next->prev = c->prev;
    }

    s->nconns--;

    if (c->doom) {
        event_free(c->doom);
    }

    if (c->later) {
        event_free(c->later);
    }

    free(c);
}


static void
kve_conn_kill(kve_conn_t *c)
{
    struct linger  linger;

    if (c->reset) {
        linger.l_onoff = 1;
        linger.l_linger = 0;
        (void) setsockopt(bufferevent_getfd(c->bev), SOL_SOCKET, SO_LINGER,
                          &linger, sizeof(struct linger));
    }

    c->closing = 1;
    evhttp_connection_free(c->evcon);
}


static void
kve_conn_doomed(evutil_socket_t fd, short what, void *data)
{
    kve_conn_t  *c;

    (void) fd;
    (void) what;

    c = data;

    /* data written before has to arrive first */

    if (evbuffer_get_length(bufferevent_get_output(c->bev)) == 0
        || ++c->doom_ticks > 500)
    {
        kve_conn_kill(c);
    }
}


/* not at once: a caller in libevent can be using the connection */

void
kve_http_doom(kve_conn_t *c, int reset)
{
    struct timeval  tv = { 0, 2000 };

    c->reset = reset;

    if (c->doom) {
        return;
    }

    c->doom = event_new(c->server->engine->base, -1, EV_PERSIST,
                        kve_conn_doomed, c);
    event_add(c->doom, &tv);
}


/* closes all connections of a replica, like the death of its process */

void
kve_conns_kill(kve_server_t *s, const kve_conn_t *except)
{
    int          i;
    kve_conn_t  *c, *next;

    for (i = 0; i < KVE_CONN_SLOTS; i++) {
        for (c = s->conns[i]; c; c = next) {
            next = c->next;

            if (c != except) {
                c->reset = !s->engine->exiting;
                kve_conn_kill(c);
            }
        }
    }
}


static void
kve_conn_later(evutil_socket_t fd, short what, void *data)
{
    kve_conn_t  *c;

    (void) fd;
    (void) what;

    c = data;
    event_free(c->later);
    c->later = NULL;

    c->handler(c->server, c, c->http);
}


void
kve_http_later(kve_conn_t *c, struct evhttp_request *req, double seconds,
    kve_handler_pt handler)
{
    struct timeval  tv;

    c->http = req;
    c->handler = handler;

    tv.tv_sec = (time_t) seconds;
    tv.tv_usec = (suseconds_t) ((seconds - tv.tv_sec) * 1e6);

    c->later = event_new(c->server->engine->base, -1, 0, kve_conn_later, c);
    event_add(c->later, &tv);
}


void
kve_http_raw(kve_conn_t *c, const void *data, size_t len)
{
    bufferevent_write(c->bev, data, len);
    bufferevent_enable(c->bev, EV_WRITE);
}


/* headers of every reply */

void
kve_http_headers(struct evhttp_request *req, kve_conn_t *c)
{
    char               s[64];
    kve_server_t      *server;
    kve_settings_t    *set;
    struct evkeyvalq  *h;

    server = c->server;
    set = &server->settings;
    h = evhttp_request_get_output_headers(req);

    snprintf(s, sizeof(s), "%d", server->index);
    evhttp_add_header(h, "X-Engine-Replica", s);

    if (server->engine->opt.dialect <= KVE_VLLM_OLD
        || server->engine->opt.dialect == KVE_SGLANG
        || server->engine->opt.dialect == KVE_TRTLLM)
    {
        evhttp_add_header(h, "Server", "uvicorn");

    } else if (server->engine->opt.dialect == KVE_LLAMACPP) {
        evhttp_add_header(h, "Server", "llama.cpp");

        snprintf(s, sizeof(s), "timeout=%.0f, max=%d", set->keepalive_timeout,
                 set->keepalive_max);
        evhttp_add_header(h, "Keep-Alive", s);
    }

    /* HTTP/1.0 has no other end of a reply of unknown length */

    if ((set->keepalive_max && c->requests >= set->keepalive_max)
        || (req->major == 1 && req->minor == 0
            && evhttp_find_header(h, "Content-Length") == NULL))
    {
        evhttp_remove_header(h, "Connection");
        evhttp_add_header(h, "Connection", "close");
    }
}


void
kve_http_reply(struct evhttp_request *req, kve_conn_t *c, int status,
    const char *type, const void *data, size_t len)
{
    char               s[32];
    struct evbuffer   *b;
    struct evkeyvalq  *h;

    h = evhttp_request_get_output_headers(req);
    evhttp_add_header(h, "Content-Type", type);

    snprintf(s, sizeof(s), "%zu", len);
    evhttp_add_header(h, "Content-Length", s);
    kve_http_headers(req, c);

    b = evbuffer_new();
    evbuffer_add(b, data, len);

    c->http = NULL;
    evhttp_send_reply(req, status, NULL, b);
    evbuffer_free(b);
}


void
kve_http_json(struct evhttp_request *req, kve_conn_t *c, int status,
    kve_buf_t *b)
{
    kve_http_reply(req, c, status, "application/json", b->data, b->len);
    kve_buf_free(b);
}


/* each engine, and each API, has its own form of errors */

void
kve_http_error(struct evhttp_request *req, kve_conn_t *c, int status,
    kve_api_e api, const char *type, const char *message)
{
    kve_buf_t      b = { 0 };
    kve_dialect_e  dialect;

    dialect = c->server->engine->opt.dialect;

    if (api == KVE_MESSAGES) {
        kve_buf_str(&b, "{\"type\":\"error\",\"error\":{\"type\":");
        kve_buf_quote(&b, type);
        kve_buf_str(&b, ",\"message\":");
        kve_buf_quote(&b, message);
        kve_buf_str(&b, "}}");

    } else if (dialect == KVE_TGI) {
        kve_buf_str(&b, "{\"error\":");
        kve_buf_quote(&b, message);
        kve_buf_str(&b, ",\"error_type\":");
        kve_buf_quote(&b, type);
        kve_buf_str(&b, "}");

    } else {
        kve_buf_str(&b, dialect == KVE_SGLANG || dialect == KVE_VLLM_OLD
                        ? "{\"object\":\"error\",\"message\":"
                        : "{\"error\":{\"message\":");
        kve_buf_quote(&b, message);
        kve_buf_str(&b, ",\"type\":");
        kve_buf_quote(&b, type);
        kve_buf_printf(&b, ",\"param\":null,\"code\":%d", status);
        kve_buf_str(&b, dialect == KVE_SGLANG || dialect == KVE_VLLM_OLD
                        ? "}" : "}}");
    }

    kve_http_json(req, c, status, &b);
}


static void
kve_http_handle(struct evhttp_request *req, void *data)
{
    kve_conn_t    *c;
    kve_server_t  *s;

    s = data;
    c = kve_conn_get(s, req);

    kve_conn_busy(c, req);
    evhttp_request_set_on_complete_cb(req, kve_conn_complete, c);

    /* the process that accepted it has ended, and no other one runs */

    if (s->socket == NULL && c->requests == 1) {
        kve_http_doom(c, 1);
        return;
    }

    s->handler(s, c, req);
}


void
kve_http_setup(kve_server_t *s, kve_handler_pt handler)
{
    s->handler = handler;

    evhttp_set_max_headers_size(s->http, 256 * 1024);
    evhttp_set_max_body_size(s->http, KVE_BODY_MAX);
    evhttp_set_allowed_methods(s->http, EVHTTP_REQ_GET | EVHTTP_REQ_POST
                                        | EVHTTP_REQ_HEAD
                                        | EVHTTP_REQ_DELETE);
    evhttp_set_bevcb(s->http, kve_conn_accept, s);
    evhttp_set_gencb(s->http, kve_http_handle, s);
}
