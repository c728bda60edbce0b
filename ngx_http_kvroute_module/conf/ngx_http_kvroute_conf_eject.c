
/*
 * Copyright (C) kvroute contributors
 */


/* The directive kvroute_eject. */


#include "conf/ngx_http_kvroute_conf_param.h"


#define ngx_http_kvroute_conf_eject_field(name)                               \
    ngx_http_kvroute_conf_field(kvr_outlier_conf_t, name)


static const ngx_http_kvroute_conf_param_t  ngx_http_kvroute_conf_eject_list[] =
{
    { ngx_string("fails="), ngx_http_kvroute_conf_param_number,
      ngx_http_kvroute_conf_eject_field(fails),
      1, 1000, "between 1 and 1000" },

    { ngx_string("time="), ngx_http_kvroute_conf_param_msec,
      ngx_http_kvroute_conf_eject_field(time),
      100, 3600 * 1000, "between 100ms and 1h" },

    /* the only one of "off", too */

    { ngx_string("retry_budget="), ngx_http_kvroute_conf_param_percent,
      ngx_http_kvroute_conf_eject_field(budget),
      1, 100, "between 1% and 100%" },

    ngx_http_kvroute_conf_param_null
};


void
ngx_http_kvroute_conf_eject_init(kvr_outlier_conf_t *eject)
{
    eject->on = 1;
    eject->fails = 5;
    eject->time = 10 * 1000;
    eject->budget = 0;
}


char *
ngx_http_kvroute_conf_eject(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_kvroute_srv_conf_t  *kscf = conf;

    ngx_str_t   *value;
    ngx_uint_t   off;

    if (kscf->eject_set) {
        return "is duplicate";
    }

    kscf->eject_set = 1;

    value = cf->args->elts;
    off = (ngx_strcmp(value[1].data, "off") == 0);

    kscf->eject.on = !off;

    return ngx_http_kvroute_conf_param_all(cf,
                             &ngx_http_kvroute_conf_eject_list[off ? 2 : 0],
                             1 + off, &kscf->eject)
           == NGX_OK
           ? NGX_CONF_OK : NGX_CONF_ERROR;
}
