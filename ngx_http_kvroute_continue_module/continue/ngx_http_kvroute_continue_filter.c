
/*
 * Copyright (C) kvroute contributors
 */


/*
 * Reads the events of an answer, and sends each one as soon as it is complete.
 * A client that reads slowly makes the server wait: input that was not read yet
 * stays in nginx's upstream.
 */


#include "continue/ngx_http_kvroute_continue.h"


static ngx_int_t ngx_http_kvroute_continue_begin(ngx_http_request_t *r);
static void ngx_http_kvroute_continue_cleanup(void *data);
static void ngx_http_kvroute_continue_mark(void *data);
static ngx_uint_t ngx_http_kvroute_continue_read(
    ngx_http_kvroute_continue_t *c);
static size_t ngx_http_kvroute_continue_events(ngx_http_kvroute_continue_t *c,
    u_char *p, size_t len);
static void ngx_http_kvroute_continue_keep(ngx_http_kvroute_continue_t *c,
    u_char *p, size_t len);
static size_t ngx_http_kvroute_continue_pass(ngx_http_kvroute_continue_t *c,
    u_char *p, size_t len);
static ngx_int_t ngx_http_kvroute_continue_grow(
    ngx_http_kvroute_continue_t *c, u_char **p, size_t used, size_t *size,
    size_t wanted);


/* bytes of a buffer for the client */
#define NGX_HTTP_KVROUTE_CONTINUE_BUF       4096

/* in r->buffered: the bit of nginx's SSI and sub filters */
#define NGX_HTTP_KVROUTE_CONTINUE_BUFFERED  0x08


static ngx_http_output_header_filter_pt  ngx_http_next_header_filter;
static ngx_http_output_body_filter_pt    ngx_http_next_body_filter;

static const ngx_http_kvroute_continue_calls_t
    *ngx_http_kvroute_continue_calls;


static ngx_int_t
ngx_http_kvroute_continue_header_filter(ngx_http_request_t *r)
{
    ngx_http_kvroute_continue_t  *c;

    c = ngx_http_get_module_ctx(r, ngx_http_kvroute_continue_module);

    if (c == NULL) {
        return r == r->main ? ngx_http_kvroute_continue_begin(r)
                            : ngx_http_next_header_filter(r);
    }

    if (c->state == NGX_HTTP_KVROUTE_CONTINUE_HELD) {
        return ngx_http_kvroute_continue_calls->header(c, r);
    }

    if (c->part != r) {
        return ngx_http_next_header_filter(r);
    }

    /* of a continuation neither the header nor an error page is sent */

    ngx_http_kvroute_continue_untimed(r);

    r->filter_need_in_memory = 1;
    c->broken = !ngx_http_kvroute_continue_streams(r);

    if (kvr_answer_rejects(r->headers_out.status)) {
        c->answer.cut = KVR_ANSWER_ENGINE;
    }

    ngx_http_kvroute_continue_at(c, ngx_http_kvroute_continue_attempt(r));

    return ngx_http_next_header_filter(r);
}


static ngx_int_t
ngx_http_kvroute_continue_begin(ngx_http_request_t *r)
{
    ngx_http_kvroute_continue_t       *c;
    ngx_http_kvroute_continue_conf_t  *conf;

    conf = ngx_http_get_module_loc_conf(r, ngx_http_kvroute_continue_module);

    if (!ngx_http_kvroute_continue_may(r, conf)) {
        return ngx_http_next_header_filter(r);
    }

    c = ngx_http_kvroute_continue_create(r, conf);
    if (c == NULL) {
        return NGX_ERROR;
    }

    c->part = r;

    ngx_http_kvroute_continue_wrap(c, r);
    ngx_http_kvroute_continue_at(c, ngx_http_kvroute_continue_attempt(r));

    return ngx_http_kvroute_continue_filter_header(c);
}


