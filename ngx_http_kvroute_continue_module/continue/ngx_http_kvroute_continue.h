
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _NGX_HTTP_KVROUTE_CONTINUE_H_INCLUDED_
#define _NGX_HTTP_KVROUTE_CONTINUE_H_INCLUDED_


/*
 * An answer that does not break: if a streamed answer ends without its final
 * event, another server continues it in the same response.  If its first event
 * is late, another server gets the request too, and the first event of either
 * decides whose answer the client receives.
 *
 *     _continue_module     directives, counters, variables
 *     _continue_filter     reads and rewrites events
 *     _continue            ends a part, starts the next one
 *     _continue_race       holds the header until the first event
 *     _continue_request    the subrequest of a part, and its body
 *
 * The client's request has the first part of the answer, each further part is
 * a subrequest.  A subrequest is a clone of the client's request: it starts in
 * the queue, and is proxied like its parent.
 *
 *     HELD      the first event passes                      READING or THROUGH
 *     HELD      an answer of another kind                   THROUGH
 *     READING   a part ends, another one follows            READING
 *     READING   the final event was sent, or an error event
 *               instead of it                               ENDED
 *     READING   an event is too long to be kept             PASSING
 *     PASSING   it ends                                     READING
 */


#include "ngx_http_kvroute_extension.h"
#include "balance/ngx_http_kvroute_balance.h"
#include "core/continue/kvr_again.h"
#include "core/continue/kvr_continue.h"


/* bytes of text that are kept of an answer */
#define NGX_HTTP_KVROUTE_CONTINUE_MAX  (1024 * 1024)


/* kvroute_continue and kvroute_first_token of a location */
typedef struct {
    uint32_t                     on;
    uint32_t                     tries;
    uint32_t                     usage;     /* is asked for */

    ngx_msec_t                   late;      /* 0: off; _AUTO */
    uint32_t                     hedge;     /* percent of requests */
} ngx_http_kvroute_continue_conf_t;


/* a time of kvroute_first_token: it is learned */
#define NGX_HTTP_KVROUTE_CONTINUE_AUTO  ((ngx_msec_t) -2)


typedef struct {
    ngx_uint_t                   used;      /* by any location */
    ngx_uint_t                   races;     /* kvroute_first_token is */
    ngx_uint_t                   usage;     /* "usage=on" is */
} ngx_http_kvroute_continue_main_conf_t;


typedef enum {
    NGX_HTTP_KVROUTE_CONTINUE_READING = 0,
    NGX_HTTP_KVROUTE_CONTINUE_PASSING,
    NGX_HTTP_KVROUTE_CONTINUE_ENDED,
    NGX_HTTP_KVROUTE_CONTINUE_HELD,
    NGX_HTTP_KVROUTE_CONTINUE_THROUGH   /* not continued: bytes are nginx's */
} ngx_http_kvroute_continue_state_e;


/* one of two requests that race for the first event */
typedef struct {
    ngx_http_request_t          *request;   /* NULL: it is out */
    u_char                      *held;      /* came before the first event */
    size_t                       len;
    unsigned                     header:1;  /* of a stream, is held */
} ngx_http_kvroute_continue_racer_t;


/* an answer, in the pool of the client's request */
typedef struct {
    ngx_http_request_t                *request;  /* the client's */
    ngx_http_request_t                *part;     /* sends events now */
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

    ngx_http_kvroute_continue_racer_t  racer[2];  /* the client's, a clone */
    ngx_event_t                  deadline;  /* posted: a request was sent */
    ngx_http_kvroute_leg_t       first;     /* of the client's request */
    kvr_continue_late_e          late;
    ngx_uint_t                   changes;   /* saved uri_changes, or 0, */
    ngx_uint_t                   page;      /* and error_page */

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
    unsigned                     earned:1;  /* counted for conf->hedge */
    unsigned                     hedged:1;  /* sent twice */
    unsigned                     torn:1;    /* the part broke off */
    unsigned                     line:1;    /* in PASSING: a line begins */
} ngx_http_kvroute_continue_t;


extern ngx_module_t  ngx_http_kvroute_continue_module;


/* what the filter calls */
typedef struct {

    /* the upstream of a part is finalized */

    void       (*finalize)(ngx_http_request_t *r, ngx_int_t rc);

    /* behind an event, if the server is to be empty */

    void       (*moves)(ngx_http_kvroute_continue_t *c);

    /* in HELD; body returns NGX_DECLINED once it has left that state */

    ngx_int_t  (*header)(ngx_http_kvroute_continue_t *c, ngx_http_request_t *r);
    ngx_int_t  (*body)(ngx_http_kvroute_continue_t *c, ngx_http_request_t *r,
                       ngx_chain_t *in);
} ngx_http_kvroute_continue_calls_t;


/* _filter */

void ngx_http_kvroute_continue_filter_init(
    const ngx_http_kvroute_continue_calls_t *calls);

