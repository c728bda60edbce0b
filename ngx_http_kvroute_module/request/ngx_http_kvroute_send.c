
/*
 * Copyright (C) kvroute contributors
 */


/* Answers of our own: text that is there as a whole. */


#include "request/ngx_http_kvroute_request.h"

#include <cjson/cJSON.h>


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
