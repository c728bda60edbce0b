
/*
 * Copyright (C) kvroute contributors
 */


/*
 * Passes a request's body to the reader in core/: buffers as they are, or
 * gathered in windows (core/text/kvr_window.h) if they are small or in a file.
 */


#include "request/ngx_http_kvroute_request_int.h"

#include "core/text/kvr_window.h"


static void ngx_http_kvroute_body_window(ngx_http_request_t *r,
    kvr_window_t *window);
static void ngx_http_kvroute_body_piece(const void *place, kvr_piece_t *piece);
static long ngx_http_kvroute_body_file(const void *place, uint64_t offset,
    uint8_t *dst, size_t n);


/* bytes of a body that is read, and with a larger client_max_body_size */
#define NGX_HTTP_KVROUTE_BODY      (16 * 1024 * 1024)
#define NGX_HTTP_KVROUTE_BODY_MAX  (64 * 1024 * 1024)


static ngx_str_t  ngx_http_kvroute_body_encoding =
    ngx_string("content-encoding");


/* scratch memory of this worker, for reading one body */

static u_char             *ngx_http_kvroute_window;
static kvr_window_mark_t  *ngx_http_kvroute_marks;
static size_t              ngx_http_kvroute_max_marks;


ngx_int_t
ngx_http_kvroute_body_scratch(size_t size, ngx_log_t *log)
{
    size_t  n;

    ngx_http_kvroute_body_exit();

    n = kvr_window_marks(size);

    ngx_http_kvroute_window = ngx_alloc(KVR_WINDOWS * KVR_WINDOW_LEN, log);
    ngx_http_kvroute_marks = ngx_alloc(n * sizeof(kvr_window_mark_t), log);

    if (ngx_http_kvroute_window == NULL || ngx_http_kvroute_marks == NULL) {
        ngx_http_kvroute_body_exit();
        return NGX_ERROR;
    }

    ngx_http_kvroute_max_marks = n;

    return NGX_OK;
}


void
ngx_http_kvroute_body_exit(void)
{
    free(ngx_http_kvroute_window);
    free(ngx_http_kvroute_marks);

    ngx_http_kvroute_window = NULL;
    ngx_http_kvroute_marks = NULL;
}


ngx_int_t
ngx_http_kvroute_body_read(ngx_http_request_t *r, kvr_prompt_t *pr,
    kvr_prompt_conf_t *conf)
{
    int           rc;
    kvr_window_t  window;

    ngx_http_kvroute_body_window(r, &window);

    rc = kvr_prompt_read(pr, conf, kvr_window_fetch, &window);

    if (window.failed || rc == KVR_ERROR
        || (rc == KVR_AGAIN && !r->reading_body))
    {
        return NGX_DECLINED;
    }

    return NGX_OK;
}


ngx_int_t
ngx_http_kvroute_request_window(ngx_http_request_t *r, kvr_window_t *window)
{
    if (ngx_http_kvroute_window == NULL) {
        return NGX_DECLINED;
    }

    ngx_http_kvroute_body_window(r, window);

    return NGX_OK;
}


static void
ngx_http_kvroute_body_window(ngx_http_request_t *r, kvr_window_t *window)
{
    kvr_window_init(window, r->request_body->bufs,
                    ngx_http_kvroute_body_piece, ngx_http_kvroute_body_file,
                    ngx_http_kvroute_window, ngx_http_kvroute_marks,
                    ngx_http_kvroute_max_marks);
}


static void
ngx_http_kvroute_body_piece(const void *place, kvr_piece_t *piece)
{
    ngx_buf_t          *b;
    const ngx_chain_t  *cl;

    cl = place;
    b = cl->buf;

    piece->data = ngx_buf_in_memory(b) ? b->pos : NULL;
    piece->len = ngx_buf_size(b);
    piece->next = cl->next;
}


static long
ngx_http_kvroute_body_file(const void *place, uint64_t offset, uint8_t *dst,
    size_t n)
{
    ngx_buf_t          *b;
    const ngx_chain_t  *cl;

    cl = place;
    b = cl->buf;

    /* nginx may have closed the file */

    if (b->file->fd == NGX_INVALID_FILE) {
        return 0;
    }

    return ngx_read_file(b->file, dst, n, b->file_pos + (off_t) offset);
}


ngx_int_t
ngx_http_kvroute_request_readable(ngx_http_request_t *r)
{
    off_t                         size;
    ngx_chain_t                  *cl;
    ngx_table_elt_t              *h;

    if (r->request_body == NULL || r->request_body->bufs == NULL) {
        return NGX_DECLINED;
    }

    h = NULL;

    for ( ;; ) {
        h = ngx_http_kvroute_headers_next(&r->headers_in.headers,
                                          &ngx_http_kvroute_body_encoding, h);
        if (h == NULL) {
            break;
        }

        if (h->value.len != 8
            || ngx_strncasecmp(h->value.data, (u_char *) "identity", 8) != 0)
        {
            return NGX_HTTP_UNSUPPORTED_MEDIA_TYPE;
        }
    }

    size = 0;

    for (cl = r->request_body->bufs; cl; cl = cl->next) {
        size += ngx_buf_size(cl->buf);
    }

    size = ngx_max(size, r->headers_in.content_length_n);

    return size > (off_t) ngx_http_kvroute_request_limit(r)
           ? NGX_HTTP_REQUEST_ENTITY_TOO_LARGE : NGX_OK;
}


size_t
ngx_http_kvroute_request_limit(ngx_http_request_t *r)
{
    off_t                      size;
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_get_module_loc_conf(r, ngx_http_core_module);

    size = ngx_max(clcf->client_max_body_size, NGX_HTTP_KVROUTE_BODY);

    return (size_t) ngx_min(size, NGX_HTTP_KVROUTE_BODY_MAX);
}


ngx_int_t
ngx_http_kvroute_request_body_init(ngx_conf_t *cf)
{
    ngx_http_kvroute_main_conf_t  *kmcf;

    static ngx_str_t  body = ngx_string("request_body");
    static ngx_str_t  length = ngx_string("content_length");

    kmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_kvroute_module);

    kmcf->body = ngx_http_get_variable_index(cf, &body);
    kmcf->length = ngx_http_get_variable_index(cf, &length);

    return kmcf->body == NGX_ERROR || kmcf->length == NGX_ERROR ? NGX_ERROR
                                                                : NGX_OK;
}


void
ngx_http_kvroute_request_body_set(ngx_http_request_t *r,
    ngx_http_request_body_t *body, off_t length, ngx_table_elt_t *header)
{
    r->request_body = body;
    r->headers_in.content_length_n = length;
    r->headers_in.content_length = header;

    ngx_http_kvroute_request_body_forget(r);
}


void
ngx_http_kvroute_request_body_forget(ngx_http_request_t *r)
{
    ngx_http_kvroute_main_conf_t  *kmcf;

    kmcf = ngx_http_get_module_main_conf(r, ngx_http_kvroute_module);

    r->variables[kmcf->body].valid = 0;
    r->variables[kmcf->body].not_found = 0;
    r->variables[kmcf->length].valid = 0;
    r->variables[kmcf->length].not_found = 0;
}
