
/*
 * Copyright (C) kvroute contributors
 */


/* The directive kvroute_events. */


#include "events/ngx_http_kvroute_events_int.h"
#include "conf/ngx_http_kvroute_conf_param.h"
#include "zone/ngx_http_kvroute_zone.h"


#define NGX_HTTP_KVROUTE_EVENTS_CONF_ALIASES  (1024 * 1024 * 1024)

#define NGX_HTTP_KVROUTE_EVENTS_CONF_PORT                                     \
    "a port between 1 and 65535, or \"+\" and an offset to the server's port"
#define NGX_HTTP_KVROUTE_EVENTS_CONF_AUTO                                     \
    NGX_HTTP_KVROUTE_EVENTS_CONF_PORT ", a range of up to 8 ports, one for "  \
    "each rank, or \"auto\""


static ngx_int_t ngx_http_kvroute_events_conf_check(ngx_conf_t *cf,
    ngx_http_upstream_srv_conf_t *uscf, ngx_http_kvroute_srv_conf_t *kscf);
static ngx_int_t ngx_http_kvroute_events_conf_ports(ngx_conf_t *cf,
    ngx_http_upstream_srv_conf_t *uscf, ngx_http_kvroute_srv_conf_t *kscf);
static ngx_int_t ngx_http_kvroute_events_conf_auto(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field);
static ngx_int_t ngx_http_kvroute_events_conf_port(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field);
static ngx_int_t ngx_http_kvroute_events_conf_zone(ngx_conf_t *cf,
    ngx_http_upstream_srv_conf_t *uscf, ngx_http_kvroute_srv_conf_t *kscf);


static const size_t  ngx_http_kvroute_events_conf_parts[] = {
    sizeof(kvr_events_t),
    sizeof(kvr_events_source_t),
    sizeof(kvr_events_places_t),
    KVR_EVENTS_SOURCES,
    KVR_EVENTS_SAMPLES
};

static const size_t  ngx_http_kvroute_events_conf_alias_parts[] = {
    sizeof(kvr_aliases_t),
    sizeof(kvr_alias_t),
    sizeof(kvr_alias_cell_t),
    sizeof(kvr_alias_run_t),
    sizeof(kvr_alias_anchor_t),
    KVR_ALIAS_ENTRIES
};


static const ngx_http_kvroute_conf_param_t  ngx_http_kvroute_events_conf_list[]
= {
    { ngx_string("port="), ngx_http_kvroute_events_conf_auto,
      0, sizeof(ngx_http_kvroute_events_conf_t),
      0, 0, NGX_HTTP_KVROUTE_EVENTS_CONF_AUTO },

    { ngx_string("replay="), ngx_http_kvroute_events_conf_port,
      ngx_http_kvroute_conf_field(ngx_http_kvroute_events_conf_t, replay),
      0, 0, NGX_HTTP_KVROUTE_EVENTS_CONF_PORT },

    { ngx_string("aliases="), ngx_http_kvroute_conf_param_size,
      ngx_http_kvroute_conf_field(ngx_http_kvroute_events_conf_t, aliases),
      KVR_ATTRIBUTE_LEAST, NGX_HTTP_KVROUTE_EVENTS_CONF_ALIASES,
      "between 64k and 1g" },

    ngx_http_kvroute_conf_param_null
};