ngx_uint_t
ngx_http_kvroute_continue_may(ngx_http_request_t *r,
    ngx_http_kvroute_continue_conf_t *conf)
{
    return conf->on && r->method == NGX_HTTP_POST && !r->header_only
           && !r->post_action && ngx_http_kvroute_continue_streams(r)
           && kvr_answer_api(r->uri.data, r->uri.len) != KVR_ANSWER_APIS
           && ngx_http_kvroute_continue_attempt(r);
}


ngx_http_kvroute_continue_t *
ngx_http_kvroute_continue_create(ngx_http_request_t *r,
    ngx_http_kvroute_continue_conf_t *conf)
{
    ngx_pool_cleanup_t           *cln;
    ngx_http_kvroute_continue_t  *c;

    cln = ngx_pool_cleanup_add(r->pool, sizeof(ngx_http_kvroute_continue_t));
    if (cln == NULL) {
        return NULL;
    }

    c = cln->data;
    ngx_memzero(c, sizeof(ngx_http_kvroute_continue_t));

    cln->handler = ngx_http_kvroute_continue_cleanup;

    c->request = r;
    c->conf = conf;
    c->keepalive = r->keepalive;
    c->last = &c->out;

    c->answer.api = (uint8_t) kvr_answer_api(r->uri.data, r->uri.len);
    c->answer.quiet = ngx_http_kvroute_continue_asked(r);

    /* keep the body for a continuation */

    r->preserve_body = 1;

    ngx_http_set_ctx(r, c, ngx_http_kvroute_continue_module);

    return c;
}


ngx_int_t
ngx_http_kvroute_continue_ask(ngx_http_request_t *r)
{
    ngx_pool_cleanup_t  *cln;

    cln = ngx_pool_cleanup_add(r->pool, 0);
    if (cln == NULL) {
        return NGX_ERROR;
    }

    cln->handler = ngx_http_kvroute_continue_mark;

    return NGX_OK;
}


ngx_uint_t
ngx_http_kvroute_continue_asked(ngx_http_request_t *r)
{
    ngx_pool_cleanup_t  *cln;

    cln = r->pool->cleanup;

    while (cln && cln->handler != ngx_http_kvroute_continue_mark) {
        cln = cln->next;
    }

    return cln != NULL;
}


static void
ngx_http_kvroute_continue_mark(void *data)
{
    (void) data;
}


void
ngx_http_kvroute_continue_wrap(ngx_http_kvroute_continue_t *c,
    ngx_http_request_t *r)
{
    c->finalize = r->upstream->finalize_request;
    r->upstream->finalize_request = ngx_http_kvroute_continue_calls->finalize;

    r->filter_need_in_memory = 1;
}


void
ngx_http_kvroute_continue_untimed(ngx_http_request_t *r)
{
    ngx_event_t  *wev;

    wev = r->connection->write;
    wev->timedout = 0;

    if (wev->timer_set) {
        ngx_del_timer(wev);
    }
}


ngx_uint_t
ngx_http_kvroute_continue_streams(ngx_http_request_t *r)
{
    ngx_str_t            *type;
    ngx_http_upstream_t  *u;

    u = r->upstream;
    type = &r->headers_out.content_type;

    return u && r->headers_out.status == NGX_HTTP_OK
           && type->len >= sizeof("text/event-stream") - 1
           && ngx_strncasecmp(type->data, (u_char *) "text/event-stream",
                              sizeof("text/event-stream") - 1)
              == 0
           && (r->headers_out.content_encoding == NULL
               || r->headers_out.content_encoding->value.len == 0)
#if (NGX_HTTP_CACHE)
           && !u->cacheable && !r->cached
#endif
           && !u->store;
}


ngx_http_kvroute_attempt_t *
ngx_http_kvroute_continue_attempt(ngx_http_request_t *r)
{
    ngx_http_kvroute_ctx_t  *ctx;

    ctx = ngx_http_kvroute_request_get_ctx(r);

    return ctx && ctx->attempt && ctx->attempt->core.reservation.held
           && !ctx->attempt->conf->shadow ? ctx->attempt : NULL;
}


