
/*
 * Copyright (C) kvroute contributors
 */


/*
 * Data-parallel ranks: several engines in one server, each with a cache of its
 * own.  A request goes to the rank that a header of it names.  The header is
 * made from an early decision, and made once, so a later decision has to keep
 * to the rank in it.  A request without the header goes to a rank that the
 * server chooses, and which is not known.
 */


#include "balance/ngx_http_kvroute_balance_int.h"


void
ngx_http_kvroute_rank_offer(ngx_http_kvroute_attempt_t *at,
    ngx_http_kvroute_list_t *list, ngx_uint_t i, ngx_uint_t *from,
    ngx_uint_t *to)
{
    uint32_t  header, n;

    n = list->first[i + 1] - list->first[i];

    if (at->ahead) {
        *to = *from + n;
        return;
    }

    header = at->early ? at->early->rank : NGX_HTTP_KVROUTE_UNSET_RANK;

    *to = *from + 1;

    if (header == NGX_HTTP_KVROUTE_UNSET_RANK || at->misfit) {
        return;
    }

    *from += header;
    *to = *from + (header < n && list->id[*from] != KVR_REGISTRY_NONE);
}


ngx_uint_t
ngx_http_kvroute_rank_wanted(ngx_http_kvroute_attempt_t *at,
    ngx_http_kvroute_list_t *list, ngx_uint_t i)
{
    return at->address
           && at->pin != KVR_REGISTRY_NONE
           && list->id[list->first[i]] == at->pin
           && list->first[i + 1] - list->first[i] > 1;
}


ngx_uint_t
ngx_http_kvroute_rank_candidate(ngx_http_kvroute_attempt_t *at,
    ngx_http_kvroute_list_t *list, ngx_http_kvroute_offer_t *offer,
    kvr_candidate_t *c)
{
    uint32_t  member;

    if (at->wanted) {
        c->pinned = 0;
    }

    if (offer->target == list->first[offer->index]) {
        return 1;
    }

    member = list->member[offer->target];

    if (member == KVR_REGISTRY_NONE) {
        return 0;
    }

    offer->turn = at->conf->zone->sh->registry->member[member].turn;
    c->current_weight = offer->turn;

    return 1;
}


/* of a server that is listed twice a rank is two candidates: both count */
void
ngx_http_kvroute_rank_turn(ngx_http_kvroute_attempt_t *at,
    ngx_http_kvroute_list_t *list, ngx_http_kvroute_offer_t *offer,
    kvr_candidate_t *c)
{
    kvr_member_t  *member;

    member = &at->conf->zone->sh->registry->member[list->member[offer->target]];

    member->turn += c->current_weight - offer->turn;
}


void
ngx_http_kvroute_rank_take(ngx_http_kvroute_attempt_t *at,
    ngx_http_kvroute_list_t *list, ngx_uint_t i, ngx_uint_t target)
{
    uint32_t  header, n;

    n = list->first[i + 1] - list->first[i];

    at->rank = n > 1 ? (uint32_t) target - list->first[i]
                     : NGX_HTTP_KVROUTE_UNSET_RANK;

    if (at->ahead) {
        at->early->rank = at->rank;
    }

    header = at->early ? at->early->rank : NGX_HTTP_KVROUTE_UNSET_RANK;

    at->astray = (header != at->rank && (n > 1 || header != 0));

    if (at->astray) {
        at->rank = NGX_HTTP_KVROUTE_UNSET_RANK;
    }
}
