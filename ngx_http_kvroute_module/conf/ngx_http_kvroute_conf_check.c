
/*
 * Copyright (C) kvroute contributors
 */


/*
 * Warns of directives that are valid but have no effect.  Each warning names
 * the directive, the place, and what it needs there.
 */


#include "conf/ngx_http_kvroute_conf.h"
#include "request/ngx_http_kvroute_request.h"


static ngx_uint_t ngx_http_kvroute_conf_check_same(
    ngx_http_upstream_server_t *a, ngx_http_upstream_server_t *b);
static void ngx_http_kvroute_conf_check_servers(ngx_conf_t *cf,
    ngx_http_kvroute_srv_conf_t *kscf);
static void ngx_http_kvroute_conf_check_pair(ngx_conf_t *cf,
    ngx_http_kvroute_srv_conf_t *kscf, ngx_http_kvroute_srv_conf_t *other,
    ngx_uint_t once);


/* Called before the merge, so inherited directives cause no warning. */
void
ngx_http_kvroute_conf_check_location(ngx_conf_t *cf,
    ngx_http_kvroute_loc_conf_t *klcf)
{
    ngx_uint_t                     i;
    ngx_http_conf_ctx_t           *ctx;
    ngx_http_upstream_conf_t      *ucf;
    ngx_http_core_loc_conf_t      *clcf;
    ngx_http_kvroute_main_conf_t  *kmcf;

    ngx_http_kvroute_words_t      *words = klcf->request;

    struct {
        ngx_uint_t   there;
        const char  *directive;
        ngx_uint_t   queue;
    } has[] = {
        { klcf->policy != NULL, "kvroute_policy", 0 },
        { klcf->pin != NGX_CONF_UNSET_PTR, "kvroute_pin", 0 },
        { klcf->salt != NGX_CONF_UNSET_PTR, "kvroute_salt", 0 },
        { words && words->tenant, "tenant=\" of \"kvroute_request", 0 },
        { words && words->weight, "weight=\" of \"kvroute_request", 1 },
        { words && words->priority, "priority=\" of \"kvroute_request", 1 },
        { words && words->deadline, "deadline=\" of \"kvroute_request", 1 },
        { words && words->upstream, "upstream=\" of \"kvroute_request", 1 }
    };

    ctx = cf->ctx;
    kmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_kvroute_module);
    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
    ucf = ngx_http_kvroute_pass_conf(ctx->loc_conf);

    if ((ucf != NULL) + (klcf->status != 0) + (klcf->api != 0) > 1) {
        ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                      "\"%s\" in location \"%V\" is beside \"%s\", and only "
                      "the last one answers: write a location for each",
                      klcf->status ? "kvroute_status" : "kvroute_api",
                      &clcf->name, ucf ? "proxy_pass" : "kvroute_api");
    }

    if (ucf == NULL) {

        if (words && words->upstream && words->upstream->lengths == NULL
            && ngx_http_kvroute_pass_named(kmcf, &words->upstream->value)
               == NULL)
        {
            ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                          "\"upstream=%V\" of \"kvroute_request\" in location "
                          "\"%V\" names no upstream with \"kvroute\"",
                          &words->upstream->value, &clcf->name);
        }

        return;
    }

    for (i = 0; i < kvr_nelts(has); i++) {
        if (has[i].there) {
            ngx_http_kvroute_conf_check_used(cf, has[i].directive,
                                             has[i].queue);
        }
    }
}


void
ngx_http_kvroute_conf_check_used(ngx_conf_t *cf, const char *directive,
    ngx_uint_t queue)
{
    u_char                         port[sizeof(":65535")];
    ngx_http_conf_ctx_t           *ctx;
    ngx_http_core_loc_conf_t      *clcf;
    ngx_http_kvroute_srv_conf_t   *kscf;
    ngx_http_upstream_srv_conf_t  *uscf;

    ctx = cf->ctx;
    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
    uscf = ngx_http_kvroute_pass_upstream(ctx->loc_conf);

    if (uscf == NULL) {
        return;
    }

    kscf = ngx_http_kvroute_pass_routed(uscf);

    if (kscf && kscf->shm_zone && (!queue || kscf->queue)) {
        return;
    }

    port[0] = '\0';

    if (uscf->port) {
        (void) ngx_sprintf(port, ":%ui%Z", (ngx_uint_t) uscf->port);
    }

    ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                  "\"%s\" in location \"%V\" has no effect: it passes to "
                  "\"%V%s\", which has no \"%s\"", directive, &clcf->name,
                  &uscf->host, port, queue ? "kvroute_queue" : "kvroute");
}