void
ngx_http_kvroute_continue_at(ngx_http_kvroute_continue_t *c,
    ngx_http_kvroute_attempt_t *at)
{
    kvr_registry_t  *registry;

    if (c->upstream == NULL && at) {
        c->upstream = at->conf;
    }

    c->peer = at ? at->core.reservation.peer : KVR_REGISTRY_NONE;
    c->drain = NULL;

    if (c->peer != KVR_REGISTRY_NONE) {
        registry = at->conf->zone->core.registry;
        c->drain = &registry->peer[registry->peer[c->peer].address].drain;
    }
}


static void
ngx_http_kvroute_continue_cleanup(void *data)
{
    ngx_http_kvroute_continue_t *c = data;

    if (c->move.posted) {
        ngx_delete_posted_event(&c->move);
    }

    if (c->deadline.posted) {
        ngx_delete_posted_event(&c->deadline);
    }

    if (c->deadline.timer_set) {
        ngx_del_timer(&c->deadline);
    }
}


static ngx_int_t
ngx_http_kvroute_continue_body_filter(ngx_http_request_t *r, ngx_chain_t *in)
{
    ngx_int_t                     rc;
    ngx_uint_t                    special;
    ngx_chain_t                  *cl;
    ngx_http_kvroute_continue_t  *c;

    c = ngx_http_get_module_ctx(r, ngx_http_kvroute_continue_module);

    if (c == NULL) {
        return ngx_http_next_body_filter(r, in);
    }

    if (c->state == NGX_HTTP_KVROUTE_CONTINUE_HELD) {
        rc = ngx_http_kvroute_continue_calls->body(c, r, in);

        if (rc != NGX_DECLINED) {
            return rc;
        }
    }

    /* drop what nginx sends at the end of a part */

    if (c->part != r || c->state == NGX_HTTP_KVROUTE_CONTINUE_ENDED) {

        for (cl = in; cl; cl = cl->next) {
            cl->buf->pos = cl->buf->last;
        }

        return in ? NGX_OK : ngx_http_next_body_filter(r, NULL);
    }

    if (c->state == NGX_HTTP_KVROUTE_CONTINUE_THROUGH) {
        return ngx_http_next_body_filter(r, in);
    }

    if (ngx_chain_add_copy(r->pool, &c->in, in) != NGX_OK) {
        return NGX_ERROR;
    }

    rc = NGX_OK;

    if (in == NULL || c->busy) {
        rc = ngx_http_next_body_filter(r, NULL);

        ngx_chain_update_chains(r->pool, &c->free, &c->busy, &c->out,
                                (ngx_buf_tag_t)
                                &ngx_http_kvroute_continue_module);
    }

    while (rc != NGX_ERROR && c->in && c->busy == NULL) {
        special = ngx_http_kvroute_continue_read(c);

        rc = ngx_http_kvroute_continue_send(c, r, special);
    }

    if (c->drain && kvr_drain_moves(c->drain)) {
        ngx_http_kvroute_continue_calls->moves(c);
    }

    if (c->in) {
        r->buffered |= NGX_HTTP_KVROUTE_CONTINUE_BUFFERED;

    } else {
        r->buffered &= ~NGX_HTTP_KVROUTE_CONTINUE_BUFFERED;
    }

    return rc;
}


ngx_int_t
ngx_http_kvroute_continue_drain(ngx_http_kvroute_continue_t *c)
{
    while (c->in) {
        (void) ngx_http_kvroute_continue_read(c);
    }

    c->part->buffered &= ~NGX_HTTP_KVROUTE_CONTINUE_BUFFERED;

    return ngx_http_kvroute_continue_send(c, c->part, 0);
}


/* Reads a buffer; returns the third argument for _send(). */
static ngx_uint_t
ngx_http_kvroute_continue_read(ngx_http_kvroute_continue_t *c)
{
    ngx_buf_t    *b;
    ngx_uint_t    special;
    ngx_chain_t  *cl;

    cl = c->in;
    b = cl->buf;
    special = b->last_buf ? NGX_HTTP_LAST
              : b->flush && !ngx_buf_in_memory(b) ? NGX_HTTP_FLUSH : 0;

    if (ngx_buf_in_memory(b) && b->last > b->pos) {
        ngx_http_kvroute_continue_bytes(c, b->pos,
                                        (size_t) (b->last - b->pos));
        b->pos = b->last;
    }

    c->in = cl->next;
    ngx_free_chain(c->request->pool, cl);

    return special;
}


