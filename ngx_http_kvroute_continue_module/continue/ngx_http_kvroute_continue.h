
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _NGX_HTTP_KVROUTE_CONTINUE_H_INCLUDED_
#define _NGX_HTTP_KVROUTE_CONTINUE_H_INCLUDED_


/*
 * An answer that does not break: if a streamed answer ends without its final
 * event, another server continues it in the same response.
 *
 *     _continue_module     the directive, what is counted, variables
 *     _continue_filter     the events that pass
 *     _continue            the end of a part, and the next one
 *     _continue_request    the subrequest that continues, and its body
 *
 * The client's request has the first part of the answer; a subrequest each has
 * the further ones.  A subrequest is a clone: it begins in the queue and is
 * passed on as its parent was.
 *
 *     READING   a part ends, and another one follows        READING
 *     READING   the final event has passed, or the error
 *               that takes its place was written            ENDED
 *     READING   an event is too long to be looked at        PASSING
 */


#include "ngx_http_kvroute_extension.h"
#include "balance/ngx_http_kvroute_balance.h"
#include "core/continue/kvr_again.h"
#include "core/continue/kvr_continue.h"


/* kvroute_continue of a location */
typedef struct {
    uint32_t                     on;
    uint32_t                     tries;
    size_t                       max;       /* bytes of text that are kept */
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
    ngx_http_request_t                *part;     /* whose events come */
    ngx_http_kvroute_continue_conf_t  *conf;
    ngx_http_kvroute_continue_state_e  state;

    void  (*finalize)(ngx_http_request_t *r, ngx_int_t rc);

    kvr_answer_t                 answer;
    ngx_uint_t                   parts;     /* continuations, */
    ngx_uint_t                   moves;     /* and those of them by us */

    ngx_http_kvroute_srv_conf_t *upstream;  /* of the first part */
    uint32_t                     peer;      /* of the part, or UNSET */
    kvr_drain_t                 *drain;     /* of that one, or NULL */
    ngx_event_t                  move;      /* the part ends here */
    ngx_http_kvroute_leg_t       leg;       /* of continuations */

    /* an event of which the end has not come */

    u_char                      *event;
    size_t                       len;
    size_t                       size;
    size_t                       from;

    ngx_chain_t                 *in;        /* not read yet */
    ngx_chain_t                 *out;
    ngx_chain_t                **last;
    ngx_chain_t                 *free;
    ngx_chain_t                 *busy;
    ngx_buf_t                   *buf;       /* that is being filled */

    kvr_answer_cut_e             cut;       /* why it was not continued */

    unsigned                     keepalive:1;
    unsigned                     broken:1;  /* no answer to a continuation */
    unsigned                     failed:1;  /* no memory */
    unsigned                     moved:1;   /* the part was ended by us */
    unsigned                     retry:1;   /* it was not, before this one */
    unsigned                     stays:1;   /* it could not be continued */
} ngx_http_kvroute_continue_t;


extern ngx_module_t  ngx_http_kvroute_continue_module;


/*
 * _filter: finalize is called when the upstream of an answer is finalized, moves
 * behind an event if the server is to be empty.
 */
void ngx_http_kvroute_continue_filter_init(
    void (*finalize)(ngx_http_request_t *r, ngx_int_t rc),
    void (*moves)(ngx_http_kvroute_continue_t *c));

/* reads all that has come, however slowly the client reads */
ngx_int_t ngx_http_kvroute_continue_drain(ngx_http_kvroute_continue_t *c);

/*
 * Writes what was put, as a part of r's output, and behind it NGX_HTTP_LAST or
 * NGX_HTTP_FLUSH, or nothing.
 */
ngx_int_t ngx_http_kvroute_continue_send(ngx_http_kvroute_continue_t *c,
    ngx_http_request_t *r, ngx_uint_t special);

/* a kvr_splice_put_pt */
void ngx_http_kvroute_continue_put(void *data, const uint8_t *p, size_t len);

/* _continue: the upstream of the client's request is finalized */
void ngx_http_kvroute_continue_finalize(ngx_http_request_t *r, ngx_int_t rc);

/* ends a part if it may, to continue it elsewhere */
void ngx_http_kvroute_continue_leave(ngx_http_kvroute_continue_t *c);

/* _request: whether a part could be continued now */
ngx_uint_t ngx_http_kvroute_continue_can(ngx_http_kvroute_continue_t *c);

/*
 * _request: starts a continuation, at whose end done is called with c; else the
 * reason why not.  limit: the client has all it asked for.
 */
kvr_answer_cut_e ngx_http_kvroute_continue_start(
    ngx_http_kvroute_continue_t *c, ngx_http_post_subrequest_pt done,
    ngx_uint_t *limit);


#endif /* _NGX_HTTP_KVROUTE_CONTINUE_H_INCLUDED_ */
