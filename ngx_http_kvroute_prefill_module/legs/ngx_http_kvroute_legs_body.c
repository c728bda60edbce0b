
/*
 * Copyright (C) kvroute contributors
 */


/*
 * Bodies of legs.
 *
 * Private members are blanked in place.  The limits of the client's request are
 * left out of the prefill leg.  In a temporary file they are blanked in place,
 * too, and restored later: when nginx sends a body again, it starts each file
 * buffer where the previous one ended, so there must be no gap between them.
 */


#include "legs/ngx_http_kvroute_legs_int.h"


static ngx_uint_t ngx_http_kvroute_legs_json(ngx_http_request_t *r);
static ngx_int_t ngx_http_kvroute_legs_members(ngx_http_request_t *r,
    kvr_edit_t *edit, const kvr_json_names_t *names);
static ngx_int_t ngx_http_kvroute_legs_write(ngx_chain_t *cl, uint64_t offset,
    size_t len, u_char *save, u_char *src);
static ngx_int_t ngx_http_kvroute_legs_piece(ngx_buf_t *b, off_t from,
    size_t len, u_char *save, u_char *src);
static ngx_uint_t ngx_http_kvroute_legs_grpc(ngx_http_request_t *r);
static ngx_chain_t **ngx_http_kvroute_legs_part(ngx_http_kvroute_legs_t *legs,
    off_t from, off_t to, ngx_chain_t **last);
static ngx_chain_t **ngx_http_kvroute_legs_text_end(
    ngx_http_kvroute_legs_t *legs, u_char *text, size_t len,
    ngx_chain_t **last);


/* bytes of a file blanked at a time */
#define NGX_HTTP_KVROUTE_LEGS_BLANK  65536


static ngx_str_t  ngx_http_kvroute_legs_type = ngx_string("content-type");


/*
 * Cuts private members from the body of any request.  Method, path and type do
 * not matter, because engines have readers that ignore them.  A body that may
 * be JSON and cannot be read is refused.
 */
ngx_int_t
ngx_http_kvroute_legs_clean(ngx_http_request_t *r)
{
    ngx_int_t    rc;
    ngx_uint_t   i;
    kvr_edit_t   edit;

    rc = ngx_http_kvroute_request_readable(r);

    if (rc == NGX_DECLINED || ngx_http_kvroute_legs_grpc(r)) {
        return NGX_OK;
    }

    /* a compressed body may be JSON */

    if (rc != NGX_HTTP_UNSUPPORTED_MEDIA_TYPE
        && !ngx_http_kvroute_legs_json(r))
    {
        return NGX_OK;
    }

    if (rc != NGX_OK) {
        return rc;
    }

    if (ngx_http_kvroute_legs_members(r, &edit, kvr_connector_private())
        != NGX_OK)
    {
        ngx_log_error(NGX_LOG_INFO, r->connection->log, 0,
                      "kvroute_prefill: client sent a JSON body that cannot be "
                      "parsed");

        return NGX_HTTP_BAD_REQUEST;
    }

    for (i = 0; i < edit.n; i++) {
        if (ngx_http_kvroute_legs_write(r->request_body->bufs,
                                        edit.cut[i].offset, edit.cut[i].len,
                                        NULL, NULL)
            != NGX_OK)
        {
            return NGX_HTTP_INTERNAL_SERVER_ERROR;
        }
    }

    return NGX_OK;
}


/* whether it may be an object or an array of JSON, by its first bytes */
static ngx_uint_t
ngx_http_kvroute_legs_json(ngx_http_request_t *r)
{
    kvr_window_t  window;

    if (ngx_http_kvroute_request_window(r, &window) != NGX_OK) {
        return 1;
    }

    return kvr_edit_begins(kvr_window_fetch, &window) || window.failed;
}


/* finds members; NGX_DECLINED: the body is not JSON, or cannot be read */
static ngx_int_t
ngx_http_kvroute_legs_members(ngx_http_request_t *r, kvr_edit_t *edit,
    const kvr_json_names_t *names)
{
    int           rc;
    kvr_window_t  window;

    if (ngx_http_kvroute_request_window(r, &window) != NGX_OK) {
        return NGX_DECLINED;
    }

    rc = kvr_edit_find(edit, names, kvr_window_fetch, &window);

    return (window.failed || rc != KVR_OK) ? NGX_DECLINED : NGX_OK;
}


/*
 * Whether the body is a message of gRPC, passed on by grpc_pass.  In other
 * locations, and with other types, an engine may read it as JSON.
 */
