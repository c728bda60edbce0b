
/*
 * Copyright (C) kvroute contributors
 */


#include "conf/ngx_http_kvroute_conf_param.h"
#include "zone/ngx_http_kvroute_zone.h"


/* a zone, and fields that only its directive needs */
typedef struct {
    ngx_http_kvroute_zone_t      zone;
    ngx_str_t                    text;      /* NAME:SIZE */
    ngx_str_t                    name;
    ssize_t                      size;
    ngx_str_t                    snapshot;
    ngx_msec_t                   snapshot_interval;
} ngx_http_kvroute_conf_zone_t;


static ngx_int_t ngx_http_kvroute_conf_zone_name(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field);
static ngx_int_t ngx_http_kvroute_conf_zone_file(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field);
static ngx_int_t ngx_http_kvroute_conf_zone_snapshot(ngx_conf_t *cf,
    ngx_http_kvroute_main_conf_t *kmcf, ngx_http_kvroute_conf_zone_t *z);


static const ngx_http_kvroute_conf_param_t  ngx_http_kvroute_conf_zone_list[] =
{
    { ngx_string("zone="), ngx_http_kvroute_conf_zone_name,
      0, 0, 0, 0, "NAME:SIZE" },

    { ngx_string("max_peers="), ngx_http_kvroute_conf_param_number,
      ngx_http_kvroute_conf_field(ngx_http_kvroute_zone_t, max_peers),
      1, KVR_PEERS, "between 1 and 512" },

    { ngx_string("hosts="), ngx_http_kvroute_conf_param_number,
      ngx_http_kvroute_conf_field(ngx_http_kvroute_zone_t, hosts),
      1, 1024, "between 1 and 1024" },

    { ngx_string("key_file="), ngx_http_kvroute_conf_key,
      ngx_http_kvroute_conf_field(ngx_http_kvroute_zone_t, key),
      0, 0, "the name of a file" },

    { ngx_string("snapshot="), ngx_http_kvroute_conf_zone_file,
      ngx_http_kvroute_conf_field(ngx_http_kvroute_conf_zone_t, snapshot),
      0, 0, "the name of a file" },

    { ngx_string("snapshot_interval="), ngx_http_kvroute_conf_param_msec,
      ngx_http_kvroute_conf_field(ngx_http_kvroute_conf_zone_t,
                                  snapshot_interval),
      1000, 3600000, "a time from 1s to 1h" },

    ngx_http_kvroute_conf_param_null
};


