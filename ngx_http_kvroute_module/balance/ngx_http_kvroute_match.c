
/*
 * Copyright (C) kvroute contributors
 */


/*
 * What a request has to do with which peer: how much of its prompt each holds,
 * who has its model loaded, where its session or its prefix belongs.  Looked up
 * before the decision, without a lock.
 */


#include "queue/ngx_http_kvroute_queue.h"


static void ngx_http_kvroute_match_chunks(ngx_http_request_t *r,
    ngx_http_kvroute_attempt_t *at);
static void ngx_http_kvroute_match_model(ngx_http_kvroute_attempt_t *at);
static ngx_uint_t ngx_http_kvroute_match_lora(ngx_http_kvroute_attempt_t *at);
static void ngx_http_kvroute_match_prefix(ngx_http_request_t *r,
    ngx_http_kvroute_attempt_t *at);
static void ngx_http_kvroute_match_pin(ngx_http_request_t *r,
    ngx_http_kvroute_attempt_t *at);


/*
 * What the path and the length of a request say of the work that it is, as long
 * as nothing else does.  Returns whether there is a body.
 */
ngx_uint_t
ngx_http_kvroute_weigh(ngx_http_request_t *r, ngx_http_kvroute_ctx_t *ctx)
{
    ngx_uint_t  body;

    body = r->request_body
           && r->headers_in.content_length_n != 0
           && (r->request_body->bufs || r->reading_body);

    ctx->endpoint = kvr_endpoint(r->uri.data, r->uri.len);
    ctx->light = !body || !kvr_endpoint_computes(ctx->endpoint);

    if (ctx->light) {
        ctx->parsed = 0;
        ctx->bytes = 0;
        ctx->extra = 0;

    } else if (!ctx->parsed) {

        /* what is not read weighs as much as it is long */

        ctx->bytes = ngx_max(r->headers_in.content_length_n, 0);
    }

    return body;
}


/* finds out what the request has to do with which peer */
void
ngx_http_kvroute_match(ngx_http_request_t *r, ngx_http_kvroute_attempt_t *at)
{
    size_t                        size;
    uint32_t                      best;
    uint64_t                     *chain, set;
    unsigned                      needs;
    ngx_http_kvroute_ctx_t       *ctx;
    ngx_http_kvroute_srv_conf_t  *conf;

    ctx = at->ctx;
    conf = at->conf;
    set = conf->set;

    ngx_http_kvroute_match_pin(r, at);
    ngx_http_kvroute_session_owner(r, at);

    needs = kvr_policy_needs(at->policy->conf.policy);

    if (needs & KVR_NEEDS_SESSION) {
        ngx_http_kvroute_session_find(r, at);
    }

    if (needs & KVR_NEEDS_RING) {
        ngx_http_kvroute_match_prefix(r, at);
    }

    if (!(needs & KVR_NEEDS_MATCH) || !ctx->parsed || set == 0) {
        return;
    }

    /* after another zone's upstream: its hashes are not known here */

    if (ctx->zone != conf->zone
        && ngx_http_kvroute_request_chain(r, ctx, conf->zone) == NULL)
    {
        return;
    }

    if (needs & KVR_NEEDS_SCORE) {
        ngx_http_kvroute_match_model(at);
    }

    /* what is held is of no use to an engine that does not look */

    if (ctx->entries == 0 || ctx->skips) {
        return;
    }

    chain = ngx_http_kvroute_request_chain(r, ctx, conf->zone);
    if (chain == NULL) {
        return;
    }

    at->matched = ngx_http_kvroute_queue_matched(ctx, conf);

    if (at->matched == NULL) {
        /* a peer may be given its number while the request is under way */

        size = conf->zone->max_peers * sizeof(uint32_t);

        at->matched = ngx_pcalloc(r->pool, size);
        if (at->matched == NULL) {
            return;
        }

        best = kvr_index_lookup(conf->zone->sh->index, chain, ctx->entries,
                                set, at->matched);

        if (best && needs & KVR_NEEDS_SCORE) {

            at->popular = ngx_palloc(r->pool, sizeof(kvr_popular_view_t));

            if (at->popular) {
                ngx_http_kvroute_match_popular(conf->zone, chain, best,
                                               &at->counted, at->popular);
            }
        }

    } else if (needs & KVR_NEEDS_SCORE) {
        at->popular = &ctx->wait->popular;
        at->counted = ctx->wait->counted;
    }

    if (at->policy->conf.chunks != KVR_CHUNKS_OFF) {
        ngx_http_kvroute_match_chunks(r, at);
    }
}


