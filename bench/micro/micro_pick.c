
/*
 * Copyright (C) kvroute contributors
 */


/* Choosing a peer, and the whole decision from the body to the insert */


#include "micro_cases.h"
#include "micro_run.h"
#include "core/state/kvr_zone.h"


#define MICRO_CANDIDATES  512
#define MICRO_SHARED      64     /* peers */
#define MICRO_WHOLE       8      /* peers */


typedef struct {
    bench_body_t     body;
    kvr_json_text_t  text;
    kvr_index_t     *ix;
    kvr_load_t      *load;
    unsigned         unique;
    uint64_t         digests[16384];
    uint64_t         chain[4096];
} micro_whole_t;


static kvr_candidate_t  micro_cand[MICRO_CANDIDATES];


typedef struct {
    kvr_hot_t            hot;
    kvr_hot_keys_t       keys;
    kvr_hot_view_t       view;
    kvr_peer_t           peer[MICRO_SHARED];
} micro_hot_t;


/*
 * A system prompt of 16 KB: each peer has a part of it, 0 .. 7 requests in
 * flight, and no work for 0 .. 3 minutes.  Neighbours differ, because
 * kvr_candidate_init() would reuse the values of an equal one.
 */
static uint64_t
micro_shared(micro_case_t *c, unsigned n)
{
    unsigned          i;
    uint64_t          sum, now;
    micro_hot_t      *p;

    p = c->data;
    sum = 0;

    while (n--) {
        now = ++c->state << 4;
        i = c->state % c->size;

        /* a peer gets work, or got it some minutes ago */

        kvr_set(&p->peer[i].prefill.given,
                now - ((uint64_t) (i >> 1 & 3) << KVR_PREFILL_MINUTE));

        kvr_hot_add(&p->hot, &p->keys, now);
        kvr_hot_view(&p->hot, &p->keys, now, &p->view);

        for (i = 0; i < c->size; i++) {
            sum += kvr_hot_shared(&p->view, i % 4 ? 0 : 64,
                                  (uint32_t) (i & 7),
                                  kvr_prefill_rest(&p->peer[i].prefill,
                                                   now));
        }
    }

    return sum;
}


static uint64_t
micro_choose(micro_case_t *c, unsigned n)
{
    uint64_t              sum;
    kvr_decision_t        d;
    kvr_policy_request_t  req;

    memset(&req, 0, sizeof(req));

    req.policy = KVR_POLICY_KV_CACHE;
    req.bytes = 32768;
    req.parsed = 1;

    sum = 0;

    while (n--) {
        req.random = kvr_mix(++c->state, 99);
        micro_cand[c->state % c->size].pending ^= 1024;
        kvr_policy_pick(&req, micro_cand, (uint32_t) c->size, &d);
        sum += d.pick;
    }

    return sum;
}


/* the work of a worker for a request, without nginx's */
static uint64_t
micro_decide(micro_case_t *c, unsigned n)
{
    uint32_t              i, matched[KVR_PEERS];
    uint64_t              sum;
    kvr_prompt_t          pr;
    kvr_index_undo_t      undo;
    kvr_load_sum_t        load;
    kvr_decision_t        d;
    micro_whole_t        *w;
    kvr_candidate_t       cand[MICRO_WHOLE];
    kvr_prompt_conf_t     conf;
    kvr_policy_request_t  req;

    w = c->data;
    sum = 0;

    memset(&conf, 0, sizeof(conf));

    conf.secret = micro_secret;
    conf.path = (const uint8_t *) "/v1/chat/completions";
    conf.path_len = 20;
    conf.digests = w->digests;
    conf.max_digests = sizeof(w->digests) / sizeof(uint64_t);
    conf.chain = w->chain;
    conf.max_chain = sizeof(w->chain) / sizeof(uint64_t);

    while (n--) {

        if (w->unique) {
            bench_body_nonce(&w->body, ++c->state);
        }

        kvr_prompt_read(&pr, &conf, kvr_json_fetch_text, &w->text);

        kvr_index_lookup(w->ix, w->chain, pr.n, kvr_set_below(MICRO_WHOLE),
                         matched);

        memset(cand, 0, sizeof(cand));

        for (i = 0; i < MICRO_WHOLE; i++) {
            load = kvr_load_get(w->load, i);

            cand[i].weight = 1;
            cand[i].active = load.active;
            cand[i].pending = load.pending;
            cand[i].matched = (uint64_t) matched[i] * KVR_BLOCK;
        }

        memset(&req, 0, sizeof(req));

        req.policy = KVR_POLICY_KV_CACHE;
        req.bytes = pr.bytes;
        req.parsed = 1;
        req.random = c->state;

        kvr_policy_pick(&req, cand, MICRO_WHOLE, &d);

        kvr_load_add(w->load, 0, d.pick, 1, (int64_t) pr.bytes);

        kvr_index_refresh(w->ix, w->chain, pr.n, pr.blocks, d.pick,
                          matched[d.pick], &undo);

        kvr_load_add(w->load, 0, d.pick, -1, -(int64_t) pr.bytes);

        sum += d.pick;
    }

    return sum;
}


