
/*
 * Copyright (C) kvroute contributors
 */


/*
 * Looks up what each peer has for a request: cached bytes of its prompt, its
 * model, its session, the preferred peer of its prefix.  This happens before
 * the decision, without a lock.
 */


#include "balance/ngx_http_kvroute_balance_int.h"


static void ngx_http_kvroute_match_model(ngx_http_kvroute_attempt_t *at);
static void ngx_http_kvroute_match_lora(ngx_http_kvroute_attempt_t *at,
    ngx_http_kvroute_models_t *models);
static void ngx_http_kvroute_match_home(ngx_http_request_t *r,
    ngx_http_kvroute_attempt_t *at, unsigned needs);
static uint64_t *ngx_http_kvroute_match_key(ngx_http_request_t *r,
    ngx_http_kvroute_attempt_t *at);
static void ngx_http_kvroute_match_pin(ngx_http_request_t *r,
    ngx_http_kvroute_attempt_t *at);


void
ngx_http_kvroute_match_init(ngx_http_kvroute_attempt_t *at)
{
    at->matched = NULL;
    at->loads = NULL;
    at->hot = NULL;
    at->counted = NULL;
    at->home.credit = 0;
    at->models = NULL;
    at->session.keyed = 0;
    at->session.bound = NGX_HTTP_KVROUTE_UNSET_PEER;
    at->pin = NGX_HTTP_KVROUTE_UNSET_PEER;
    at->owner = NGX_HTTP_KVROUTE_UNSET_PEER;
}


void
ngx_http_kvroute_match(ngx_http_request_t *r, ngx_http_kvroute_attempt_t *at)
{
    unsigned                      needs;
    ngx_http_kvroute_ctx_t       *ctx;
    ngx_http_kvroute_lookup_t    *l;
    ngx_http_kvroute_srv_conf_t  *conf;

    ctx = at->ctx;
    conf = at->conf;
    needs = kvr_policy_needs(at->policy->kind);

    ngx_http_kvroute_match_pin(r, at);

    at->owner = ngx_http_kvroute_session_owner(ctx, conf, at->policy);

    if (needs & KVR_NEEDS_SESSION) {
        ngx_http_kvroute_session_find(ctx, conf, at->policy, &at->session);
    }

    if (conf->zone->hosts > 1 && needs & KVR_NEEDS_HOME) {
        ngx_http_kvroute_match_home(r, at, needs);
    }

    if (!(needs & KVR_NEEDS_MATCH) || !ctx->parsed || conf->numbered == 0) {
        return;
    }

    /* the chain may have another zone's hashes */

    if (ctx->zone != conf->zone
        && ngx_http_kvroute_prompt_chain(r, ctx, conf->zone) == NULL)
    {
        return;
    }

    if (needs & KVR_NEEDS_SCORE) {
        ngx_http_kvroute_match_model(at);
    }

    l = ngx_http_kvroute_lookup(ctx, conf, needs & KVR_NEEDS_SCORE);
    if (l == NULL) {
        return;
    }

    at->matched = l->matched;
    at->loads = l->loads;

    if (l->best && needs & KVR_NEEDS_SCORE) {
        at->hot = &l->hot;
        at->counted = &l->keys;
    }
}


/*
 * Finds the peers that have loaded the model or adapter, once the upstream has
 * received requests for more than one.
 */
static void
ngx_http_kvroute_match_model(ngx_http_kvroute_attempt_t *at)
{
    uint64_t                    last, root;
    kvr_zone_t                 *zone;
    kvr_upstream_t             *upstream;
    ngx_http_kvroute_models_t   models;

    zone = &at->conf->zone->core;
    root = at->ctx->model_root;

    upstream = &zone->registry->upstream[at->conf->number];
    last = kvr_get(&upstream->model);

    if (last != root) {
        kvr_set(&upstream->model, root);

        if (last) {
            kvr_set(&upstream->models, 1);
        }
    }

    if (!kvr_get(&upstream->models)) {
        return;
    }

    models.loaded = kvr_set_none();
    models.evicts = kvr_set_none();

    ngx_http_kvroute_match_lora(at, &models);

    /* not reported: it may be a model, or an adapter that no peer has */

    if (kvr_set_empty(&models.loaded, KVR_SET_WORDS)) {
        models.loaded = kvr_index_holds(zone->index, root, at->conf->set);
        models.evicts = kvr_set_none();
    }

    if (kvr_set_empty(&models.loaded, KVR_SET_WORDS)) {
        return;
    }

    at->models = ngx_palloc(at->ctx->request->pool,
                            sizeof(ngx_http_kvroute_models_t));

    if (at->models) {
        *at->models = models;
    }
}