char *
ngx_http_kvroute_conf_zone(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_kvroute_main_conf_t  *kmcf = conf;

    size_t                         min;
    ngx_http_kvroute_zone_t       *zone, **zonep;
    ngx_http_kvroute_conf_zone_t  *z;

    z = ngx_pcalloc(cf->pool, sizeof(ngx_http_kvroute_conf_zone_t));
    if (z == NULL) {
        return NGX_CONF_ERROR;
    }

    zone = &z->zone;

    zone->cycle = cf->cycle;
    zone->max_peers = KVR_PEERS_FEW;
    zone->hosts = 1;

    if (ngx_http_kvroute_conf_param_all(cf, ngx_http_kvroute_conf_zone_list, 1,
                                        z)
        != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    if (z->name.len == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" must have \"zone\" parameter: "
                           "\"zone=NAME:SIZE\"", &cmd->name);
        return NGX_CONF_ERROR;
    }

    zone->name.len = z->name.len;
    zone->name.data = ngx_pnalloc(cf->pool, z->name.len + 1);
    if (zone->name.data == NULL) {
        return NGX_CONF_ERROR;
    }

    (void) ngx_cpystrn(zone->name.data, z->name.data, z->name.len + 1);

    min = ngx_http_kvroute_zone_size_min(zone);

    if (z->size < (ssize_t) min) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "zone \"zone=%V\" is too small, it needs %uzk at "
                           "least", &z->text, min / 1024);
        return NGX_CONF_ERROR;
    }

    if (zone->hosts > 1 && zone->key == NULL) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"hosts\" needs \"key_file=FILE\", the same on all "
                           "hosts: otherwise each host creates its own key");
        return NGX_CONF_ERROR;
    }

    if (ngx_http_kvroute_conf_zone_snapshot(cf, kmcf, z) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    if (ngx_http_kvroute_zone_add(cf, zone, &z->name, z->size) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    zonep = ngx_array_push(&kmcf->zones);
    if (zonep == NULL) {
        return NGX_CONF_ERROR;
    }

    *zonep = zone;

    return NGX_CONF_OK;
}


static ngx_int_t
ngx_http_kvroute_conf_zone_name(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field)
{
    ngx_http_kvroute_conf_zone_t  *z = field;

    u_char     *p;
    ngx_str_t   s;

    z->text = *value;

    p = (u_char *) ngx_strchr(value->data, ':');

    if (p) {
        s.data = p + 1;
        s.len = value->data + value->len - s.data;

        z->name.data = value->data;
        z->name.len = p - value->data;
        z->size = ngx_parse_size(&s);
    }

    if (z->name.len == 0 || z->size == NGX_ERROR) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "invalid zone size \"zone=%V\": must be NAME:SIZE, "
                           "where SIZE ends in k or m", value);
        return NGX_ERROR;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_kvroute_conf_zone_file(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field)
{
    ngx_str_t  *file = field;

    u_char           *p, first;
    ngx_int_t         rc;
    ngx_file_info_t   info;

    if (value->len == 0) {
        return NGX_DECLINED;
    }

    *file = *value;

    /* relative to nginx's prefix, like nginx's own files */

    if (ngx_conf_full_name(cf->cycle, file, 0) != NGX_OK) {
        return NGX_ERROR;
    }

    p = file->data + file->len;

    while (p[-1] != '/') {
        p--;
    }

    first = *p;
    *p = '\0';

    rc = ngx_file_info(file->data, &info);

    *p = first;

    if (rc == NGX_FILE_ERROR) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno,
                           "the folder of \"%V%V\" is not there", &param->name,
                           file);
        return NGX_ERROR;
    }

    if (ngx_file_info(file->data, &info) != NGX_FILE_ERROR
        && ngx_is_dir(&info))
    {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V%V\" is a folder: write the name of a file in "
                           "it", &param->name, file);
        return NGX_ERROR;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_kvroute_conf_zone_snapshot(ngx_conf_t *cf,
    ngx_http_kvroute_main_conf_t *kmcf, ngx_http_kvroute_conf_zone_t *z)
{
    ngx_uint_t                     i;
    ngx_http_kvroute_zone_t      **zone;
    ngx_http_kvroute_snapshot_t   *snapshot;

    if (z->snapshot.len == 0) {

        if (z->snapshot_interval) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "\"snapshot_interval\" has no effect without "
                               "\"snapshot=FILE\"");
            return NGX_ERROR;
        }

        return NGX_OK;
    }

    if (z->zone.key == NULL) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"snapshot\" needs \"key_file=FILE\": otherwise "
                           "each start creates another key, and the snapshot "
                           "is useless");
        return NGX_ERROR;
    }

    zone = kmcf->zones.elts;

    for (i = 0; i < kmcf->zones.nelts; i++) {
        snapshot = zone[i]->snapshot;

        if (snapshot && snapshot->file.len == z->snapshot.len
            && ngx_memcmp(snapshot->file.data, z->snapshot.data,
                          z->snapshot.len)
               == 0)
        {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "snapshot \"%V\" is already used by "
                               "kvroute_zone \"%V\": each zone needs its own "
                               "file", &z->snapshot, &zone[i]->name);
            return NGX_ERROR;
        }
    }

    snapshot = ngx_pcalloc(cf->pool, sizeof(ngx_http_kvroute_snapshot_t));
    if (snapshot == NULL) {
        return NGX_ERROR;
    }

    snapshot->file = z->snapshot;
    snapshot->interval = z->snapshot_interval ? z->snapshot_interval : 60000;

    snapshot->temp.len = z->snapshot.len + sizeof(".tmp") - 1;
    snapshot->temp.data = ngx_pnalloc(cf->pool, snapshot->temp.len + 1);
    if (snapshot->temp.data == NULL) {
        return NGX_ERROR;
    }

    (void) ngx_sprintf(snapshot->temp.data, "%V.tmp%Z", &snapshot->file);

    z->zone.snapshot = snapshot;

    return NGX_OK;
}


ngx_http_kvroute_zone_t *
ngx_http_kvroute_conf_zone_find(ngx_conf_t *cf, ngx_str_t *name)
{
    ngx_uint_t                     i;
    ngx_http_kvroute_zone_t      **zone;
    ngx_http_kvroute_main_conf_t  *kmcf;

    kmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_kvroute_module);

    zone = kmcf->zones.elts;

    for (i = 0; i < kmcf->zones.nelts; i++) {
        if (zone[i]->name.len == name->len
            && ngx_memcmp(zone[i]->name.data, name->data, name->len) == 0)
        {
            return zone[i];
        }
    }

    return NULL;
}
