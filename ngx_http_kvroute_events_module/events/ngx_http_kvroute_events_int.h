
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _NGX_HTTP_KVROUTE_EVENTS_INT_H_INCLUDED_
#define _NGX_HTTP_KVROUTE_EVENTS_INT_H_INCLUDED_


#include "events/ngx_http_kvroute_events.h"
#include "core/events/kvr_zmtp.h"
#include "engine/ngx_http_kvroute_fetch.h"
#include "zone/ngx_http_kvroute_zone.h"


/* returns kvroute_events of an upstream, or NULL */
static ngx_inline ngx_http_kvroute_events_conf_t *
ngx_http_kvroute_events_get(ngx_http_kvroute_srv_conf_t *kscf)
{
    ngx_http_kvroute_events_conf_t  *events;

    events = ngx_http_conf_upstream_srv_conf(kscf->upstream,
                                             ngx_http_kvroute_events_module);

    return events->port ? events : NULL;
}


typedef struct ngx_http_kvroute_events_stream_s
    ngx_http_kvroute_events_stream_t;
typedef struct ngx_http_kvroute_events_source_s
    ngx_http_kvroute_events_source_t;

/*
 * Handles a result.  Returns NGX_AGAIN to put the stream on hold, NGX_DONE if
 * it was closed.
 */
typedef ngx_int_t (*ngx_http_kvroute_events_found_pt)(
    ngx_http_kvroute_events_stream_t *stream, kvr_zmtp_e found);

/* called when the connection has ended, with the reason */
typedef void (*ngx_http_kvroute_events_closed_pt)(
    ngx_http_kvroute_events_stream_t *stream, const char *error);


struct ngx_http_kvroute_events_stream_s {
    ngx_http_kvroute_events_source_t   *source;
    ngx_http_kvroute_events_found_pt    found;
    ngx_http_kvroute_events_closed_pt   closed;

    ngx_http_kvroute_conn_t             conn;

    kvr_zmtp_t                          zmtp;

    u_char                             *payload;  /* of a message, or NULL */
    u_char                             *rest;     /* input kept on hold */
    size_t                              rest_len;
    unsigned                            held:1;   /* on hold */
    unsigned                            skip:1;   /* the current message */
    unsigned                            refused:1;  /* connection refused */
};


/* a publisher */
struct ngx_http_kvroute_events_source_s {
    ngx_http_kvroute_events_source_t   *next;
    ngx_http_kvroute_srv_conf_t        *conf;

    kvr_feeds_t                        *feeds;    /* of its zone */
    kvr_events_t                       *peer;     /* there, its peer, */
    kvr_events_source_t                *shared;   /* and itself */

    ngx_http_kvroute_events_stream_t    live;
    ngx_http_kvroute_events_stream_t    replay;

    ngx_event_t                         timer;    /* connect, or replay */
    ngx_event_t                        *look;     /* at all sources */
    ngx_connection_t                    dummy;

    kvr_events_order_t                  order;
    ngx_str_t                           name;
    uint32_t                            id;       /* of the peer */
    uint32_t                            generation;
    uint32_t                            number;   /* of the peer's source */
    uint32_t                            rank;     /* of data parallelism */
    ngx_uint_t                          events;   /* in this message */
    uint64_t                            opened;   /* ms */
    uint64_t                            pinged;

    ngx_msec_t                          delay;    /* before the next attempt */
    ngx_uint_t                          bad;      /* attempts in a row */

    /* s, of the last log message of each kind; 0: none yet */

    time_t                              warned;
    time_t                              restarted;
    time_t                              emptied;

    unsigned                            seen:1;   /* its peer still exists */
    unsigned                            cleared:1;  /* by this message */
    unsigned                            open:1;   /* connected */
    unsigned                            refused:1;  /* was, at some attempt */

    /* about the current replay */

    unsigned                            failed:1;
    unsigned                            verifying:1;  /* the same process? */
    unsigned                            same:1;   /* yes */
    unsigned                            replayed:1;  /* to its end */

    /* about all sources of the peer */

