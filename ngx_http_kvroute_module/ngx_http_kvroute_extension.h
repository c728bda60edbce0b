
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _NGX_HTTP_KVROUTE_EXTENSION_H_INCLUDED_
#define _NGX_HTTP_KVROUTE_EXTENSION_H_INCLUDED_


/*
 * An extension is a separate nginx module with its own directives, variables,
 * filters and request contexts.  What nginx does not provide is in one table,
 * whose functions the router calls without knowing the extension.
 *
 *     preconfiguration    ngx_http_kvroute_extension_add() registers it
 *     a directive,        ngx_http_kvroute_shared_add() adds shared memory,
 *     or init()           ngx_http_kvroute_extension_attach() its hooks to a
 *                         zone
 *
 * Its shared memory has its own layout and name, so a reload that adds or
 * removes an extension keeps the zone.
 */


#include "ngx_http_kvroute.h"
#include "core/state/kvr_hooks.h"

#include <cjson/cJSON.h>


typedef struct ngx_http_kvroute_status_prom_s  ngx_http_kvroute_status_prom_t;


typedef struct {

    /* these two are first in all versions */

    const char         *build;          /* NGX_HTTP_KVROUTE_BUILD at compile
                                           time */
    const char         *name;           /* of the module */

    const kvr_hooks_t  *hooks;          /* or NULL */

    /* adds handlers of phases, which run after the router's */

    ngx_int_t   (*init)(ngx_conf_t *cf);

    /* in a worker: after the router's init and before its exit */

    ngx_int_t   (*init_process)(ngx_cycle_t *cycle);
    void        (*exit_process)(ngx_cycle_t *cycle);

    /* returns the id by which the engine reports a request, or 0 */

    uint64_t    (*session)(ngx_http_request_t *r,
                           ngx_http_kvroute_srv_conf_t *kscf);

    /* add members of a zone and of a peer to JSON; series to Prometheus */

    void        (*json)(cJSON *json, ngx_http_kvroute_zone_t *zone, void *data);
    void        (*json_peer)(cJSON *json, ngx_http_kvroute_srv_conf_t *kscf,
                             void *data, uint32_t peer);
    void        (*prom)(ngx_http_kvroute_status_prom_t *prom, ngx_pool_t *pool,
                        ngx_http_kvroute_main_conf_t *kmcf);
} ngx_http_kvroute_extension_t;


/* an extension at a zone */
typedef struct {
    const kvr_hooks_t                   *hooks;
    ngx_http_kvroute_zone_t             *zone;
    ngx_shm_zone_t                      *shm_zone;
    void                                *data;
} ngx_http_kvroute_extension_at_t;


/* the extension that owns a hook */
#define ngx_http_kvroute_extension(hook)                                      \
    ((const ngx_http_kvroute_extension_t *) (hook)->owner)


/*
 * Registers an extension, in its preconfiguration.  NGX_ERROR: it is of another
 * build than the router, which is logged.
 */
ngx_int_t ngx_http_kvroute_extension_add(ngx_conf_t *cf,
    const ngx_http_kvroute_extension_t *ext);

/*
 * Attaches the hooks of an extension to a zone, once: in each worker, before
 * init_process().  Their data is data, or if that is NULL, that of shm_zone.
 */
ngx_int_t ngx_http_kvroute_extension_attach(ngx_conf_t *cf,
    const kvr_hooks_t *hooks, ngx_http_kvroute_zone_t *zone,
    ngx_shm_zone_t *shm_zone, void *data);

/* Call the functions of all extensions. */
ngx_int_t ngx_http_kvroute_extension_init(ngx_conf_t *cf);
ngx_int_t ngx_http_kvroute_extension_init_process(ngx_cycle_t *cycle);
void ngx_http_kvroute_extension_exit_process(ngx_cycle_t *cycle);


#endif /* _NGX_HTTP_KVROUTE_EXTENSION_H_INCLUDED_ */
