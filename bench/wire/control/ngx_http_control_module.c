
/*
 * A control for bench-wire: the cost of a minimal module.  Like kvroute, it
 * wraps another balancer:
 *
 *     upstream u { least_conn; control none; ... }    is called, does nothing
 *     upstream u { least_conn; control xxh3; ... }    one XXH3 pass over it
 *
 * On x86 the pass is AVX2's, as most of kvroute's reader is.
 */


#include <ngx_config.h>
#include <ngx_core.h>
#include <ngx_http.h>

#if defined __x86_64__
#pragma GCC target("avx2")
#define XXH_VECTOR  XXH_AVX2
#endif

#define XXH_INLINE_ALL
#include <xxhash.h>


typedef struct {
    ngx_uint_t                       pass;
    ngx_http_upstream_init_pt        original_init_upstream;
    ngx_http_upstream_init_peer_pt   original_init_peer;
} ngx_http_control_srv_conf_t;


static ngx_int_t ngx_http_control_init_upstream(ngx_conf_t *cf,
    ngx_http_upstream_srv_conf_t *us);
static ngx_int_t ngx_http_control_init_peer(ngx_http_request_t *r,
    ngx_http_upstream_srv_conf_t *us);
static void *ngx_http_control_create_conf(ngx_conf_t *cf);
static char *ngx_http_control(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);


static ngx_conf_enum_t  ngx_http_control_passes[] = {
    { ngx_string("none"), 0 },
    { ngx_string("xxh3"), 1 },
    { ngx_null_string, 0 }
};


static ngx_command_t  ngx_http_control_commands[] = {

    { ngx_string("control"),
      NGX_HTTP_UPS_CONF|NGX_CONF_TAKE1,
      ngx_http_control,
      NGX_HTTP_SRV_CONF_OFFSET,
      offsetof(ngx_http_control_srv_conf_t, pass),
      &ngx_http_control_passes },

      ngx_null_command
};


static ngx_http_module_t  ngx_http_control_module_ctx = {
    NULL,                                  /* preconfiguration */
    NULL,                                  /* postconfiguration */

    NULL,                                  /* create main configuration */
    NULL,                                  /* init main configuration */

    ngx_http_control_create_conf,          /* create server configuration */
    NULL,                                  /* merge server configuration */

    NULL,                                  /* create location configuration */
    NULL                                   /* merge location configuration */
};


ngx_module_t  ngx_http_control_module = {
    NGX_MODULE_V1,
    &ngx_http_control_module_ctx,          /* module context */
    ngx_http_control_commands,             /* module directives */
    NGX_HTTP_MODULE,                       /* module type */
    NULL,                                  /* init master */
    NULL,                                  /* init module */
    NULL,                                  /* init process */
    NULL,                                  /* init thread */
    NULL,                                  /* exit thread */
    NULL,                                  /* exit process */
    NULL,                                  /* exit master */
    NGX_MODULE_V1_PADDING
};


static volatile uint64_t  ngx_http_control_digest;


static ngx_int_t
ngx_http_control_init_upstream(ngx_conf_t *cf,
    ngx_http_upstream_srv_conf_t *us)
{
    ngx_http_control_srv_conf_t  *conf;

    conf = ngx_http_conf_upstream_srv_conf(us, ngx_http_control_module);

    if (conf->original_init_upstream(cf, us) != NGX_OK) {
        return NGX_ERROR;
    }

    conf->original_init_peer = us->peer.init;
    us->peer.init = ngx_http_control_init_peer;

    return NGX_OK;
}


static ngx_int_t
ngx_http_control_init_peer(ngx_http_request_t *r,
    ngx_http_upstream_srv_conf_t *us)
{
    ngx_chain_t                  *cl;
    ngx_http_control_srv_conf_t  *conf;

    conf = ngx_http_conf_upstream_srv_conf(us, ngx_http_control_module);

    if (conf->pass && r->request_body) {

        for (cl = r->request_body->bufs; cl; cl = cl->next) {
            ngx_http_control_digest ^= XXH3_64bits(cl->buf->pos,
                                               cl->buf->last - cl->buf->pos);
        }
    }

    return conf->original_init_peer(r, us);
}


static void *
ngx_http_control_create_conf(ngx_conf_t *cf)
{
    ngx_http_control_srv_conf_t  *conf;

    conf = ngx_pcalloc(cf->pool, sizeof(ngx_http_control_srv_conf_t));
    if (conf == NULL) {
        return NULL;
    }

    conf->pass = NGX_CONF_UNSET_UINT;

    return conf;
}


static char *
ngx_http_control(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    char                          *rv;
    ngx_http_control_srv_conf_t   *scf = conf;
    ngx_http_upstream_srv_conf_t  *us;

    rv = ngx_conf_set_enum_slot(cf, cmd, conf);
    if (rv != NGX_CONF_OK) {
        return rv;
    }

    us = ngx_http_conf_get_module_srv_conf(cf, ngx_http_upstream_module);

    scf->original_init_upstream = us->peer.init_upstream
                                  ? us->peer.init_upstream
                                  : ngx_http_upstream_init_round_robin;

    us->peer.init_upstream = ngx_http_control_init_upstream;

    return NGX_CONF_OK;
}
