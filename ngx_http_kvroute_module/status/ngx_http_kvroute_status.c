
/*
 * Copyright (C) kvroute contributors
 */


/*
 * The status: which format a request is for, and how answers are sent.  Below
 * a location "/kvroute/" these are
 *
 *     /kvroute/              the page
 *     /kvroute/json[/...]    JSON, or a part of it
 *     /kvroute/metrics       text for Prometheus
 *
 * and if the directive names a format it is the only one.
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
    u_char           *p;
    size_t            len;
    uintptr_t         escape;
    ngx_table_elt_t  *location;

    ngx_http_clear_location(r);

    location = ngx_list_push(&r->headers_out.headers);
    if (location == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    escape = 2 * ngx_escape_uri(NULL, r->uri.data, r->uri.len,
                                NGX_ESCAPE_URI);
    len = r->uri.len + escape + 1;

    p = ngx_pnalloc(r->pool, len);
    if (p == NULL) {
        location->hash = 0;
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    location->hash = 1;
    ngx_http_kvroute_header_end(location);
    ngx_str_set(&location->key, "Location");
    location->value.data = p;
    location->value.len = len;

    if (escape) {
        p = (u_char *) ngx_escape_uri(p, r->uri.data, r->uri.len,
                                      NGX_ESCAPE_URI);
    } else {
        p = ngx_cpymem(p, r->uri.data, r->uri.len);
    }

    *p = '/';

    r->headers_out.location = location;

    return NGX_HTTP_MOVED_PERMANENTLY;
}


/* sends a text that cJSON has made, and frees it */
ngx_int_t
ngx_http_kvroute_send_json(ngx_http_request_t *r, ngx_uint_t status,
    char *text)
{
    size_t        len;
    ngx_buf_t    *b;
    ngx_chain_t   out;

    if (text == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    len = ngx_strlen(text);

    b = ngx_create_temp_buf(r->pool, len + 1);

    if (b) {
        b->last = ngx_cpymem(b->pos, text, len);
        *b->last++ = LF;
    }

    cJSON_free(text);

    if (b == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    out.buf = b;
    out.next = NULL;

    ngx_str_set(&r->headers_out.content_type, "application/json");

    return ngx_http_kvroute_send_chain(r, status, &out);
}


ngx_int_t
ngx_http_kvroute_send_error(ngx_http_request_t *r, ngx_uint_t status,
    const char *text)
{
    char   *s;
    cJSON  *json, *error;

    json = cJSON_CreateObject();
    error = cJSON_AddObjectToObject(json, "error");

    cJSON_AddNumberToObject(error, "status", (double) status);
    cJSON_AddStringToObject(error, "text", text);

    s = cJSON_PrintUnformatted(json);

    cJSON_Delete(json);

    return ngx_http_kvroute_send_json(r, status, s);
}


/* allow: the methods that may be used here, by their names */
ngx_int_t
ngx_http_kvroute_send_not_allowed(ngx_http_request_t *r, const char *allow,
    const char *text)
{
    ngx_table_elt_t  *h;

    h = ngx_list_push(&r->headers_out.headers);
    if (h == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    h->hash = 1;
    ngx_http_kvroute_header_end(h);
    ngx_str_set(&h->key, "Allow");
    h->value.data = (u_char *) allow;
    h->value.len = ngx_strlen(allow);

    return ngx_http_kvroute_send_error(r, NGX_HTTP_NOT_ALLOWED, text);
}


/* sends all of an answer whose type is set; the chain is not empty */
ngx_int_t
ngx_http_kvroute_send_chain(ngx_http_request_t *r, ngx_uint_t status,
    ngx_chain_t *out)
{
    off_t             size;
    ngx_int_t         rc;
    ngx_chain_t      *cl;
    ngx_table_elt_t  *h;

    size = 0;

    for (cl = out; cl; cl = cl->next) {
        size += cl->buf->last - cl->buf->pos;

        if (cl->next == NULL) {
            cl->buf->last_buf = (r == r->main) ? 1 : 0;
            cl->buf->last_in_chain = 1;
        }
    }

    h = ngx_list_push(&r->headers_out.headers);
    if (h == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    h->hash = 1;
    ngx_http_kvroute_header_end(h);
    ngx_str_set(&h->key, "Cache-Control");
    ngx_str_set(&h->value, "no-store");

    r->headers_out.content_type_len = r->headers_out.content_type.len;
    r->headers_out.status = status;
    r->headers_out.content_length_n = size;

    rc = ngx_http_send_header(r);

    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return rc;
    }

    return ngx_http_output_filter(r, out);
}
