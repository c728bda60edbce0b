
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
#define NGX_HTTP_KVROUTE_SHARE_WARN      60000  /* between two of a kind */

/* bytes of an answer, at most */
#define NGX_HTTP_KVROUTE_SHARE_REPLY     (4 * 1024 * 1024)


typedef struct ngx_http_kvroute_share_s  ngx_http_kvroute_share_t;
typedef struct ngx_http_kvroute_share_conn_s  ngx_http_kvroute_share_conn_t;


struct ngx_http_kvroute_share_conn_s {
    ngx_http_kvroute_share_t        *share;

    /* it can be used; an answer has come, to be freed by who takes it */

    void                           (*ready)(ngx_http_kvroute_share_conn_t *sc);
    void                           (*answer)(ngx_http_kvroute_share_conn_t *sc,
                                             redisReply *reply);

    ngx_http_kvroute_conn_t          conn;
    u_char                           text[NGX_SOCKADDR_STRLEN];
    ngx_resolver_ctx_t              *ctx;       /* or NULL */
    redisReader                     *reader;
    size_t                           fed;       /* bytes of an answer so far */

    char                            *out;       /* a command, or NULL */
    u_char                          *sent;      /* behind what was sent */
    u_char                          *end;

    ngx_event_t                      again;
    ngx_connection_t                 dummy;     /* of its own event */
    ngx_msec_t                       delay;     /* before it is tried again */

    unsigned                         known:1;   /* AUTH is done */
    unsigned                         busy:1;    /* an answer is to come */
    unsigned                         cut:1;     /* one has broken off */
};


/* a zone that this process shares, or would */
struct ngx_http_kvroute_share_s {
    ngx_http_kvroute_zone_t         *zone;
    ngx_http_kvroute_share_conf_t   *conf;
    kvr_share_t                     *core;
    kvr_share_self_t                 self;
    kvr_share_owner_t                owner;
    ngx_resolver_t                  *resolver;  /* or NULL */
    ngx_msec_t                       resolver_timeout;
    ngx_log_t                       *log;
    ngx_log_t                        quiet;     /* of connections */

    ngx_event_t                      timer;
    ngx_event_t                      more;      /* to be applied */
    ngx_connection_t                 dummy;     /* of both */

    ngx_http_kvroute_share_conn_t    add;
    ngx_http_kvroute_share_conn_t    read;

    redisReply                      *reply;     /* being applied, or NULL */
    size_t                           entry;     /* next one of it */
    ngx_uint_t                       count;     /* entries asked for */

    ngx_msec_t                       asked;     /* for more of the stream */
    ngx_msec_t                       ticked;
    ngx_msec_t                       since;     /* owner since */
    ngx_msec_t                       hold;      /* nothing is added until */
    ngx_msec_t                       warned;
    u_char                           reason[256];  /* the last error; "" */
    ngx_msec_t                       warned_strange;
    uint64_t                         strange;   /* batches, when warned */

    unsigned                         owns:1;
    unsigned                         up:1;
    unsigned                         positioned:1;  /* where to read on */
    unsigned                         pass:1;    /* all that is there by now */

    uint64_t                         batch[KVR_SHARE_BATCH / 8];
};


/* _share_stream */

void ngx_http_kvroute_share_stream_init(ngx_http_kvroute_share_t *share);

/* adds a batch, if the connection is free; flags as of kvr_share_frame() */
void ngx_http_kvroute_share_stream_add(ngx_http_kvroute_share_t *share,
    unsigned flags);

/* reads on, unless that is under way or was asked for just now */
void ngx_http_kvroute_share_stream_ask(ngx_http_kvroute_share_t *share);

/* forgets what was to be applied */
void ngx_http_kvroute_share_stream_drop(ngx_http_kvroute_share_t *share);


/* _share_conn */

/* connects, and goes on trying until it is closed */
void ngx_http_kvroute_share_conn_open(ngx_http_kvroute_share_conn_t *sc);
void ngx_http_kvroute_share_conn_close(ngx_http_kvroute_share_conn_t *sc);

/*
 * Gives it up, with a warning, and tries again after a while.  text, of len
 * bytes, is what the store has said, or NULL.
 */
void ngx_http_kvroute_share_conn_fail(ngx_http_kvroute_share_conn_t *sc,
    const char *why, const char *text, size_t len);

/* the same without giving it up: keeps the reason, and warns */
void ngx_http_kvroute_share_conn_warn(ngx_http_kvroute_share_conn_t *sc,
    const char *why, const char *text, size_t len);

/* logs that sharing fails, with the last reason, at most once a minute */
void ngx_http_kvroute_share_conn_say(ngx_http_kvroute_share_t *share);

/* sends a command of a few words; its answer comes to answer() */
void ngx_http_kvroute_share_conn_send(ngx_http_kvroute_share_conn_t *sc,
    const ngx_str_t *word, ngx_uint_t n);


#endif /* _NGX_HTTP_KVROUTE_SHARE_INT_H_INCLUDED_ */