void
micro_pick(void)
{
    unsigned          i, unique;
    uint64_t          lines, chain[70];
    kvr_load_t       *load;
    kvr_index_t      *ix;
    micro_case_t     *c;
    micro_whole_t    *w;
    micro_hot_t      *p;

    static const struct {
        size_t        size;
        const char   *name;
    } sizes[] = {
        { 2048, "2k" }, { 32768, "32k" }, { 262144, "256k" },
        { 2097152, "2m" }
    };

    for (i = 0; i < MICRO_CANDIDATES; i++) {
        micro_cand[i].weight = 1;
        micro_cand[i].active = i * 7 % 13;
        micro_cand[i].pending = i * 7919 % 65536;
        micro_cand[i].matched = i % 5 ? 0 : i * 331 % 32768;
        micro_cand[i].shared = i % 5 ? i * 97 % 8192 : 0;
        micro_cand[i].resident = micro_cand[i].active * 16384;
        micro_cand[i].turnover = (float) (i % 7) / 16;
        micro_cand[i].idle = i;
    }

    for (i = 2; i <= MICRO_CANDIDATES; i *= i == 2 || i == 64 ? 4 : i == 256
                                             ? 2 : 8)
    {
        c = micro_add(micro_choose, NULL, "peer", i, "choose among %u", i);
        c->size = i;
    }

    p = micro_alloc(sizeof(micro_hot_t));

    for (i = 0; i < 70; i++) {
        chain[i] = kvr_mix(i + 1, 7);
    }

    kvr_hot_keys(chain, 64, &p->keys);

    for (i = 8; i <= MICRO_SHARED; i *= 8) {
        c = micro_add(micro_shared, p, "peer", i, "popular for %u", i);
        c->size = i;
        c->state = 1 << 20;
    }

    lines = kvr_index_lines(64 << 20, KVR_PEERS_FEW);
    ix = micro_alloc_shared(kvr_index_size(lines, KVR_PEERS_FEW));
    kvr_index_init(ix, lines, KVR_PEERS_FEW);

    for (i = 0; i < MICRO_WHOLE; i++) {
        kvr_index_capacity(ix, i, KVR_INDEX_CAPACITY_MAX, 0);
    }

    load = micro_alloc(kvr_load_size(4, 64));
    kvr_load_init(load, 4, 64);
    kvr_load_claim(load, kvr_load_owner(1, 1), 1);

    for (i = 0; i < 4; i++) {
        for (unique = 0; unique < 2; unique++) {

            w = micro_alloc(sizeof(micro_whole_t));

            bench_body_make(&w->body, BENCH_CODE, sizes[i].size, 3 + i);

            w->text.data = (uint8_t *) w->body.data;
            w->text.len = w->body.len;
            w->ix = ix;
            w->load = load;
            w->unique = unique;

            c = micro_add(micro_decide, w, "call", 1, "decide %s %s",
                          sizes[i].name, unique ? "unique" : "repeated");
            c->state = (uint64_t) (i + 1) << 48;
        }
    }
}
