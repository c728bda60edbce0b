
/*
 * Copyright (C) kvroute contributors
 */


/*
 * The messages of a source, in their order.
 *
 * If a message's number is not the next one, messages are missing.  Then the
 * live stream is put on hold before that message, and the missing ones are
 * requested from the replay socket, if there is one.  All messages of the
 * replay are used, including those published meanwhile; when these arrive by
 * the live stream they are skipped.
 */


#include "events/ngx_http_kvroute_events_int.h"


/* ms, for all of a replay */
#define NGX_HTTP_KVROUTE_EVENTS_REPLAY  10000
#define NGX_HTTP_KVROUTE_EVENTS_ASK     3000


static ngx_int_t ngx_http_kvroute_events_read_open(
    ngx_http_kvroute_events_source_t *source);
static void ngx_http_kvroute_events_read_verified(
    ngx_http_kvroute_events_source_t *source);
static ngx_int_t ngx_http_kvroute_events_read_message(
    ngx_http_kvroute_events_source_t *source);
static void ngx_http_kvroute_events_read_restarted(
    ngx_http_kvroute_events_source_t *source);
static ngx_int_t ngx_http_kvroute_events_read_ask(
    ngx_http_kvroute_events_source_t *source);
static ngx_int_t ngx_http_kvroute_events_read_replayed(
    ngx_http_kvroute_events_source_t *source);
static void ngx_http_kvroute_events_read_resume(
    ngx_http_kvroute_events_source_t *source);
static ngx_int_t ngx_http_kvroute_events_read_done(
    ngx_http_kvroute_events_stream_t *stream);
static ngx_int_t ngx_http_kvroute_events_read_events(
    ngx_http_kvroute_events_stream_t *stream);
static void ngx_http_kvroute_events_read_event(
    ngx_http_kvroute_events_source_t *source, const kvr_kvevent_t *event);
static ngx_int_t ngx_http_kvroute_events_read_leave(
    ngx_http_kvroute_events_source_t *source);


ngx_int_t
ngx_http_kvroute_events_read_live(ngx_http_kvroute_events_stream_t *stream,
    kvr_zmtp_e found)
{
    ngx_http_kvroute_events_source_t  *source;

    source = stream->source;

    switch (found) {

    case KVR_ZMTP_OPEN:
        return ngx_http_kvroute_events_read_open(source);

    case KVR_ZMTP_ALIVE:
        kvr_set(&source->shared->time, ngx_max((uint64_t) ngx_current_msec, 1));
        return NGX_OK;

    case KVR_ZMTP_LAST:
        return ngx_http_kvroute_events_read_message(source);

    default: /* KVR_ZMTP_END */
        return ngx_http_kvroute_events_read_done(stream);
    }
}


/*
 * Connected.  If messages were read before, a replay from the last of them
 * shows whether the publisher is still the same process: see
 * ngx_http_kvroute_events_read_verified().
 */
static ngx_int_t
ngx_http_kvroute_events_read_open(ngx_http_kvroute_events_source_t *source)
{
    source->open = 1;
    source->bad = 0;
    source->delay = 0;
    source->opened = (uint64_t) ngx_current_msec;
    source->pinged = source->opened;

    ngx_memzero(&source->order, sizeof(kvr_events_order_t));

    kvr_add(&source->peer->connects, 1);
    kvr_set(&source->shared->time, ngx_max(source->opened, 1));

    /* the look finds out whether other sources of the peer are missing */

    source->complete = source->only;
    ngx_add_timer(source->look, 1);

    if (kvr_get(&source->shared->next) == 0) {
        source->refused = 0;
        return NGX_OK;
    }

    source->verifying = 1;
    source->same = 0;
    source->replayed = 0;

    if (ngx_http_kvroute_events_read_ask(source) == NGX_AGAIN) {
        return NGX_AGAIN;
    }

    ngx_http_kvroute_events_read_verified(source);

    return NGX_OK;
}


/*
 * Decides whether the publisher is a new process.  The replay either contains a
 * message that proves it is the same, or ended without one, or failed.
 *
 *                              connection refused before?    yes     no
 *     the last message was replayed, or (if not refused)
 *     a later one                                            same    same
 *     the replay ended without                               new     new
 *     no replay, or it failed                                new     same
 */
static void
ngx_http_kvroute_events_read_verified(ngx_http_kvroute_events_source_t *source)
{
    ngx_uint_t  restarted;

    restarted = !source->same && (source->refused || source->replayed);

    source->verifying = 0;
    source->refused = 0;

    if (restarted) {
        ngx_http_kvroute_events_read_restarted(source);
        kvr_set(&source->shared->next, 0);
    }
}


