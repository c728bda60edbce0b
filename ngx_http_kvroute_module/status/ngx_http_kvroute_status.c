
/*
 * Copyright (C) kvroute contributors
 */


/*
 * The status: selects the format of a request, and sends the page.  Below a
 * location "/kvroute/" there are
 *
 *     /kvroute/              the page
 *     /kvroute/json[/...]    JSON, or a part of it
 *     /kvroute/metrics       text for Prometheus
 *
 * If the directive names a format, it is the only one.
 */


#include "status/ngx_http_kvroute_status.h"


static ngx_int_t ngx_http_kvroute_status_page_send(ngx_http_request_t *r);
static ngx_int_t ngx_http_kvroute_status_redirect(ngx_http_request_t *r);


ngx_int_t
ngx_http_kvroute_status_handler(ngx_http_request_t *r)
{
    ngx_int_t                     rc;
    ngx_str_t                     path;
    ngx_http_core_loc_conf_t     *clcf;
    ngx_http_kvroute_loc_conf_t  *klcf;

    rc = ngx_http_discard_request_body(r);
    if (rc != NGX_OK) {
        return rc;
    }

    if (!(r->method & (NGX_HTTP_GET|NGX_HTTP_HEAD))) {
        return ngx_http_kvroute_send_not_allowed(r, "GET, HEAD",
                                                 "the status is read-only");
    }

    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);
    klcf = ngx_http_get_module_loc_conf(r, ngx_http_kvroute_module);

    ngx_str_null(&path);

    if (klcf->prefix && clcf->name.len <= r->uri.len) {
        path.data = r->uri.data + clcf->name.len;
        path.len = r->uri.len - clcf->name.len;
    }

    switch (klcf->status) {

    case NGX_HTTP_KVROUTE_STATUS_JSON:
        return ngx_http_kvroute_status_json(r, &path);

    case NGX_HTTP_KVROUTE_STATUS_PROM:
        return ngx_http_kvroute_status_prom(r);

    case NGX_HTTP_KVROUTE_STATUS_HTML:
        return ngx_http_kvroute_status_page_send(r);

    default:
        break;
    }

    /* links in the page are relative to its folder */

    if (path.len == 0 && r->uri.data[r->uri.len - 1] != '/') {
        return ngx_http_kvroute_status_redirect(r);
    }

    if (path.len && path.data[0] == '/') {
        path.data++;
        path.len--;
    }

    if (path.len == 0) {
        return ngx_http_kvroute_status_page_send(r);
    }

    if (path.len == 7 && ngx_strncmp(path.data, "metrics", 7) == 0) {
        return ngx_http_kvroute_status_prom(r);
    }

    if (path.len >= 4 && ngx_strncmp(path.data, "json", 4) == 0
        && (path.len == 4 || path.data[4] == '/'))
    {
        path.data += 4;
        path.len -= 4;

        return ngx_http_kvroute_status_json(r, &path);
    }

    return ngx_http_kvroute_send_error(r, NGX_HTTP_NOT_FOUND,
                                       "no such status");
}


static ngx_int_t
ngx_http_kvroute_status_page_send(ngx_http_request_t *r)
{
    ngx_buf_t    *b;
    ngx_chain_t   out;

    b = ngx_calloc_buf(r->pool);
    if (b == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    b->pos = (u_char *) ngx_http_kvroute_status_page;
    b->last = b->pos + ngx_http_kvroute_status_page_len;
    b->memory = 1;

    out.buf = b;
    out.next = NULL;

    ngx_str_set(&r->headers_out.content_type, "text/html; charset=utf-8");

    return ngx_http_kvroute_send_chain(r, NGX_HTTP_OK, &out);
}


static ngx_int_t
ngx_http_kvroute_status_redirect(ngx_http_request_t *r)
{
    u_char     *p, *last;
    uintptr_t   escape;

    escape = ngx_escape_uri(NULL, r->uri.data, r->uri.len, NGX_ESCAPE_URI);

    p = ngx_pnalloc(r->pool, r->uri.len + 2 * escape + 2);
    if (p == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    last = escape ? (u_char *) ngx_escape_uri(p, r->uri.data, r->uri.len,
                                              NGX_ESCAPE_URI)
                  : ngx_cpymem(p, r->uri.data, r->uri.len);

    (void) ngx_cpymem(last, "/", 2);

    ngx_http_clear_location(r);

    r->headers_out.location = ngx_http_kvroute_headers_add(r, "Location",
                                                           (char *) p);

    return r->headers_out.location ? NGX_HTTP_MOVED_PERMANENTLY
                                   : NGX_HTTP_INTERNAL_SERVER_ERROR;
}
