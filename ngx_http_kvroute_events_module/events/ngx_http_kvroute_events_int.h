
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _NGX_HTTP_KVROUTE_EVENTS_INT_H_INCLUDED_
#define _NGX_HTTP_KVROUTE_EVENTS_INT_H_INCLUDED_


#include "events/ngx_http_kvroute_events.h"
#include "core/events/kvr_subscription.h"
#include "engine/ngx_http_kvroute_fetch.h"


/* what an upstream listens to, or NULL */
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
 * Takes what was found.  NGX_AGAIN: leave off here and keep what was not read;
 * NGX_DONE: the stream is closed.
 */
typedef ngx_int_t (*ngx_http_kvroute_events_found_pt)(
    ngx_http_kvroute_events_stream_t *stream, kvr_subscription_e found);

/* the connection has ended; error is what is wrong with it */
typedef void (*ngx_http_kvroute_events_closed_pt)(
    ngx_http_kvroute_events_stream_t *stream, const char *error);


struct ngx_http_kvroute_events_stream_s {
    ngx_http_kvroute_events_source_t   *source;
    ngx_http_kvroute_events_found_pt    found;
    ngx_http_kvroute_events_closed_pt   closed;

    ngx_http_kvroute_conn_t             conn;

    kvr_subscription_t                  subscription;

    u_char                             *rest;     /* was not read */
    size_t                              rest_len;
    unsigned                            held:1;   /* nothing is read */
    unsigned                            refused:1;  /* nobody listens there */
};


/* a publisher */
struct ngx_http_kvroute_events_source_s {
    ngx_http_kvroute_events_source_t   *next;
    ngx_http_kvroute_srv_conf_t        *conf;

    ngx_http_kvroute_events_stream_t    live;
    ngx_http_kvroute_events_stream_t    replay;

    ngx_event_t                         timer;    /* to connect, or of replay */
    ngx_event_t                        *look;     /* at all sources */
    ngx_connection_t                    dummy;

    kvr_events_order_t                  order;
    ngx_str_t                           name;
    uint32_t                            id;       /* of the peer */
    uint32_t                            generation;
    uint32_t                            number;   /* of the peer's source */
    uint32_t                            rank;     /* of data parallelism */
    ngx_uint_t                          told;     /* events in this message */
    uint64_t                            self;     /* this process, as owner */
    uint64_t                            opened;   /* ms */
    uint64_t                            pinged;

    ngx_msec_t                          delay;    /* of the next attempt */
    ngx_uint_t                          bad;      /* attempts, in a row */
    time_t                              warned;   /* s; 0: never */
    time_t                              restarted;  /* likewise: was told */
    time_t                              emptied;

    unsigned                            seen:1;   /* still among the peers */
    unsigned                            cleared:1;  /* by this message */
    unsigned                            open:1;   /* it is listened to */
    unsigned                            gone:1;   /* nobody was there */
    unsigned                            missed:1; /* no replay had it */
    unsigned                            asked:1;  /* whether it is the same */
    unsigned                            same:1;   /* the replay says so */
    unsigned                            ended:1;  /* all of it was heard */
    unsigned                            whole:1;  /* and all of the peer's */
    unsigned                            alone:1;  /* the peer has no other */
};


#define NGX_HTTP_KVROUTE_EVENTS_PUBLISHERS  64    /* ranks of an engine */


/* ports of a rank; 0: none */
typedef struct {
    in_port_t                           live;
    in_port_t                           replay;
} ngx_http_kvroute_events_publisher_t;


/* an engine that is asked where its publishers are */
typedef struct ngx_http_kvroute_events_find_s  ngx_http_kvroute_events_find_t;

struct ngx_http_kvroute_events_find_s {
    ngx_http_kvroute_events_find_t     *next;
    ngx_http_kvroute_srv_conf_t        *conf;
    ngx_str_t                           name;     /* of the server */
    uint32_t                            id;       /* of its peer, or of its */
    uint32_t                            generation;  /* first rank's */