static ngx_int_t
ngx_http_kvroute_events_read_message(ngx_http_kvroute_events_source_t *source)
{
    uint64_t  number;

    if (!ngx_http_kvroute_zone_latest(source->conf->zone)) {
        return ngx_http_kvroute_events_read_leave(source);
    }

    number = source->live.zmtp.number;

    source->events = 0;
    source->cleared = 0;

    switch (kvr_events_order(source->shared, &source->order, number)) {

    case KVR_EVENTS_REPEATED:
        kvr_add(&source->peer->repeated, 1);
        source->live.skip = 1;
        break;

    case KVR_EVENTS_RESTARTED:
        ngx_http_kvroute_events_read_restarted(source);
        kvr_set(&source->shared->next, number);
        break;

    case KVR_EVENTS_GAP:

        if (ngx_http_kvroute_events_read_ask(source) == NGX_AGAIN) {
            return NGX_AGAIN;
        }

        break;

    default: /* KVR_EVENTS_NEXT */
        break;
    }

    return NGX_OK;
}


static void
ngx_http_kvroute_events_read_restarted(ngx_http_kvroute_events_source_t *source)
{
    kvr_peer_t  *peer;

    kvr_sync_restart(source->feeds, source->id, (uint64_t) ngx_current_msec);

    if (!ngx_http_kvroute_timer_minute(&source->restarted)) {
        return;
    }

    peer = &source->conf->zone->core.registry->peer[source->id];

    ngx_log_error(NGX_LOG_NOTICE, source->timer.log, 0,
                  "kvroute: KV events show a restart of peer %*s: its cache is "
                  "empty", (size_t) peer->len, peer->name);
}


/* requests a replay; returns NGX_AGAIN if the live stream must wait for it */
static ngx_int_t
ngx_http_kvroute_events_read_ask(ngx_http_kvroute_events_source_t *source)
{
    if (source->replay.conn.socklen == 0) {
        return NGX_DECLINED;
    }

    source->failed = 0;

    /* an error before this returns sets failed */

    ngx_http_kvroute_events_stream_open(&source->replay, KVR_ZMTP_DEALER);

    if (source->failed) {
        return NGX_DECLINED;
    }

    ngx_add_timer(&source->timer, source->verifying
                                  ? NGX_HTTP_KVROUTE_EVENTS_ASK
                                  : NGX_HTTP_KVROUTE_EVENTS_REPLAY);

    return NGX_AGAIN;
}


ngx_int_t
ngx_http_kvroute_events_read_replay(ngx_http_kvroute_events_stream_t *stream,
    kvr_zmtp_e found)
{
    ngx_http_kvroute_events_source_t  *source;

    source = stream->source;

    switch (found) {

    case KVR_ZMTP_OPEN:
        kvr_zmtp_request(&stream->zmtp, kvr_get(&source->shared->next)
                                        - source->verifying);
        return NGX_OK;

    case KVR_ZMTP_ALIVE:
        return NGX_OK;

    case KVR_ZMTP_LAST:
        return ngx_http_kvroute_events_read_replayed(source);

    default: /* KVR_ZMTP_END */
        return ngx_http_kvroute_events_read_done(stream);
    }
}


static ngx_int_t
ngx_http_kvroute_events_read_replayed(ngx_http_kvroute_events_source_t *source)
{
    uint64_t  next, number;

    number = source->replay.zmtp.number;
    next = kvr_get(&source->shared->next);

    source->cleared = 0;

    if (number == KVR_ZMTP_REPLAYED
        || !ngx_http_kvroute_zone_latest(source->conf->zone))
    {
        source->replayed = (number == KVR_ZMTP_REPLAYED);

        ngx_http_kvroute_events_stream_close(&source->replay);
        ngx_http_kvroute_events_read_resume(source);
        return NGX_DONE;
    }

    source->same |= (number == next - 1
                     || (number >= next && !source->refused));

    /* messages of a new process do not continue those of the old one */

    if (number < next || number - next >= KVR_EVENTS_FAR
        || (source->verifying && !source->same))
    {
        source->replay.skip = 1;
        return NGX_OK;
    }

    kvr_add(&source->peer->replayed, 1);

    return NGX_OK;
}


void
ngx_http_kvroute_events_read_replay_closed(
    ngx_http_kvroute_events_stream_t *stream, const char *error)
{
    ngx_http_kvroute_events_source_t  *source;

    source = stream->source;
    source->failed = 1;

    ngx_http_kvroute_events_source_warn(source, "replay of KV events failed",
                                        error);

    ngx_http_kvroute_events_read_resume(source);
}


