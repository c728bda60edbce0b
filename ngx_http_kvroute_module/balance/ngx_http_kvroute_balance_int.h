
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _NGX_HTTP_KVROUTE_BALANCE_INT_H_INCLUDED_
#define _NGX_HTTP_KVROUTE_BALANCE_INT_H_INCLUDED_


#include "balance/ngx_http_kvroute_balance.h"
#include "queue/ngx_http_kvroute_queue.h"
#include "zone/ngx_http_kvroute_zone.h"


/* a peer's bit in nginx's bitmap of tried peers */
#define ngx_http_kvroute_tried_word(i)  ((i) / (8 * sizeof(uintptr_t)))
#define ngx_http_kvroute_tried_bit(i)                                         \
    ((uintptr_t) 1 << (i) % (8 * sizeof(uintptr_t)))
#define ngx_http_kvroute_tried_words(n)                                       \
    (((n) + (8 * sizeof(uintptr_t) - 1)) / (8 * sizeof(uintptr_t)))


/* the peer of a candidate, and its index in the list */
typedef struct {
    ngx_http_upstream_rr_peer_t  *peer;
    ngx_uint_t                    index;
    int64_t                       turn;     /* with ranks: weight before */
} ngx_http_kvroute_offer_t;


/* _prepare: Creates an attempt, the first field of a structure of that size. */
ngx_http_kvroute_attempt_t *ngx_http_kvroute_prepare(
    ngx_http_kvroute_ctx_t *ctx, ngx_http_kvroute_srv_conf_t *conf,
    size_t size);

/* Gathers everything a decision needs, reading the body if necessary. */
ngx_int_t ngx_http_kvroute_prepare_match(ngx_http_request_t *r,
    ngx_http_kvroute_attempt_t *at);

/* _match: clears the matches of the peers. */
void ngx_http_kvroute_match_init(ngx_http_kvroute_attempt_t *at);

/* Looks up what the peers have for the request. */
void ngx_http_kvroute_match(ngx_http_request_t *r,
    ngx_http_kvroute_attempt_t *at);

/* _choose: Allocates candidates for the longest list of an upstream. */
ngx_int_t ngx_http_kvroute_choose_init(ngx_http_kvroute_srv_conf_t *conf,
    ngx_log_t *log);

/* Sets the peers, as nginx does when an upstream request begins. */
ngx_int_t ngx_http_kvroute_choose_peers(ngx_http_request_t *r,
    ngx_http_kvroute_attempt_t *at);

/* Returns the list in use: primary servers, or backups. */
static ngx_inline ngx_http_kvroute_list_t *
ngx_http_kvroute_balance_list(ngx_http_kvroute_attempt_t *at)
{
    return &at->conf->list[at->rrp.peers != at->conf->upstream->peer.data];
}

/*
 * Locks the peers for writing.  If the list has changed since init(), the
 * request is matched again.  NULL: the lock is not held.
 */
ngx_http_upstream_rr_peers_t *ngx_http_kvroute_choose_lock(
    ngx_peer_connection_t *pc, ngx_http_kvroute_attempt_t *at);

/*
 * Asks the policy and takes the peer, or reserves it if AHEAD; called under the
 * peers' lock.  NULL: no usable peer, or the policy wants none of them.
 */
ngx_http_upstream_rr_peer_t *ngx_http_kvroute_choose(
    ngx_http_kvroute_attempt_t *at, ngx_uint_t *index, ngx_uint_t *offered,
    kvr_decision_t *d);

/*
 * Takes the peer of an early decision.  NULL: it is not in this list, or it is
 * unusable now.
 */
ngx_http_upstream_rr_peer_t *ngx_http_kvroute_choose_decided(
    ngx_http_kvroute_attempt_t *at, ngx_uint_t *index);

/*
 * Asks the policy without taking the peer or changing anything that another
 * balancer uses.  Returns the peer, or UNSET if there is none or the list has
 * changed.
 */
uint32_t ngx_http_kvroute_choose_shadow(ngx_http_kvroute_attempt_t *at,
    kvr_decision_t *d, uint32_t *rate);

/* _early: Returns the early decision if it is for this upstream, or NULL. */
/*
 * Tells whether the headers lack the rank, and warns once; legs need no header.
 */
ngx_uint_t ngx_http_kvroute_early_unranked(ngx_http_kvroute_ctx_t *ctx,
    ngx_http_kvroute_srv_conf_t *conf);

ngx_http_kvroute_attempt_t *ngx_http_kvroute_early_take(
    ngx_http_kvroute_ctx_t *ctx, ngx_http_kvroute_srv_conf_t *conf);

/* Lets the leg change the candidates; under the peers' lock. */
void ngx_http_kvroute_match_price(ngx_http_kvroute_attempt_t *at,
    kvr_candidate_t *cand, ngx_http_kvroute_offer_t *offer, ngx_uint_t count,
    uint32_t rate);

/*
 * Takes the peer decided on, or asks the policy again; under the peers' lock.
 */
ngx_http_upstream_rr_peer_t *ngx_http_kvroute_early_get(
    ngx_http_kvroute_attempt_t *at, ngx_uint_t *index, ngx_uint_t *offered,
    kvr_decision_t *d);

