
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _NGX_HTTP_KVROUTE_BALANCE_INT_H_INCLUDED_
#define _NGX_HTTP_KVROUTE_BALANCE_INT_H_INCLUDED_


#include "balance/ngx_http_kvroute_balance.h"
#include "queue/ngx_http_kvroute_queue.h"
#include "zone/ngx_http_kvroute_zone.h"


/* a peer's bit in the bitmap of those that were tried */
#define ngx_http_kvroute_tried_word(i)  ((i) / (8 * sizeof(uintptr_t)))
#define ngx_http_kvroute_tried_bit(i)                                         \
    ((uintptr_t) 1 << (i) % (8 * sizeof(uintptr_t)))
#define ngx_http_kvroute_tried_words(n)                                       \
    (((n) + (8 * sizeof(uintptr_t) - 1)) / (8 * sizeof(uintptr_t)))


/* a candidate's peer, and where that stands in the list */
typedef struct {
    ngx_http_upstream_rr_peer_t  *peer;
    ngx_uint_t                    index;
    int64_t                       turn;     /* with ranks: weight before */
} ngx_http_kvroute_offer_t;


/* _prepare: a request on an upstream, of which nothing is known yet */
ngx_http_kvroute_attempt_t *ngx_http_kvroute_prepare(
    ngx_http_kvroute_ctx_t *ctx, ngx_http_kvroute_srv_conf_t *conf);

/* what nginx sets up for a request when its upstream begins */
ngx_int_t ngx_http_kvroute_prepare_peers(ngx_http_request_t *r,
    ngx_http_kvroute_attempt_t *at);

/* finds out what there is to know before a decision, the body read for it */
ngx_int_t ngx_http_kvroute_prepare_match(ngx_http_request_t *r,
    ngx_http_kvroute_attempt_t *at);

/*
 * _native: takes a peer by nginx's own round robin.  NGX_DECLINED: the request
 * is not native any more, and the policy has to be asked.
 */
ngx_int_t ngx_http_kvroute_native_get(ngx_peer_connection_t *pc,
    ngx_http_kvroute_attempt_t *at);

/* _match: nothing is known of any peer */
void ngx_http_kvroute_match_init(ngx_http_kvroute_attempt_t *at);

/* finds out what the request has to do with which peer */
void ngx_http_kvroute_match(ngx_http_request_t *r,
    ngx_http_kvroute_attempt_t *at);

/* makes the rings that a policy needs, before the lock is taken */
void ngx_http_kvroute_match_rings(ngx_http_kvroute_attempt_t *at,
    ngx_log_t *log);

/* _choose: makes room for all candidates that an upstream can have */
ngx_int_t ngx_http_kvroute_choose_init(ngx_http_kvroute_srv_conf_t *conf,
    ngx_log_t *log);

/* the list that is chosen from now: primary servers, or backups */
static ngx_inline ngx_http_kvroute_list_t *
ngx_http_kvroute_balance_list(ngx_http_kvroute_attempt_t *at)
{
    return &at->conf->list[at->rrp.peers != at->conf->upstream->peer.data];
}

/*
 * Locks the peers for writing.  If the list was changed since the request has
 * begun, it is matched against the new one.  NULL: the lock is not held.
 */
ngx_http_upstream_rr_peers_t *ngx_http_kvroute_choose_lock(
    ngx_peer_connection_t *pc, ngx_http_kvroute_attempt_t *at);

/*
 * Asks the policy; called under the peers' lock.  NULL: there is no peer to be
 * had, or the policy would rather have none of them.  If it is asked ahead the
 * peer is not taken, but reserved.
 */
ngx_http_upstream_rr_peer_t *ngx_http_kvroute_choose(
    ngx_http_kvroute_attempt_t *at, ngx_uint_t *index, ngx_uint_t *offered,
    kvr_decision_t *d);

/*
 * Takes the peer that was reserved when the policy was asked ahead; NULL: it is
 * not in this list, or cannot be had now.
 */
ngx_http_upstream_rr_peer_t *ngx_http_kvroute_choose_decided(
    ngx_http_kvroute_attempt_t *at, ngx_uint_t *index);

/*
 * Asks the policy without taking the peer, nor anything else that another
 * balancer would notice.  Returns the number of the peer, UNSET if there is none, or the
 * list was changed meanwhile.
 */
uint32_t ngx_http_kvroute_choose_shadow(ngx_http_kvroute_attempt_t *at,
    kvr_decision_t *d, uint32_t *rate);

/* _early: the attempt that was decided early, if for this upstream, or NULL */
ngx_http_kvroute_attempt_t *ngx_http_kvroute_early_take(
    ngx_http_kvroute_ctx_t *ctx, ngx_http_kvroute_srv_conf_t *conf);

