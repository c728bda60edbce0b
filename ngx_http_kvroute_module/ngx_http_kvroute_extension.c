
/*
 * Copyright (C) kvroute contributors
 */


#include "ngx_http_kvroute_extension.h"


static ngx_int_t ngx_http_kvroute_extension_hook(ngx_cycle_t *cycle,
    const ngx_http_kvroute_extension_t *ext,
    const ngx_http_kvroute_extension_at_t *at);


ngx_int_t
ngx_http_kvroute_extension_add(ngx_conf_t *cf,
    const ngx_http_kvroute_extension_t *ext)
{
    ngx_uint_t                            i;
    ngx_http_kvroute_main_conf_t         *kmcf;
    const ngx_http_kvroute_extension_t  **extp;

    /*
     * The linker binds an extension to the first router in the process.  After
     * a reload with another path that may be the router of the old cycle.
     */

    for (i = 0; cf->cycle->modules[i] != &ngx_http_kvroute_module; i++) {
        if (cf->cycle->modules[i] == NULL) {
            ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                          "module \"%s\" cannot be loaded while "
                          "\"ngx_http_kvroute_module\" of another path is "
                          "still in use: restart nginx, or reload without "
                          "\"%s\" first", ext->name, ext->name);
            return NGX_ERROR;
        }
    }

    if (ngx_strcmp(ext->build, NGX_HTTP_KVROUTE_BUILD) != 0) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "module \"%s\" is of kvroute %s, but "
                      "\"ngx_http_kvroute_module\" is of kvroute %s: load both "
                      "from one build", ext->name, ext->build,
                      NGX_HTTP_KVROUTE_BUILD);
        return NGX_ERROR;
    }

    kmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_kvroute_module);

    extp = ngx_array_push(&kmcf->extensions);
    if (extp == NULL) {
        return NGX_ERROR;
    }

    *extp = ext;

    return NGX_OK;
}


ngx_int_t
ngx_http_kvroute_extension_init(ngx_conf_t *cf)
{
    ngx_uint_t                            i;
    ngx_http_kvroute_main_conf_t         *kmcf;
    const ngx_http_kvroute_extension_t  **ext;

    kmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_kvroute_module);

    ext = kmcf->extensions.elts;

    for (i = 0; i < kmcf->extensions.nelts; i++) {
        if (ext[i]->init && ext[i]->init(cf) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


ngx_int_t
ngx_http_kvroute_extension_attach(ngx_conf_t *cf,
    const kvr_hooks_t *hooks, ngx_http_kvroute_zone_t *zone,
    ngx_shm_zone_t *shm_zone, void *data)
{
    ngx_uint_t                        i;
    ngx_http_kvroute_main_conf_t     *kmcf;
    ngx_http_kvroute_extension_at_t  *at;

    kmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_kvroute_module);

    at = kmcf->attached.elts;

    for (i = 0; i < kmcf->attached.nelts; i++) {
        if (at[i].zone == zone && at[i].hooks == hooks) {
            return NGX_OK;
        }
    }

    at = ngx_array_push(&kmcf->attached);
    if (at == NULL) {
        return NGX_ERROR;
    }

    at->hooks = hooks;
    at->zone = zone;
    at->shm_zone = shm_zone;
    at->data = data;

    return NGX_OK;
}


ngx_int_t
ngx_http_kvroute_extension_init_process(ngx_cycle_t *cycle)
{
    ngx_uint_t                            i, k;
    ngx_http_kvroute_main_conf_t         *kmcf;
    ngx_http_kvroute_extension_at_t      *at;
    const ngx_http_kvroute_extension_t  **ext;

    kmcf = ngx_http_cycle_get_module_main_conf(cycle, ngx_http_kvroute_module);

    at = kmcf->attached.elts;
    ext = kmcf->extensions.elts;

    for (i = 0; i < kmcf->extensions.nelts; i++) {

        for (k = 0; k < kmcf->attached.nelts; k++) {
            if (at[k].hooks == ext[i]->hooks
                && ngx_http_kvroute_extension_hook(cycle, ext[i], &at[k])
                   != NGX_OK)
            {
                return NGX_ERROR;
            }
        }

        if (ext[i]->init_process && ext[i]->init_process(cycle) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


/* adds the hooks of an extension at a zone, behind those that it has */
static ngx_int_t
ngx_http_kvroute_extension_hook(ngx_cycle_t *cycle,
    const ngx_http_kvroute_extension_t *ext,
    const ngx_http_kvroute_extension_at_t *at)
{
    kvr_hook_t        *hook;
    const kvr_hook_t  *last;

    hook = ngx_palloc(cycle->pool, sizeof(kvr_hook_t));
    if (hook == NULL) {
        return NGX_ERROR;
    }

    hook->call = ext->hooks;
    hook->data = at->data ? at->data : at->shm_zone->data;
    hook->owner = ext;
    hook->next = NULL;

    if (at->zone->core.hooks == NULL) {
        at->zone->core.hooks = hook;
        return NGX_OK;
    }

    for (last = at->zone->core.hooks; last->next; last = last->next) {
        /* void */
    }

    ((kvr_hook_t *) last)->next = hook;

    return NGX_OK;
}


void
ngx_http_kvroute_extension_exit_process(ngx_cycle_t *cycle)
{
    ngx_uint_t                            i;
    ngx_http_kvroute_main_conf_t         *kmcf;
    const ngx_http_kvroute_extension_t  **ext;

    kmcf = ngx_http_cycle_get_module_main_conf(cycle, ngx_http_kvroute_module);

    if (kmcf == NULL) {
        return;
    }

    ext = kmcf->extensions.elts;

    for (i = kmcf->extensions.nelts; i; i--) {
        if (ext[i - 1]->exit_process) {
            ext[i - 1]->exit_process(cycle);
        }
    }
}
