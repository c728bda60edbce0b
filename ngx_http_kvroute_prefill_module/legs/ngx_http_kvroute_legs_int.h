
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _NGX_HTTP_KVROUTE_LEGS_INT_H_INCLUDED_
#define _NGX_HTTP_KVROUTE_LEGS_INT_H_INCLUDED_


#include "legs/ngx_http_kvroute_legs.h"
#include "balance/ngx_http_kvroute_balance.h"

#include "core/legs/kvr_connector.h"
#include "core/legs/kvr_disaggregate.h"
#include "core/legs/kvr_edit.h"
#include "core/legs/kvr_transfer.h"


/* bytes that the prefill leg may take out of a body, all in all */
#define NGX_HTTP_KVROUTE_LEGS_SAVED  4096


/* states of legs: the tables are in _legs.c */

typedef enum {
    NGX_HTTP_KVROUTE_PREFILL_IDLE = 0,
    NGX_HTTP_KVROUTE_PREFILL_SENT,
    NGX_HTTP_KVROUTE_PREFILL_ENTERED,
    NGX_HTTP_KVROUTE_PREFILL_WHOLE,
    NGX_HTTP_KVROUTE_PREFILL_FAILED,
    NGX_HTTP_KVROUTE_PREFILL_ENDED,
    NGX_HTTP_KVROUTE_PREFILL_CLOSED
} ngx_http_kvroute_prefill_e;

typedef enum {
    NGX_HTTP_KVROUTE_DECODE_IDLE = 0,
    NGX_HTTP_KVROUTE_DECODE_SENT,
    NGX_HTTP_KVROUTE_DECODE_BEGUN,
    NGX_HTTP_KVROUTE_DECODE_OVER
} ngx_http_kvroute_decode_e;


/*
 * A request in a location with kvroute_prefill, in its pool.
 *
 * The client's body stays where nginx has put it.  Before the prefill leg some
 * bytes of it are blanked, and restored after it; what is appended is in a
 * buffer of its own behind them.  So either leg is the client's bytes in nginx's
 * own buffers, which nginx can send again by itself.
 */
struct ngx_http_kvroute_legs_s {
    ngx_http_request_t          *request;   /* the client's */
    ngx_http_kvroute_prefill_t  *conf;
    const kvr_connector_t       *connector;
    ngx_http_kvroute_srv_conf_t *prefill;   /* the upstreams */
    ngx_http_kvroute_srv_conf_t *decode;
    void                       **loc_conf;  /* of the location it is for */

    ngx_http_kvroute_leg_t       leg[KVR_LEGS];  /* as the balancer sees them */
    ngx_http_kvroute_prefill_e   prefill_state;
    ngx_http_kvroute_decode_e    decode_state;
    ngx_http_kvroute_reserve_t   reserved;  /* at a prefill server: until the
                                               leg goes there; connector=header:
                                               until the answer begins */

    /* the prefill leg, or another one before the decode leg: a subrequest */

    kvr_leg_e                    role;
    ngx_http_request_t          *subrequest;  /* or NULL: with one leg after the
                                                 other there is but one */
    kvr_disaggregate_e           outcome;
    ngx_str_t                    peer;
    ngx_uint_t                   status;    /* of its answer; 0: none */
    ngx_msec_t                   start;
    ngx_msec_t                   time;      /* that it took */
    ngx_msec_t                   answered;  /* its answer began, as has the
                                               lease by then */

    kvr_transfer_t               transfer;
    u_char                      *memory;    /* for the descriptor */

    kvr_edit_t                   edit;
    u_char                      *saved;     /* what was blanked */

    /* the client's request, and the decode leg if it has a body of its own */

    ngx_http_request_body_t     *client;
    off_t                        length;
    ngx_table_elt_t             *header;    /* with that length, or NULL */
    uint32_t                     members;   /* of the client's root */

    ngx_http_request_body_t      body;
    off_t                        body_length;
    ngx_http_handler_pt          content;   /* of the location */
    u_char                      *member;    /* appended to the body */
    size_t                       member_len;

    /*
     * Both legs at once: the state of one has changed.  One after the other: the
     * prefill leg has timed out.
     */

    ngx_event_t                  event;
    ngx_uint_t                   tries;     /* pairs that are left */
};