/* takes the peer decided on, or else asks the policy; under the peers' lock */
ngx_http_upstream_rr_peer_t *ngx_http_kvroute_early_get(
    ngx_http_kvroute_attempt_t *at, ngx_uint_t *index, ngx_uint_t *offered,
    kvr_decision_t *d);

/*
 * _rank: the targets of a peer that may be offered, from *from up to *to.
 * With a header these are narrowed down to its rank, unless a misfit will do;
 * without, the engine chooses, which is counted at the address.
 */
void ngx_http_kvroute_rank_offer(ngx_http_kvroute_attempt_t *at,
    ngx_http_kvroute_list_t *list, ngx_uint_t i, ngx_uint_t misfit,
    ngx_uint_t *from, ngx_uint_t *to);

/* whether the request wants this peer, by any of its ranks */
ngx_uint_t ngx_http_kvroute_rank_wanted(ngx_http_kvroute_attempt_t *at,
    ngx_http_kvroute_list_t *list, ngx_uint_t i);

/* what a target has of its own as a candidate: the rest is its address's */
void ngx_http_kvroute_rank_candidate(ngx_http_kvroute_attempt_t *at,
    ngx_http_kvroute_list_t *list, ngx_http_kvroute_offer_t *offer,
    kvr_candidate_t *c);

/*
 * Keeps its weight in smooth round robin.  That of the first rank, and of those
 * without a number, is that of nginx's peer.
 */
void ngx_http_kvroute_rank_turn(ngx_http_kvroute_attempt_t *at,
    ngx_http_kvroute_list_t *list, ngx_http_kvroute_offer_t *offer,
    kvr_candidate_t *c);

/*
 * What belongs to the target that is taken: its rank, and whether it is astray:
 * the header names no rank, or another one.  Returns the target that the request
 * is counted at: that of the address if the one taken has no number.
 */
ngx_uint_t ngx_http_kvroute_rank_take(ngx_http_kvroute_attempt_t *at,
    ngx_http_kvroute_list_t *list, ngx_uint_t i, ngx_uint_t target);

/* _receipt: what was decided and why, for variables */
void ngx_http_kvroute_receipt_tell(ngx_http_kvroute_attempt_t *at,
    kvr_decision_t *d, ngx_str_t *name);

/* the same for status and log as well: it is done */
void ngx_http_kvroute_receipt(ngx_peer_connection_t *pc,
    ngx_http_kvroute_attempt_t *at, kvr_decision_t *d);

/* ns; nginx's own clock stands still within an event */
uint64_t ngx_http_kvroute_receipt_clock(void);

/* _attempt: called under the peers' lock, nothing but arithmetic */
void ngx_http_kvroute_attempt_begin(ngx_http_kvroute_attempt_t *at,
    kvr_begin_t *begin);

/* of a peer that is drained: counts the session that still goes there */
void ngx_http_kvroute_attempt_drain(ngx_http_kvroute_attempt_t *at);

/* the index learns at the pick: siblings of a burst follow the first one */
void ngx_http_kvroute_attempt_insert(ngx_http_kvroute_attempt_t *at);

/* ends it, here and in nginx's own balancer, if pc is not NULL */
void ngx_http_kvroute_attempt_end(ngx_http_kvroute_attempt_t *at,
    ngx_peer_connection_t *pc, ngx_uint_t state);

/* how this peer has answered; 0: it has not */
ngx_uint_t ngx_http_kvroute_attempt_status(ngx_http_kvroute_attempt_t *at);

/* counts how the peer answered, if it did */
void ngx_http_kvroute_attempt_result(ngx_http_kvroute_attempt_t *at,
    ngx_uint_t state);

/*
 * _eject: called under the peers' lock: counts a request, or its retry, against
 * the budget of retries; if that is spent, this try is the last one
 */
void ngx_http_kvroute_eject_retries(ngx_http_kvroute_attempt_t *at,
    uint32_t member);

/* the attempt has ended so; before free() of nginx's own */
void ngx_http_kvroute_eject_final(ngx_http_kvroute_attempt_t *at,
    ngx_peer_connection_t *pc, kvr_outlier_e reason, ngx_uint_t state);

/* what the engine is to blame for, by the status of its answer; 0: none */
kvr_outlier_e ngx_http_kvroute_eject_reason(ngx_http_kvroute_attempt_t *at,
    ngx_peer_connection_t *pc, ngx_uint_t state, ngx_uint_t status);

/* how a request comes to the candidate picked; ELSEWHERE: to be asked again */
kvr_trial_arm_e ngx_http_kvroute_eject_trial(ngx_http_kvroute_attempt_t *at,
    kvr_candidate_t *cand, ngx_uint_t n, uint32_t pick, uint64_t random);

/* logs what KVR_EJECT_... bits say; the members are in the attempt */
void ngx_http_kvroute_eject_log(ngx_http_kvroute_attempt_t *at, unsigned bits);


#endif /* _NGX_HTTP_KVROUTE_BALANCE_INT_H_INCLUDED_ */
