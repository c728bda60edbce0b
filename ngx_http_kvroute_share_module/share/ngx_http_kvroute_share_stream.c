
/*
 * Copyright (C) kvroute contributors
 */


/*
 * The commands of the stream.
 *
 *     XADD KEY MAXLEN ~ n * b BATCH               one at a time
 *     XREVRANGE KEY + - COUNT 1                   is this the same stream?
 *     XREAD COUNT n BLOCK ms STREAMS KEY ID       the new entries
 *
 * XREAD answers when the first batch arrives: with eight hosts a thousand
 * times a second, which would cost many system calls.  So it is sent again
 * only after an interval, unless more entries are there already.
 *
 * Reading continues behind the last id, never at "$", which would lose
 * entries.  A new host reads the whole stream.  If a store was replaced by one
 * with fewer entries, its last id is before ours: then all of it is read
 * again, and the numbers of batches show which were read before.  That is
 * checked for each new connection, and when nothing has arrived, since each
 * host adds a batch per second.
 *
 * An entry longer than the limit of an answer is not ours.  If not even one
 * entry can be read, reading continues behind the last entry of the stream.
 */


#include "share/ngx_http_kvroute_share_int.h"


/* approximate number of entries; each has at most 96 KB, usually few */
#define NGX_HTTP_KVROUTE_SHARE_LENGTH  "8192"

/* entries per request, and bytes applied in a turn of the event loop */
#define NGX_HTTP_KVROUTE_SHARE_COUNT   64
#define NGX_HTTP_KVROUTE_SHARE_TURN    16384


static void ngx_http_kvroute_share_stream_add_ready(
    ngx_http_kvroute_share_conn_t *sc);
static void ngx_http_kvroute_share_stream_added(
    ngx_http_kvroute_share_conn_t *sc, redisReply *reply);
static void ngx_http_kvroute_share_stream_read_ready(
    ngx_http_kvroute_share_conn_t *sc);
static void ngx_http_kvroute_share_stream_next(
    ngx_http_kvroute_share_conn_t *sc);
static void ngx_http_kvroute_share_stream_read(
    ngx_http_kvroute_share_conn_t *sc, redisReply *reply);
static ngx_int_t ngx_http_kvroute_share_stream_position(
    ngx_http_kvroute_share_t *share, redisReply *reply);
static redisReply *ngx_http_kvroute_share_stream_entries(redisReply *reply);
static void ngx_http_kvroute_share_stream_more(ngx_event_t *ev);
static ngx_int_t ngx_http_kvroute_share_stream_entry(
    ngx_http_kvroute_share_t *share, redisReply *entry, size_t *bytes);
static ngx_int_t ngx_http_kvroute_share_stream_entry_id(redisReply *entry,
    uint64_t *id);
static ngx_int_t ngx_http_kvroute_share_stream_id(redisReply *text,
    uint64_t *id);
static ngx_int_t ngx_http_kvroute_share_stream_number(u_char *p, u_char *last,
    uint64_t *n);


void
ngx_http_kvroute_share_stream_init(ngx_http_kvroute_share_t *share)
{
    share->add.share = share;
    share->add.ready = ngx_http_kvroute_share_stream_add_ready;
    share->add.answer = ngx_http_kvroute_share_stream_added;

    share->read.share = share;
    share->read.ready = ngx_http_kvroute_share_stream_read_ready;
    share->read.answer = ngx_http_kvroute_share_stream_read;

    ngx_http_kvroute_timer_init(&share->more, &share->dummy,
                                ngx_http_kvroute_share_stream_more, share,
                                share->log);

    share->count = NGX_HTTP_KVROUTE_SHARE_COUNT;
}


/* the timer adds batches */
static void
ngx_http_kvroute_share_stream_add_ready(ngx_http_kvroute_share_conn_t *sc)
{
}