    unsigned                            complete:1;  /* none is missing */
    unsigned                            only:1;   /* this is the only one */
};


#define NGX_HTTP_KVROUTE_EVENTS_PUBLISHERS  64    /* ranks of an engine */


/* ports of a rank; 0: none */
typedef struct {
    in_port_t                           live;
    in_port_t                           replay;
} ngx_http_kvroute_events_publisher_t;


/* an engine with port=auto */
typedef struct ngx_http_kvroute_events_find_s  ngx_http_kvroute_events_find_t;

struct ngx_http_kvroute_events_find_s {
    ngx_http_kvroute_events_find_t     *next;
    ngx_http_kvroute_srv_conf_t        *conf;
    ngx_str_t                           name;     /* of the server */
    uint32_t                            id;       /* of its peer, or of the */
    uint32_t                            generation;  /* of the first rank */

    ngx_http_kvroute_fetch_t            fetch;
    u_char                             *answer;   /* response being read */
    size_t                              len;

    ngx_uint_t                          number;   /* of publishers */
    ngx_http_kvroute_events_publisher_t
        publisher[NGX_HTTP_KVROUTE_EVENTS_PUBLISHERS];

    uint64_t                            again;    /* ms, next request */
    ngx_msec_t                          delay;
    time_t                              warned;   /* s; 0: never */
    unsigned                            seen:1;   /* its peer still exists */
    unsigned                            missing:1;  /* a publisher */
};


/* _find */

/* Returns the state of a server, created if needed; NULL: no memory. */
ngx_http_kvroute_events_find_t *ngx_http_kvroute_events_find(
    ngx_http_kvroute_srv_conf_t *conf, uint32_t id,
    ngx_http_upstream_rr_peer_t *peer, ngx_log_t *log);

/*
 * Called before all servers are visited, and for an upstream whose servers
 * cannot be visited now, which then stay.
 */
void ngx_http_kvroute_events_find_unseen(void);
void ngx_http_kvroute_events_find_keep(ngx_http_kvroute_srv_conf_t *conf);

/*
 * Called after it: removes servers that are no longer configured, and sends a
 * request to those with a missing publisher.  look is called again soon if
 * that found something.
 */
void ngx_http_kvroute_events_find_ask(ngx_event_t *look);

void ngx_http_kvroute_events_find_exit(void);


/* _stream */

void ngx_http_kvroute_events_stream_open(
    ngx_http_kvroute_events_stream_t *stream, kvr_zmtp_role_e role);
void ngx_http_kvroute_events_stream_close(
    ngx_http_kvroute_events_stream_t *stream);

/* Closes the stream and calls closed(). */
void ngx_http_kvroute_events_stream_end(
    ngx_http_kvroute_events_stream_t *stream, const char *error);

/* Sends the bytes that are ready to be sent. */
ngx_int_t ngx_http_kvroute_events_stream_send(
    ngx_http_kvroute_events_stream_t *stream);

/* Continues a stream on hold. */
void ngx_http_kvroute_events_stream_resume(
    ngx_http_kvroute_events_stream_t *stream);


/* _read: found() and closed() of the live stream and of the replay */

ngx_int_t ngx_http_kvroute_events_read_live(
    ngx_http_kvroute_events_stream_t *stream, kvr_zmtp_e found);
ngx_int_t ngx_http_kvroute_events_read_replay(
    ngx_http_kvroute_events_stream_t *stream, kvr_zmtp_e found);
void ngx_http_kvroute_events_read_replay_closed(
    ngx_http_kvroute_events_stream_t *stream, const char *error);

/* Ends a replay that takes too long. */
void ngx_http_kvroute_events_read_give_up(
    ngx_http_kvroute_events_source_t *source);


/* _attribute: with aliases=, in worker 0 */

void ngx_http_kvroute_events_attribute_init(ngx_cycle_t *cycle);


/* _source */

/* Warns once a minute. */
void ngx_http_kvroute_events_source_warn(
    ngx_http_kvroute_events_source_t *source, const char *what,
    const char *why);


#endif /* _NGX_HTTP_KVROUTE_EVENTS_INT_H_INCLUDED_ */