char *
ngx_http_kvroute_events_conf(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_http_kvroute_events_conf_t *events = conf;

    ngx_http_kvroute_srv_conf_t  *kscf;

    static ngx_str_t  id = ngx_string("request_id");

    if (events->port) {
        return "is duplicate";
    }

    if (ngx_http_kvroute_conf_param_all(cf, ngx_http_kvroute_events_conf_list,
                                        1, events)
        != NGX_OK)
    {
        return NGX_CONF_ERROR;
    }

    kscf = ngx_http_conf_get_module_srv_conf(cf, ngx_http_kvroute_module);
    kscf->engine_used = (events->port == NGX_HTTP_KVROUTE_EVENTS_AUTO);

    if (events->port == 0) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"%V\" must have \"port\" parameter: \"port=\" and "
                           NGX_HTTP_KVROUTE_EVENTS_CONF_AUTO, &cmd->name);
        return NGX_CONF_ERROR;
    }

    if (events->port == NGX_HTTP_KVROUTE_EVENTS_AUTO && events->replay) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"port=auto\" finds the replay port of an engine: "
                           "remove \"replay=\"");
        return NGX_CONF_ERROR;
    }

    if (events->port == events->replay) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "\"replay=\" must be another port than \"port=\"");
        return NGX_CONF_ERROR;
    }

    if (events->aliases) {
        events->session = ngx_http_get_variable_index(cf, &id);

        if (events->session == NGX_ERROR) {
            return NGX_CONF_ERROR;
        }
    }

    events->ranks = ngx_max(events->ranks, 1);

    return NGX_CONF_OK;
}


ngx_int_t
ngx_http_kvroute_events_conf_init(ngx_conf_t *cf)
{
    ngx_uint_t                       i;
    ngx_http_kvroute_srv_conf_t     *kscf;
    ngx_http_upstream_srv_conf_t   **uscf;
    ngx_http_upstream_main_conf_t   *umcf;
    ngx_http_kvroute_events_conf_t  *events;

    umcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_upstream_module);
    uscf = umcf->upstreams.elts;

    for (i = 0; i < umcf->upstreams.nelts; i++) {

        if (uscf[i]->srv_conf == NULL) {
            continue;
        }

        events = ngx_http_conf_upstream_srv_conf(uscf[i],
                                               ngx_http_kvroute_events_module);
        kscf = ngx_http_conf_upstream_srv_conf(uscf[i],
                                               ngx_http_kvroute_module);

        if (events->port == 0) {
            continue;
        }

        if (kscf->shm_zone == NULL) {
            ngx_http_kvroute_conf_attach_idle(cf, uscf[i], "kvroute_events");

        } else if (ngx_http_kvroute_events_conf_check(cf, uscf[i], kscf)
                   != NGX_OK)
        {
            return NGX_ERROR;
        }
    }

    return NGX_OK;
}


/*
 * Checks zones and ports, and warns of a publisher that several servers share:
 * each event would count for all of them.
 */
static ngx_int_t
ngx_http_kvroute_events_conf_check(ngx_conf_t *cf,
    ngx_http_upstream_srv_conf_t *uscf, ngx_http_kvroute_srv_conf_t *kscf)
{
    ngx_uint_t                       i, k, n, port, warned;
    ngx_addr_t                      *a, *b;
    const char                      *fixed;
    ngx_http_upstream_server_t      *server;
    ngx_http_kvroute_events_conf_t  *events;

    events = ngx_http_kvroute_events_get(kscf);

    if (kscf->ranks && events->ranks > 1) {
        ngx_log_error(NGX_LOG_WARN, cf->log, 0,
                      "the range of ports of \"kvroute_events\" in upstream "
                      "\"%V\" in %s:%ui has no effect with \"kvroute_ranks\": "
                      "write the first port only", &uscf->host,
                      uscf->file_name, uscf->line);
    }

    if (ngx_http_kvroute_events_conf_ports(cf, uscf, kscf) != NGX_OK) {
        return NGX_ERROR;
    }

    server = uscf->servers->elts;
    n = uscf->servers->nelts;
    warned = 0;

    fixed = events->port < NGX_HTTP_KVROUTE_EVENTS_ADD ? "port="
            : events->replay
              && events->replay < NGX_HTTP_KVROUTE_EVENTS_ADD
              ? "replay=" : NULL;

    for (i = 0; i < n; i++) {

        if (server[i].naddrs != 1 || server[i].down) {
            continue;
        }

        a = &server[i].addrs[0];

        port = ngx_inet_get_port(a->sockaddr);

        if (port == 0
            || (events->port & NGX_HTTP_KVROUTE_EVENTS_ADD
                && port + (events->port & 0xffff) > 65535))
        {
            ngx_http_kvroute_conf_check_warn(cf, uscf, "kvroute_events",
                          "has no port for server \"%V\": its events are not "
                          "read", &server[i].name);
            continue;
        }

        if (warned || fixed == NULL) {
            continue;
        }

        for (k = 0; k < i && !warned; k++) {

            b = &server[k].addrs[0];

            if (server[k].naddrs == 1 && !server[k].down
                && ngx_cmp_sockaddr(a->sockaddr, a->socklen, b->sockaddr,
                                    b->socklen, 0)
                   == NGX_OK)
            {
                warned = 1;

                ngx_http_kvroute_conf_check_warn(cf, uscf, "kvroute_events",
                              "has one publisher for servers \"%V\" and "
                              "\"%V\": write \"%s+N\", which adds N to the "
                              "port of each server", &server[k].name,
                              &server[i].name, fixed);
            }
        }
    }

    return ngx_http_kvroute_events_conf_zone(cf, uscf, kscf);
}