void
ngx_http_kvroute_continue_bytes(ngx_http_kvroute_continue_t *c, u_char *p,
    size_t len)
{
    size_t  n;

    if (c->broken) {
        return;
    }

    if (c->state == NGX_HTTP_KVROUTE_CONTINUE_THROUGH) {
        ngx_http_kvroute_continue_put(c, p, len);
        return;
    }

    if (c->state == NGX_HTTP_KVROUTE_CONTINUE_PASSING) {
        n = ngx_http_kvroute_continue_pass(c, p, len);
        p += n;
        len -= n;
    }

    if (c->len == 0) {
        n = ngx_http_kvroute_continue_events(c, p, len);
        ngx_http_kvroute_continue_keep(c, p + n, len - n);
        return;
    }

    ngx_http_kvroute_continue_keep(c, p, len);

    if (c->len) {
        n = ngx_http_kvroute_continue_events(c, c->event, c->len);
        c->len -= n;
        ngx_memmove(c->event, c->event + n, c->len);
    }
}


/* Takes all complete events; returns their length. */
static size_t
ngx_http_kvroute_continue_events(ngx_http_kvroute_continue_t *c, u_char *p,
    size_t len)
{
    size_t         n, done, size;
    kvr_answer_t  *a;

    a = &c->answer;
    done = 0;

    for ( ;; ) {
        n = kvr_answer_scan(p + done, len - done, &c->from);

        if (n == 0) {
            return done;
        }

        size = ngx_min(a->len + n, NGX_HTTP_KVROUTE_CONTINUE_MAX);

        (void) ngx_http_kvroute_continue_grow(c, &a->text, a->len, &a->size,
                                              size);

        kvr_answer_event(a, p + done, n, ngx_http_kvroute_continue_put, c);

        done += n;
    }
}


/* Keeps an incomplete event. */
static void
ngx_http_kvroute_continue_keep(ngx_http_kvroute_continue_t *c, u_char *p,
    size_t len)
{
    if (len == 0) {
        return;
    }

    if (c->len + len > NGX_HTTP_KVROUTE_CONTINUE_MAX
        || ngx_http_kvroute_continue_grow(c, &c->event, c->len, &c->size,
                                          c->len + len)
           != NGX_OK)
    {
        c->answer.cut = KVR_ANSWER_LONG;
        c->state = NGX_HTTP_KVROUTE_CONTINUE_PASSING;
        c->line = c->len && c->event[c->len - 1] == LF;

        ngx_http_kvroute_continue_put(c, c->event, c->len);

        c->len = 0;
        c->from = 0;

        ngx_http_kvroute_continue_bytes(c, p, len);

        return;
    }

    ngx_memcpy(c->event + c->len, p, len);
    c->len += len;
}


/* Passes on an event that is too long to be kept; returns the bytes of it. */
static size_t
ngx_http_kvroute_continue_pass(ngx_http_kvroute_continue_t *c, u_char *p,
    size_t len)
{
    size_t  n;

    for (n = 0; n < len && c->state == NGX_HTTP_KVROUTE_CONTINUE_PASSING; n++) {

        if (p[n] == LF && c->line) {
            c->state = NGX_HTTP_KVROUTE_CONTINUE_READING;
        }

        c->line = (p[n] == LF || (c->line && p[n] == CR));
    }

    ngx_http_kvroute_continue_put(c, p, n);

    return n;
}


