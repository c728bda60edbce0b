
/*
 * Copyright (C) kvroute contributors
 */


/* The directives of the queue. */


#include "ngx_http_kvroute.h"


/* the layout of the shared state is in the zone's name: a zone for each layout */
#define NGX_HTTP_KVROUTE_QUEUE_NAME  "kvroute_queue."


static ngx_int_t ngx_http_kvroute_queue_zone_init(ngx_shm_zone_t *shm_zone,
    void *data);
static ngx_int_t ngx_http_kvroute_queue_value(ngx_conf_t *cf, ngx_str_t *value,
    size_t prefix, ngx_http_complex_value_t **slot);


static const size_t  ngx_http_kvroute_queue_parts[] = {
    sizeof(kvr_queue_shared_t),
    sizeof(kvr_queue_stats_t),
    sizeof(kvr_queue_tenant_t),
    sizeof(kvr_queue_row_t),
    KVR_QUEUE_CLASSES,
    KVR_QUEUE_TENANTS,
    KVR_QUEUE_ROWS,
    KVR_QUEUE_PEERS
};


char *
ngx_http_kvroute_queue(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_kvroute_srv_conf_t  *kscf = conf;

    size_t                         size;
    ssize_t                        bytes;
    ngx_int_t                      n;
    ngx_str_t                     *value, name, s;
    ngx_uint_t                     i;
    ngx_http_kvroute_queue_t      *queue;
    ngx_http_upstream_srv_conf_t  *uscf;
    ngx_http_kvroute_main_conf_t  *kmcf;

    if (kscf->queue) {
        return "is duplicate";
    }

    if (kscf->shm_zone == NULL) {
        return "must come after \"kvroute\"";
    }

    if (ngx_http_kvroute_params_once(cf, 1) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    queue = ngx_pcalloc(cf->pool, sizeof(ngx_http_kvroute_queue_t));
    if (queue == NULL) {
        return NGX_CONF_ERROR;
    }

    ngx_queue_init(&queue->strict);

    queue->timeout = 30000;
    queue->status = NGX_HTTP_TOO_MANY_REQUESTS;

    value = cf->args->elts;

    for (i = 1; i < cf->args->nelts; i++) {

        if (ngx_strncmp(value[i].data, "max=", 4) == 0) {

            n = ngx_http_kvroute_number(cf, &value[i], 4, 1, 1000000);
            if (n == NGX_ERROR) {
                return NGX_CONF_ERROR;
            }

            queue->max = n;

            continue;
        }

        if (ngx_strncmp(value[i].data, "timeout=", 8) == 0) {

            s.data = value[i].data + 8;
            s.len = value[i].len - 8;

            n = ngx_parse_time(&s, 0);

            if (n == NGX_ERROR || n == 0 || n > 86400000) {
                goto invalid;
            }

            queue->timeout = n;

            continue;
        }

        if (ngx_strncmp(value[i].data, "max_bytes=", 10) == 0) {

            s.data = value[i].data + 10;
            s.len = value[i].len - 10;

            bytes = ngx_parse_size(&s);

            if (bytes == NGX_ERROR || bytes == 0) {
                goto invalid;
            }

            queue->max_bytes = bytes;

            continue;
        }

        if (ngx_strncmp(value[i].data, "status=", 7) == 0) {

            n = ngx_http_kvroute_number(cf, &value[i], 7, 400, 599);
            if (n == NGX_ERROR) {
                return NGX_CONF_ERROR;
            }

            queue->status = n;

            continue;
        }

        if (ngx_strcmp(value[i].data, "order=priority") == 0) {
            queue->fifo = 0;
            continue;
        }

        if (ngx_strcmp(value[i].data, "order=fifo") == 0) {
            queue->fifo = 1;
            continue;
        }

        goto invalid;
    }

    if (queue->max == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" must have \"max\" parameter", &cmd->name);
        return NGX_CONF_ERROR;
    }

    uscf = ngx_http_conf_get_module_srv_conf(cf, ngx_http_upstream_module);

    name.len = sizeof(NGX_HTTP_KVROUTE_QUEUE_NAME) - 1 + 2 * sizeof(uint64_t)
               + 1 + uscf->host.len;
    name.data = ngx_pnalloc(cf->pool, name.len);
    if (name.data == NULL) {
        return NGX_CONF_ERROR;
    }

    ngx_sprintf(name.data, NGX_HTTP_KVROUTE_QUEUE_NAME "%016xL.%V",
                kvr_layout(ngx_http_kvroute_queue_parts,
                           kvr_nelts(ngx_http_kvroute_queue_parts)),
                &uscf->host);

    /* the slab allocator's own and a page for each of its tables, amply */

    size = sizeof(kvr_queue_shared_t) + KVR_CACHE_LINE;
    size = ngx_align(size, ngx_pagesize) + 8 * ngx_pagesize;

    queue->shm_zone = ngx_shared_memory_add(cf, &name, size,
                                            &ngx_http_kvroute_module);
    if (queue->shm_zone == NULL) {
        return NGX_CONF_ERROR;
    }

    kmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_kvroute_module);
    kmcf->queues = 1;

    queue->shm_zone->init = ngx_http_kvroute_queue_zone_init;

    kscf->queue = queue;

    return NGX_CONF_OK;

invalid:

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "invalid parameter \"%V\"",
                       &value[i]);
    return NGX_CONF_ERROR;
}