/* the most units that a peer of a set holds */
uint32_t
ngx_http_kvroute_match_best(uint32_t *matched, uint64_t set)
{
    uint32_t  best;

    for (best = 0; set; set &= set - 1) {
        best = ngx_max(best, matched[__builtin_ctzll(set)]);
    }

    return best;
}


/*
 * Of how many requests what peers hold of this prompt is the beginning; units:
 * what the best of them holds.  What is below the floor of the costs is not
 * worth the look.
 */
void
ngx_http_kvroute_match_popular(ngx_http_kvroute_zone_t *zone, uint64_t *chain,
    uint32_t units, kvr_popular_keys_t *keys, kvr_popular_view_t *view)
{
    uint64_t  unit;

    unit = zone->sh->unit * KVR_BLOCK;

    if (units * unit <= KVR_SCORE_FLOOR) {
        units = 0;
    }

    kvr_popular_keys(chain, kvr_chain_entries(units), keys);

    kvr_popular_view(zone->sh->popular, keys, unit,
                     (uint64_t) ngx_current_msec, view);
}


/* bytes of the prompt that peers hold elsewhere than at its beginning */
static void
ngx_http_kvroute_match_chunks(ngx_http_request_t *r,
    ngx_http_kvroute_attempt_t *at)
{
    uint32_t                   i, id;
    uint64_t                   set, has, unit;
    kvr_document_t            *chunk;
    kvr_documents_t           *chunks;
    ngx_http_kvroute_shctx_t  *sh;

    sh = at->conf->zone->sh;
    set = at->conf->set;
    unit = sh->unit * KVR_BLOCK;

    chunks = ngx_http_kvroute_request_chunks(r, at->ctx, at->conf->zone);

    if (chunks == NULL || chunks->n == 0) {
        return;
    }

    at->chunks = ngx_pcalloc(r->pool, at->conf->zone->max_peers
                                      * sizeof(uint32_t));
    if (at->chunks == NULL) {
        return;
    }

    for (i = 0; i < chunks->n; i++) {

        chunk = &chunks->chunk[i];
        has = kvr_index_holds(sh->index, chunk->digest, set);

        for ( /* void */ ; has; has &= has - 1) {
            id = (uint32_t) __builtin_ctzll(has);

            if (chunk->start >= at->matched[id] * unit) {
                at->chunks[id] += chunk->len;
            }
        }
    }
}


/*
 * While an upstream has seen one model only there is nothing to tell apart.
 * With several, or several adapters, it matters who has this one loaded.
 */
static void
ngx_http_kvroute_match_model(ngx_http_kvroute_attempt_t *at)
{
    uint64_t                   last, root;
    kvr_upstream_t            *upstream;
    ngx_http_kvroute_shctx_t  *sh;

    sh = at->conf->zone->sh;
    root = at->ctx->model_root;

    upstream = &sh->registry->upstream[at->conf->number];
    last = kvr_get(&upstream->model);

    if (last != root) {
        kvr_set(&upstream->model, root);

        if (last) {
            kvr_set(&upstream->models, 1);
        }
    }

    at->models = at->conf->set;

    if (kvr_get(&upstream->models) && !ngx_http_kvroute_match_lora(at)) {
        at->models = kvr_index_holds(sh->index, root, at->conf->set);

        /* loaded nowhere: then it costs the same everywhere */

        if (at->models == 0) {
            at->models = at->conf->set;
        }
    }
}


