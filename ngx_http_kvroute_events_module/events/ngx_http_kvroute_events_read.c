
/*
 * Copyright (C) kvroute contributors
 */


/*
 * What comes from a source, and in which order.
 *
 * A message whose number is not the next one tells that some are missing.  Then
 * the live stream is held, at the beginning of that message, and the missing
 * ones are asked for by the replay socket, if there is one.  All that the
 * replay has is taken, also what has come live meanwhile; when that comes from
 * the live stream it is skipped.
 */


#include "events/ngx_http_kvroute_events_int.h"


/* ms, for all of a replay */
#define NGX_HTTP_KVROUTE_EVENTS_REPLAY  10000
#define NGX_HTTP_KVROUTE_EVENTS_ASK     3000


static ngx_int_t ngx_http_kvroute_events_read_open(
    ngx_http_kvroute_events_source_t *source);
static void ngx_http_kvroute_events_read_answered(
    ngx_http_kvroute_events_source_t *source);
static ngx_int_t ngx_http_kvroute_events_read_message(
    ngx_http_kvroute_events_source_t *source);
static void ngx_http_kvroute_events_read_another(
    ngx_http_kvroute_events_source_t *source);
static ngx_int_t ngx_http_kvroute_events_read_ask(
    ngx_http_kvroute_events_source_t *source);
static ngx_int_t ngx_http_kvroute_events_read_replayed(
    ngx_http_kvroute_events_source_t *source);
static void ngx_http_kvroute_events_read_resume(
    ngx_http_kvroute_events_source_t *source);
static void ngx_http_kvroute_events_read_go(
    ngx_http_kvroute_events_source_t *source, uint64_t seq);
static void ngx_http_kvroute_events_read_event(
    ngx_http_kvroute_events_source_t *source, const kvr_kvevent_t *event);
static ngx_int_t ngx_http_kvroute_events_read_done(
    ngx_http_kvroute_events_source_t *source,
    ngx_http_kvroute_events_stream_t *stream, kvr_subscription_e found);
static ngx_int_t ngx_http_kvroute_events_read_leave(
    ngx_http_kvroute_events_source_t *source);


ngx_int_t
ngx_http_kvroute_events_read_live(ngx_http_kvroute_events_stream_t *stream,
    kvr_subscription_e found)
{
    kvr_events_source_t               *shared;
    ngx_http_kvroute_events_source_t  *source;

    source = stream->source;

    switch (found) {

    case KVR_SUBSCRIPTION_OPEN:
        return ngx_http_kvroute_events_read_open(source);

    case KVR_SUBSCRIPTION_ALIVE:
        shared = ngx_http_kvroute_events_source_shared(source);
        kvr_set(&shared->time, ngx_max((uint64_t) ngx_current_msec, 1));
        break;

    case KVR_SUBSCRIPTION_MESSAGE:
        return ngx_http_kvroute_events_read_message(source);

    case KVR_SUBSCRIPTION_EVENT:
        ngx_http_kvroute_events_read_event(source,
                                         &stream->subscription.reader.event);
        break;

    default:
        return ngx_http_kvroute_events_read_done(source, stream, found);
    }

    return NGX_OK;
}


/*
 * It may be another process than before: a replay tells.  The one before has
 * the last message that was read, or later ones.  Who has neither is another;
 * and so is, if nobody was there for a while, who does not have that very one.
 */
static ngx_int_t
ngx_http_kvroute_events_read_open(ngx_http_kvroute_events_source_t *source)
{
    kvr_events_t         *e;
    kvr_events_source_t  *shared;

    shared = ngx_http_kvroute_events_source_shared(source);
    e = ngx_http_kvroute_events_source_peer(source);

    source->open = 1;
    source->bad = 0;
    source->delay = 0;
    source->opened = (uint64_t) ngx_current_msec;
    source->pinged = source->opened;

    ngx_memzero(&source->order, sizeof(kvr_events_order_t));

    kvr_add(&e->connects, 1);
    kvr_set(&shared->time, ngx_max(source->opened, 1));

    /* whether others of the peer are missing is seen by who looks at all */

    source->whole = source->alone;
    ngx_add_timer(source->look, 1);

    if (kvr_get(&shared->next) == 0) {
        source->gone = 0;
        return NGX_OK;
    }

    source->asked = 1;
    source->same = 0;
    source->ended = 0;

    if (ngx_http_kvroute_events_read_ask(source) == NGX_AGAIN) {
        return NGX_AGAIN;
    }

    ngx_http_kvroute_events_read_answered(source);

    return NGX_OK;
}


/* whether it is the same publisher is known, as far as it can be */
static void
ngx_http_kvroute_events_read_answered(ngx_http_kvroute_events_source_t *source)
{
    ngx_uint_t  another;

    another = !source->same && (source->gone || source->ended);

    source->asked = 0;
    source->gone = 0;

    if (another) {
        ngx_http_kvroute_events_read_another(source);
        kvr_set(&ngx_http_kvroute_events_source_shared(source)->next, 0);
    }
}