/* whether the prefill leg is under way */
static ngx_inline ngx_uint_t
ngx_http_kvroute_legs_running(ngx_http_kvroute_legs_t *legs)
{
    return legs->prefill_state >= NGX_HTTP_KVROUTE_PREFILL_SENT
           && legs->prefill_state <= NGX_HTTP_KVROUTE_PREFILL_WHOLE;
}


/*
 * _decide: by the request alone: most are short, and cost next to nothing here.
 * YES: it depends on servers.
 */
kvr_disaggregate_e ngx_http_kvroute_legs_decide_kind(
    ngx_http_kvroute_ctx_t *ctx, const kvr_connector_t *connector,
    kvr_disaggregate_t *d);

/*
 * By what servers hold and do.  Whatever the answer is, a place at the decode
 * server is reserved by then: for a plain request, or for the decode leg.
 */
kvr_disaggregate_e ngx_http_kvroute_legs_decide(ngx_http_kvroute_legs_t *legs,
    ngx_http_kvroute_ctx_t *ctx, kvr_disaggregate_t *d);

/*
 * The same where no server does it alone.  Of what has several rooms to be met
 * in, and of what is no prompt, the decode server tells the client itself.
 */
kvr_disaggregate_e ngx_http_kvroute_legs_decide_must(
    ngx_http_kvroute_legs_t *legs, ngx_http_kvroute_ctx_t *ctx);

/* _body: cuts what no client may send.  Else: how the request is refused */
ngx_int_t ngx_http_kvroute_legs_clean(ngx_http_request_t *r);

/*
 * Finds what the prefill leg must not have; NGX_DECLINED: it is too much, or the
 * body cannot be read.
 */
ngx_int_t ngx_http_kvroute_legs_find(ngx_http_kvroute_legs_t *legs);

/* finds and blanks it; NGX_DECLINED: likewise */
ngx_int_t ngx_http_kvroute_legs_cut(ngx_http_kvroute_legs_t *legs);

/* puts it back */
ngx_int_t ngx_http_kvroute_legs_restore(ngx_http_kvroute_legs_t *legs);

/*
 * The body is another one now: also for $request_body and $content_length, which
 * all legs share.
 */
void ngx_http_kvroute_legs_forget(ngx_http_request_t *r);

/*
 * The body up to the root's brace, and a text that ends with one.  Returns the
 * chain, and its length in *length; NULL: no memory.
 */
ngx_chain_t *ngx_http_kvroute_legs_append(ngx_http_kvroute_legs_t *legs,
    u_char *text, size_t len, off_t *length);

/* the same without what would have to be blanked; it can be sent but once */
ngx_chain_t *ngx_http_kvroute_legs_without(ngx_http_kvroute_legs_t *legs,
    u_char *text, size_t len, off_t *length);

/* _prefill: NGX_AGAIN: it is under way; NGX_DECLINED: it cannot be made */
ngx_int_t ngx_http_kvroute_legs_prefill(ngx_http_kvroute_legs_t *legs);

/*
 * The subrequest alone, which has no body yet; flags: those of a subrequest.
 * NULL: no memory.
 */
ngx_http_request_t *ngx_http_kvroute_legs_subrequest(
    ngx_http_kvroute_legs_t *legs, ngx_uint_t flags);
ngx_int_t ngx_http_kvroute_legs_give(ngx_http_kvroute_legs_t *legs,
    ngx_http_request_t *sr, ngx_chain_t *bufs, off_t length);

/*
 * Closes what a request has upstream, and says nothing to anybody.  nginx does
 * the same when a request is passed on once more: what is closed gives back a
 * reference to the client's request.  0: it has nothing there.
 */
ngx_uint_t ngx_http_kvroute_legs_close(ngx_http_request_t *r);

/* _decode: the request goes to the decode server with what is in this chain */
void ngx_http_kvroute_legs_send(ngx_http_kvroute_legs_t *legs,
    ngx_chain_t *bufs, off_t length);

/* it has the client's body again */
void ngx_http_kvroute_legs_unsend(ngx_http_kvroute_legs_t *legs);

/* blanks what the decode leg has beyond that: another server may compute it */
void ngx_http_kvroute_legs_plain(ngx_http_kvroute_legs_t *legs,
    kvr_disaggregate_e outcome);

/*
 * _both: NGX_OK: both are under way; NGX_DECLINED: they cannot be made; else the
 * status of the answer
 */
ngx_int_t ngx_http_kvroute_legs_both(ngx_http_kvroute_legs_t *legs);

#endif /* _NGX_HTTP_KVROUTE_LEGS_INT_H_INCLUDED_ */
