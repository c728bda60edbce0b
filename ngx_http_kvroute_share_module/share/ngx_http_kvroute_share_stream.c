
/*
 * Copyright (C) kvroute contributors
 */


/*
 * The commands of the stream.
 *
 *     XADD KEY MAXLEN ~ n * b BATCH               one at a time
 *     XREVRANGE KEY + - COUNT 1                   is it the stream that was read
 *     XREAD COUNT n BLOCK ms STREAMS KEY ID       before? and what is new there?
 *
 * XREAD comes back with the first batch, so of eight hosts it would do so a
 * thousand times a second, and what that costs is the system's calls.  So it is
 * asked for again after an interval, unless more is there already: one answer
 * has what came meanwhile.  Who has not asked for that long asks at once.
 *
 * It is read on from the last id, never from "$": what came meanwhile would be
 * lost.  A host that is new reads what there is.  A store that was replaced by
 * one with less has a last id before ours: then all of it is read, and batches
 * that were read before are told by their numbers.  That is looked at when a
 * connection is new, and when nothing has come: there is a batch each second.
 *
 * An entry that is longer than an answer may be is none of ours.  It is passed by
 * reading on behind the last one, if not even one entry could be had.
 */


#include "share/ngx_http_kvroute_share_int.h"


/* entries of the stream, about; each is of 96 KB at most, and of few as a rule */
#define NGX_HTTP_KVROUTE_SHARE_LENGTH  "8192"

/* entries asked for, and bytes applied in a turn of the event loop */
#define NGX_HTTP_KVROUTE_SHARE_COUNT   64
#define NGX_HTTP_KVROUTE_SHARE_TURN    16384

/* ms; a store that refuses a batch is asked again */
#define NGX_HTTP_KVROUTE_SHARE_HOLD    500


static void ngx_http_kvroute_share_stream_add_ready(
    ngx_http_kvroute_share_conn_t *sc);
static void ngx_http_kvroute_share_stream_added(
    ngx_http_kvroute_share_conn_t *sc, redisReply *reply);
static ngx_uint_t ngx_http_kvroute_share_stream_moved(redisReply *reply);
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
static ngx_int_t ngx_http_kvroute_share_stream_last(redisReply *reply,
    uint64_t *id);
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


/* the timer adds */
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

    if (!sc->known || sc->busy
        || (ngx_msec_int_t) (share->hold - ngx_current_msec) > 0)
    {
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
        kvr_add(&share->core->stats.refused, 1);

        if (ngx_http_kvroute_share_stream_moved(reply)) {
            ngx_http_kvroute_share_conn_fail(sc, "it takes no batches",
                                             reply->str, (size_t) reply->len);

        } else {
            share->hold = ngx_current_msec + NGX_HTTP_KVROUTE_SHARE_HOLD;
            ngx_http_kvroute_share_conn_warn(sc, "it takes no batches",
                                             reply->str, (size_t) reply->len);
        }

    } else if (ngx_http_kvroute_share_stream_id(reply, id) != NGX_OK) {
        ngx_http_kvroute_share_conn_fail(sc, "it is no stream", NULL, 0);

    } else {
        sc->delay = 0;
        kvr_share_acked(&share->self, &share->owner);
    }

    freeReplyObject(reply);
}


/* errors after which another server may be the right one, or another time */
static ngx_uint_t
ngx_http_kvroute_share_stream_moved(redisReply *reply)
{
    ngx_uint_t  i;

    static ngx_str_t  words[] = {
        ngx_string("READONLY"), ngx_string("LOADING"), ngx_string("MOVED"),
        ngx_string("NOAUTH"), ngx_string("MASTERDOWN"),
        ngx_string("CLUSTERDOWN")
    };

    for (i = 0; i < kvr_nelts(words); i++) {
        if ((size_t) reply->len >= words[i].len
            && ngx_strncmp(reply->str, words[i].data, words[i].len) == 0)
        {
            return 1;
        }
    }

    return 0;
}