/* Checks that each rank has a port of its own. */
static ngx_int_t
ngx_http_kvroute_events_conf_ports(ngx_conf_t *cf,
    ngx_http_upstream_srv_conf_t *uscf, ngx_http_kvroute_srv_conf_t *kscf)
{
    ngx_uint_t                       ranks, port, replay;
    ngx_http_kvroute_events_conf_t  *events;

    events = ngx_http_kvroute_events_get(kscf);
    ranks = kscf->ranks && kscf->ranks != NGX_HTTP_KVROUTE_RANKS_AUTO
            ? kscf->ranks : events->ranks;

    port = events->port;
    replay = events->replay;

    if (port < NGX_HTTP_KVROUTE_EVENTS_ADD && port + ranks - 1 > 65535) {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "\"port=\" of \"kvroute_events\" in upstream \"%V\" in "
                      "%s:%ui must be %ui at most with %ui ranks: each has the "
                      "next port", &uscf->host, uscf->file_name, uscf->line,
                      65536 - ranks, ranks);
        return NGX_ERROR;
    }

    /* both are port numbers, or both are offsets */

    if (replay && (port ^ replay) < NGX_HTTP_KVROUTE_EVENTS_ADD
        && ngx_max(port, replay) - ngx_min(port, replay) < ranks)
    {
        ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                      "\"port=\" and \"replay=\" of \"kvroute_events\" in "
                      "upstream \"%V\" in %s:%ui must be %ui apart with %ui "
                      "ranks: each has the next port of both", &uscf->host,
                      uscf->file_name, uscf->line, ranks, ranks);
        return NGX_ERROR;
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_kvroute_events_conf_auto(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field)
{
    ngx_http_kvroute_events_conf_t  *events = field;

    u_char      *dash;
    ngx_int_t    rc;
    ngx_str_t    first, last;
    ngx_uint_t   port;

    if (value->len == 4 && ngx_strncmp(value->data, "auto", 4) == 0) {
        events->port = NGX_HTTP_KVROUTE_EVENTS_AUTO;
        return NGX_OK;
    }

    dash = ngx_strlchr(value->data, value->data + value->len, '-');

    first = *value;

    if (dash) {
        first.len = dash - value->data;
    }

    rc = ngx_http_kvroute_events_conf_port(cf, param, &first, &events->port);

    if (rc != NGX_OK || dash == NULL) {
        return rc;
    }

    last.data = dash + 1;
    last.len = value->data + value->len - last.data;

    rc = ngx_http_kvroute_events_conf_port(cf, param, &last, &port);

    if (rc != NGX_OK) {
        return rc;
    }

    if (port <= events->port || port - events->port >= KVR_EVENTS_SOURCES) {
        return NGX_ABORT;
    }

    events->ranks = port - events->port + 1;

    return NGX_OK;
}