ngx_http_upstream_conf_t *
ngx_http_kvroute_conf_check_routed(ngx_conf_t *cf)
{
    ngx_http_conf_ctx_t          *ctx;
    ngx_http_upstream_conf_t     *ucf;
    ngx_http_kvroute_srv_conf_t  *kscf;

    ctx = cf->ctx;
    ucf = ngx_http_kvroute_pass_conf(ctx->loc_conf);

    kscf = ucf ? ngx_http_kvroute_pass_routed(ucf->upstream) : NULL;

    return kscf && kscf->zone ? ucf : NULL;
}


/*
 * A module behind nginx's own calls this, when their directives have been
 * inherited.
 */
char *
ngx_http_kvroute_conf_check_pass(ngx_conf_t *cf, void *parent, void *child)
{
    const char                   *directive;
    ngx_http_conf_ctx_t          *ctx;
    ngx_http_upstream_conf_t     *ucf;
    ngx_http_core_loc_conf_t     *clcf;
    ngx_http_kvroute_srv_conf_t  *kscf;

    ctx = cf->ctx;
    ucf = ngx_http_kvroute_conf_check_routed(cf);

    if (ucf == NULL) {
        return NGX_CONF_OK;
    }

    clcf = ngx_http_conf_get_module_loc_conf(cf, ngx_http_core_module);
    kscf = ngx_http_kvroute_pass_routed(ucf->upstream);

    directive = ngx_http_kvroute_pass_directive(ctx->loc_conf);

    if (ngx_strcmp(directive, "grpc_pass") == 0) {
        ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                      "\"kvroute\" cannot read prompts of \"grpc_pass\" in "
                      "location \"%V\", and routes them by load",
                      &clcf->name);

    } else if (ngx_strcmp(directive, "proxy_pass") != 0) {
        ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                      "\"%s\" in location \"%V\" speaks no HTTP to the servers "
                      "of \"kvroute\", as engines do: write \"proxy_pass "
                      "http://%V;\"", directive, &clcf->name,
                      &ucf->upstream->host);

#if (NGX_HTTP_SSL)

    } else if (kscf->engine.secure && (ucf->ssl == NULL || ucf->ssl->ctx == NULL)
               && (kscf->health || (kscf->probe && kscf->probe->port == 0
                                    && kscf->probe->addr == NULL)))
    {
        ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                      "\"proxy_pass\" in location \"%V\" is without TLS, and "
                      "\"kvroute_engine ssl\" probes the same servers with it: "
                      "write \"proxy_pass https://%V;\", or remove \"ssl\"",
                      &clcf->name, &ucf->upstream->host);

#endif

    } else if (!ucf->request_buffering && kscf->queue == NULL) {
        ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                      "\"proxy_request_buffering off\" in location \"%V\" hides "
                      "from \"kvroute\" what of a prompt arrives after the "
                      "header: remove it", &clcf->name);
    }

    return NGX_CONF_OK;
}


void
ngx_http_kvroute_conf_check_zones(ngx_conf_t *cf,
    ngx_http_kvroute_main_conf_t *kmcf)
{
    ngx_uint_t                    i, k;
    ngx_http_kvroute_zone_t     **zone;
    ngx_http_kvroute_srv_conf_t  *kscf, **kscfp;

    zone = kmcf->zones.elts;
    kscfp = kmcf->upstreams.elts;

    for (i = 0; i < kmcf->zones.nelts; i++) {

        for (k = 0; k < kmcf->upstreams.nelts; k++) {
            kscf = kscfp[k];
            if (kscf->zone == zone[i]) {
                break;
            }
        }

        if (k == kmcf->upstreams.nelts) {
            ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                          "\"kvroute_zone zone=%V\" is used by no upstream: "
                          "write \"kvroute zone=%V;\" in one",
                          &zone[i]->name, &zone[i]->name);
        }
    }
}