static ngx_uint_t
ngx_http_kvroute_legs_grpc(ngx_http_request_t *r)
{
    size_t            len;
    ngx_list_t       *headers;
    ngx_table_elt_t  *h;

    if (!ngx_http_kvroute_pass_grpc(r->loc_conf)) {
        return 0;
    }

    headers = &r->headers_in.headers;

    h = ngx_http_kvroute_headers_next(headers, &ngx_http_kvroute_legs_type,
                                      NULL);

    if (h == NULL
        || ngx_http_kvroute_headers_next(headers, &ngx_http_kvroute_legs_type,
                                         h))
    {
        return 0;
    }

    len = h->value.len;

    return (len == sizeof("application/grpc") - 1
            && ngx_strncasecmp(h->value.data, (u_char *) "application/grpc",
                               len)
               == 0)
           || (len == sizeof("application/grpc+proto") - 1
               && ngx_strncasecmp(h->value.data,
                                  (u_char *) "application/grpc+proto", len)
                  == 0);
}


ngx_int_t
ngx_http_kvroute_legs_find(ngx_http_kvroute_legs_t *legs)
{
    if (ngx_http_kvroute_legs_members(legs->request, &legs->edit,
                                      legs->connector->limits)
        != NGX_OK)
    {
        return NGX_DECLINED;
    }

    legs->members = legs->edit.kept + legs->edit.n;

    return NGX_OK;
}


ngx_int_t
ngx_http_kvroute_legs_cut(ngx_http_kvroute_legs_t *legs)
{
    size_t               len;
    u_char              *p;
    uint32_t             i;
    ngx_chain_t         *cl;
    ngx_http_request_t  *r;

    r = legs->request;

    if (ngx_http_kvroute_legs_find(legs) != NGX_OK) {
        return NGX_DECLINED;
    }

    for (i = 0, len = 0; i < legs->edit.n; i++) {
        len += legs->edit.cut[i].len;

        if (len > NGX_HTTP_KVROUTE_LEGS_SAVED) {
            return NGX_DECLINED;
        }
    }

    for (cl = legs->client->bufs; cl && !cl->buf->in_file; cl = cl->next) {
        /* void */
    }

    if (cl == NULL || len == 0) {
        return NGX_OK;
    }

    /* a mirror may send the client's body at any time */

    if (r->preserve_body) {
        return NGX_DECLINED;
    }

    legs->saved = ngx_pnalloc(r->pool, len);
    if (legs->saved == NULL) {
        return NGX_ERROR;
    }

    for (i = 0, p = legs->saved; i < legs->edit.n; i++) {

        if (ngx_http_kvroute_legs_write(legs->client->bufs,
                                        legs->edit.cut[i].offset,
                                        legs->edit.cut[i].len, p, NULL)
            != NGX_OK)
        {
            legs->edit.n = i;
            (void) ngx_http_kvroute_legs_restore(legs);

            return NGX_ERROR;
        }

        p += legs->edit.cut[i].len;
    }

    return NGX_OK;
}


ngx_int_t
ngx_http_kvroute_legs_restore(ngx_http_kvroute_legs_t *legs)
{
    u_char     *p;
    uint32_t    i;
    ngx_int_t   rc;

    if (legs->saved == NULL) {
        return NGX_OK;
    }

    rc = NGX_OK;

    for (i = 0, p = legs->saved; i < legs->edit.n; i++) {

        if (ngx_http_kvroute_legs_write(legs->client->bufs,
                                        legs->edit.cut[i].offset,
                                        legs->edit.cut[i].len, NULL, p)
            != NGX_OK)
        {
            rc = NGX_ERROR;
        }

        p += legs->edit.cut[i].len;
    }

    legs->edit.n = 0;

    return rc;
}


/* writes src, or spaces if it is NULL; save gets the old bytes, unless NULL */
static ngx_int_t
ngx_http_kvroute_legs_write(ngx_chain_t *cl, uint64_t offset, size_t len,
    u_char *save, u_char *src)
{
    off_t   size;
    size_t  n;

    for ( /* void */ ; cl && len; cl = cl->next) {
        size = ngx_buf_size(cl->buf);

        if (offset >= (uint64_t) size) {
            offset -= (uint64_t) size;
            continue;
        }

        n = (size_t) ngx_min(size - (off_t) offset, (off_t) len);

        if (ngx_http_kvroute_legs_piece(cl->buf, (off_t) offset, n, save, src)
            != NGX_OK)
        {
            return NGX_ERROR;
        }

        offset = 0;
        len -= n;
        save = save ? save + n : NULL;
        src = src ? src + n : NULL;
    }

    return len ? NGX_ERROR : NGX_OK;
}


