
/*
 * Copyright (C) kvroute contributors
 */


/* Responses of the module itself. */


#include "request/ngx_http_kvroute_request.h"


/* the longest text of an error */
#define NGX_HTTP_KVROUTE_ERROR_LEN  128


ngx_int_t
ngx_http_kvroute_send_json(ngx_http_request_t *r, cJSON *json, cJSON *part)
{
    char       *text;
    ngx_int_t   rc;

    text = cJSON_PrintUnformatted(part);

    cJSON_Delete(json);

    if (text == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    rc = ngx_http_kvroute_send_text(r, NGX_HTTP_OK, text);

    cJSON_free(text);

    return rc;
}


ngx_uint_t
ngx_http_kvroute_send_paged(ngx_http_request_t *r)
{
    ngx_uint_t                 i;
    ngx_http_err_page_t       *page;
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);

    if (clcf->error_pages) {
        page = clcf->error_pages->elts;

        for (i = 0; i < clcf->error_pages->nelts; i++) {
            if (page[i].status == NGX_HTTP_TOO_MANY_REQUESTS) {
                return 1;
            }
        }
    }

    return 0;
}


ngx_int_t
ngx_http_kvroute_send_error(ngx_http_request_t *r, ngx_uint_t status,
    const char *text)
{
    size_t   len;
    u_char   buf[64 + 6 * NGX_HTTP_KVROUTE_ERROR_LEN], *p;

    len = ngx_min(ngx_strlen(text), NGX_HTTP_KVROUTE_ERROR_LEN);

    p = ngx_sprintf(buf, "{\"error\":{\"status\":%ui,\"text\":\"", status);
    p = (u_char *) ngx_escape_json(p, (u_char *) text, len);
    (void) ngx_sprintf(p, "\"}}%Z");

    return ngx_http_kvroute_send_text(r, status, (char *) buf);
}


ngx_int_t
ngx_http_kvroute_send_text(ngx_http_request_t *r, ngx_uint_t status,
    const char *text)
{
    size_t        len;
    ngx_buf_t    *b;
    ngx_chain_t   out;

    len = ngx_strlen(text);

    b = ngx_create_temp_buf(r->pool, len + 1);
    if (b == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    b->last = ngx_cpymem(b->pos, text, len);
    *b->last++ = LF;

    out.buf = b;
    out.next = NULL;

    ngx_str_set(&r->headers_out.content_type, "application/json");

    return ngx_http_kvroute_send_chain(r, status, &out);
}


ngx_int_t
ngx_http_kvroute_send_not_allowed(ngx_http_request_t *r, const char *allow,
    const char *text)
{
    if (ngx_http_kvroute_headers_add(r, "Allow", allow) == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    return ngx_http_kvroute_send_error(r, NGX_HTTP_NOT_ALLOWED, text);
}


ngx_int_t
ngx_http_kvroute_send_chain(ngx_http_request_t *r, ngx_uint_t status,
    ngx_chain_t *out)
{
    off_t         size;
    ngx_int_t     rc;
    ngx_chain_t  *cl;

    size = 0;

    for (cl = out; cl; cl = cl->next) {
        size += cl->buf->last - cl->buf->pos;

        if (cl->next == NULL) {
            cl->buf->last_buf = (r == r->main) ? 1 : 0;
            cl->buf->last_in_chain = 1;
        }
    }

    if (ngx_http_kvroute_headers_add(r, "Cache-Control", "no-store") == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    r->headers_out.content_type_len = r->headers_out.content_type.len;
    r->headers_out.status = status;
    r->headers_out.content_length_n = size;

    rc = ngx_http_send_header(r);

    if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) {
        return rc;
    }

    return ngx_http_output_filter(r, out);
}