static ngx_int_t
ngx_http_kvroute_events_conf_port(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field)
{
    ngx_uint_t  *port = field;

    u_char      *p;
    size_t       len;
    ngx_int_t    n;
    ngx_uint_t   add;

    p = value->data;
    len = value->len;
    add = 0;

    if (len && *p == '+') {
        add = NGX_HTTP_KVROUTE_EVENTS_ADD;
        p++;
        len--;
    }

    n = ngx_atoi(p, len);

    if (n == NGX_ERROR) {
        return NGX_DECLINED;
    }

    if (n < 1 || n > 65535) {
        return NGX_ABORT;
    }

    *port = (ngx_uint_t) n | add;

    return NGX_OK;
}


/*
 * Creates one state per kvroute_zone: an engine of two upstreams is one peer.
 */
static ngx_int_t
ngx_http_kvroute_events_conf_zone(ngx_conf_t *cf,
    ngx_http_upstream_srv_conf_t *uscf, ngx_http_kvroute_srv_conf_t *kscf)
{
    size_t                           size;
    ngx_uint_t                       i;
    ngx_http_kvroute_zone_t         *zone;
    ngx_http_kvroute_srv_conf_t    **other;
    ngx_http_kvroute_main_conf_t    *kmcf;
    ngx_http_kvroute_events_conf_t  *events, *others;

    zone = kscf->shm_zone->data;

    /* an undeclared zone is refused elsewhere */

    if (zone == NULL) {
        return NGX_OK;
    }

    events = ngx_http_kvroute_events_get(kscf);
    size = events->aliases;

    kmcf = ngx_http_conf_get_module_main_conf(cf, ngx_http_kvroute_module);
    other = kmcf->upstreams.elts;

    for (i = 0; i < kmcf->upstreams.nelts; i++) {

        others = ngx_http_kvroute_events_get(other[i]);

        if (others == NULL || other[i]->shm_zone != kscf->shm_zone) {
            continue;
        }

        if (size && others->aliases && others->aliases != size) {
            ngx_log_error(NGX_LOG_EMERG, cf->log, 0,
                          "\"aliases=\" of \"kvroute_events\" in upstream "
                          "\"%V\" in %s:%ui differs from that of upstream "
                          "\"%V\", which has the same \"kvroute_zone\": write "
                          "the same size in both", &uscf->host, uscf->file_name,
                          uscf->line, &other[i]->upstream->host);
            return NGX_ERROR;
        }

        if (others->feeds) {
            events->feeds = others->feeds;
        }
    }

    if (events->feeds == NULL) {
        events->feeds = ngx_pcalloc(cf->pool, sizeof(kvr_feeds_t));
        if (events->feeds == NULL) {
            return NGX_ERROR;
        }
    }

    events->shm_zone = ngx_http_kvroute_shared_add(cf, "kvroute_events.",
                             kvr_layout(ngx_http_kvroute_events_conf_parts,
                                 kvr_nelts(ngx_http_kvroute_events_conf_parts)),
                             &zone->name,
                             zone->max_peers * sizeof(kvr_events_t));

    if (events->shm_zone == NULL
        || ngx_http_kvroute_extension_attach(cf, &kvr_sync_hooks, zone,
                                             events->shm_zone, events->feeds)
           != NGX_OK)
    {
        return NGX_ERROR;
    }

    if (size == 0) {
        return NGX_OK;
    }

    /* fewer servers with more memory each may need as much in total */

    events->aliases_zone = ngx_http_kvroute_shared_add(cf, "kvroute_aliases.",
                       kvr_layout(ngx_http_kvroute_events_conf_alias_parts,
                           kvr_nelts(ngx_http_kvroute_events_conf_alias_parts))
                       + size,
                       &zone->name, kvr_attribute_size(zone->max_peers, size));

    return events->aliases_zone ? NGX_OK : NGX_ERROR;
}
