
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _NGX_HTTP_KVROUTE_EXTENSION_H_INCLUDED_
#define _NGX_HTTP_KVROUTE_EXTENSION_H_INCLUDED_


/*
 * An extension is an nginx module of its own, with its own directives, variables,
 * filters and contexts of requests, as any module has them.  What nginx does not
 * give it is in one table: the router calls it, and never knows whose it is.
 *
 *     preconfiguration    ngx_http_kvroute_extension_add(): the router knows it
 *     a directive         ngx_http_kvroute_shared_add(): memory of its own
 *     init_process()      ngx_http_kvroute_extension_attach(): its hooks are
 *                         called for that zone
 *
 * Memory of its own has its own layout and name.  So a zone stays as it is when
 * an extension comes or goes by a reload.
 */


#include "ngx_http_kvroute.h"
#include "core/state/kvr_hooks.h"

#include <cjson/cJSON.h>


typedef struct ngx_http_kvroute_status_prom_s  ngx_http_kvroute_status_prom_t;


typedef struct {

    /* these two come first in all versions */

    const char         *build;          /* NGX_HTTP_KVROUTE_BUILD, then */
    const char         *name;           /* of the module */

    const kvr_hooks_t  *hooks;          /* or NULL */

    /*
     * Once the configuration is read: handlers of a phase that it adds run after
     * the router's.
     */

    ngx_int_t   (*init)(ngx_conf_t *cf);

    /* in a worker: after the router's own begin, and before its end */

    ngx_int_t   (*init_process)(ngx_cycle_t *cycle);
    void        (*exit_process)(ngx_cycle_t *cycle);

    /* what the engine calls a request when it tells of it, or 0 */

    uint64_t    (*session)(ngx_http_request_t *r,
                           ngx_http_kvroute_srv_conf_t *kscf);

    /* adds members to a zone, and a peer, of the JSON; series beside those of the counters */

    void        (*json)(cJSON *json, ngx_http_kvroute_zone_t *zone, void *data);
    void        (*json_peer)(cJSON *json, ngx_http_kvroute_srv_conf_t *kscf,
                             void *data, uint32_t peer);
    void        (*prom)(ngx_http_kvroute_status_prom_t *prom, ngx_pool_t *pool,
                        ngx_http_kvroute_main_conf_t *kmcf);
} ngx_http_kvroute_extension_t;


/* the extension whose hook this is */
#define ngx_http_kvroute_extension(hook)                                      \
    ((const ngx_http_kvroute_extension_t *) (hook)->owner)


/*
 * Makes an extension known, in its preconfiguration.  NGX_ERROR: it is of
 * another build than the router, and that is logged.
 */
ngx_int_t ngx_http_kvroute_extension_add(ngx_conf_t *cf,
    const ngx_http_kvroute_extension_t *ext);

/* from now on this process calls its hooks for a zone */
ngx_int_t ngx_http_kvroute_extension_attach(ngx_http_kvroute_zone_t *zone,
    const ngx_http_kvroute_extension_t *ext, void *data);

/* of all that are known */
ngx_int_t ngx_http_kvroute_extension_init(ngx_conf_t *cf);
ngx_int_t ngx_http_kvroute_extension_init_process(ngx_cycle_t *cycle);
void ngx_http_kvroute_extension_exit_process(ngx_cycle_t *cycle);


#endif /* _NGX_HTTP_KVROUTE_EXTENSION_H_INCLUDED_ */
