
/*
 * Copyright (C) kvroute contributors
 */


/*
 * How the module gets into an upstream: by its own directive there, or by name
 * from outside, for upstreams that a controller writes and that others cannot
 * edit.
 *
 * The directive replaces the method before it in the block, and a later method
 * replaces kvroute.  nginx calls both "load balancing method redefined"; these
 * messages name the loss and the fix.
 *
 * By name, kvroute replaces any method of the upstream.  That needs nginx
 * 1.29.7: before, "keepalive" was a method around the method, and would be
 * lost without a warning.
 */


#include "conf/ngx_http_kvroute_conf_param.h"


#define NGX_HTTP_KVROUTE_ATTACH_VERSION  1029007


static ngx_int_t ngx_http_kvroute_conf_attach_to(ngx_conf_t *cf,
    ngx_http_upstream_srv_conf_t *uscf);
static void ngx_http_kvroute_conf_attach_replace(ngx_conf_t *cf,
    ngx_http_upstream_srv_conf_t *uscf);
static ngx_uint_t ngx_http_kvroute_conf_attach_uses(ngx_conf_t *cf,
    ngx_http_upstream_srv_conf_t *uscf, const char *module);
static ngx_int_t ngx_http_kvroute_conf_attach_matches(ngx_conf_t *cf,
    ngx_http_kvroute_conf_named_t *named, ngx_str_t *name);


char *
ngx_http_kvroute_conf_attach(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_kvroute_srv_conf_t  *kscf = conf;

    ngx_http_upstream_srv_conf_t  *uscf;

    if (kscf->shm_zone) {
        return kscf->shadow == cmd->offset
               ? "is duplicate"
               : "cannot be in one upstream with the other one: \"kvroute\" "
                 "routes, \"kvroute_shadow\" only counts";
    }

    if (ngx_http_kvroute_conf_upstream_params(cf, kscf, 1) != NGX_OK) {
        return NGX_CONF_ERROR;
    }

    uscf = ngx_http_conf_get_module_srv_conf(cf, ngx_http_upstream_module);

    if (cmd->offset) {

        if (kvr_policy_needs(kscf->policy.kind) & KVR_NEEDS_SESSION) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "policy \"%s\" is not for \"%V\": another "
                               "method chooses the servers of sessions",
                               kvr_policy_name(kscf->policy.kind),
                               &cmd->name);
            return NGX_CONF_ERROR;
        }

        kscf->shadow = 1;

        return ngx_http_kvroute_conf_attach_to(cf, uscf) == NGX_OK
               ? NGX_CONF_OK : NGX_CONF_ERROR;
    }

    ngx_http_kvroute_conf_attach_replace(cf, uscf);

    uscf->flags = NGX_HTTP_UPSTREAM_CREATE
                  |NGX_HTTP_UPSTREAM_MODIFY
                  |NGX_HTTP_UPSTREAM_WEIGHT
                  |NGX_HTTP_UPSTREAM_MAX_CONNS
                  |NGX_HTTP_UPSTREAM_MAX_FAILS
                  |NGX_HTTP_UPSTREAM_FAIL_TIMEOUT
                  |NGX_HTTP_UPSTREAM_DOWN
                  |NGX_HTTP_UPSTREAM_BACKUP;

    return ngx_http_kvroute_conf_attach_to(cf, uscf) == NGX_OK
           ? NGX_CONF_OK : NGX_CONF_ERROR;
}


static ngx_int_t
ngx_http_kvroute_conf_attach_to(ngx_conf_t *cf,
    ngx_http_upstream_srv_conf_t *uscf)
{
    ngx_http_kvroute_srv_conf_t   *kscf, **kscfp;
    ngx_http_kvroute_main_conf_t  *kmcf;

    kmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_kvroute_module);
    kscf = ngx_http_conf_upstream_srv_conf(uscf, ngx_http_kvroute_module);

    kscfp = ngx_array_push(&kmcf->upstreams);
    if (kscfp == NULL) {
        return NGX_ERROR;
    }

    *kscfp = kscf;

    kscf->upstream = uscf;

    if (!kscf->shadow) {
        uscf->peer.init_upstream = kmcf->init_upstream;
    }

    return NGX_OK;
}


/* Warns of what "kvroute" replaces in this block. */
static void
ngx_http_kvroute_conf_attach_replace(ngx_conf_t *cf,
    ngx_http_upstream_srv_conf_t *uscf)
{
    ngx_uint_t  i, found;

    static const struct {
        const char  *directive;
        const char  *module;
    } around[] = {
        { "keepalive", ngx_http_kvroute_keepalive_module },
        { "sticky", ngx_http_kvroute_sticky_module }
    };

    if (uscf->peer.init_upstream == NULL) {
        return;
    }

    for (i = 0, found = 0; i < 2; i++) {

        if (ngx_http_kvroute_conf_attach_uses(cf, uscf, around[i].module)) {
            found = 1;
            ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                               "\"%s\" before \"kvroute\" has no effect: "
                               "write it after \"kvroute\"",
                               around[i].directive);
        }
    }

    if (!found) {
        ngx_conf_log_error(NGX_LOG_WARN, cf, 0,
                           "load balancing method redefined: \"kvroute\" takes "
                           "the place of the one before it, remove that one");
    }
}