/* Tells whether two servers are one. */
static ngx_uint_t
ngx_http_kvroute_conf_check_same(ngx_http_upstream_server_t *a,
    ngx_http_upstream_server_t *b)
{
    return a->naddrs == 1 && b->naddrs == 1
           && ngx_cmp_sockaddr(a->addrs[0].sockaddr, a->addrs[0].socklen,
                               b->addrs[0].sockaddr, b->addrs[0].socklen, 1)
              == NGX_OK;
}


ngx_str_t *
ngx_http_kvroute_conf_check_both(ngx_http_upstream_srv_conf_t *one,
    ngx_http_upstream_srv_conf_t *other)
{
    ngx_uint_t                   i, k;
    ngx_http_upstream_server_t  *a, *b;

    a = one->servers->elts;
    b = other->servers->elts;

    for (i = 0; i < one->servers->nelts; i++) {
        for (k = 0; k < other->servers->nelts; k++) {
            if (ngx_http_kvroute_conf_check_same(&a[i], &b[k])) {
                return &a[i].name;
            }
        }
    }

    return NULL;
}


void
ngx_http_kvroute_conf_check_warn(ngx_conf_t *cf,
    ngx_http_upstream_srv_conf_t *uscf, const char *directive, const char *fmt,
    ...)
{
    u_char    text[NGX_MAX_CONF_ERRSTR], *last;
    va_list   args;

    va_start(args, fmt);
    last = ngx_vslprintf(text, text + sizeof(text), fmt, args);
    va_end(args);

    ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                  "\"%s\" in upstream \"%V\" in %s:%ui %*s", directive,
                  &uscf->host, uscf->file_name, uscf->line,
                  (size_t) (last - text), text);
}


/* Called after all locations are set up, because it looks at their headers. */
void
ngx_http_kvroute_conf_check_upstreams(ngx_conf_t *cf,
    ngx_http_kvroute_main_conf_t *kmcf)
{
    ngx_uint_t                    i, k;
    ngx_http_kvroute_srv_conf_t  *kscf, **kscfp;

    static const char *const  rank[] = { "kvroute_rank", NULL };

    kscfp = kmcf->upstreams.elts;

    for (i = 0; i < kmcf->upstreams.nelts; i++) {
        kscf = kscfp[i];

        if (kscf->queue && !kscf->named && kmcf->variable && !kmcf->expected) {
            ngx_http_kvroute_conf_check_warn(cf, kscf->upstream, "kvroute_queue",
                "has no effect: no \"proxy_pass\" names the upstream literally, "
                "write \"kvroute_request upstream=%V;\" beside the "
                "\"proxy_pass\" with a variable", &kscf->upstream->host);
        }

        ngx_http_kvroute_conf_check_servers(cf, kscf);

        for (k = 0; k < kmcf->upstreams.nelts; k++) {
            if (kscfp[k]->shm_zone == kscf->shm_zone) {
                ngx_http_kvroute_conf_check_pair(cf, kscf, kscfp[k], k < i);
            }
        }

        if (kscf->engine_set && !kscf->engine_used && kscf->probe == NULL
            && kscf->health == NULL)
        {
            ngx_http_kvroute_conf_check_warn(cf, kscf->upstream,
                "kvroute_engine", "does nothing without \"kvroute_probe\" or "
                "\"kvroute_health\"");
        }

        if (kscf->ranks == NGX_HTTP_KVROUTE_RANKS_AUTO && kscf->probe == NULL) {
            ngx_http_kvroute_conf_check_warn(cf, kscf->upstream,
                "kvroute_ranks auto", "needs \"kvroute_probe\": the metrics "
                "report how many ranks there are");
        }

        if (kscf->ranks && !ngx_http_kvroute_variables_used(cf, rank)) {
            ngx_http_kvroute_conf_check_warn(cf, kscf->upstream,
                "kvroute_ranks", "needs \"proxy_set_header "
                "X-Data-Parallel-Rank $kvroute_rank;\" in the location: else "
                "engines do not receive the rank");
        }
    }
}