static ngx_int_t
ngx_http_kvroute_events_read_message(ngx_http_kvroute_events_source_t *source)
{
    kvr_events_t         *e;
    kvr_subscription_t   *s;
    kvr_events_source_t  *shared;

    if (!ngx_http_kvroute_events_source_owned(source)) {
        return ngx_http_kvroute_events_read_leave(source);
    }

    s = &source->live.subscription;
    e = ngx_http_kvroute_events_source_peer(source);
    shared = ngx_http_kvroute_events_source_shared(source);

    source->told = 0;
    source->cleared = 0;

    switch (kvr_events_order(shared, &source->order, s->seq)) {

    case KVR_EVENTS_AGAIN:
        kvr_add(&e->repeated, 1);
        kvr_subscription_skip(s);
        break;

    case KVR_EVENTS_ANOTHER:
        ngx_http_kvroute_events_read_another(source);
        kvr_set(&shared->next, s->seq);
        break;

    case KVR_EVENTS_GAP:

        if (ngx_http_kvroute_events_read_ask(source) == NGX_AGAIN) {
            return NGX_AGAIN;
        }

        break;

    default: /* KVR_EVENTS_TAKE */
        break;
    }

    return NGX_OK;
}


static void
ngx_http_kvroute_events_read_another(ngx_http_kvroute_events_source_t *source)
{
    kvr_peer_t  *peer;

    kvr_hear_another(ngx_http_kvroute_events_source_heard(source), source->id,
                         (uint64_t) ngx_current_msec);

    if (!ngx_http_kvroute_events_source_due(&source->restarted)) {
        return;
    }

    peer = &source->conf->zone->sh->registry->peer[source->id];

    ngx_log_error(NGX_LOG_NOTICE, source->timer.log, 0,
                  "kvroute peer %*s was restarted, by its events: its cache is "
                  "empty", (size_t) peer->len, peer->name);
}


/* NGX_AGAIN: a replay is asked for, and the live stream is to be held */
static ngx_int_t
ngx_http_kvroute_events_read_ask(ngx_http_kvroute_events_source_t *source)
{
    ngx_str_t  none;

    if (source->replay.conn.socklen == 0) {
        return NGX_DECLINED;
    }

    ngx_str_null(&none);

    source->missed = 0;

    /* what has failed before this returns has set missed */

    ngx_http_kvroute_events_stream_open(&source->replay, KVR_ZMTP_DEALER,
                                        &none);

    if (source->missed) {
        return NGX_DECLINED;
    }

    ngx_add_timer(&source->timer, source->asked
                                  ? NGX_HTTP_KVROUTE_EVENTS_ASK
                                  : NGX_HTTP_KVROUTE_EVENTS_REPLAY);

    return NGX_AGAIN;
}


ngx_int_t
ngx_http_kvroute_events_read_replay(ngx_http_kvroute_events_stream_t *stream,
    kvr_subscription_e found)
{
    kvr_subscription_t                *s;
    kvr_events_source_t               *shared;
    ngx_http_kvroute_events_source_t  *source;

    source = stream->source;
    s = &stream->subscription;

    switch (found) {

    case KVR_SUBSCRIPTION_OPEN:
        shared = ngx_http_kvroute_events_source_shared(source);
        kvr_zmtp_request(&s->zmtp, kvr_get(&shared->next) - source->asked);
        break;

    case KVR_SUBSCRIPTION_ALIVE:
        break;

    case KVR_SUBSCRIPTION_MESSAGE:
        return ngx_http_kvroute_events_read_replayed(source);

    case KVR_SUBSCRIPTION_EVENT:
        ngx_http_kvroute_events_read_event(source, &s->reader.event);
        break;

    default:
        return ngx_http_kvroute_events_read_done(source, stream, found);
    }

    return NGX_OK;
}


static ngx_int_t
ngx_http_kvroute_events_read_replayed(ngx_http_kvroute_events_source_t *source)
{
    uint64_t              next;
    kvr_events_t         *e;
    kvr_subscription_t   *s;
    kvr_events_source_t  *shared;

    s = &source->replay.subscription;
    e = ngx_http_kvroute_events_source_peer(source);
    shared = ngx_http_kvroute_events_source_shared(source);
    next = kvr_get(&shared->next);

    source->cleared = 0;

    if (s->seq == KVR_SUBSCRIPTION_END
        || !ngx_http_kvroute_events_source_owned(source))
    {
        source->ended = (s->seq == KVR_SUBSCRIPTION_END);

        ngx_http_kvroute_events_stream_close(&source->replay);
        ngx_http_kvroute_events_read_resume(source);
        return NGX_DONE;
    }

    source->same |= (s->seq == next - 1 || (s->seq >= next && !source->gone));

    /* those of another publisher are not to be counted as its own */

    if (s->seq < next || s->seq - next >= KVR_EVENTS_FAR
        || (source->asked && !source->same))
    {
        kvr_subscription_skip(s);
        return NGX_OK;
    }

    kvr_add(&e->replayed, 1);

    return NGX_OK;
}