/* says so if nobody will ever wait, or max_waiting= will never be told */
void
ngx_http_kvroute_queue_check(ngx_conf_t *cf,
    ngx_http_upstream_srv_conf_t *uscf, ngx_http_kvroute_srv_conf_t *kscf)
{
    ngx_uint_t                   i;
    ngx_http_upstream_server_t  *server;

    if (kscf->max_waiting != NGX_CONF_UNSET && kscf->probe == NULL) {
        ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                      "\"max_waiting\" in upstream \"%V\" in %s:%ui needs "
                      "\"kvroute_probe\"",
                      &uscf->host, uscf->file_name, uscf->line);
    }

    if (kscf->queue == NULL || kscf->max_pending || kscf->target_ttft
        || (kscf->max_waiting != NGX_CONF_UNSET && kscf->probe))
    {
        return;
    }

    server = uscf->servers->elts;

    for (i = 0; i < uscf->servers->nelts; i++) {
        if (server[i].max_conns) {
            return;
        }
    }

    ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                  "\"kvroute_queue\" in upstream \"%V\" in %s:%ui holds nobody "
                  "back: set \"max_pending\" of \"kvroute\", or \"max_conns\" of "
                  "servers",
                  &uscf->host, uscf->file_name, uscf->line);
}


static ngx_int_t
ngx_http_kvroute_queue_zone_init(ngx_shm_zone_t *shm_zone, void *data)
{
    u_char           *p;
    ngx_slab_pool_t  *shpool;

    if (data) {
        shm_zone->data = data;
        return NGX_OK;
    }

    shpool = (ngx_slab_pool_t *) shm_zone->shm.addr;

    if (shm_zone->shm.exists) {
        shm_zone->data = shpool->data;
        return NGX_OK;
    }

    p = ngx_slab_calloc(shpool, sizeof(kvr_queue_shared_t) + KVR_CACHE_LINE);
    if (p == NULL) {
        return NGX_ERROR;
    }

    shm_zone->data = ngx_align_ptr(p, KVR_CACHE_LINE);
    shpool->data = shm_zone->data;

    return NGX_OK;
}


char *
ngx_http_kvroute_priority(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_kvroute_loc_conf_t *klcf = conf;

    ngx_str_t  *value;

    if (klcf->priority != NGX_CONF_UNSET_PTR) {
        return "is duplicate";
    }

    value = cf->args->elts;

    klcf->priority_max = NULL;

    if (ngx_http_kvroute_queue_value(cf, &value[1], 0, &klcf->priority)
        != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    if (cf->args->nelts == 2) {
        return NGX_CONF_OK;
    }

    if (ngx_strncmp(value[2].data, "max=", 4) != 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "invalid parameter \"%V\"",
                           &value[2]);
        return NGX_CONF_ERROR;
    }

    if (ngx_http_kvroute_queue_value(cf, &value[2], 4, &klcf->priority_max)
        != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


char *
ngx_http_kvroute_tenant(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_kvroute_loc_conf_t *klcf = conf;

    ngx_str_t  *value;

    if (klcf->tenant != NGX_CONF_UNSET_PTR) {
        return "is duplicate";
    }

    value = cf->args->elts;

    klcf->weight = NULL;

    if (ngx_http_kvroute_queue_value(cf, &value[1], 0, &klcf->tenant)
        != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    if (cf->args->nelts == 2) {
        return NGX_CONF_OK;
    }

    if (ngx_strncmp(value[2].data, "weight=", 7) != 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "invalid parameter \"%V\"",
                           &value[2]);
        return NGX_CONF_ERROR;
    }

    if (ngx_http_kvroute_queue_value(cf, &value[2], 7, &klcf->weight)
        != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    return NGX_CONF_OK;
}


static ngx_int_t
ngx_http_kvroute_queue_value(ngx_conf_t *cf, ngx_str_t *value, size_t prefix,
    ngx_http_complex_value_t **slot)
{
    ngx_str_t                          s;
    ngx_http_compile_complex_value_t   ccv;

    *slot = ngx_palloc(cf->pool, sizeof(ngx_http_complex_value_t));
    if (*slot == NULL) {
        return NGX_ERROR;
    }

    s.data = value->data + prefix;
    s.len = value->len - prefix;

    ngx_memzero(&ccv, sizeof(ngx_http_compile_complex_value_t));

    ccv.cf = cf;
    ccv.value = &s;
    ccv.complex_value = *slot;

    return ngx_http_compile_complex_value(&ccv);
}


/* the class of a name or a number, 0 being the first; NGX_ERROR: neither */
ngx_int_t
ngx_http_kvroute_queue_class(ngx_str_t *value)
{
    ngx_int_t   n;
    ngx_uint_t  i;

    /* also what the OpenAI API says in "service_tier" */

    static const struct {
        ngx_str_t  name;
        ngx_int_t  class;
    } names[] = {
        { ngx_string("critical"), 0 },
        { ngx_string("high"), 1 },
        { ngx_string("priority"), 1 },
        { ngx_string("interactive"), 2 },
        { ngx_string("normal"), KVR_QUEUE_NORMAL },
        { ngx_string("default"), KVR_QUEUE_NORMAL },
        { ngx_string("auto"), KVR_QUEUE_NORMAL },
        { ngx_string("low"), 5 },
        { ngx_string("flex"), 5 },
        { ngx_string("batch"), 6 },
        { ngx_string("background"), 7 },
    };

    for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {

        if (value->len == names[i].name.len
            && ngx_strncasecmp(value->data, names[i].name.data, value->len)
               == 0)
        {
            return names[i].class;
        }
    }

    n = ngx_atoi(value->data, value->len);

    return n == NGX_ERROR ? n : ngx_min(n, KVR_QUEUE_CLASSES - 1);
}