/*
 * Warns of a single server, of one that is written twice, and of more than have
 * slots.
 */
static void
ngx_http_kvroute_conf_check_servers(ngx_conf_t *cf,
    ngx_http_kvroute_srv_conf_t *kscf)
{
    ngx_uint_t                   i, k, n, backups;
    ngx_http_upstream_server_t  *server;

    server = kscf->upstream->servers->elts;

    /* a name that is resolved later may have any number of addresses */

    for (i = 0, n = 0, backups = 0; i < kscf->upstream->servers->nelts; i++) {

        if (ngx_http_kvroute_server_resolves(&server[i])) {
            return;
        }

        for (k = 0; k < i; k++) {
            if (ngx_http_kvroute_conf_check_same(&server[i], &server[k])) {
                break;
            }
        }

        if (k < i && !kscf->shadow) {
            ngx_http_kvroute_conf_check_warn(cf, kscf->upstream, "kvroute",
                                             "has server \"%V\" twice, which "
                                             "is one server", &server[i].name);
            continue;
        }

        if (kscf->health && !kscf->engine.secure
            && ngx_inet_get_port(server[i].addrs[0].sockaddr) == 443)
        {
            ngx_http_kvroute_conf_check_warn(cf, kscf->upstream,
                "kvroute_health", "checks server \"%V\" without TLS: write "
                "\"kvroute_engine ssl;\"", &server[i].name);
        }

        n += server[i].naddrs;
        backups += server[i].backup ? server[i].naddrs : 0;
    }

    if (kscf->probe && kscf->probe->addr && n > 1) {
        ngx_http_kvroute_conf_check_warn(cf, kscf->upstream, "kvroute_probe",
            "reads the metrics of all %ui servers from one address: write "
            "\"url=:PORT/PATH\", for a port of each", n);
    }

    if (kscf->ranks && kscf->ranks != NGX_HTTP_KVROUTE_RANKS_AUTO) {
        n *= kscf->ranks;
    }

    if (n > kscf->zone->max_peers) {
        ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                      "upstream \"%V\" in %s:%ui has %ui servers, \"max_peers=\" "
                      "of \"kvroute_zone zone=%V\" is %ui: the others are "
                      "balanced by load only", &kscf->upstream->host,
                      kscf->upstream->file_name, kscf->upstream->line, n,
                      &kscf->zone->name, kscf->zone->max_peers);
    }

    /* those of an upstream that another program writes come and go */

    if (n - backups == 1 && !kscf->matched && !kscf->shadow
        && kscf->policy.kind == KVR_POLICY_KV_CACHE
        && kscf->queue == NULL && kscf->prefill == NULL
        && kscf->decode == NULL && kscf->ranks == 0)
    {
        ngx_http_kvroute_conf_check_warn(cf, kscf->upstream, "kvroute",
                                         "has one server to choose from");
    }
}


/* Warns of a server in two upstreams of a zone whose settings disagree. */
static void
ngx_http_kvroute_conf_check_pair(ngx_conf_t *cf,
    ngx_http_kvroute_srv_conf_t *kscf, ngx_http_kvroute_srv_conf_t *other,
    ngx_uint_t once)
{
    ngx_str_t   *name;
    ngx_uint_t   ranks, capacity;

    ranks = kscf->ranks && other->ranks == 0;
    capacity = once && (kscf->capacity != other->capacity
                        || kscf->host != other->host
                        || kscf->disk != other->disk
                        || kscf->fixed != other->fixed);

    if (!ranks && !capacity) {
        return;
    }

    name = ngx_http_kvroute_conf_check_both(other->upstream, kscf->upstream);

    if (name && capacity) {
        ngx_http_kvroute_conf_check_warn(cf, kscf->upstream, "capacity=",
            "differs from that in \"%V\", and both have server \"%V\" of a "
            "zone: write the same value in both", &other->upstream->host, name);
    }

    if (name && ranks) {
        ngx_http_kvroute_conf_check_warn(cf, kscf->upstream, "kvroute_ranks",
            "is not in \"%V\", which has server \"%V\" too: its requests count "
            "as those of the first rank, give it a kvroute_zone of its own",
            &other->upstream->host, name);
    }
}