    ngx_http_kvroute_fetch_t            fetch;
    u_char                             *answer;   /* to the last request */
    size_t                              len;

    ngx_uint_t                          number;   /* of publishers, by rank */
    ngx_http_kvroute_events_publisher_t
        publisher[NGX_HTTP_KVROUTE_EVENTS_PUBLISHERS];

    uint64_t                            again;    /* ms: not before that */
    ngx_msec_t                          delay;
    time_t                              warned;   /* s; 0: never */
    unsigned                            seen:1;   /* still among the peers */
    unsigned                            missing:1;  /* one is not connected */
};


/* _find */

/* what is known of a server; NULL: there is no memory */
ngx_http_kvroute_events_find_t *ngx_http_kvroute_events_find(
    ngx_http_kvroute_srv_conf_t *conf, uint32_t id,
    ngx_http_upstream_rr_peer_t *peer, ngx_log_t *log);

/* before all are looked for, or an upstream's cannot be: then those stay */
void ngx_http_kvroute_events_find_unseen(void);
void ngx_http_kvroute_events_find_keep(ngx_http_kvroute_srv_conf_t *conf);

/*
 * After it: asks those of whom a publisher is missing.  If something was found,
 * or some have to wait for others, the event is for soon.
 */
void ngx_http_kvroute_events_find_ask(ngx_event_t *look);

void ngx_http_kvroute_events_find_exit(void);


/* _stream */

void ngx_http_kvroute_events_stream_open(
    ngx_http_kvroute_events_stream_t *stream, kvr_zmtp_role_e role,
    ngx_str_t *topic);
void ngx_http_kvroute_events_stream_close(
    ngx_http_kvroute_events_stream_t *stream);

/* sends what there is to be sent */
ngx_int_t ngx_http_kvroute_events_stream_send(
    ngx_http_kvroute_events_stream_t *stream);

/* goes on after found() has returned NGX_AGAIN */
void ngx_http_kvroute_events_stream_resume(
    ngx_http_kvroute_events_stream_t *stream);


/* _read: found() and closed() of a source's live stream and of its replay */

ngx_int_t ngx_http_kvroute_events_read_live(
    ngx_http_kvroute_events_stream_t *stream, kvr_subscription_e found);
ngx_int_t ngx_http_kvroute_events_read_replay(
    ngx_http_kvroute_events_stream_t *stream, kvr_subscription_e found);
void ngx_http_kvroute_events_read_replay_closed(
    ngx_http_kvroute_events_stream_t *stream, const char *error);

/* a replay takes too long: what is missing is given up */
void ngx_http_kvroute_events_read_give_up(
    ngx_http_kvroute_events_source_t *source);


/* _attribute: with aliases=, in worker 0 */

void ngx_http_kvroute_events_attribute_init(ngx_cycle_t *cycle);


/* _source */

/* what is heard of the zone of a source */
kvr_heard_t *ngx_http_kvroute_events_source_heard(
    ngx_http_kvroute_events_source_t *source);

kvr_events_t *ngx_http_kvroute_events_source_peer(
    ngx_http_kvroute_events_source_t *source);
kvr_events_source_t *ngx_http_kvroute_events_source_shared(
    ngx_http_kvroute_events_source_t *source);

/* whether this process is still the one that listens */
ngx_uint_t ngx_http_kvroute_events_source_owned(
    ngx_http_kvroute_events_source_t *source);

/* this process, as an owner of what is in a zone */
uint64_t ngx_http_kvroute_events_self(ngx_http_kvroute_zone_t *zone);

/* at most one a minute of each of them */
ngx_uint_t ngx_http_kvroute_events_source_due(time_t *warned);
void ngx_http_kvroute_events_source_warn(
    ngx_http_kvroute_events_source_t *source, const char *what,
    const char *why);

/* of connections: that nobody answers is told once, not by every connect() */
extern ngx_log_t  ngx_http_kvroute_events_source_log;


#endif /* _NGX_HTTP_KVROUTE_EVENTS_INT_H_INCLUDED_ */