/* Tells whether the block has the directive of a module: see _compat.h. */
static ngx_uint_t
ngx_http_kvroute_conf_attach_uses(ngx_conf_t *cf,
    ngx_http_upstream_srv_conf_t *uscf, const char *module)
{
    void               *conf, *fresh;
    ngx_uint_t          i;
    ngx_module_t       *m;
    ngx_http_module_t  *ctx;

    for (i = 0; module && cf->cycle->modules[i]; i++) {
        m = cf->cycle->modules[i];

        if (m->type != NGX_HTTP_MODULE
            || ngx_strcmp(m->name, module) != 0)
        {
            continue;
        }

        ctx = m->ctx;

        if (ctx->create_srv_conf == NULL) {
            return 0;
        }

        conf = uscf->srv_conf[m->ctx_index];
        fresh = ctx->create_srv_conf(cf);

        return conf && fresh && ngx_memcmp(conf, fresh, sizeof(void *)) != 0;
    }

    return 0;
}


/*
 * Called when nginx has set up all upstreams.  The module has initialized an
 * upstream unless another method came after it.
 */
ngx_int_t
ngx_http_kvroute_conf_attach_check(ngx_conf_t *cf)
{
    ngx_uint_t                     i;
    ngx_http_kvroute_srv_conf_t   *kscf, **kscfp;
    ngx_http_kvroute_main_conf_t  *kmcf;

    kmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_kvroute_module);

    kscfp = kmcf->upstreams.elts;

    for (i = 0; i < kmcf->upstreams.nelts; i++) {

        kscf = kscfp[i];

        if (kscf->in_use) {
            continue;
        }

        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "\"kvroute\" in upstream \"%V\" in %s:%ui is replaced by "
                      "a load balancing method after it: remove that one "
                      "(least_conn, ip_hash, hash, random); \"keepalive\" may "
                      "come after \"kvroute\"", &kscf->upstream->host,
                      kscf->upstream->file_name, kscf->upstream->line);
        return NGX_ERROR;
    }

    return NGX_OK;
}


char *
ngx_http_kvroute_conf_attach_named(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf)
{
    ngx_http_kvroute_main_conf_t  *kmcf = conf;

    ngx_str_t                      *value, *words;
    ngx_uint_t                      i;
    ngx_http_kvroute_srv_conf_t     kscf;
    ngx_http_kvroute_conf_named_t  *named;
#if (NGX_PCRE)
    u_char                        errstr[NGX_MAX_CONF_ERRSTR];
    ngx_regex_compile_t           rc;
#endif

#if (nginx_version < NGX_HTTP_KVROUTE_ATTACH_VERSION)

    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "\"%V\" needs nginx 1.29.7 or newer, this is "
                       NGINX_VERSION, &cmd->name);
    return NGX_CONF_ERROR;

#endif

    value = cf->args->elts;

    /* the first match wins, so a second one would never apply */

    named = kmcf->named.elts;

    for (i = 0; i < kmcf->named.nelts; i++) {
        if (named[i].name.len == value[1].len
            && ngx_strncmp(named[i].name.data, value[1].data, value[1].len)
               == 0)
        {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                               "duplicate \"%V\" of \"%V\", the other one is "
                               "in %s:%ui", &cmd->name, &value[1],
                               named[i].file, named[i].line);
            return NGX_CONF_ERROR;
        }
    }

    named = ngx_array_push(&kmcf->named);
    if (named == NULL) {
        return NGX_CONF_ERROR;
    }

    ngx_memzero(named, sizeof(ngx_http_kvroute_conf_named_t));

    named->name = value[1];
    named->file = cf->conf_file->file.name.data;
    named->line = cf->conf_file->line;

    if (value[1].len && value[1].data[0] == '~') {

#if (NGX_PCRE)

        ngx_memzero(&rc, sizeof(ngx_regex_compile_t));

        rc.pattern = value[1];
        rc.pattern.data++;
        rc.pattern.len--;

        if (rc.pattern.len && rc.pattern.data[0] == '*') {
            rc.pattern.data++;
            rc.pattern.len--;
            rc.options = NGX_REGEX_CASELESS;
        }

        rc.pool = cf->pool;
        rc.err.len = NGX_MAX_CONF_ERRSTR;
        rc.err.data = errstr;

        if (ngx_regex_compile(&rc) != NGX_OK) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, 0, "%V", &rc.err);
            return NGX_CONF_ERROR;
        }

        named->regex = rc.regex;

#else

        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "regular expression \"%V\" needs PCRE library",
                           &value[1]);
        return NGX_CONF_ERROR;

