/* The rules, and the inputs of a decision. */

#include "bench/sim/legs/legs_int.h"


/* the directive's default, bytes */
#define KVS_LEGS_MIN      8192

/* value of transfer= until the speed of computing is known */
#define KVS_LEGS_TRANSFER 0.2

/* Dynamo's conditional_disagg.rs: isl_bounding, as published */
#define KVS_DYNAMO_ISL    2048
#define KVS_DYNAMO_RATIO  0.7


const char *const  kvs_legs_rules[] = {
    "cost", "when=always", "always", "never", "llm-d 512", "llm-d 2048",
    "dynamo", "one pool"
};

_Static_assert(kvr_nelts(kvs_legs_rules) == KVS_LEGS_RULES, "rules");


static kvs_choice_t  kvs_legs_choice;


/* makes the candidates of a leg (0, 1); apart: of leg 2, with a transfer */
static kvs_choice_t *
kvs_legs_offer(kvs_legs_t *legs, kvs_pair_t *pair, uint32_t leg, int apart)
{
    uint32_t       i;
    kvs_leg_t     *l;
    kvs_zone_t    *z;
    kvs_choice_t  *ch;

    l = &pair->leg[leg];
    z = &legs->pool[leg];
    ch = &kvs_legs_choice;

    ch->set = z->pool.set;

    kvs_route_view(z, &l->route, ch, KVR_POLICY_KV_CACHE,
                   kvs_rng_next(&legs->rng), legs->now);
    kvs_route_match(z, &l->route, ch, legs->now);

    ch->view.own = pair->reserved.held ? &pair->reserved : NULL;

    kvs_route_offer(z, ch);

    legs->transfer = kvr_disaggregate_transfer(KVS_LEGS_TRANSFER, legs->link,
                                               ch->view.rate);

    for (i = 0; apart && i < ch->n; i++) {
        kvr_disaggregate_candidate(&ch->cand[i], l->route.bytes,
                                   legs->transfer);
    }

    return ch;
}


/* picks the best server for a leg */
static kvs_choice_t *
kvs_legs_best(kvs_legs_t *legs, kvs_pair_t *pair, uint32_t leg, int apart)
{
    kvs_choice_t  *ch;

    ch = kvs_legs_offer(legs, pair, leg, apart);

    kvr_policy_pick(&ch->req, ch->cand, ch->n, &ch->decision);

    return ch;
}


/* like legs_decide_at() in the glue */
static uint32_t
kvs_legs_at(const kvs_legs_t *legs, const kvs_choice_t *ch,
    kvr_disaggregate_t *d, kvr_disaggregate_at_t *at)
{
    uint32_t  peer;

    peer = ch->cand[ch->decision.pick].place;

    at->lacks = d->bytes - kvr_min(ch->decision.matched, d->bytes);
    at->ahead = at->lacks
                + kvr_load_get(legs->zone.core.load, peer).pending;

    d->rate = kvr_max(d->rate, ch->view.rate);

    return ch->n;
}


/* like legs_decide() in the glue */
static kvr_disaggregate_e
kvs_legs_ours(kvs_legs_t *legs, kvs_pair_t *pair, uint32_t always)
{
    kvr_disaggregate_e   e;
    kvr_disaggregate_t   d;
    const kvs_choice_t  *ch;

    memset(&d, 0, sizeof(kvr_disaggregate_t));

    d.bytes = pair->leg[1].route.bytes;
    d.min = KVS_LEGS_MIN;
    d.always = always;

    ch = kvs_legs_best(legs, pair, 1, 0);

    d.held = ch->decision.best;

    e = kvr_disaggregate_worth(&d);

    if (e != KVR_DISAGGREGATE_YES) {
        return e;
    }

    d.streams = ch->decision.active;
    d.decodes = kvs_legs_at(legs, ch, &d, &d.plain);

    ch = kvs_legs_best(legs, pair, 0, 0);

    d.prefills = kvs_legs_at(legs, ch, &d, &d.prefill);
    d.transfer = kvr_disaggregate_transfer(KVS_LEGS_TRANSFER, legs->link,
                                           d.rate);

    return kvr_disaggregate(&d, &legs->demand, kvs_zone_ms(legs->now));
}


kvr_disaggregate_e
kvs_legs_rule(kvs_legs_t *legs, kvs_pair_t *pair)
{
    int                  apart;
    uint64_t             tokens, lacks;
    const kvs_choice_t  *ch;

    if (legs->conf->rule <= KVS_LEGS_WHEN_ALWAYS) {
        return kvs_legs_ours(legs, pair,
                             legs->conf->rule == KVS_LEGS_WHEN_ALWAYS);
    }

    /* the bytes that the decode server to be picked lacks */

    ch = kvs_legs_best(legs, pair, 1, 0);

    tokens = pair->step->prompt;
    lacks = tokens - kvr_min(ch->decision.matched / KVS_TOKEN_BYTES, tokens);

    switch (legs->conf->rule) {

    case KVS_LEGS_ALWAYS:
        apart = 1;
        break;

    case KVS_LEGS_LLMD_512:
        apart = lacks >= 512;
        break;

    case KVS_LEGS_LLMD_2048:
        apart = lacks >= 2048;
        break;

    case KVS_LEGS_DYNAMO:
        apart = !(lacks < KVS_DYNAMO_ISL
                  && (double) lacks < KVS_DYNAMO_RATIO * (double) tokens);
        break;

    default:
        apart = 0;
        break;
    }

    return apart ? KVR_DISAGGREGATE_YES : KVR_DISAGGREGATE_COST;
}


void
kvs_legs_reserve(kvs_legs_t *legs, kvs_pair_t *pair)
{
    kvs_choice_t       *ch;
    kvr_reservation_t  *r;

    ch = kvs_legs_best(legs, pair, 1, 1);
    r = &pair->reserved;

    memset(r, 0, sizeof(kvr_reservation_t));

    r->peer = ch->cand[ch->decision.pick].place;
    r->member = legs->zone.member[r->peer];
    r->pending = pair->leg[1].route.bytes
                 - kvr_min(ch->decision.matched, pair->leg[1].route.bytes);
    r->resident = kvr_attempt_resident(pair->leg[1].route.bytes, 0);
    r->unanswered = 1;

    kvr_reservation_take(&legs->zone.core, r);
}


void
kvs_legs_pick(kvs_legs_t *legs, kvs_pair_t *pair, uint32_t leg,
    kvr_reservation_t *reserved)
{
    uint32_t       i;
    kvs_leg_t     *l;
    kvs_choice_t  *ch;

    l = &pair->leg[leg];

    ch = kvs_legs_offer(legs, pair, leg, leg == 1 && pair->apart);

    i = kvs_route_pick(&legs->pool[leg], &l->route, ch, reserved, legs->now);

    kvs_route_insert(&legs->pool[leg], &l->route, ch->matched[i]);

    l->replica = i;
}