void
ngx_http_kvroute_share_stream_add(ngx_http_kvroute_share_t *share,
    unsigned flags)
{
    ngx_str_t                       batch;
    ngx_http_kvroute_share_conn_t  *sc;

    sc = &share->add;

    if (!sc->known || sc->busy) {
        return;
    }

    batch.data = (u_char *) share->batch;
    batch.len = kvr_share_frame(&share->self, &share->owner, share->batch,
                                flags, (uint64_t) ngx_current_msec,
                                (uint32_t) ngx_time());

    if (batch.len == 0) {
        return;
    }

    {
        ngx_str_t  word[] = {
            ngx_string("XADD"), share->conf->stream, ngx_string("MAXLEN"),
            ngx_string("~"), ngx_string(NGX_HTTP_KVROUTE_SHARE_LENGTH),
            ngx_string("*"), ngx_string("b"), batch
        };

        ngx_http_kvroute_share_conn_send(sc, word, kvr_nelts(word));
    }
}


static void
ngx_http_kvroute_share_stream_added(ngx_http_kvroute_share_conn_t *sc,
    redisReply *reply)
{
    uint64_t                   id[2];
    ngx_http_kvroute_share_t  *share;

    share = sc->share;

    if (reply->type == REDIS_REPLY_ERROR) {
        ngx_http_kvroute_share_conn_fail(sc, "XADD failed", reply);

    } else if (ngx_http_kvroute_share_stream_id(reply, id) != NGX_OK) {
        ngx_http_kvroute_share_conn_fail(sc, "not a stream", NULL);

    } else {
        sc->delay = 0;
        kvr_share_acked(&share->self, &share->owner);
    }

    freeReplyObject(reply);
}


static void
ngx_http_kvroute_share_stream_read_ready(ngx_http_kvroute_share_conn_t *sc)
{
    ngx_http_kvroute_share_t  *share;

    share = sc->share;

    /* the unapplied part of an answer is read again */

    ngx_http_kvroute_share_stream_drop(share);

    share->positioned = 0;

    /* the last answer was too long, or took too long: ask for fewer entries */

    if (sc->broken) {
        share->skip = share->count == 1;
        share->count = ngx_max(share->count / 2, 1);
    }

    /* the stream was never read: this host is new */

    if (kvr_get(&share->core->read[0]) == 0) {
        kvr_share_help_want(share->core, (uint64_t) ngx_current_msec);
    }

    ngx_http_kvroute_share_stream_next(sc);
}


void
ngx_http_kvroute_share_stream_ask(ngx_http_kvroute_share_t *share)
{
    if (share->read.known && !share->read.busy && share->reply == NULL
        && ngx_current_msec - share->asked >= NGX_HTTP_KVROUTE_SHARE_INTERVAL)
    {
        ngx_http_kvroute_share_stream_next(&share->read);
    }
}


static void
ngx_http_kvroute_share_stream_next(ngx_http_kvroute_share_conn_t *sc)
{
    u_char                     count[NGX_INT_T_LEN], block[NGX_INT_T_LEN];
    u_char                     id[2 * NGX_INT64_LEN + 1];
    ngx_http_kvroute_share_t  *share;

    share = sc->share;
    share->asked = ngx_current_msec;

    if (!share->positioned) {
        ngx_str_t  word[] = {
            ngx_string("XREVRANGE"), share->conf->stream, ngx_string("+"),
            ngx_string("-"), ngx_string("COUNT"), ngx_string("1")
        };

        ngx_http_kvroute_share_conn_send(sc, word, kvr_nelts(word));

    } else {
        ngx_str_t  word[] = {
            ngx_string("XREAD"), ngx_string("COUNT"), { 0, count },
            ngx_string("BLOCK"), { 0, block }, ngx_string("STREAMS"),
            share->conf->stream, { 0, id }
        };

        word[2].len = ngx_sprintf(count, "%ui", share->count) - count;
        word[4].len = ngx_sprintf(block, "%d", NGX_HTTP_KVROUTE_SHARE_BLOCK)
                      - block;
        word[7].len = ngx_sprintf(id, "%uL-%uL",
                                  kvr_get(&share->core->read[0]),
                                  kvr_get(&share->core->read[1])) - id;

        ngx_http_kvroute_share_conn_send(sc, word, kvr_nelts(word));
    }
}


