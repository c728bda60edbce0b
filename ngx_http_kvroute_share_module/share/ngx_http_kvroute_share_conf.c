
/*
 * Copyright (C) kvroute contributors
 */


/* The directive kvroute_share. */


#include "share/ngx_http_kvroute_share_int.h"
#include "conf/ngx_http_kvroute_conf_param.h"

#include <sys/random.h>


#define NGX_HTTP_KVROUTE_SHARE_CONF_PORT  6379

#define NGX_HTTP_KVROUTE_SHARE_CONF_PASSWORD  1024

#define NGX_HTTP_KVROUTE_SHARE_CONF_SERVER                                    \
    "redis://HOST:PORT, valkey://HOST:PORT, or with TLS rediss:// or "        \
    "valkeys://; a user comes before the host, as in redis://USER@HOST"


typedef struct {
    ngx_http_kvroute_share_conf_t  share;
    ngx_str_t                      zone;
    ngx_str_t                      server;
} ngx_http_kvroute_share_conf_words_t;


static ngx_int_t ngx_http_kvroute_share_conf_word(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field);
static ngx_int_t ngx_http_kvroute_share_conf_server(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field);
static ngx_int_t ngx_http_kvroute_share_conf_password(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field);
static ngx_int_t ngx_http_kvroute_share_conf_memory(ngx_conf_t *cf,
    ngx_http_kvroute_share_conf_words_t *sh, ngx_http_kvroute_zone_t *zone);
static ngx_int_t ngx_http_kvroute_share_conf_shm(ngx_shm_zone_t *shm_zone,
    void *data);
static ngx_int_t ngx_http_kvroute_share_conf_addr(ngx_conf_t *cf,
    ngx_http_kvroute_share_conf_t *share);


#define ngx_http_kvroute_share_conf_field(name)                               \
    ngx_http_kvroute_conf_field(ngx_http_kvroute_share_conf_words_t, name)


static const size_t  ngx_http_kvroute_share_conf_parts[] = {
    sizeof(kvr_share_t),
    sizeof(kvr_share_host_t),
    sizeof(kvr_share_stats_t),
    sizeof(kvr_fifo_slot_t),
    KVR_SHARE_HOSTS,
    KVR_FIFO_SLOTS,
    KVR_SHARE_VERSION,
    KVR_PEERS
};


static const ngx_http_kvroute_conf_param_t  ngx_http_kvroute_share_conf_list[] =
{
    { ngx_string("zone="), ngx_http_kvroute_share_conf_word,
      ngx_http_kvroute_share_conf_field(zone), 0, 255, "the name of a zone" },

    { ngx_string("server="), ngx_http_kvroute_share_conf_server,
      0, 0, 0, 0, NGX_HTTP_KVROUTE_SHARE_CONF_SERVER },

    { ngx_string("password_file="), ngx_http_kvroute_share_conf_password,
      ngx_http_kvroute_share_conf_field(share.password), 0, 0,
      "the name of a file" },

    { ngx_string("name="), ngx_http_kvroute_share_conf_word,
      ngx_http_kvroute_share_conf_field(share.name), 0, KVR_SHARE_NAME - 1,
      "a name of at most 31 letters" },

    { ngx_string("max_conns="), ngx_http_kvroute_conf_param_choice,
      ngx_http_kvroute_share_conf_field(share.all_hosts), 0, 1, "local fleet" },

    { ngx_string("trusted="), ngx_http_kvroute_share_conf_word,
      ngx_http_kvroute_share_conf_field(share.trusted), 0, 4096,
      "a file of certificates, or off" },

    ngx_http_kvroute_conf_param_null
};