#endif
    }

    named->words = ngx_palloc(cf->pool, sizeof(ngx_array_t));
    words = ngx_palloc(cf->pool, cf->args->nelts * sizeof(ngx_str_t));

    if (named->words == NULL || words == NULL) {
        return NGX_CONF_ERROR;
    }

    ngx_memcpy(words, value, cf->args->nelts * sizeof(ngx_str_t));

    *named->words = *cf->args;
    named->words->elts = words;

    /* errors are reported here, where the line is known */

    ngx_memzero(&kscf, sizeof(ngx_http_kvroute_srv_conf_t));

    return ngx_http_kvroute_conf_upstream_params(cf, &kscf, 2) == NGX_OK
           ? NGX_CONF_OK : NGX_CONF_ERROR;
}


/*
 * Called before nginx sets up upstreams.  The first directive that matches
 * wins; an upstream with a directive of its own keeps that.
 */
ngx_int_t
ngx_http_kvroute_conf_attach_init(ngx_conf_t *cf)
{
    ngx_int_t                        rc;
    ngx_uint_t                       i, n;
    ngx_array_t                     *args;
    ngx_http_kvroute_conf_named_t   *named;
    ngx_http_kvroute_srv_conf_t     *kscf;
    ngx_http_upstream_srv_conf_t   **uscf;
    ngx_http_kvroute_main_conf_t    *kmcf;
    ngx_http_upstream_main_conf_t   *umcf;

    kmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_kvroute_module);
    umcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_upstream_module);

    named = kmcf->named.elts;
    uscf = umcf->upstreams.elts;

    for (i = 0; i < umcf->upstreams.nelts; i++) {

        /* upstreams that proxy_pass made of an address have no block */

        if (uscf[i]->srv_conf == NULL
            || !(uscf[i]->flags & NGX_HTTP_UPSTREAM_CREATE))
        {
            continue;
        }

        kscf = ngx_http_conf_upstream_srv_conf(uscf[i],
                                               ngx_http_kvroute_module);

        for (n = 0; n < kmcf->named.nelts; n++) {

            rc = ngx_http_kvroute_conf_attach_matches(cf, &named[n],
                                                 &uscf[i]->host);
            if (rc == NGX_ERROR) {
                return NGX_ERROR;
            }

            if (rc != NGX_OK) {
                continue;
            }

            named[n].found = 1;

            if (kscf->shm_zone) {
                break;
            }

            /* parsed as if these words were in the block */

            kscf->matched = 1;

            args = cf->args;
            cf->args = named[n].words;

            rc = ngx_http_kvroute_conf_upstream_params(cf, kscf, 2);

            cf->args = args;

            if (rc != NGX_OK
                || ngx_http_kvroute_conf_attach_to(cf, uscf[i]) != NGX_OK)
            {
                return NGX_ERROR;
            }

            break;
        }

        if (kscf->shm_zone == NULL && (kscf->probe || kscf->health)) {
            ngx_http_kvroute_conf_attach_idle(cf, uscf[i], kscf->probe
                                            ? "kvroute_probe" : "kvroute_health");
        }

        if ((kscf->shm_zone == NULL || kscf->shadow) && kscf->eject_set) {
            ngx_http_kvroute_conf_attach_idle(cf, uscf[i], "kvroute_eject");
        }

        if ((kscf->shm_zone == NULL || kscf->shadow) && kscf->ranks) {
            ngx_http_kvroute_conf_attach_idle(cf, uscf[i], "kvroute_ranks");
            kscf->ranks = 0;
        }
    }

    for (n = 0; n < kmcf->named.nelts; n++) {

        if (!named[n].found) {
            ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                          "\"kvroute_upstream\" matches no upstream by \"%V\" "
                          "in %s:%ui", &named[n].name, named[n].file,
                          named[n].line);
        }
    }

    return NGX_OK;
}


void
ngx_http_kvroute_conf_attach_idle(ngx_conf_t *cf,
    ngx_http_upstream_srv_conf_t *uscf, const char *directive)
{
    ngx_http_kvroute_conf_check_warn(cf, uscf, directive,
                                     "does nothing without \"kvroute\"");
}


static ngx_int_t
ngx_http_kvroute_conf_attach_matches(ngx_conf_t *cf,
    ngx_http_kvroute_conf_named_t *named, ngx_str_t *name)
{
#if (NGX_PCRE)
    ngx_int_t  n;

    if (named->regex) {
        n = ngx_regex_exec(named->regex, name, NULL, 0);

        if (n == NGX_REGEX_NO_MATCHED) {
            return NGX_DECLINED;
        }

        if (n < 0) {
            ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                          ngx_regex_exec_n " failed: %i on \"%V\" using \"%V\"",
                          n, name, &named->name);
            return NGX_ERROR;
        }

        return NGX_OK;
    }
#endif

    if (named->name.len == name->len
        && ngx_strncasecmp(named->name.data, name->data, name->len) == 0)
    {
        return NGX_OK;
    }

    return NGX_DECLINED;
}