static ngx_int_t
ngx_http_kvroute_legs_piece(ngx_buf_t *b, off_t from, size_t len, u_char *save,
    u_char *src)
{
    size_t   n;
    u_char  *p;

    static u_char  blanks[NGX_HTTP_KVROUTE_LEGS_BLANK];

    if (ngx_buf_in_memory(b)) {
        p = b->pos + from;

        if (save) {
            ngx_memcpy(save, p, len);
        }

        if (src) {
            ngx_memcpy(p, src, len);

        } else {
            ngx_memset(p, ' ', len);
        }

        return NGX_OK;
    }

    from += b->file_pos;

    if (save && ngx_read_file(b->file, save, len, from) != (ssize_t) len) {
        return NGX_ERROR;
    }

    if (blanks[0] != ' ') {
        ngx_memset(blanks, ' ', sizeof(blanks));
    }

    while (len) {
        n = src ? len : ngx_min(len, sizeof(blanks));

        if (ngx_write_file(b->file, src ? src : blanks, n, from)
            != (ssize_t) n)
        {
            return NGX_ERROR;
        }

        from += n;
        len -= n;
    }

    return NGX_OK;
}


ngx_chain_t *
ngx_http_kvroute_legs_append(ngx_http_kvroute_legs_t *legs, u_char *text,
    size_t len, off_t *length)
{
    ngx_chain_t  *out, **last;

    last = ngx_http_kvroute_legs_part(legs, 0, (off_t) legs->edit.end, &out);
    last = ngx_http_kvroute_legs_text_end(legs, text, len, last);

    *length = (off_t) (legs->edit.end + len);

    return last ? out : NULL;
}


ngx_chain_t *
ngx_http_kvroute_legs_without(ngx_http_kvroute_legs_t *legs, u_char *text,
    size_t len, off_t *length)
{
    off_t         from, to;
    uint32_t      i;
    kvr_edit_t   *edit;
    ngx_chain_t  *out, **last;

    edit = &legs->edit;
    last = &out;
    from = 0;

    *length = (off_t) len;

    for (i = 0; i <= edit->n && last; i++) {
        to = (off_t) (i < edit->n ? edit->cut[i].offset : edit->end);

        last = ngx_http_kvroute_legs_part(legs, from, to, last);
        *length += to - from;

        if (i < edit->n) {
            from = to + (off_t) edit->cut[i].len;
        }
    }

    last = ngx_http_kvroute_legs_text_end(legs, text, len, last);

    return last ? out : NULL;
}


/* appends a part of the client's body to a chain; NULL: no memory */
static ngx_chain_t **
ngx_http_kvroute_legs_part(ngx_http_kvroute_legs_t *legs, off_t from, off_t to,
    ngx_chain_t **last)
{
    off_t         size, skip;
    ngx_buf_t    *b;
    ngx_pool_t   *pool;
    ngx_chain_t  *cl, *in;

    pool = legs->request->pool;

    for (in = legs->client->bufs; in && to > 0; in = in->next) {

        size = ngx_buf_size(in->buf);
        skip = ngx_min(from, size);

        if (skip < ngx_min(size, to)) {

            cl = ngx_alloc_chain_link(pool);
            b = ngx_alloc_buf(pool);

            if (cl == NULL || b == NULL) {
                return NULL;
            }

            *b = *in->buf;
            b->last_buf = 0;

            if (ngx_buf_in_memory(b)) {
                b->last = b->pos + ngx_min(size, to);
                b->pos += skip;
                b->start = b->pos;

            } else {
                b->file_last = b->file_pos + ngx_min(size, to);
                b->file_pos += skip;
            }

            cl->buf = b;
            *last = cl;
            last = &cl->next;
        }

        from -= skip;
        to -= size;
    }

    *last = NULL;

    return to > 0 ? NULL : last;
}


static ngx_chain_t **
ngx_http_kvroute_legs_text_end(ngx_http_kvroute_legs_t *legs, u_char *text,
    size_t len, ngx_chain_t **last)
{
    ngx_buf_t    *b;
    ngx_chain_t  *cl;

    cl = ngx_alloc_chain_link(legs->request->pool);
    b = ngx_calloc_buf(legs->request->pool);

    if (cl == NULL || b == NULL || last == NULL) {
        return NULL;
    }

    b->start = text;
    b->pos = text;
    b->last = text + len;
    b->end = b->last;
    b->memory = 1;
    b->last_buf = 1;

    cl->buf = b;
    cl->next = NULL;
    *last = cl;

    return &cl->next;
}
