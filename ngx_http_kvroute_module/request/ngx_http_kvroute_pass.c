
/*
 * Copyright (C) kvroute contributors
 */


/*
 * Finds the upstream that a location passes requests to, if it is known before
 * the content phase.
 */


#include "request/ngx_http_kvroute_request.h"


/* a module with a "pass" directive, and its index if it is loaded */

typedef struct {
    const char  *name;
    const char  *directive;
    ngx_uint_t   index;
} ngx_http_kvroute_pass_module_t;


static ngx_http_kvroute_pass_module_t *ngx_http_kvroute_pass_module(
    void **loc_conf);


static ngx_http_kvroute_pass_module_t  ngx_http_kvroute_pass_modules[] = {
    { "ngx_http_grpc_module", "grpc_pass", 0 },    /* see _pass_grpc() */
    { "ngx_http_proxy_module", "proxy_pass", 0 },
    { "ngx_http_fastcgi_module", "fastcgi_pass", 0 },
    { "ngx_http_uwsgi_module", "uwsgi_pass", 0 },
    { "ngx_http_scgi_module", "scgi_pass", 0 },
    { NULL, NULL, 0 }
};


void
ngx_http_kvroute_pass_init(ngx_conf_t *cf)
{
    ngx_uint_t      i, k;
    ngx_module_t  **modules;

    modules = cf->cycle->modules;

    for (i = 0; ngx_http_kvroute_pass_modules[i].name; i++) {

        ngx_http_kvroute_pass_modules[i].index = NGX_MODULE_UNSET_INDEX;

        for (k = 0; modules[k]; k++) {

            if (ngx_strcmp(modules[k]->name,
                           ngx_http_kvroute_pass_modules[i].name) == 0)
            {
                ngx_http_kvroute_pass_modules[i].index = modules[k]->ctx_index;
            }
        }
    }
}


/* The configuration of each of these modules starts with the upstream's. */
static ngx_http_kvroute_pass_module_t *
ngx_http_kvroute_pass_module(void **loc_conf)
{
    ngx_http_upstream_conf_t        *ucf;
    ngx_http_kvroute_pass_module_t  *module;

    for (module = ngx_http_kvroute_pass_modules; module->name; module++) {

        if (module->index == NGX_MODULE_UNSET_INDEX) {
            continue;
        }

        ucf = loc_conf[module->index];

        if (ucf && ucf->upstream && ucf->upstream != NGX_CONF_UNSET_PTR) {
            return module;
        }
    }

    return NULL;
}


ngx_http_upstream_conf_t *
ngx_http_kvroute_pass_conf(void **loc_conf)
{
    ngx_http_kvroute_pass_module_t  *module;

    module = ngx_http_kvroute_pass_module(loc_conf);

    return module ? loc_conf[module->index] : NULL;
}


ngx_http_upstream_srv_conf_t *
ngx_http_kvroute_pass_upstream(void **loc_conf)
{
    ngx_http_upstream_conf_t  *ucf;

    ucf = ngx_http_kvroute_pass_conf(loc_conf);

    return ucf ? ucf->upstream : NULL;
}


const char *
ngx_http_kvroute_pass_directive(void **loc_conf)
{
    ngx_http_kvroute_pass_module_t  *module;

    module = ngx_http_kvroute_pass_module(loc_conf);

    return module ? module->directive : NULL;
}


ngx_uint_t
ngx_http_kvroute_pass_grpc(void **loc_conf)
{
    return ngx_http_kvroute_pass_module(loc_conf)
           == &ngx_http_kvroute_pass_modules[0];
}


/* Reads the name from a literal "proxy_pass", or else from upstream=. */
ngx_http_kvroute_srv_conf_t *
ngx_http_kvroute_pass_expected(ngx_http_request_t *r)
{
    ngx_str_t                      name;
    ngx_http_upstream_srv_conf_t  *uscf;
    ngx_http_kvroute_loc_conf_t   *klcf;
    ngx_http_kvroute_main_conf_t  *kmcf;

    kmcf = ngx_http_get_module_main_conf(r, ngx_http_kvroute_module);

    if (!kmcf->early) {
        return NULL;
    }

    uscf = ngx_http_kvroute_pass_upstream(r->loc_conf);

    if (uscf) {
        return ngx_http_kvroute_pass_routed(uscf);
    }

    klcf = ngx_http_get_module_loc_conf(r, ngx_http_kvroute_module);

    if (klcf->request == NULL || klcf->request->upstream == NULL
        || ngx_http_complex_value(r, klcf->request->upstream, &name) != NGX_OK)
    {
        return NULL;
    }

    return ngx_http_kvroute_pass_named(kmcf, &name);
}


ngx_http_kvroute_srv_conf_t *
ngx_http_kvroute_pass_created(ngx_http_request_t *r)
{
    ngx_http_upstream_t  *u;

    u = r->upstream;

    return u->resolved
           ? ngx_http_kvroute_pass_named(
                 ngx_http_get_module_main_conf(r, ngx_http_kvroute_module),
                 &u->resolved->host)
           : ngx_http_kvroute_pass_routed(u->conf->upstream);
}


ngx_http_kvroute_srv_conf_t *
ngx_http_kvroute_pass_routed(ngx_http_upstream_srv_conf_t *uscf)
{
    return uscf && uscf->srv_conf
           ? ngx_http_conf_upstream_srv_conf(uscf, ngx_http_kvroute_module)
           : NULL;
}


ngx_http_kvroute_srv_conf_t *
ngx_http_kvroute_pass_named(ngx_http_kvroute_main_conf_t *kmcf, ngx_str_t *name)
{
    ngx_uint_t                      i;
    ngx_http_upstream_srv_conf_t   *uscf;
    ngx_http_kvroute_srv_conf_t   **kscfp;

    kscfp = kmcf->upstreams.elts;

    for (i = 0; i < kmcf->upstreams.nelts; i++) {

        uscf = kscfp[i]->upstream;

        if (uscf->host.len == name->len
            && ngx_strncasecmp(uscf->host.data, name->data, name->len) == 0)
        {
            return kscfp[i];
        }
    }

    return NULL;
}