/* Tells whether an answer can be continued. */
ngx_uint_t ngx_http_kvroute_continue_may(ngx_http_request_t *r,
    ngx_http_kvroute_continue_conf_t *conf);

/* Tells whether an answer is a stream that can be read. */
ngx_uint_t ngx_http_kvroute_continue_streams(ngx_http_request_t *r);

/* Creates the record of an answer; NULL: no memory. */
ngx_http_kvroute_continue_t *ngx_http_kvroute_continue_create(
    ngx_http_request_t *r, ngx_http_kvroute_continue_conf_t *conf);

/* Notes that nginx asks for usage instead of the client; returns whether. */
ngx_int_t ngx_http_kvroute_continue_ask(ngx_http_request_t *r);
ngx_uint_t ngx_http_kvroute_continue_asked(ngx_http_request_t *r);

/* Has finalize called when the upstream of a part is finalized. */
void ngx_http_kvroute_continue_wrap(ngx_http_kvroute_continue_t *c,
    ngx_http_request_t *r);

/* Stops the timer of a request that waits for another one. */
void ngx_http_kvroute_continue_untimed(ngx_http_request_t *r);

/* Returns the attempt of the answer; NULL: of another balancer. */
ngx_http_kvroute_attempt_t *ngx_http_kvroute_continue_attempt(
    ngx_http_request_t *r);

/* Notes the server of a part. */
void ngx_http_kvroute_continue_at(ngx_http_kvroute_continue_t *c,
    ngx_http_kvroute_attempt_t *at);

/* Sends the header of the client's request. */
ngx_int_t ngx_http_kvroute_continue_filter_header(
    ngx_http_kvroute_continue_t *c);

/* Takes the next bytes of the part. */
void ngx_http_kvroute_continue_bytes(ngx_http_kvroute_continue_t *c, u_char *p,
    size_t len);

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

/* _continue: the upstream of a part is finalized */
void ngx_http_kvroute_continue_finalize(ngx_http_request_t *r, ngx_int_t rc);

/* Called at the end of a subrequest, an ngx_http_post_subrequest_pt. */
ngx_int_t ngx_http_kvroute_continue_done(ngx_http_request_t *r, void *data,
    ngx_int_t rc);

/* Tells whether no further part is to be sent: the client has left, ... */
ngx_uint_t ngx_http_kvroute_continue_gone(ngx_http_request_t *r, ngx_int_t rc);

/* Returns what a zone's processes share, or NULL. */
kvr_continue_t *ngx_http_kvroute_continue_shared(
    ngx_http_kvroute_continue_t *c);

/* Starts another part; the reason why not, or limit as in _start(). */
kvr_answer_cut_e ngx_http_kvroute_continue_another(
    ngx_http_kvroute_continue_t *c, kvr_continue_cause_e cause,
    ngx_http_post_subrequest_pt done, ngx_uint_t *limit);

/* Ends a part if possible, to continue it at another server. */
void ngx_http_kvroute_continue_leave(ngx_http_kvroute_continue_t *c);

/* _race: Creates a race for each request of a location with the directive. */
ngx_int_t ngx_http_kvroute_continue_race_handler(ngx_http_request_t *r);

/* as finalize, header and body of the calls */
void ngx_http_kvroute_continue_race_finalize(ngx_http_request_t *r,
    ngx_int_t rc);
ngx_int_t ngx_http_kvroute_continue_race_header(ngx_http_kvroute_continue_t *c,
    ngx_http_request_t *r);
ngx_int_t ngx_http_kvroute_continue_race_body(ngx_http_kvroute_continue_t *c,
    ngx_http_request_t *r, ngx_chain_t *in);

/* _request: tells whether a part could be continued now */
ngx_uint_t ngx_http_kvroute_continue_can(ngx_http_kvroute_continue_t *c);

/*
 * _request: starts a continuation, or returns the reason why not.  When it
 * ends, done is called with c.  limit: all requested tokens were sent.
 */
kvr_answer_cut_e ngx_http_kvroute_continue_start(
    ngx_http_kvroute_continue_t *c, ngx_http_post_subrequest_pt done,
    ngx_uint_t *limit);

/* Returns the whole body of the client in one piece; NULL: nginx lacks it. */
ngx_buf_t *ngx_http_kvroute_continue_body(ngx_http_request_t *r);

/* The handler of "usage=on": asks for the usage of a stream. */
ngx_int_t ngx_http_kvroute_continue_usage_handler(ngx_http_request_t *r);

/*
 * Clones the client's request; b: another body, or NULL.  A request with the
 * same body does not wait in the queue.
 */
ngx_http_request_t *ngx_http_kvroute_continue_clone(
    ngx_http_kvroute_continue_t *c, ngx_buf_t *b,
    ngx_http_post_subrequest_pt done);


#endif /* _NGX_HTTP_KVROUTE_CONTINUE_H_INCLUDED_ */
