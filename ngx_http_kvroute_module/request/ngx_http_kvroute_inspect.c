
/*
 * Copyright (C) kvroute contributors
 */


/*
 * Reads the body before the content phase, so that it can select the upstream:
 * "proxy_pass http://$pool" with a map of $kvroute_model.
 */


#include "request/ngx_http_kvroute_request.h"


static ngx_int_t ngx_http_kvroute_inspect_handler(ngx_http_request_t *r);
static void ngx_http_kvroute_inspect_body(ngx_http_request_t *r);
static void ngx_http_kvroute_inspect_read(ngx_http_request_t *r,
    ngx_http_kvroute_ctx_t *ctx);


ngx_int_t
ngx_http_kvroute_inspect_init(ngx_conf_t *cf)
{
    return ngx_http_kvroute_request_phase(cf, ngx_http_kvroute_inspect_handler);
}


static ngx_int_t
ngx_http_kvroute_inspect_handler(ngx_http_request_t *r)
{
    ngx_http_kvroute_loc_conf_t  *klcf;

    klcf = ngx_http_get_module_loc_conf(r, ngx_http_kvroute_module);

    /*
     * Subrequests use the body of the main request.  A body that is too long
     * has no variables, so it need not be read first.
     */

    if (r != r->main || !klcf->variable
        || r->headers_in.content_length_n
           > (off_t) ngx_http_kvroute_request_limit(r))
    {
        return NGX_DECLINED;
    }

    return ngx_http_kvroute_inspect(r);
}


ngx_int_t
ngx_http_kvroute_inspect(ngx_http_request_t *r)
{
    ngx_int_t                rc;
    ngx_http_kvroute_ctx_t  *ctx;

    ctx = ngx_http_kvroute_request_create_ctx(r);
    if (ctx == NULL) {
        return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }

    ngx_http_kvroute_request_enter(ctx);

    /* an internal redirect: nginx has read the body before */

    if (ctx->inspected == NGX_HTTP_KVROUTE_INSPECTED) {
        ngx_http_kvroute_inspect_read(r, ctx);
        return NGX_DECLINED;
    }

    /*
     * An error_page after a failed read.  Continue with the part of the body
     * that was received, because there will be no further read event.
     */

    if (ctx->inspected) {
        ctx->inspected = NGX_HTTP_KVROUTE_INSPECTED;
        return NGX_DECLINED;
    }

    ctx->inspected = NGX_HTTP_KVROUTE_READING;

    rc = ngx_http_read_client_request_body(r, ngx_http_kvroute_inspect_body);

    if (rc >= NGX_HTTP_SPECIAL_RESPONSE) {
        return rc;
    }

    /* usually the body was read at once, and the phases continue */

    if (ctx->inspected == NGX_HTTP_KVROUTE_INSPECTED) {
        r->main->count--;
        return NGX_DECLINED;
    }

    ctx->inspected = NGX_HTTP_KVROUTE_AWAITED;

    ngx_http_finalize_request(r, NGX_DONE);

    return NGX_DONE;
}


static void
ngx_http_kvroute_inspect_body(ngx_http_request_t *r)
{
    ngx_uint_t               awaited;
    ngx_http_kvroute_ctx_t  *ctx;

    ctx = ngx_http_get_module_ctx(r, ngx_http_kvroute_module);

    /* reading was abandoned before */

    if (ctx == NULL || ctx->inspected == NGX_HTTP_KVROUTE_INSPECTED) {
        return;
    }

    awaited = (ctx->inspected == NGX_HTTP_KVROUTE_AWAITED);

    ctx->inspected = NGX_HTTP_KVROUTE_INSPECTED;

    ngx_http_kvroute_inspect_read(r, ctx);

    r->write_event_handler = ngx_http_core_run_phases;

    if (awaited) {
        ngx_http_core_run_phases(r);
    }
}


/* Reads by the first zone, because the upstream is not known yet. */
static void
ngx_http_kvroute_inspect_read(ngx_http_request_t *r,
    ngx_http_kvroute_ctx_t *ctx)
{
    ngx_http_kvroute_zone_t       **zone;
    ngx_http_kvroute_main_conf_t   *kmcf;

    kmcf = ngx_http_get_module_main_conf(r, ngx_http_kvroute_module);

    if (kmcf->zones.nelts) {
        zone = kmcf->zones.elts;
        ngx_http_kvroute_request_read(r, ctx, zone[0]);
    }
}