void
ngx_http_kvroute_events_read_replay_closed(
    ngx_http_kvroute_events_stream_t *stream, const char *error)
{
    ngx_http_kvroute_events_source_t  *source;

    source = stream->source;
    source->missed = 1;

    ngx_http_kvroute_events_source_warn(source, "replay of events failed",
                                        error);

    ngx_http_kvroute_events_read_resume(source);
}


void
ngx_http_kvroute_events_read_give_up(ngx_http_kvroute_events_source_t *source)
{
    ngx_http_kvroute_events_stream_close(&source->replay);
    ngx_http_kvroute_events_read_replay_closed(&source->replay,
                                               "it takes too long");
}


/* the live stream goes on, with the message that it is held at, if it is */
static void
ngx_http_kvroute_events_read_resume(ngx_http_kvroute_events_source_t *source)
{
    kvr_subscription_t   *s;
    kvr_events_source_t  *shared;

    if (!source->live.held) {
        return;
    }

    if (source->timer.timer_set) {
        ngx_del_timer(&source->timer);
    }

    s = &source->live.subscription;
    shared = ngx_http_kvroute_events_source_shared(source);

    if (source->asked) {
        ngx_http_kvroute_events_read_answered(source);

    } else if (s->seq < kvr_get(&shared->next)) {
        kvr_subscription_skip(s);
    }

    source->order.replayed = kvr_get(&shared->next);

    ngx_http_kvroute_events_stream_resume(&source->live);
}


static void
ngx_http_kvroute_events_read_go(ngx_http_kvroute_events_source_t *source,
    uint64_t seq)
{
    uint64_t              lost;
    kvr_events_t         *e;
    kvr_events_source_t  *shared;

    e = ngx_http_kvroute_events_source_peer(source);
    shared = ngx_http_kvroute_events_source_shared(source);

    lost = kvr_events_go(e, shared, seq, (uint64_t) ngx_current_msec);

    if (lost) {
        ngx_http_kvroute_events_source_warn(source, "events are missing",
                                            source->replay.conn.socklen
                                            ? "no replay had them any more"
                                            : "there is no \"replay=\"");
    }
}


static void
ngx_http_kvroute_events_read_event(ngx_http_kvroute_events_source_t *source,
    const kvr_kvevent_t *event)
{
    kvr_peer_t  *peer;

    source->told++;

    /* the clock is not moved by some of a peer's ranks alone */

    if (!source->whole && event->type != KVR_KVEVENT_CLEARED) {
        return;
    }

    /* a step of an engine clears a cache once */

    if (event->type == KVR_KVEVENT_CLEARED) {

        if (source->cleared) {
            return;
        }

        source->cleared = 1;
    }

    if (!kvr_hear_event(ngx_http_kvroute_events_source_heard(source), source->id,
                            source->number, event,
                            (uint64_t) ngx_current_msec)
        || !ngx_http_kvroute_events_source_due(&source->emptied))
    {
        return;
    }

    peer = &source->conf->zone->sh->registry->peer[source->id];

    ngx_log_error(NGX_LOG_NOTICE, source->timer.log, 0,
                  "kvroute peer %*s has cleared its cache",
                  (size_t) peer->len, peer->name);
}


/*
 * A message that is garbled may have any number: it is not gone on from.  What
 * was meant is missing then, and is replayed; it is not asked for once more.
 */
static ngx_int_t
ngx_http_kvroute_events_read_done(ngx_http_kvroute_events_source_t *source,
    ngx_http_kvroute_events_stream_t *stream, kvr_subscription_e found)
{
    kvr_events_t         *e;
    kvr_subscription_t   *s;
    kvr_events_source_t  *shared;

    /* what another worker reads by now is its to count */

    if (!ngx_http_kvroute_events_source_owned(source)) {
        return ngx_http_kvroute_events_read_leave(source);
    }

    s = &stream->subscription;
    e = ngx_http_kvroute_events_source_peer(source);
    shared = ngx_http_kvroute_events_source_shared(source);

    if (found == KVR_SUBSCRIPTION_BAD) {
        kvr_add(&e->garbled, 1);

        ngx_http_kvroute_events_source_warn(source, "events are garbled",
                                            "a message is no batch of them");

        if (stream == &source->live) {
            return NGX_OK;
        }
    }

    if (!s->seq_read || s->skip) {
        return NGX_OK;
    }

    if (source->told == 0 && stream == &source->live
        && kvr_get(&shared->next))
    {
        kvr_events_empty(shared, &source->order, s->seq,
                         (uint64_t) ngx_current_msec);
        return NGX_OK;
    }

    if (s->seq > ngx_max(kvr_get(&shared->next), source->order.empty)) {
        ngx_http_kvroute_events_read_go(source, s->seq);
    }

    kvr_events_read(e, shared, &source->order, s->seq,
                    (uint64_t) ngx_current_msec);

    return NGX_OK;
}


/* another worker has taken over, after a reload */
static ngx_int_t
ngx_http_kvroute_events_read_leave(ngx_http_kvroute_events_source_t *source)
{
    ngx_http_kvroute_events_stream_close(&source->replay);
    ngx_http_kvroute_events_stream_close(&source->live);
    source->open = 0;

    return NGX_DONE;
}