/* engines that tell which adapters they have know best */
static ngx_uint_t
ngx_http_kvroute_match_lora(ngx_http_kvroute_attempt_t *at)
{
    int              has;
    uint32_t         id;
    uint64_t         set, lora, loaded;
    kvr_engine_t    *s;
    kvr_registry_t  *registry;

    if (at->conf->probe == NULL || at->ctx->model.len == 0) {
        return 0;
    }

    registry = at->conf->zone->sh->registry;
    lora = kvr_metrics_lora(at->ctx->model.data, at->ctx->model.len);
    loaded = 0;
    at->evicts = 0;

    for (set = at->conf->set; set; set &= set - 1) {

        id = (uint32_t) __builtin_ctzll(set);
        s = &registry->peer[id].signal;

        if (!(kvr_get(&s->set) & KVR_METRICS_LORA)
            || kvr_engine_worth(s, ngx_current_msec,
                                at->conf->probe->interval)
               < 0.5)
        {
            continue;
        }

        has = kvr_engine_lora(s, lora);

        if (has == 1) {
            loaded |= (uint64_t) 1 << id;

        } else if (has == -1) {
            at->evicts |= (uint64_t) 1 << id;
        }
    }

    /* nobody has it: it may be no adapter at all */

    if (loaded == 0) {
        at->evicts = 0;
        return 0;
    }

    at->models = loaded;

    return 1;
}


static void
ngx_http_kvroute_match_prefix(ngx_http_request_t *r,
    ngx_http_kvroute_attempt_t *at)
{
    double                     share;
    uint32_t                   n, entry, length;
    uint64_t                  *chain, unit;
    kvr_upstream_t            *upstream;
    ngx_http_kvroute_ctx_t    *ctx;
    ngx_http_kvroute_shctx_t  *sh;

    ctx = at->ctx;
    sh = at->conf->zone->sh;
    n = ctx->entries;

    if (!ctx->parsed || n == 0) {
        return;
    }

    chain = ngx_http_kvroute_request_chain(r, ctx, at->conf->zone);
    if (chain == NULL) {
        return;
    }

    kvr_sketch_add(sh->hot, chain, n);

    unit = sh->unit * KVR_BLOCK;
    length = at->policy->conf.length;

    if (length) {
        entry = kvr_chain_entries((uint32_t) ngx_max(length / unit, 1));
        entry = ngx_min(entry, n) - 1;

        /* a key that most requests have spreads nothing: say so */

        share = kvr_sketch_share(sh->hot, chain[entry]);

        if (share > 0.5) {
            upstream = &sh->registry->upstream[at->conf->number];
            kvr_add(&upstream->shared, 1);
        }

    } else {
        entry = kvr_sketch_entry(sh->hot, chain, n,
                                 0.5 / ngx_max(at->conf->list[0].number, 1));
    }

    at->key = chain[entry];
    at->keyed = 1;
}


static void
ngx_http_kvroute_match_pin(ngx_http_request_t *r,
    ngx_http_kvroute_attempt_t *at)
{
    uint32_t                      id;
    ngx_str_t                     value;
    ngx_http_kvroute_loc_conf_t  *klcf;

    klcf = ngx_http_get_module_loc_conf(r, ngx_http_kvroute_module);

    if (klcf->pin == NULL
        || ngx_http_complex_value(r, klcf->pin, &value) != NGX_OK
        || value.len == 0)
    {
        return;
    }

    at->pinned = 1;

    id = kvr_registry_find_peer(at->conf->zone->sh->registry, value.data,
                                value.len);

    if (id != KVR_REGISTRY_NONE && at->conf->set >> id & 1) {
        at->pin = id;
    }
}