/*
 * _rank: Sets the targets of a peer that can be offered, from *from up to *to.
 * If a header names a rank, only that one, unless another_rank is set.  Without
 * a header the engine chooses, and the address counts the request.
 */
void ngx_http_kvroute_rank_offer(ngx_http_kvroute_attempt_t *at,
    ngx_http_kvroute_list_t *list, ngx_uint_t i, ngx_uint_t another_rank,
    ngx_uint_t *from, ngx_uint_t *to);

/* Tells whether the request is pinned to this peer, with any rank. */
ngx_uint_t ngx_http_kvroute_rank_wanted(ngx_http_kvroute_attempt_t *at,
    ngx_http_kvroute_list_t *list, ngx_uint_t i);

/* Sets the fields of a candidate that differ between ranks. */
void ngx_http_kvroute_rank_candidate(ngx_http_kvroute_attempt_t *at,
    ngx_http_kvroute_list_t *list, ngx_http_kvroute_offer_t *offer,
    kvr_candidate_t *c);

/*
 * Keeps the current weight of smooth round robin.  nginx's peer keeps that of
 * the first rank and of ranks without a slot.
 */
void ngx_http_kvroute_rank_turn(ngx_http_kvroute_attempt_t *at,
    ngx_http_kvroute_list_t *list, ngx_http_kvroute_offer_t *offer,
    kvr_candidate_t *c);

/*
 * Sets the rank of the target taken.  The rank is unknown if the header names
 * none or another one.  Returns the target that counts the request: the
 * address's if the one taken has no slot.
 */
ngx_uint_t ngx_http_kvroute_rank_take(ngx_http_kvroute_attempt_t *at,
    ngx_http_kvroute_list_t *list, ngx_uint_t i, ngx_uint_t target);

/* _receipt: Keeps the decision and its reason for variables. */
void ngx_http_kvroute_receipt_keep(ngx_http_kvroute_attempt_t *at,
    kvr_decision_t *d, ngx_str_t *name);

/* Does the same, counts the decision, and adds a receipt for the status. */
void ngx_http_kvroute_receipt(ngx_peer_connection_t *pc,
    ngx_http_kvroute_attempt_t *at, kvr_decision_t *d);

/* Returns ns; nginx's own clock stands still within an event. */
uint64_t ngx_http_kvroute_receipt_clock(void);

/* _attempt: Counts the request at a peer; called under the peers' lock. */
void ngx_http_kvroute_attempt_begin(ngx_http_kvroute_attempt_t *at,
    kvr_begin_t *begin);

/* Counts the session if the peer is being drained. */
void ngx_http_kvroute_attempt_drain(ngx_http_kvroute_attempt_t *at);

/* Inserts the prompt at the pick, so that a burst follows its first request. */
void ngx_http_kvroute_attempt_insert(ngx_http_kvroute_attempt_t *at);

/* Ends the attempt, and if pc is not NULL nginx's own accounting of it. */
void ngx_http_kvroute_attempt_end(ngx_http_kvroute_attempt_t *at,
    ngx_peer_connection_t *pc, ngx_uint_t state);

/* Ends an attempt as ctx->end(): the request or its body is no longer there. */
void ngx_http_kvroute_attempt_cleanup(void *data);

/* Returns the status of the peer's response; 0: none. */
ngx_uint_t ngx_http_kvroute_attempt_status(ngx_http_kvroute_attempt_t *at);

/* Counts the result of the attempt. */
void ngx_http_kvroute_attempt_result(ngx_http_kvroute_attempt_t *at,
    ngx_uint_t state);

/*
 * _eject: Counts a request or its retry for the retry budget; called under the
 * peers' lock.  If the budget is spent, this try is the last one.
 */
void ngx_http_kvroute_eject_retries(ngx_http_kvroute_attempt_t *at,
    uint32_t member);

/* Applies the retry budget when an attempt ends, before nginx's free(). */
void ngx_http_kvroute_eject_final(ngx_http_kvroute_attempt_t *at,
    ngx_peer_connection_t *pc, kvr_outlier_e reason, ngx_uint_t state);

/* Returns what counts against the engine, by its response; 0: nothing. */
kvr_outlier_e ngx_http_kvroute_eject_reason(ngx_http_kvroute_attempt_t *at,
    ngx_peer_connection_t *pc, ngx_uint_t state, ngx_uint_t status);

/* Returns the arm of a trial; KVR_TRIAL_ELSEWHERE: ask the policy again. */
kvr_trial_arm_e ngx_http_kvroute_eject_trial(ngx_http_kvroute_attempt_t *at,
    kvr_candidate_t *cand, ngx_uint_t n, uint32_t pick, uint64_t random);

/*
 * Logs ejections and returns, by KVR_EJECT_... bits; members are in at->core.
 */
void ngx_http_kvroute_eject_log(ngx_http_kvroute_attempt_t *at, unsigned bits);

/* Logs the ejection of a silent peer, once the lock is released. */
void ngx_http_kvroute_eject_log_silent(ngx_http_kvroute_attempt_t *at);


#endif /* _NGX_HTTP_KVROUTE_BALANCE_INT_H_INCLUDED_ */
