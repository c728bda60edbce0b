
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _NGX_HTTP_KVROUTE_CONTINUE_H_INCLUDED_
#define _NGX_HTTP_KVROUTE_CONTINUE_H_INCLUDED_


/*
 * An answer that does not break: if a streamed answer ends without its final
 * event, another server continues it in the same response.
 *
 *     _continue_module     directive, counters, variables
 *     _continue_filter     reads and rewrites events
 *     _continue            ends a part, starts the next one
 *     _continue_request    the subrequest of a part, and its body
 *
 * The client's request has the first part of the answer, each further part is
 * a subrequest.  A subrequest is a clone of the client's request: it starts in
 * the queue, and is proxied like its parent.
 *
 *     READING   a part ends, another one follows            READING
 *     READING   the final event was sent, or an error event
 *               instead of it                               ENDED
 *     READING   an event is too long to be kept             PASSING
 */


#include "ngx_http_kvroute_extension.h"
#include "balance/ngx_http_kvroute_balance.h"
#include "core/continue/kvr_again.h"
#include "core/continue/kvr_continue.h"


/* kvroute_continue of a location */
typedef struct {
    uint32_t                     on;
    uint32_t                     tries;
    size_t                       max;       /* most bytes of text to keep */
} ngx_http_kvroute_continue_conf_t;


typedef struct {
    ngx_uint_t                   used;      /* by any location */
    ngx_array_t                  zones;     /* ngx_shm_zone_t *, of kmcf's */
    ngx_int_t                    body;      /* indices of $request_body, */
    ngx_int_t                    length;    /* and $content_length */
} ngx_http_kvroute_continue_main_conf_t;


typedef enum {
    NGX_HTTP_KVROUTE_CONTINUE_READING = 0,
    NGX_HTTP_KVROUTE_CONTINUE_PASSING,
    NGX_HTTP_KVROUTE_CONTINUE_ENDED
} ngx_http_kvroute_continue_state_e;


/* an answer, in the pool of the client's request */
typedef struct {
    ngx_http_request_t                *request;  /* the client's */
    ngx_http_request_t                *part;     /* that sends events now */
    ngx_http_kvroute_continue_conf_t  *conf;
    ngx_http_kvroute_continue_state_e  state;

    void  (*finalize)(ngx_http_request_t *r, ngx_int_t rc);

    kvr_answer_t                 answer;
    ngx_uint_t                   parts;     /* continuations, */
    ngx_uint_t                   moves;     /* of these, by the operator */

    ngx_http_kvroute_srv_conf_t *upstream;  /* of the first part */
    uint32_t                     peer;      /* of this part, or UNSET */
    kvr_drain_t                 *drain;     /* of that peer, or NULL */
    ngx_event_t                  move;      /* posted to end this part */
    ngx_http_kvroute_leg_t       leg;       /* of continuations */

    /* an incomplete event */

    u_char                      *event;
    size_t                       len;
    size_t                       size;
    size_t                       from;

    ngx_chain_t                 *in;        /* input not read yet */
    ngx_chain_t                 *out;
    ngx_chain_t                **last;
    ngx_chain_t                 *free;
    ngx_chain_t                 *busy;
    ngx_buf_t                   *buf;       /* the buffer being filled */

    kvr_answer_cut_e             cut;       /* why it was not continued */

    unsigned                     keepalive:1;
    unsigned                     broken:1;  /* a continuation got no answer */
    unsigned                     failed:1;  /* no memory */
    unsigned                     moved:1;   /* the operator ended this part */
    unsigned                     retry:1;   /* the part before was not moved */
    unsigned                     stays:1;   /* it cannot be continued */
} ngx_http_kvroute_continue_t;


extern ngx_module_t  ngx_http_kvroute_continue_module;


/*
 * _filter: finalize is called when the upstream of an answer is finalized,
 * moves after an event if the server is being emptied.
 */
void ngx_http_kvroute_continue_filter_init(
    void (*finalize)(ngx_http_request_t *r, ngx_int_t rc),
    void (*moves)(ngx_http_kvroute_continue_t *c));

/* Reads all received bytes, however slowly the client reads. */
ngx_int_t ngx_http_kvroute_continue_drain(ngx_http_kvroute_continue_t *c);

/*
 * Sends the written bytes as a part of r's output, followed by NGX_HTTP_LAST,
 * NGX_HTTP_FLUSH or nothing.
 */
ngx_int_t ngx_http_kvroute_continue_send(ngx_http_kvroute_continue_t *c,
    ngx_http_request_t *r, ngx_uint_t special);

/* a kvr_splice_put_pt */
void ngx_http_kvroute_continue_put(void *data, const uint8_t *p, size_t len);

/* _continue: called when the upstream of the client's request is finalized */
void ngx_http_kvroute_continue_finalize(ngx_http_request_t *r, ngx_int_t rc);

/* Ends a part if possible, to continue it at another server. */
void ngx_http_kvroute_continue_leave(ngx_http_kvroute_continue_t *c);

/* _request: tells whether a part could be continued now */
ngx_uint_t ngx_http_kvroute_continue_can(ngx_http_kvroute_continue_t *c);

/*
 * _request: starts a continuation, or returns the reason why not.  When it
 * ends, done is called with c.  limit: all requested tokens were sent.
 */
kvr_answer_cut_e ngx_http_kvroute_continue_start(
    ngx_http_kvroute_continue_t *c, ngx_http_post_subrequest_pt done,
    ngx_uint_t *limit);


#endif /* _NGX_HTTP_KVROUTE_CONTINUE_H_INCLUDED_ */