static void
ngx_http_kvroute_share_stream_read_ready(ngx_http_kvroute_share_conn_t *sc)
{
    ngx_http_kvroute_share_t  *share;

    share = sc->share;

    /* what is left of an answer is read again, from where it was applied to */

    ngx_http_kvroute_share_stream_drop(share);

    share->positioned = 0;

    /* it was too long, or took too long: the same would come again */

    if (sc->cut) {
        share->pass = share->count == 1;
        share->count = ngx_max(share->count / 2, 1);
    }

    /* nothing of the stream was ever read */

    if (kvr_get(&share->core->read[0]) == 0) {
        kvr_share_help_want(share->core, (uint64_t) ngx_current_msec);
    }

    ngx_http_kvroute_share_stream_next(sc);
}


/* what is there by now, if it is time for it */
void
ngx_http_kvroute_share_stream_ask(ngx_http_kvroute_share_t *share)
{
    if (share->read.known && !share->read.busy && share->reply == NULL
        && ngx_current_msec - share->asked >= share->conf->interval)
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
        kvr_add(&share->core->stats.refused, 1);
        ngx_http_kvroute_share_conn_fail(sc, "it cannot be read",
                                         reply->str, (size_t) reply->len);
        freeReplyObject(reply);
        return;
    }

    sc->delay = 0;

    if (!share->positioned) {

        if (ngx_http_kvroute_share_stream_position(share, reply) == NGX_OK) {
            ngx_http_kvroute_share_stream_next(sc);

        } else {
            ngx_http_kvroute_share_conn_fail(sc, "it is no stream", NULL, 0);
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


/* where to read on, by the last entry that there is */
static ngx_int_t
ngx_http_kvroute_share_stream_position(ngx_http_kvroute_share_t *share,
    redisReply *reply)
{
    uint64_t      id[2];
    kvr_share_t  *s;

    s = share->core;

    if (ngx_http_kvroute_share_stream_last(reply, id) != NGX_OK) {
        return NGX_ERROR;
    }

    share->positioned = 1;

    if (id[0] < kvr_get(&s->read[0])
        || (id[0] == kvr_get(&s->read[0]) && id[1] < kvr_get(&s->read[1])))
    {
        id[0] = 0;
        id[1] = 0;

    } else if (!share->pass) {
        return NGX_OK;
    }

    share->pass = 0;

    kvr_set(&s->read[0], id[0]);
    kvr_set(&s->read[1], id[1]);

    return NGX_OK;
}


/* of the only stream that was asked for; NULL: nothing came */
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


/* some at a time: requests are served in between */
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

    /* stopped for long: another one reads by now */

    if (!kvr_share_owns(share->core, ngx_http_kvroute_zone_owner(ngx_pid))) {
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
            ngx_http_kvroute_share_conn_fail(&share->read, "it is no stream",
                                             NULL, 0);
            return;
        }
    }

    full = entries->elements >= share->count;

    /* twice of it would come in time, too */

    if (share->read.fed < NGX_HTTP_KVROUTE_SHARE_REPLY / 4
        && ngx_current_msec - share->asked < NGX_HTTP_KVROUTE_SHARE_ANSWER / 2)
    {
        share->count = ngx_min(share->count * 2, NGX_HTTP_KVROUTE_SHARE_COUNT);
    }

    ngx_http_kvroute_share_stream_drop(share);

    if (full) {
        share->asked = ngx_current_msec - share->conf->interval;
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


/* adds how many bytes it had; what is no batch is counted by core/share */
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


/* of the last entry of a stream, or 0-0 */
static ngx_int_t
ngx_http_kvroute_share_stream_last(redisReply *reply, uint64_t *id)
{
    id[0] = 0;
    id[1] = 0;

    if (reply->type != REDIS_REPLY_ARRAY) {
        return NGX_ERROR;
    }

    if (reply->elements == 0) {
        return NGX_OK;
    }

    return ngx_http_kvroute_share_stream_entry_id(reply->element[0], id);
}


static ngx_int_t
ngx_http_kvroute_share_stream_entry_id(redisReply *entry, uint64_t *id)
{
    if (entry->type != REDIS_REPLY_ARRAY || entry->elements != 2) {
        return NGX_ERROR;
    }

    return ngx_http_kvroute_share_stream_id(entry->element[0], id);
}


/* two numbers with a dash in between */
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


/* of 64 bits: nginx's own have one less */
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