void
ngx_http_kvroute_events_read_give_up(ngx_http_kvroute_events_source_t *source)
{
    ngx_http_kvroute_events_stream_close(&source->replay);
    ngx_http_kvroute_events_read_replay_closed(&source->replay,
                                               "timed out");
}


/* continues the live stream, if it is on hold */
static void
ngx_http_kvroute_events_read_resume(ngx_http_kvroute_events_source_t *source)
{
    if (!source->live.held) {
        return;
    }

    if (source->timer.timer_set) {
        ngx_del_timer(&source->timer);
    }

    if (source->verifying) {
        ngx_http_kvroute_events_read_verified(source);

    } else if (source->live.zmtp.number < kvr_get(&source->shared->next)) {
        source->live.skip = 1;
    }

    source->order.replayed = kvr_get(&source->shared->next);

    ngx_http_kvroute_events_stream_resume(&source->live);
}


/*
 * The end of a message.  An invalid one may have any number, so it does not
 * count as read: the next message causes a replay, in which it does count.
 */
static ngx_int_t
ngx_http_kvroute_events_read_done(ngx_http_kvroute_events_stream_t *stream)
{
    uint64_t                           now, number;
    kvr_events_source_t               *shared;
    ngx_http_kvroute_events_source_t  *source;

    source = stream->source;

    /* another worker reads and counts now */

    if (!ngx_http_kvroute_zone_latest(source->conf->zone)) {
        return ngx_http_kvroute_events_read_leave(source);
    }

    now = (uint64_t) ngx_current_msec;
    number = stream->zmtp.number;
    shared = source->shared;

    if (ngx_http_kvroute_events_read_events(stream) != NGX_OK) {
        kvr_add(&source->peer->garbled, 1);

        ngx_http_kvroute_events_source_warn(source,
                                            "a message of KV events is invalid",
                                            "not a batch of events");

        if (stream == &source->live) {
            return NGX_OK;
        }
    }

    if (!stream->zmtp.numbered || stream->skip) {
        return NGX_OK;
    }

    if (source->events == 0 && stream == &source->live
        && kvr_get(&shared->next))
    {
        kvr_events_empty(shared, &source->order, number, now);
        return NGX_OK;
    }

    if (number > ngx_max(kvr_get(&shared->next), source->order.empty)
        && kvr_events_continue(source->peer, shared, number, now))
    {
        ngx_http_kvroute_events_source_warn(source, "KV events were lost",
                                            source->replay.conn.socklen
                                            ? "not in the replay"
                                            : "there is no \"replay=\"");
    }

    kvr_events_read(source->peer, shared, &source->order, number, now);

    return NGX_OK;
}


static ngx_int_t
ngx_http_kvroute_events_read_events(ngx_http_kvroute_events_stream_t *stream)
{
    kvr_kvevent_e                rc;

    /* used within one event only */
    static kvr_kvevent_reader_t  reader;

    if (stream->payload == NULL) {
        return stream->zmtp.numbered ? NGX_OK : NGX_ERROR;
    }

    kvr_kvevent_begin(&reader, stream->payload, stream->zmtp.len);

    for ( ;; ) {
        rc = kvr_kvevent_read(&reader);

        if (rc != KVR_KVEVENT_FOUND) {
            return rc == KVR_KVEVENT_DONE ? NGX_OK : NGX_ERROR;
        }

        ngx_http_kvroute_events_read_event(stream->source, &reader.event);
    }
}


static void
ngx_http_kvroute_events_read_event(ngx_http_kvroute_events_source_t *source,
    const kvr_kvevent_t *event)
{
    kvr_peer_t  *peer;

    source->events++;

    /* the clock moves only if all ranks of a peer are connected */

    if (!source->complete && event->type != KVR_KVEVENT_CLEARED) {
        return;
    }

    /* a message is one step of an engine, which clears the cache once */

    if (event->type == KVR_KVEVENT_CLEARED) {

        if (source->cleared) {
            return;
        }

        source->cleared = 1;
    }

    if (!kvr_sync_event(source->feeds, source->id, source->number, event,
                        (uint64_t) ngx_current_msec)
        || !ngx_http_kvroute_timer_minute(&source->emptied))
    {
        return;
    }

    peer = &source->conf->zone->core.registry->peer[source->id];

    ngx_log_error(NGX_LOG_NOTICE, source->timer.log, 0,
                  "kvroute: peer %*s cleared its cache",
                  (size_t) peer->len, peer->name);
}


/* after a reload another worker reads this source */
static ngx_int_t
ngx_http_kvroute_events_read_leave(ngx_http_kvroute_events_source_t *source)
{
    ngx_http_kvroute_events_stream_close(&source->replay);
    ngx_http_kvroute_events_stream_close(&source->live);
    source->open = 0;

    return NGX_DONE;
}
