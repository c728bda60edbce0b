
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _NGX_HTTP_KVROUTE_SHARE_INT_H_INCLUDED_
#define _NGX_HTTP_KVROUTE_SHARE_INT_H_INCLUDED_


#include "share/ngx_http_kvroute_share.h"
#include "zone/ngx_http_kvroute_zone.h"
#include "engine/ngx_http_kvroute_conn.h"

#include <hiredis/hiredis.h>


/* ms */
#define NGX_HTTP_KVROUTE_SHARE_CONNECT   1000
#define NGX_HTTP_KVROUTE_SHARE_ANSWER    3000
#define NGX_HTTP_KVROUTE_SHARE_BLOCK     1000   /* of XREAD */

/* bytes of an answer, at most */
#define NGX_HTTP_KVROUTE_SHARE_REPLY     (4 * 1024 * 1024)


typedef struct ngx_http_kvroute_share_s  ngx_http_kvroute_share_t;
typedef struct ngx_http_kvroute_share_conn_s  ngx_http_kvroute_share_conn_t;


struct ngx_http_kvroute_share_conn_s {
    ngx_http_kvroute_share_t        *share;

    /* called when it can be used, and with each answer, which they free */

    void                           (*ready)(ngx_http_kvroute_share_conn_t *sc);
    void                           (*answer)(ngx_http_kvroute_share_conn_t *sc,
                                             redisReply *reply);

    ngx_http_kvroute_conn_t          conn;
    u_char                           text[NGX_SOCKADDR_STRLEN];
    ngx_resolver_ctx_t              *ctx;       /* or NULL */
    redisReader                     *reader;
    size_t                           fed;       /* bytes of an answer so far */

    char                            *out;       /* a command, or NULL */
    u_char                          *sent;      /* end of the part sent */
    u_char                          *end;

    ngx_event_t                      again;     /* the next attempt */
    ngx_connection_t                 dummy;     /* of that event */
    ngx_msec_t                       delay;     /* before the next attempt */

    unsigned                         known:1;   /* authenticated, or no need */
    unsigned                         busy:1;    /* waiting for an answer */
    unsigned                         broken:1;  /* an answer broke off */
};


/* a shared zone, in worker 0 */
struct ngx_http_kvroute_share_s {
    ngx_http_kvroute_zone_t         *zone;
    ngx_http_kvroute_share_conf_t   *conf;
    kvr_share_t                     *core;
    kvr_share_self_t                 self;
    kvr_share_owner_t                owner;
    ngx_resolver_t                  *resolver;  /* or NULL */
    ngx_msec_t                       resolver_timeout;
    ngx_log_t                       *log;

    ngx_event_t                      timer;
    ngx_event_t                      more;      /* applies further entries */
    ngx_connection_t                 dummy;     /* of both */

    ngx_http_kvroute_share_conn_t    add;
    ngx_http_kvroute_share_conn_t    read;

    redisReply                      *reply;     /* being applied, or NULL */
    size_t                           entry;     /* the next one of it */
    ngx_uint_t                       count;     /* entries per request */

    ngx_msec_t                       asked;     /* time of the last XREAD */
    ngx_msec_t                       ticked;
    ngx_msec_t                       since;     /* of its start */
    time_t                           warned;    /* s; 0: never */
    u_char                           reason[256];  /* the last error; "" */
    time_t                           warned_foreign;
    uint64_t                         foreign;   /* batches, when warned */

    unsigned                         up:1;
    unsigned                         positioned:1;  /* the stream was checked */
    unsigned                         skip:1;    /* all entries there are now */

    uint64_t                         batch[KVR_SHARE_BATCH / 8];
};


/* _share_stream */

void ngx_http_kvroute_share_stream_init(ngx_http_kvroute_share_t *share);

/* Adds a batch, if the connection is idle; flags: of kvr_share_frame(). */
void ngx_http_kvroute_share_stream_add(ngx_http_kvroute_share_t *share,
    unsigned flags);

/* Reads the stream, unless a request is under way or was made just now. */
void ngx_http_kvroute_share_stream_ask(ngx_http_kvroute_share_t *share);

/* Forgets entries still to be applied. */
void ngx_http_kvroute_share_stream_drop(ngx_http_kvroute_share_t *share);


/* _share_conn */

/* Connects, and repeats attempts until it is closed. */
void ngx_http_kvroute_share_conn_open(ngx_http_kvroute_share_conn_t *sc);
void ngx_http_kvroute_share_conn_close(ngx_http_kvroute_share_conn_t *sc);

/*
 * Closes it with a warning, and tries again later.  error: the store's answer,
 * or NULL.
 */
void ngx_http_kvroute_share_conn_fail(ngx_http_kvroute_share_conn_t *sc,
    const char *why, redisReply *error);

/* Logs that sharing fails, with the last reason, at most once a minute. */
void ngx_http_kvroute_share_conn_log(ngx_http_kvroute_share_t *share);

/* Sends a command of a few words; answer() gets its answer. */
void ngx_http_kvroute_share_conn_send(ngx_http_kvroute_share_conn_t *sc,
    const ngx_str_t *word, ngx_uint_t n);


#endif /* _NGX_HTTP_KVROUTE_SHARE_INT_H_INCLUDED_ */
