/* The course of a request through the router. */

#include "bench/model/route.h"


static kvr_zone_t kvs_route_zone(const kvs_zone_t *z, const kvs_route_t *rt);
static void kvs_route_again(const kvr_zone_t *zone, kvs_route_t *rt,
    unsigned what, const kvr_tokens_t *tokens, double now);


/* returns the zone as the request's router sees it */
static kvr_zone_t
kvs_route_zone(const kvs_zone_t *z, const kvs_route_t *rt)
{
    kvr_zone_t  zone;

    zone = z->core;
    zone.row = rt->row;

    return zone;
}


uint64_t *
kvs_route_chain(const uint64_t *chain, uint32_t units, uint32_t *n)
{
    uint32_t  i;

    static uint64_t  entry[KVS_ROUTE_ENTRIES];

    *n = kvr_min(kvr_chain_entries(units), KVS_ROUTE_ENTRIES);

    for (i = 0; i < *n; i++) {
        entry[i] = chain[kvr_chain_depth(i) - 1];
    }

    return entry;
}


void
kvs_route_match(const kvs_zone_t *z, kvs_route_t *rt, kvs_choice_t *ch,
    double now)
{
    uint32_t   n, best;
    uint64_t  *entries;

    entries = kvs_route_chain(rt->chain, rt->units, &n);

    memset(ch->matched, 0, sizeof(ch->matched));

    best = kvr_index_lookup(z->core.index, entries, n, ch->set, ch->matched);

    if (kvr_candidate_deliver(&z->core, &z->pool, entries, ch->set,
                              ch->matched, ch->loads))
    {
        ch->view.loads = ch->loads;
    }

    kvs_route_hot(z, rt, ch, entries, best, now);
}


void
kvs_route_hot(const kvs_zone_t *z, kvs_route_t *rt, kvs_choice_t *ch,
    const uint64_t *entries, uint32_t best, double now)
{
    kvr_candidate_hot(&z->core, entries, best, kvs_zone_ms(now),
                      &rt->counted,
                     &ch->hot);

    ch->view.matched = ch->matched;
    ch->view.hot = &ch->hot;
}


void
kvs_route_view(const kvs_zone_t *z, const kvs_route_t *rt, kvs_choice_t *ch,
    kvr_policy_e policy, uint64_t random, double now)
{
    kvr_view_t            *v;
    kvr_policy_request_t  *req;

    v = &ch->view;

    memset(v, 0, sizeof(kvr_view_t));

    v->zone = &z->core;
    v->pool = &z->pool;
    v->bytes = rt->bytes;
    v->bound = KVR_PEERS;
    v->pin = KVR_PEERS;
    v->owner = KVR_PEERS;
    v->random = random;
    v->now = kvs_zone_ms(now);
    v->seconds = (uint32_t) now;

    req = &ch->req;

    memset(req, 0, sizeof(kvr_policy_request_t));

    req->policy = policy;
    req->bytes = rt->bytes;
    req->random = random;
    req->parsed = 1;
}


void
kvs_route_offer(const kvs_zone_t *z, kvs_choice_t *ch)
{
    uint32_t          i;
    kvr_set_t         set;
    kvr_candidate_t  *c;

    kvr_candidate_view(&ch->view);

    ch->n = 0;

    for (set = ch->set; kvr_set_next(&set, &i); /* void */ ) {
        c = &ch->cand[ch->n++];

        kvr_candidate_init(&ch->view, c, i, z->member[i], 0);

        c->weight = 1;
        c->current_weight = 0;
        c->effective_weight = 1;
        c->place = i;
    }

    ch->req.rate = ch->view.rate;
}