static ngx_int_t
ngx_http_kvroute_continue_grow(ngx_http_kvroute_continue_t *c, u_char **p,
    size_t used, size_t *size, size_t wanted)
{
    size_t       n;
    u_char      *new;
    ngx_pool_t  *pool;

    if (wanted <= *size) {
        return NGX_OK;
    }

    pool = c->request->pool;

    for (n = ngx_max(*size, 1024); n < wanted; n *= 2) { /* void */ }

    n = ngx_min(n, ngx_max(NGX_HTTP_KVROUTE_CONTINUE_MAX, wanted));

    new = ngx_pnalloc(pool, n);
    if (new == NULL) {
        return NGX_ERROR;
    }

    ngx_memcpy(new, *p, used);

    if (*p) {
        ngx_pfree(pool, *p);
    }

    *p = new;
    *size = n;

    return NGX_OK;
}


void
ngx_http_kvroute_continue_put(void *data, const uint8_t *p, size_t len)
{
    ngx_http_kvroute_continue_t *c = data;

    size_t        n;
    ngx_buf_t    *b;
    ngx_pool_t   *pool;
    ngx_chain_t  *cl;

    pool = c->request->pool;

    while (len) {
        b = c->buf;

        if (b == NULL || b->last == b->end) {

            cl = ngx_chain_get_free_buf(pool, &c->free);
            if (cl == NULL) {
                c->failed = 1;
                return;
            }

            b = cl->buf;

            if (b->start == NULL) {
                b->start = ngx_palloc(pool, NGX_HTTP_KVROUTE_CONTINUE_BUF);
                if (b->start == NULL) {
                    c->failed = 1;
                    return;
                }

                b->end = b->start + NGX_HTTP_KVROUTE_CONTINUE_BUF;
            }

            b->pos = b->start;
            b->last = b->start;
            b->tag = (ngx_buf_tag_t) &ngx_http_kvroute_continue_module;
            b->temporary = 1;
            b->flush = 1;

            c->buf = b;
            *c->last = cl;
            c->last = &cl->next;
        }

        n = ngx_min(len, (size_t) (b->end - b->last));

        b->last = ngx_cpymem(b->last, p, n);
        p += n;
        len -= n;
    }
}


ngx_int_t
ngx_http_kvroute_continue_send(ngx_http_kvroute_continue_t *c,
    ngx_http_request_t *r, ngx_uint_t special)
{
    ngx_int_t     rc;
    ngx_buf_t    *b;
    ngx_chain_t  *cl;

    if (c->failed) {
        return NGX_ERROR;
    }

    if (special) {
        cl = ngx_alloc_chain_link(c->request->pool);
        b = ngx_calloc_buf(c->request->pool);

        if (cl == NULL || b == NULL) {
            return NGX_ERROR;
        }

        b->last_buf = (special == NGX_HTTP_LAST);
        b->flush = (special == NGX_HTTP_FLUSH);

        cl->buf = b;
        *c->last = cl;
        c->last = &cl->next;
    }

    *c->last = NULL;
    c->buf = NULL;

    if (c->out == NULL) {
        return NGX_OK;
    }

    rc = ngx_http_next_body_filter(r, c->out);

    ngx_chain_update_chains(c->request->pool, &c->free, &c->busy, &c->out,
                            (ngx_buf_tag_t) &ngx_http_kvroute_continue_module);
    c->last = &c->out;

    return rc;
}


ngx_int_t
ngx_http_kvroute_continue_filter_header(ngx_http_kvroute_continue_t *c)
{
    if (c->state == NGX_HTTP_KVROUTE_CONTINUE_READING) {
        ngx_http_clear_content_length(c->request);
        ngx_http_clear_accept_ranges(c->request);
    }

    return ngx_http_next_header_filter(c->request);
}


void
ngx_http_kvroute_continue_filter_init(
    const ngx_http_kvroute_continue_calls_t *calls)
{
    ngx_http_kvroute_continue_calls = calls;

    ngx_http_next_header_filter = ngx_http_top_header_filter;
    ngx_http_top_header_filter = ngx_http_kvroute_continue_header_filter;

    ngx_http_next_body_filter = ngx_http_top_body_filter;
    ngx_http_top_body_filter = ngx_http_kvroute_continue_body_filter;
}
