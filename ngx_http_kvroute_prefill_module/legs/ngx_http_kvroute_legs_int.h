
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
#include "core/legs/kvr_pull.h"
#include "core/legs/kvr_transfer.h"


/* bytes that may be cut from a body for the prefill leg, in total */
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
 * The client's body stays in nginx's buffers.  In a file, some bytes of it are
 * blanked for the prefill leg and restored after it.  What is appended is in a
 * buffer of its own.  So nginx can send the body of each leg again by itself.
 */
struct ngx_http_kvroute_legs_s {
    ngx_http_request_t          *request;   /* the client's */
    ngx_http_kvroute_prefill_t  *conf;
    const kvr_connector_t       *connector;
    ngx_http_kvroute_srv_conf_t *prefill;   /* the upstreams */
    ngx_http_kvroute_srv_conf_t *decode;
    void                       **loc_conf;  /* of its location */

    ngx_http_kvroute_leg_t       leg[KVR_LEGS];  /* for the balancer */
    ngx_http_kvroute_prefill_e   prefill_state;
    ngx_http_kvroute_decode_e    decode_state;
    ngx_http_kvroute_reserve_t   reserved;  /* at a prefill server: until the
                                               leg is sent; connector=header:
                                               until the answer begins */

    /* the prefill leg, or another one before the decode leg: a subrequest */

    kvr_leg_e                    role;
    ngx_http_request_t          *subrequest;  /* set if both legs run at once */
    kvr_disaggregate_e           outcome;
    ngx_str_t                    peer;
    ngx_uint_t                   status;    /* of its answer; 0: none */
    ngx_msec_t                   start;
    ngx_msec_t                   time;      /* duration */
    ngx_msec_t                   answered;  /* start of its answer, and lease */

    /* that answer, unless both legs run at once */

    u_char                      *text;      /* its first size bytes, or NULL */
    size_t                       size;
    size_t                       len;
    kvr_transfer_t               transfer;  /* the descriptor in it */

    kvr_pull_t                   pull;      /* connector=pull */

    kvr_edit_t                   edit;
    u_char                      *saved;     /* bytes blanked in a file, or
                                               NULL */

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
     * Both legs at once: posted when the state of one has changed.  One after
     * the other: the timer of the prefill leg.
     */

    ngx_event_t                  event;
    ngx_uint_t                   tries;     /* pairs that are left */

    unsigned                     unread:1;  /* the answer cannot be read */
};


/* Returns whether the prefill leg is under way. */
static ngx_inline ngx_uint_t
ngx_http_kvroute_legs_running(ngx_http_kvroute_legs_t *legs)
{
    return legs->prefill_state >= NGX_HTTP_KVROUTE_PREFILL_SENT
           && legs->prefill_state <= NGX_HTTP_KVROUTE_PREFILL_WHOLE;
}


/*
 * _decide: decides by the request alone, since most requests are short.  YES:
 * the servers must be compared.
 */
kvr_disaggregate_e ngx_http_kvroute_legs_decide_kind(
    ngx_http_kvroute_ctx_t *ctx, const kvr_connector_t *connector,
    kvr_disaggregate_t *d);

/*
 * Decides by the servers' caches and load.  In either case it reserves a place
 * at a decode server: for the decode leg, or for the client's own request.
 */
kvr_disaggregate_e ngx_http_kvroute_legs_decide(ngx_http_kvroute_legs_t *legs,
    ngx_http_kvroute_ctx_t *ctx, kvr_disaggregate_t *d);

/*
 * The same for connectors whose servers cannot serve a request alone.  A
 * request for several answers, or without a prompt, goes to the decode server,
 * which refuses it.
 */
kvr_disaggregate_e ngx_http_kvroute_legs_decide_must(
    ngx_http_kvroute_legs_t *legs, ngx_http_kvroute_ctx_t *ctx);

/* _body: cuts members that no client may send, or returns a status */
ngx_int_t ngx_http_kvroute_legs_clean(ngx_http_request_t *r);

/*
 * Finds the members to cut for the prefill leg; NGX_DECLINED: too many bytes,
 * or the body cannot be read.
 */
ngx_int_t ngx_http_kvroute_legs_find(ngx_http_kvroute_legs_t *legs);

/* Finds them; blanks and saves them if the body is in a file. */
ngx_int_t ngx_http_kvroute_legs_cut(ngx_http_kvroute_legs_t *legs);

/* Restores them. */
ngx_int_t ngx_http_kvroute_legs_restore(ngx_http_kvroute_legs_t *legs);

/*
 * Returns a chain of the body up to the root's closing brace, and a text that
 * ends with one; *length is set.  NULL: no memory.
 */
ngx_chain_t *ngx_http_kvroute_legs_append(ngx_http_kvroute_legs_t *legs,
    u_char *text, size_t len, off_t *length);

/*
 * The same without the members to cut.  nginx cannot send it again if the body
 * is in a file.
 */
ngx_chain_t *ngx_http_kvroute_legs_without(ngx_http_kvroute_legs_t *legs,
    u_char *text, size_t len, off_t *length);

/* _prefill: NGX_AGAIN: the leg is under way; NGX_DECLINED: not possible */
ngx_int_t ngx_http_kvroute_legs_prefill(ngx_http_kvroute_legs_t *legs);

/* Creates its subrequest, and gives it a body.  NULL: no memory. */
ngx_http_request_t *ngx_http_kvroute_legs_subrequest(
    ngx_http_kvroute_legs_t *legs, ngx_uint_t flags);
ngx_int_t ngx_http_kvroute_legs_give(ngx_http_kvroute_legs_t *legs,
    ngx_http_request_t *sr, ngx_chain_t *bufs, off_t length);

/* _decode: gives the request this body on its way to the decode server */
void ngx_http_kvroute_legs_send(ngx_http_kvroute_legs_t *legs,
    ngx_chain_t *bufs, off_t length);

/* Restores the client's body. */
void ngx_http_kvroute_legs_unsend(ngx_http_kvroute_legs_t *legs);

/* Blanks what was appended, so another server can compute the prompt. */
void ngx_http_kvroute_legs_plain(ngx_http_kvroute_legs_t *legs,
    kvr_disaggregate_e outcome);

/*
 * _both: NGX_OK: both legs are under way; NGX_DECLINED: not possible; else the
 * status of the answer.
 */
ngx_int_t ngx_http_kvroute_legs_both(ngx_http_kvroute_legs_t *legs);


/* Sets where servers meet, or what one fetches: a host, a port and a number. */
ngx_int_t ngx_http_kvroute_legs_meeting(ngx_http_kvroute_legs_t *legs,
    ngx_str_t *server, kvr_meeting_t *meeting);

/*
 * _pull: decides where the request goes, and adds to its body where that server
 * fetches from.  Returns YES, or why it does not.
 */
kvr_disaggregate_e ngx_http_kvroute_legs_pull(ngx_http_kvroute_legs_t *legs,
    ngx_http_kvroute_ctx_t *ctx);

#endif /* _NGX_HTTP_KVROUTE_LEGS_INT_H_INCLUDED_ */
