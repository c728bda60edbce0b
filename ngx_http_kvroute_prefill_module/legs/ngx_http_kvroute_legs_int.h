
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


typedef void (*ngx_http_kvroute_legs_pt)(ngx_http_kvroute_legs_t *legs);


/* bytes that leg 1 may take out of a body, all in all */
#define NGX_HTTP_KVROUTE_LEGS_SAVED  4096


/*
 * A request in a location with kvroute_prefill, in its pool.
 *
 * The client's body stays where nginx has put it.  Before leg 1 some bytes of
 * it are blanked, and put back after it; what is appended is in a buffer of its
 * own behind them.  So either leg is the client's bytes in nginx's own buffers,
 * which nginx can send again by itself.
 */
struct ngx_http_kvroute_legs_s {
    ngx_http_request_t          *request;   /* the client's */
    ngx_http_kvroute_prefill_t  *conf;
    const kvr_connector_t       *connector;
    ngx_http_kvroute_srv_conf_t *prefill;   /* upstreams of leg 1 and leg 2 */
    ngx_http_kvroute_srv_conf_t *decode;
    void                       **loc_conf;  /* of the location it is for */

    ngx_http_kvroute_leg_t       leg[2];    /* as the balancer sees them */
    ngx_http_kvroute_reserve_t   reserved;  /* at a prefill server: until leg 1
                                               goes there; connector=header:
                                               until the answer begins */

    kvr_disaggregate_e           outcome;
    ngx_str_t                    peer;      /* of leg 1 */
    ngx_uint_t                   status;    /* of its answer; 0: none */
    ngx_msec_t                   start;
    ngx_msec_t                   time;      /* that leg 1 took */
    ngx_msec_t                   answered;  /* when its answer began: its lease
                                               has by then */

    kvr_transfer_t               transfer;
    u_char                      *memory;    /* for the descriptor */

    kvr_edit_t                   edit;      /* of leg 1 */
    u_char                      *saved;     /* what it has blanked */

    ngx_http_request_body_t     *client;    /* the body as it came */
    off_t                        length;
    ngx_table_elt_t             *header;    /* that has told it, or NULL */

    ngx_http_request_body_t      second;    /* of leg 2, if it has its own */
    off_t                        second_length;
    ngx_http_handler_pt          content;   /* of the location */
    u_char                      *member;    /* appended to leg 2 */
    size_t                       member_len;

    uint32_t                     members;   /* of the client's root */

    /* with both legs at once */

    ngx_http_request_t          *first;     /* leg 1; NULL: there was none */
    ngx_http_kvroute_legs_pt     done;      /* leg 1 has ended; or NULL */
    ngx_event_t                  event;     /* one of the two has; with one after
                                               the other: leg 1's time is up */
    ngx_uint_t                   tries;     /* that are left */

    unsigned                     running:1; /* leg 1 is */
    unsigned                     ended:1;   /* it was made */
    unsigned                     entered:1; /* by the prefill upstream */
    unsigned                     odd:1;     /* its answer cannot be read */
    unsigned                     changed:1; /* the body is leg 2's */
    unsigned                     complete:1;  /* leg 1's answer came whole */
    unsigned                     sent:1;    /* leg 2 has begun */
    unsigned                     heard:1;   /* its server has the prompt */
    unsigned                     broken:1;  /* leg 1 has failed before that */
    unsigned                     over:1;    /* leg 2 is, whatever it was */
};


/*
 * _decide: by the request alone: most are short, and cost next to nothing here.
 * YES: it depends on servers.
 */
kvr_disaggregate_e ngx_http_kvroute_legs_decide_kind(
    ngx_http_kvroute_ctx_t *ctx, const kvr_connector_t *connector,
    kvr_disaggregate_t *d);

/*
 * By what servers hold and do.  Whatever the answer is, a place at the decode
 * server is reserved by then: for a plain request, or for leg 2.
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

/* finds what leg 1 must not have; NGX_DECLINED: too much, or cannot be read */
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

/* _first: NGX_AGAIN: leg 1 is under way; NGX_DECLINED: it cannot be made */
ngx_int_t ngx_http_kvroute_legs_first(ngx_http_kvroute_legs_t *legs);

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

/* _second: the request goes to the decode server with what is in this chain */
void ngx_http_kvroute_legs_send(ngx_http_kvroute_legs_t *legs,
    ngx_chain_t *bufs, off_t length);

/* it has the client's body again */
void ngx_http_kvroute_legs_unsend(ngx_http_kvroute_legs_t *legs);

/* what leg 2 has beyond that is blanked: it may be sent to another server */
void ngx_http_kvroute_legs_plain(ngx_http_kvroute_legs_t *legs,
    kvr_disaggregate_e outcome);

/*
 * _both: NGX_OK: both are under way; NGX_DECLINED: they cannot be made; else the
 * status of the answer
 */
ngx_int_t ngx_http_kvroute_legs_both(ngx_http_kvroute_legs_t *legs);


#endif /* _NGX_HTTP_KVROUTE_LEGS_INT_H_INCLUDED_ */