uint32_t
kvs_route_pick(const kvs_zone_t *z, kvs_route_t *rt, kvs_choice_t *ch,
    kvr_reservation_t *reserved, double now)
{
    uint32_t         i;
    kvr_zone_t       zone;
    kvr_begin_t      b;
    kvr_decision_t  *d;

    d = &ch->decision;

    kvr_policy_pick(&ch->req, ch->cand, ch->n, d);

    i = ch->cand[d->pick].place;

    memset(&b, 0, sizeof(kvr_begin_t));

    b.peer = i;
    b.member = z->member[i];
    b.bytes = rt->bytes;
    b.matched = d->matched;
    b.best = d->best;
    b.pending = rt->bytes - kvr_min(d->matched, rt->bytes)
                + ch->cand[d->pick].fetch;
    b.resident = kvr_attempt_resident(rt->bytes, 0);
    b.rate = ch->view.rate;

    zone = kvs_route_zone(z, rt);

    kvr_attempt_begin(&rt->attempt, &zone, &b, reserved, kvs_zone_ms(now));

    kvr_set(&zone.registry->peer[i].given,
            kvr_add(zone.registry->given, 1) + 1);

    return i;
}


void
kvs_route_insert(const kvs_zone_t *z, kvs_route_t *rt, uint32_t held)
{
    kvr_zone_t    zone;
    kvr_insert_t  in;

    memset(&in, 0, sizeof(kvr_insert_t));

    in.chain = kvs_route_chain(rt->chain, rt->units, &in.entries);
    in.units = rt->units;
    in.held = held;

    zone = kvs_route_zone(z, rt);

    kvr_attempt_insert(&rt->attempt, &zone, &in);

    kvr_attempt_burst(&rt->attempt, &zone, &rt->counted);
}


void
kvs_route_first(const kvs_zone_t *z, kvs_route_t *rt, unsigned plain,
    double now)
{
    kvr_zone_t   zone;
    kvr_first_t  first;

    memset(&first, 0, sizeof(kvr_first_t));

    first.ok = 1;
    first.stream = 1;
    first.plain = plain;
    first.hot = &rt->counted;

    zone = kvs_route_zone(z, rt);

    kvs_route_again(&zone, rt, kvr_attempt_first(&rt->attempt, &zone, &z->pool,
                                                 &first, kvs_zone_ms(now)),
                    NULL, now);
}


void
kvs_route_end(const kvs_zone_t *z, kvs_route_t *rt, const kvr_tokens_t *tokens,
    double now)
{
    kvr_zone_t    zone;
    kvr_settle_t  settle;

    zone = kvs_route_zone(z, rt);

    if (!kvr_attempt_release(&rt->attempt, &zone)) {
        return;
    }

    if (tokens && rt->attempt.started) {
        memset(&settle, 0, sizeof(kvr_settle_t));

        settle.tokens = *tokens;
        settle.seconds = (uint32_t) now;

        kvs_route_again(&zone, rt,
                        kvr_attempt_settle(&rt->attempt, &zone, &z->pool,
                                           &settle, kvs_zone_ms(now)),
                        tokens, now);
    }

    kvs_route_again(&zone, rt, kvr_attempt_end(&rt->attempt), NULL, now);
}


/* computes the chain again, for the attempt */
static void
kvs_route_again(const kvr_zone_t *zone, kvs_route_t *rt, unsigned what,
    const kvr_tokens_t *tokens, double now)
{
    uint32_t   n;
    uint64_t  *entries;

    if (!(what & (KVR_ATTEMPT_REINSERT|KVR_ATTEMPT_UNDO
                  |KVR_ATTEMPT_REPORT)))
    {
        return;
    }

    entries = kvs_route_chain(rt->chain, rt->units, &n);

    if (what & KVR_ATTEMPT_REPORT) {
        kvr_attempt_report(&rt->attempt, zone, entries, tokens, 0,
                           kvs_zone_ms(now));
    }

    if (what & KVR_ATTEMPT_REINSERT) {
        kvr_attempt_reinsert(&rt->attempt, zone, entries);
    }

    if (what & KVR_ATTEMPT_UNDO) {
        kvr_attempt_undo(&rt->attempt, zone, entries);
    }
}
