
/*
 * Copyright (C) kvroute contributors
 */


/*
 * Data-parallel ranks: several engines behind one address, each with its own
 * cache.  A header names the rank.  nginx creates the header once, from an
 * early decision, so later decisions must keep that rank.  Without the header
 * the server chooses a rank, which is then unknown.
 */


#include "balance/ngx_http_kvroute_balance_int.h"


static kvr_member_t *ngx_http_kvroute_rank_member(
    ngx_http_kvroute_attempt_t *at, ngx_http_kvroute_list_t *list,
    ngx_http_kvroute_offer_t *offer, kvr_candidate_t *c);


void
ngx_http_kvroute_rank_offer(ngx_http_kvroute_attempt_t *at,
    ngx_http_kvroute_list_t *list, ngx_uint_t i, ngx_uint_t another_rank,
    ngx_uint_t *from, ngx_uint_t *to)
{
    uint32_t  header, n;

    n = list->first[i + 1] - list->first[i];

    if (at->mode == NGX_HTTP_KVROUTE_AHEAD) {

        /* offer one rank without a slot for all of them: the engine chooses */

        while (n > 1 && list->id[*from + n - 2] == KVR_REGISTRY_NONE) {
            n--;
        }

        *to = *from + n;
        return;
    }

    header = at->early ? at->early->rank : NGX_HTTP_KVROUTE_UNSET_RANK;

    *to = *from + 1;

    if (header == NGX_HTTP_KVROUTE_UNSET_RANK || another_rank) {
        return;
    }

    *from += header;
    *to = *from + (header < n && list->id[*from] != KVR_REGISTRY_NONE);
}


ngx_uint_t
ngx_http_kvroute_rank_wanted(ngx_http_kvroute_attempt_t *at,
    ngx_http_kvroute_list_t *list, ngx_uint_t i)
{
    return at->rank.any
           && at->pin != KVR_REGISTRY_NONE
           && list->id[list->first[i]] == at->pin
           && list->first[i + 1] - list->first[i] > 1;
}


void
ngx_http_kvroute_rank_candidate(ngx_http_kvroute_attempt_t *at,
    ngx_http_kvroute_list_t *list, ngx_http_kvroute_offer_t *offer,
    kvr_candidate_t *c)
{
    kvr_member_t  *member;

    member = ngx_http_kvroute_rank_member(at, list, offer, c);

    if (member) {
        c->current_weight = member->turn;
    }

    offer->turn = c->current_weight;

    if (at->rank.wanted) {
        c->pinned = 0;
    }
}


/* Adds the change, because two candidates can share one weight. */
void
ngx_http_kvroute_rank_turn(ngx_http_kvroute_attempt_t *at,
    ngx_http_kvroute_list_t *list, ngx_http_kvroute_offer_t *offer,
    kvr_candidate_t *c)
{
    int64_t        change;
    kvr_member_t  *member;

    change = c->current_weight - offer->turn;
    member = ngx_http_kvroute_rank_member(at, list, offer, c);

    if (member) {
        member->turn += change;

    } else {
        offer->peer->current_weight += (ngx_int_t) change;
    }
}


/* Returns the member of a rank; NULL for the first rank or without a slot. */
static kvr_member_t *
ngx_http_kvroute_rank_member(ngx_http_kvroute_attempt_t *at,
    ngx_http_kvroute_list_t *list, ngx_http_kvroute_offer_t *offer,
    kvr_candidate_t *c)
{
    uint32_t  member;

    member = list->member[c->place];

    if (c->place == list->first[offer->index] || member == KVR_REGISTRY_NONE) {
        return NULL;
    }

    return &at->conf->zone->core.registry->member[member];
}


ngx_uint_t
ngx_http_kvroute_rank_take(ngx_http_kvroute_attempt_t *at,
    ngx_http_kvroute_list_t *list, ngx_uint_t i, ngx_uint_t target)
{
    uint32_t    header, n;
    ngx_uint_t  known;

    n = list->first[i + 1] - list->first[i];
    known = list->id[target] != KVR_REGISTRY_NONE;

    at->rank.number = n > 1 && known ? (uint32_t) target - list->first[i]
                                     : NGX_HTTP_KVROUTE_UNSET_RANK;

    if (at->mode == NGX_HTTP_KVROUTE_AHEAD) {
        at->early->rank = at->rank.number;
    }

    header = at->early ? at->early->rank : NGX_HTTP_KVROUTE_UNSET_RANK;

    at->rank.unknown = (n > 1 && !known)
                      || (header != at->rank.number && (n > 1 || header != 0));

    if (at->rank.unknown) {
        at->rank.number = NGX_HTTP_KVROUTE_UNSET_RANK;
    }

    return known ? target : list->first[i];
}