char *
ngx_http_kvroute_share_conf(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_array_t *shares = conf;

    ngx_http_kvroute_zone_t              *zone;
    ngx_http_kvroute_share_conf_t        *share, **sharep;
    ngx_http_kvroute_share_conf_words_t  *sh;

    sh = ngx_pcalloc(cf->pool, sizeof(ngx_http_kvroute_share_conf_words_t));
    if (sh == NULL) {
        return NGX_CONF_ERROR;
    }

    share = &sh->share;

    if (ngx_http_kvroute_conf_param_all(cf, ngx_http_kvroute_share_conf_list, 1,
                                        sh)
        != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    if (sh->zone.len == 0 || share->host.len == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" must have \"zone\" and \"server\" "
                           "parameters: \"zone=NAME server=redis://HOST\"",
                           &cmd->name);
        return NGX_CONF_ERROR;
    }

    zone = ngx_http_kvroute_conf_zone_find(cf, &sh->zone);

    if (zone == NULL) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "zone \"%V\" is unknown: \"%V\" must come after "
                           "\"kvroute_zone zone=%V:SIZE key_file=FILE\"",
                           &sh->zone, &cmd->name, &sh->zone);
        return NGX_CONF_ERROR;
    }

    if (ngx_http_kvroute_share_conf_find(shares, zone)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "zone \"%V\" has a \"%V\" already", &sh->zone,
                           &cmd->name);
        return NGX_CONF_ERROR;
    }

    if (zone->key == NULL) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" needs \"key_file=FILE\" of "
                           "\"kvroute_zone\", the same on all hosts: "
                           "otherwise their hashes differ", &cmd->name);
        return NGX_CONF_ERROR;
    }

    if (!share->secure && share->trusted.len) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"trusted=\" needs TLS: \"server=rediss://...\"");
        return NGX_CONF_ERROR;
    }

    if (share->secure) {

        if (share->trusted.len == 0) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "TLS needs \"trusted=\", a file of "
                               "certificates, or off");
            return NGX_CONF_ERROR;
        }

        share->verify = (ngx_strcmp(share->trusted.data, "off") != 0);

        if (!share->verify) {
            ngx_str_null(&share->trusted);
        }

        if (ngx_http_kvroute_conf_probe_ssl(cf, &share->trusted, &share->ssl)
            != NGX_OK)
        {
            return NGX_CONF_ERROR;
        }
    }

    if (share->name.len == 0) {
        share->name = cf->cycle->hostname;
        share->name.len = ngx_min(share->name.len, KVR_SHARE_NAME - 1);
    }

    if (ngx_http_kvroute_share_conf_memory(cf, sh, zone) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    sharep = ngx_array_push(shares);
    if (sharep == NULL) {
        return NGX_CONF_ERROR;
    }

    *sharep = share;

    share->zone = zone;
    zone->all_hosts = share->all_hosts;

    /* if sharing fails, hosts use preferred servers (hosts=) */

    zone->hosts = ngx_max(zone->hosts, 2);

    return NGX_CONF_OK;
}


static ngx_int_t
ngx_http_kvroute_share_conf_word(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field)
{
    size_t  i;

    for (i = 0; i < value->len; i++) {
        if (value->data[i] > '~' || value->data[i] == '"'
            || value->data[i] == '\\')
        {
            return NGX_DECLINED;
        }
    }

    return ngx_http_kvroute_conf_param_word(cf, param, value, field);
}


static ngx_int_t
ngx_http_kvroute_share_conf_server(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field)
{
    ngx_http_kvroute_share_conf_words_t  *sh = field;

    u_char     *p, *last;
    ngx_uint_t  i;
    ngx_url_t   u;

    static const struct {
        ngx_str_t   scheme;
        ngx_uint_t  secure;
    } schemes[] = {
        { ngx_string("redis://"), 0 },
        { ngx_string("rediss://"), 1 },
        { ngx_string("valkey://"), 0 },
        { ngx_string("valkeys://"), 1 },
    };

    last = value->data + value->len;
    p = NULL;

    for (i = 0; i < kvr_nelts(schemes); i++) {
        if (value->len > schemes[i].scheme.len
            && ngx_strncmp(value->data, schemes[i].scheme.data,
                           schemes[i].scheme.len) == 0)
        {
            p = value->data + schemes[i].scheme.len;
            sh->share.secure = schemes[i].secure;
        }
    }

    if (p == NULL) {
        return NGX_DECLINED;
    }

    sh->share.user.data = p;
    p = ngx_strlchr(p, last, '@');

    if (p) {
        sh->share.user.len = p - sh->share.user.data;

        if (ngx_strlchr(sh->share.user.data, p, ':')) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "a password in \"server=\" is visible in the "
                               "configuration: put it into a file and write "
                               "\"password_file=FILE\"");
            return NGX_ERROR;
        }

        p++;

    } else {
        p = sh->share.user.data;
    }

    ngx_memzero(&u, sizeof(ngx_url_t));

    u.url.data = p;
    u.url.len = last - p;
    u.default_port = NGX_HTTP_KVROUTE_SHARE_CONF_PORT;
    u.no_resolve = 1;

    if (u.url.len == 0 || ngx_strlchr(p, last, '/')
        || ngx_parse_url(cf->pool, &u) != NGX_OK || u.family == AF_UNIX)
    {
        return NGX_DECLINED;
    }

    /* nginx's TLS needs a '\0' at the end */

    sh->share.host.len = u.host.len;
    sh->share.host.data = ngx_pnalloc(cf->pool, u.host.len + 1);
    if (sh->share.host.data == NULL) {
        return NGX_ERROR;
    }

    (void) ngx_cpystrn(sh->share.host.data, u.host.data, u.host.len + 1);

    sh->share.port = u.port;
    sh->share.store = u.url;
    sh->share.addrs = u.addrs;
    sh->share.naddrs = u.naddrs;

    return NGX_OK;
}