static void
ngx_http_kvroute_share_stream_read(ngx_http_kvroute_share_conn_t *sc,
    redisReply *reply)
{
    redisReply                *entries;
    ngx_http_kvroute_share_t  *share;

    share = sc->share;

    if (reply->type == REDIS_REPLY_ERROR) {
        ngx_http_kvroute_share_conn_fail(sc, "reading failed", reply);
        freeReplyObject(reply);
        return;
    }

    sc->delay = 0;

    /* another process reads now */

    if (!ngx_http_kvroute_zone_latest(share->zone)) {
        freeReplyObject(reply);
        return;
    }

    if (!share->positioned) {

        if (ngx_http_kvroute_share_stream_position(share, reply) == NGX_OK) {
            ngx_http_kvroute_share_stream_next(sc);

        } else {
            ngx_http_kvroute_share_conn_fail(sc, "not a stream", NULL);
        }

        freeReplyObject(reply);
        return;
    }

    entries = ngx_http_kvroute_share_stream_entries(reply);

    if (entries == NULL || entries->elements == 0) {
        freeReplyObject(reply);

        share->positioned = 0;
        ngx_http_kvroute_share_stream_ask(share);
        return;
    }

    share->reply = reply;
    share->entry = 0;

    ngx_http_kvroute_share_stream_more(&share->more);
}


/* sets where to continue, by the last entry of the stream */
static ngx_int_t
ngx_http_kvroute_share_stream_position(ngx_http_kvroute_share_t *share,
    redisReply *reply)
{
    uint64_t      id[2] = { 0, 0 };
    kvr_share_t  *s;

    s = share->core;

    if (reply->type != REDIS_REPLY_ARRAY
        || (reply->elements
            && ngx_http_kvroute_share_stream_entry_id(reply->element[0], id)
               != NGX_OK))
    {
        return NGX_ERROR;
    }

    share->positioned = 1;

    if (id[0] < kvr_get(&s->read[0])
        || (id[0] == kvr_get(&s->read[0]) && id[1] < kvr_get(&s->read[1])))
    {
        id[0] = 0;
        id[1] = 0;

    } else if (!share->skip) {
        return NGX_OK;
    }

    share->skip = 0;

    kvr_set(&s->read[0], id[0]);
    kvr_set(&s->read[1], id[1]);

    return NGX_OK;
}


/* returns the entries of an answer; NULL: there are none */
static redisReply *
ngx_http_kvroute_share_stream_entries(redisReply *reply)
{
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 1) {
        return NULL;
    }

    reply = reply->element[0];

    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2) {
        return NULL;
    }

    reply = reply->element[1];

    return reply->type == REDIS_REPLY_ARRAY ? reply : NULL;
}


