
/*
 * Copyright (C) kvroute contributors
 */


/*
 * Looks up what the peers of an upstream have cached of a prompt.
 *
 * The queue needs this when a request arrives and when it looks for room, the
 * balancer when the request goes to a peer.  So the last result is kept with
 * the request, and the caller limits its age.
 */


#include "request/ngx_http_kvroute_request.h"
#include "core/route/kvr_route.h"


ngx_http_kvroute_lookup_t *
ngx_http_kvroute_lookup(ngx_http_kvroute_ctx_t *ctx,
    ngx_http_kvroute_srv_conf_t *conf, ngx_uint_t hot)
{
    uint64_t                   *chain;
    ngx_uint_t                  room;
    ngx_http_request_t         *r;
    ngx_http_kvroute_lookup_t  *l;

    r = ctx->request;

    /* skips: the engine does not read its cache for this request */

    if (!ctx->parsed || ctx->entries == 0 || ctx->skips
        || conf->numbered == 0)
    {
        return NULL;
    }

    l = ngx_http_kvroute_lookup_kept(ctx, conf, 0);

    if (l && (l->counted || !hot)) {
        return l;
    }

    chain = ngx_http_kvroute_prompt_chain(r, ctx, conf->zone);
    if (chain == NULL) {
        return NULL;
    }

    l = ctx->lookup;
    room = conf->zone->max_peers;

    if (l == NULL || l->room < room) {
        ngx_free(l);

        l = ngx_alloc(sizeof(ngx_http_kvroute_lookup_t)
                      + 2 * room * sizeof(uint32_t), r->connection->log);
        ctx->lookup = l;

        if (l == NULL) {
            return NULL;
        }

        l->room = room;
    }

    /* all slots, because a peer can get one during the request */

    ngx_memzero(l->matched, room * sizeof(uint32_t));

    l->best = kvr_index_lookup(conf->zone->core.index, chain, ctx->entries,
                               conf->set, l->matched);

    l->loads = kvr_candidate_deliver(&conf->zone->core, &conf->pool, chain,
                                     conf->set, l->matched,
                                     &l->matched[room])
               ? &l->matched[room] : NULL;

    l->conf = conf;
    l->edition = conf->edition;
    l->time = ngx_current_msec;
    l->counted = hot;

    if (hot && l->best) {
        kvr_candidate_hot(&conf->zone->core, chain, l->best,
                          (uint64_t) ngx_current_msec, &l->keys,
                          &l->hot);
    }

    return l;
}


ngx_http_kvroute_lookup_t *
ngx_http_kvroute_lookup_kept(ngx_http_kvroute_ctx_t *ctx,
    ngx_http_kvroute_srv_conf_t *conf, ngx_msec_t age)
{
    ngx_http_kvroute_lookup_t  *l;

    l = ctx->lookup;

    if (l == NULL || l->conf != conf || l->edition != conf->edition
        || ngx_current_msec - l->time > age)
    {
        return NULL;
    }

    return l;
}