static ngx_int_t
ngx_http_kvroute_share_conf_password(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field)
{
    ngx_str_t  *password = field;

    u_char      buf[NGX_HTTP_KVROUTE_SHARE_CONF_PASSWORD];
    ngx_str_t   text;
    ngx_int_t   rc;

    if (value->len == 0) {
        return NGX_DECLINED;
    }

    text.data = buf;

    rc = ngx_http_kvroute_conf_key_read(cf, "password_file", value, &text,
                                        sizeof(buf));

    if (rc == NGX_OK) {

        /* editors and "echo" add a line end */

        while (text.len && ngx_strchr("\r\n", buf[text.len - 1])) {
            text.len--;
        }

        if (text.len == 0) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "password_file \"%V\" is empty", value);
            rc = NGX_ERROR;
        }
    }

    if (rc == NGX_OK) {
        password->len = text.len;
        password->data = ngx_pstrdup(cf->pool, &text);

        if (password->data == NULL) {
            rc = NGX_ERROR;
        }
    }

    ngx_explicit_memzero(buf, sizeof(buf));

    return rc;
}


ngx_http_kvroute_share_conf_t *
ngx_http_kvroute_share_conf_find(ngx_array_t *shares,
    ngx_http_kvroute_zone_t *zone)
{
    ngx_uint_t                       i;
    ngx_http_kvroute_share_conf_t  **share;

    share = shares->elts;

    for (i = 0; i < shares->nelts; i++) {
        if (share[i]->zone == zone) {
            return share[i];
        }
    }

    return NULL;
}


/*
 * Adds a memory of its own, so that a reload can turn on sharing.  If a zone of
 * another size starts empty, this memory must start empty, too, because it has
 * the position in the stream.
 */
static ngx_int_t
ngx_http_kvroute_share_conf_memory(ngx_conf_t *cf,
    ngx_http_kvroute_share_conf_words_t *sh, ngx_http_kvroute_zone_t *zone)
{
    uint64_t                        layout;
    ngx_http_kvroute_share_conf_t  *share;

    share = &sh->share;

    share->stream.len = sizeof("kvroute:{}") - 1 + sh->zone.len;
    share->stream.data = ngx_pnalloc(cf->pool, share->stream.len);
    if (share->stream.data == NULL) {
        return NGX_ERROR;
    }

    ngx_sprintf(share->stream.data, "kvroute:{%V}", &sh->zone);

    layout = kvr_layout(ngx_http_kvroute_share_conf_parts,
                        kvr_nelts(ngx_http_kvroute_share_conf_parts));

    share->shm_zone = ngx_http_kvroute_shared_add(cf, "kvroute_share.",
                                          layout + zone->shm_zone->shm.size,
                                          &sh->zone, sizeof(kvr_share_t));
    if (share->shm_zone == NULL) {
        return NGX_ERROR;
    }

    share->shm_zone->init = ngx_http_kvroute_share_conf_shm;

    return ngx_http_kvroute_extension_attach(cf, &kvr_share_hooks, zone,
                                             share->shm_zone, NULL);
}


static ngx_int_t
ngx_http_kvroute_share_conf_shm(ngx_shm_zone_t *shm_zone, void *data)
{
    uint64_t  id;

    if (ngx_http_kvroute_shared_init(shm_zone, data) != NGX_OK) {
        return NGX_ERROR;
    }

    if (data || shm_zone->shm.exists) {
        return NGX_OK;
    }

    /* random, because containers are cloned together with their host name */

    if (getrandom(&id, sizeof(id), 0) != sizeof(id)) {
        ngx_log_error(NGX_LOG_EMERG, shm_zone->shm.log, ngx_errno,
                      "kvroute_share: no random bytes for the id of this host");
        return NGX_ERROR;
    }

    kvr_share_init(shm_zone->data, id | 1);

    return NGX_OK;
}


/* Called last, because "resolver" may come after the directive. */
ngx_int_t
ngx_http_kvroute_share_conf_init(ngx_conf_t *cf)
{
    ngx_uint_t                       i;
    ngx_array_t                     *shares;
    ngx_http_kvroute_share_conf_t  **share;

    shares = ngx_http_conf_get_module_main_conf(cf,
                                                ngx_http_kvroute_share_module);
    share = shares->elts;

    for (i = 0; i < shares->nelts; i++) {
        if (ngx_http_kvroute_share_conf_addr(cf, share[i]) != NGX_OK) {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_kvroute_share_conf_addr(ngx_conf_t *cf,
    ngx_http_kvroute_share_conf_t *share)
{
    ngx_url_t                  u;
    ngx_http_core_loc_conf_t  *clcf;

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);

    if (share->naddrs
        || (clcf->resolver && clcf->resolver->connections.nelts))
    {
        return NGX_OK;
    }

    ngx_memzero(&u, sizeof(ngx_url_t));

    u.url = share->store;
    u.default_port = NGX_HTTP_KVROUTE_SHARE_CONF_PORT;

    if (ngx_parse_url(cf->pool, &u) != NGX_OK) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "%s in server \"%V\" of \"kvroute_share\"",
                      u.err ? u.err : "no address", &share->store);
        return NGX_ERROR;
    }

    share->addrs = u.addrs;
    share->naddrs = u.naddrs;

    return NGX_OK;
}