/* applies some entries at a time, so that requests are served in between */
static void
ngx_http_kvroute_share_stream_more(ngx_event_t *ev)
{
    size_t                     bytes;
    ngx_uint_t                 full;
    redisReply                *entries;
    ngx_connection_t          *c;
    ngx_http_kvroute_share_t  *share;

    c = ev->data;
    share = c->data;

    if (share->reply == NULL) {
        return;
    }

    /* another process reads now */

    if (!ngx_http_kvroute_zone_latest(share->zone)) {
        ngx_http_kvroute_share_stream_drop(share);
        return;
    }

    entries = ngx_http_kvroute_share_stream_entries(share->reply);
    bytes = 0;

    while (share->entry < entries->elements) {

        if (bytes >= NGX_HTTP_KVROUTE_SHARE_TURN) {
            ngx_post_event(ev, &ngx_posted_next_events);
            return;
        }

        if (ngx_http_kvroute_share_stream_entry(share,
                                        entries->element[share->entry++],
                                        &bytes)
            != NGX_OK)
        {
            ngx_http_kvroute_share_stream_drop(share);
            ngx_http_kvroute_share_conn_fail(&share->read, "not a stream",
                                             NULL);
            return;
        }
    }

    full = entries->elements >= share->count;

    /* the answer was small and quick: ask for twice as many entries */

    if (share->read.fed < NGX_HTTP_KVROUTE_SHARE_REPLY / 4
        && ngx_current_msec - share->asked < NGX_HTTP_KVROUTE_SHARE_ANSWER / 2)
    {
        share->count = ngx_min(share->count * 2, NGX_HTTP_KVROUTE_SHARE_COUNT);
    }

    ngx_http_kvroute_share_stream_drop(share);

    if (full) {
        share->asked = ngx_current_msec - NGX_HTTP_KVROUTE_SHARE_INTERVAL;
    }

    ngx_http_kvroute_share_stream_ask(share);
}


void
ngx_http_kvroute_share_stream_drop(ngx_http_kvroute_share_t *share)
{
    if (share->reply) {
        freeReplyObject(share->reply);
        share->reply = NULL;
    }

    if (share->more.posted) {
        ngx_delete_posted_event(&share->more);
    }
}


/*
 * applies an entry and adds its size; core/share counts entries that are not a
 * batch
 */
static ngx_int_t
ngx_http_kvroute_share_stream_entry(ngx_http_kvroute_share_t *share,
    redisReply *entry, size_t *bytes)
{
    size_t       len;
    uint64_t     id[2];
    redisReply  *fields;

    if (ngx_http_kvroute_share_stream_entry_id(entry, id) != NGX_OK) {
        return NGX_ERROR;
    }

    fields = entry->element[1];

    if (fields->type == REDIS_REPLY_ARRAY && fields->elements == 2
        && fields->element[1]->type == REDIS_REPLY_STRING)
    {
        len = (size_t) fields->element[1]->len;
        *bytes += len;

        (void) kvr_share_apply(&share->self, &share->owner,
                               (uint8_t *) fields->element[1]->str, len,
                               (uint64_t) ngx_current_msec,
                               (uint32_t) ngx_time());
    }

    kvr_set(&share->core->read[0], id[0]);
    kvr_set(&share->core->read[1], id[1]);

    return NGX_OK;
}


static ngx_int_t
ngx_http_kvroute_share_stream_entry_id(redisReply *entry, uint64_t *id)
{
    if (entry->type != REDIS_REPLY_ARRAY || entry->elements != 2) {
        return NGX_ERROR;
    }

    return ngx_http_kvroute_share_stream_id(entry->element[0], id);
}


/* reads two numbers with a dash in between */
static ngx_int_t
ngx_http_kvroute_share_stream_id(redisReply *text, uint64_t *id)
{
    u_char  *p, *dash, *last;

    if (text->type != REDIS_REPLY_STRING) {
        return NGX_ERROR;
    }

    p = (u_char *) text->str;
    last = p + text->len;
    dash = ngx_strlchr(p, last, '-');

    if (dash == NULL
        || ngx_http_kvroute_share_stream_number(p, dash, &id[0]) != NGX_OK)
    {
        return NGX_ERROR;
    }

    return ngx_http_kvroute_share_stream_number(dash + 1, last, &id[1]);
}


/* reads a number of 64 bits; nginx's functions read 63 */
static ngx_int_t
ngx_http_kvroute_share_stream_number(u_char *p, u_char *last, uint64_t *n)
{
    unsigned  digit;

    *n = 0;

    if (p == last) {
        return NGX_ERROR;
    }

    for ( /* void */ ; p < last; p++) {

        digit = *p - (unsigned) '0';

        if (digit > 9 || *n > (UINT64_MAX - digit) / 10) {
            return NGX_ERROR;
        }

        *n = *n * 10 + digit;
    }

    return NGX_OK;
}