/* Finds the adapter in the engines' metrics. */
static void
ngx_http_kvroute_match_lora(ngx_http_kvroute_attempt_t *at,
    ngx_http_kvroute_models_t *models)
{
    int              has;
    uint32_t         id;
    uint64_t         lora;
    kvr_set_t        set;
    kvr_engine_t    *s;
    kvr_registry_t  *registry;

    if (at->conf->probe == NULL || at->ctx->model.len == 0) {
        return;
    }

    registry = at->conf->zone->core.registry;
    lora = kvr_metrics_lora(at->ctx->model.data, at->ctx->model.len);

    for (set = at->conf->set; kvr_set_next(&set, &id); /* void */ ) {

        s = &registry->peer[id].engine;

        if (!(kvr_get(&s->set) & KVR_METRICS_LORA)
            || kvr_engine_worth(s, ngx_current_msec,
                                at->conf->probe->interval)
               < 0.5)
        {
            continue;
        }

        has = kvr_engine_lora(s, lora);

        if (has == 1) {
            kvr_set_add(&models->loaded, id);

        } else if (has == -1) {
            kvr_set_add(&models->evicts, id);
        }
    }
}


/*
 * Sets the key that makes all hosts prefer the same peer: the session for
 * session policies, else the prefix up to the first rare block.  Hosts that
 * share what they know need no such key.
 */
static void
ngx_http_kvroute_match_home(ngx_http_request_t *r,
    ngx_http_kvroute_attempt_t *at, unsigned needs)
{
    uint64_t      *key;
    kvr_united_t  *united;

    united = at->conf->zone->core.united;

    if (united && kvr_get(&united->up)) {
        return;
    }

    if (needs & KVR_NEEDS_SESSION) {

        if (!at->session.keyed) {
            return;
        }

        at->home.key = at->session.key;

    } else {

        key = ngx_http_kvroute_match_key(r, at);

        /* this request does not read the engine's cache */

        if (key == NULL || at->ctx->skips) {
            return;
        }

        at->home.key = *key;
    }

    at->home.credit = KVR_HOME_CREDIT;
}


/* Returns the value of the chain that is the prompt's key, or NULL. */
static uint64_t *
ngx_http_kvroute_match_key(ngx_http_request_t *r,
    ngx_http_kvroute_attempt_t *at)
{
    uint64_t                *chain;
    kvr_sketch_t            *sketch;
    ngx_http_kvroute_ctx_t  *ctx;

    ctx = at->ctx;
    sketch = at->conf->zone->sketch;

    if (!ctx->parsed || ctx->entries == 0) {
        return NULL;
    }

    chain = ngx_http_kvroute_prompt_chain(r, ctx, at->conf->zone);
    if (chain == NULL) {
        return NULL;
    }

    kvr_sketch_add(sketch, chain, ctx->entries);

    return &chain[kvr_sketch_entry(sketch, chain, ctx->entries,
                                   (uint32_t) at->conf->list[0].targets)];
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

    /* ADDRESS allows any rank; ADDRESS#RANK names one */

    at->rank.any = 1;

    if (at->conf->ranks && value.len > 2
        && ngx_strncmp(value.data + value.len - 2, "#0", 2) == 0)
    {
        at->rank.any = 0;
        value.len -= 2;
    }

    id = kvr_registry_find_peer(at->conf->zone->core.registry, value.data,
                                value.len);

    if (id != KVR_REGISTRY_NONE && kvr_set_test(&at->conf->set, id)) {
        at->pin = id;
    }
}


void
ngx_http_kvroute_match_price(ngx_http_kvroute_attempt_t *at,
    kvr_candidate_t *cand, ngx_http_kvroute_offer_t *offer, ngx_uint_t count,
    uint32_t rate)
{
    uint32_t                 i;
    ngx_str_t               *name;
    ngx_http_kvroute_ctx_t  *ctx;
    ngx_http_kvroute_leg_t  *leg;

    ctx = at->ctx;
    leg = ctx->leg;

    i = leg->price(leg, cand, (uint32_t) count, ctx->bytes + ctx->extra, rate);

    if (i >= count) {
        return;
    }

    /* the lock is held, so it is copied */

    name = &offer[i].peer->name;

    leg->wanted.len = ngx_min(name->len, NGX_SOCKADDR_STRLEN);
    ngx_memcpy(leg->wanted.data, name->data, leg->wanted.len);

    leg->rank = cand[i].place
                - ngx_http_kvroute_balance_list(at)->first[offer[i].index];
}
