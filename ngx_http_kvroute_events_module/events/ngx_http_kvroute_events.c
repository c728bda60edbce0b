
/*
 * Copyright (C) kvroute contributors
 */


/*
 * The sources: for each server of an upstream with kvroute_events a publisher,
 * or one for each rank of data parallelism.
 *
 * Only worker 0 reads events.  Once a second it looks for servers that were
 * added or removed, for another worker that has taken over, and for publishers
 * without a sign of life.  A publisher that cannot be reached is tried again at
 * slightly random times.  The zone keeps how far each source was read, so the
 * next worker 0 continues there.
 */


#include "events/ngx_http_kvroute_events_int.h"


#define NGX_HTTP_KVROUTE_EVENTS_LOOK     1000   /* ms */
#define NGX_HTTP_KVROUTE_EVENTS_SOONEST  50     /* ms, the next attempt */
#define NGX_HTTP_KVROUTE_EVENTS_LATEST   800
#define NGX_HTTP_KVROUTE_EVENTS_SHAKE    2000   /* ms, for the handshake */
#define NGX_HTTP_KVROUTE_EVENTS_PING     3000
#define NGX_HTTP_KVROUTE_EVENTS_AGE      10000  /* ms without a sign of life */
#define NGX_HTTP_KVROUTE_EVENTS_BAD      5      /* attempts before a warning */


static void ngx_http_kvroute_events_look(ngx_event_t *ev);
static void ngx_http_kvroute_events_servers(ngx_http_kvroute_srv_conf_t *conf,
    ngx_log_t *log);
static void ngx_http_kvroute_events_server(void *data,
    ngx_http_kvroute_srv_conf_t *conf, ngx_uint_t k, ngx_uint_t i,
    ngx_http_upstream_rr_peer_t *peer);
static void ngx_http_kvroute_events_begin(kvr_feeds_t *h, uint32_t id);
static in_port_t ngx_http_kvroute_events_port(
    ngx_http_upstream_rr_peer_t *peer, ngx_uint_t port, ngx_uint_t rank);
static ngx_http_kvroute_events_source_t *ngx_http_kvroute_events_add(
    ngx_http_kvroute_srv_conf_t *conf, uint32_t id, ngx_uint_t rank,
    ngx_http_upstream_rr_peer_t *peer, in_port_t live, in_port_t replay,
    ngx_log_t *log);
static void ngx_http_kvroute_events_address(
    ngx_http_kvroute_events_stream_t *stream,
    ngx_http_upstream_rr_peer_t *peer, in_port_t port);
static void ngx_http_kvroute_events_remove(
    ngx_http_kvroute_events_source_t *source);
static void ngx_http_kvroute_events_watch(
    ngx_http_kvroute_events_source_t *source);
static void ngx_http_kvroute_events_judge(
    ngx_http_kvroute_events_source_t *source);
static void ngx_http_kvroute_events_timer(ngx_event_t *ev);
static void ngx_http_kvroute_events_closed(
    ngx_http_kvroute_events_stream_t *stream, const char *error);


static ngx_event_t                        ngx_http_kvroute_events_event;
static ngx_http_kvroute_events_source_t  *ngx_http_kvroute_events_sources;


ngx_int_t
ngx_http_kvroute_events_init(ngx_cycle_t *cycle)
{
    ngx_event_t  *ev;

    if (ngx_worker != 0) {
        return NGX_OK;
    }

    ev = &ngx_http_kvroute_events_event;

    ngx_http_kvroute_timer_init(ev, NULL, ngx_http_kvroute_events_look, NULL,
                                cycle->log);

    ngx_add_timer(ev, 1);

    ngx_http_kvroute_events_attribute_init(cycle);

    return NGX_OK;
}


void
ngx_http_kvroute_events_exit(ngx_cycle_t *cycle)
{
    ngx_http_kvroute_events_source_t  *source;

    while (ngx_http_kvroute_events_sources) {
        source = ngx_http_kvroute_events_sources;
        ngx_http_kvroute_events_sources = source->next;

        ngx_http_kvroute_events_remove(source);
    }

    ngx_http_kvroute_events_find_exit();
}


static void
ngx_http_kvroute_events_look(ngx_event_t *ev)
{
    ngx_uint_t                         i;
    ngx_http_kvroute_srv_conf_t       *kscf;
    ngx_http_kvroute_events_source_t  *source, **last;

    if (ngx_exiting || ngx_terminate || ngx_quit) {
        return;
    }

    for (source = ngx_http_kvroute_events_sources; source;
         source = source->next)
    {
        source->seen = 0;
    }

    ngx_http_kvroute_events_find_unseen();

    i = 0;

    while ((kscf = ngx_http_kvroute_zone_next(NULL, &i)) != NULL) {
        if (ngx_http_kvroute_events_get(kscf) && kscf->zone) {
            ngx_http_kvroute_events_servers(kscf, ev->log);
        }
    }

    last = &ngx_http_kvroute_events_sources;

    while (*last) {
        source = *last;

        if (source->seen) {
            last = &source->next;
            continue;
        }

        *last = source->next;
        ngx_http_kvroute_events_remove(source);
    }

    for (source = ngx_http_kvroute_events_sources; source;
         source = source->next)
    {
        ngx_http_kvroute_events_watch(source);
    }

    for (source = ngx_http_kvroute_events_sources; source;
         source = source->next)
    {
        ngx_http_kvroute_events_judge(source);
    }

    ngx_add_timer(ev, NGX_HTTP_KVROUTE_EVENTS_LOOK);

    ngx_http_kvroute_events_find_ask(ev);
}


static void
ngx_http_kvroute_events_servers(ngx_http_kvroute_srv_conf_t *conf,
    ngx_log_t *log)
{
    ngx_http_kvroute_events_source_t  *source;

    if (ngx_http_kvroute_peers_current(conf, 0, log) == NGX_OK
        && ngx_http_kvroute_peers_walk(conf, ngx_http_kvroute_events_server,
                                       log)
           == NGX_OK)
    {
        return;
    }

    /* the list of peers is not available now: keep its sources */

    for (source = ngx_http_kvroute_events_sources; source;
         source = source->next)
    {
        source->seen |= (source->conf == conf);
    }

    ngx_http_kvroute_events_find_keep(conf);
}


static void
ngx_http_kvroute_events_server(void *data, ngx_http_kvroute_srv_conf_t *conf,
    ngx_uint_t k, ngx_uint_t i, ngx_http_upstream_rr_peer_t *peer)
{
    uint32_t                           id;
    in_port_t                          live, replay;
    ngx_log_t                         *log = data;
    ngx_uint_t                         n, rank;
    ngx_http_kvroute_list_t           *list;
    ngx_http_kvroute_events_conf_t    *events;
    ngx_http_kvroute_events_find_t    *find;
    ngx_http_kvroute_events_source_t  *source;

    /* a unix socket has no further ports */

    if (peer->down || peer->socklen > sizeof(ngx_sockaddr_t)
        || ngx_inet_get_port(peer->sockaddr) == 0)
    {
        return;
    }

    list = &conf->list[k];
    events = ngx_http_kvroute_events_get(conf);
    find = NULL;
    n = events->ranks;

    if (events->port == NGX_HTTP_KVROUTE_EVENTS_AUTO) {

        id = list->id[list->first[i]];

        if (id == KVR_REGISTRY_NONE) {
            return;
        }

        ngx_http_kvroute_events_begin(events->feeds, id);

        find = ngx_http_kvroute_events_find(conf, id, peer, log);

        if (find == NULL) {
            return;
        }

        n = find->number;
    }

    /* with kvroute_ranks each rank is a peer with one source */

    if (conf->ranks) {
        n = list->first[i + 1] - list->first[i];
        n = find ? ngx_min(n, find->number) : n;
    }

    for (rank = 0; rank < n; rank++) {

        id = list->id[list->first[i] + (conf->ranks ? rank : 0)];

        if (id == KVR_REGISTRY_NONE) {
            continue;
        }

        ngx_http_kvroute_events_begin(events->feeds, id);

        if (find) {
            live = find->publisher[rank].live;
            replay = find->publisher[rank].replay;

        } else {
            live = ngx_http_kvroute_events_port(peer, events->port, rank);
            replay = ngx_http_kvroute_events_port(peer, events->replay, rank);
        }

        if (live == 0) {
            continue;
        }

        source = ngx_http_kvroute_events_add(conf, id, rank, peer, live,
                                             replay, log);

        if (find && (source == NULL || !source->open)) {
            find->missing = 1;
        }
    }
}


/* forgets the events of another server that had this slot */
static void
ngx_http_kvroute_events_begin(kvr_feeds_t *h, uint32_t id)
{
    uint32_t       generation;
    kvr_events_t  *e;

    generation = h->zone->registry->peer[id].generation;
    e = &h->events[id];

    if (kvr_get(&e->generation) == generation) {
        return;
    }

    kvr_events_reset(e);
    kvr_set(&e->generation, generation);

    if (h->aliases) {
        kvr_attribute_flush(h, id);
    }
}


/* adds the rank to the port, as vLLM and SGLang do; 0: no such port */
static in_port_t
ngx_http_kvroute_events_port(ngx_http_upstream_rr_peer_t *peer,
    ngx_uint_t port, ngx_uint_t rank)
{
    if (port == 0) {
        return 0;
    }

    port = (port & 0xffff) + rank
           + (port & NGX_HTTP_KVROUTE_EVENTS_ADD
              ? ngx_inet_get_port(peer->sockaddr) : 0);

    return (in_port_t) (port > 65535 ? 0 : port);
}


static ngx_http_kvroute_events_source_t *
ngx_http_kvroute_events_add(ngx_http_kvroute_srv_conf_t *conf, uint32_t id,
    ngx_uint_t rank, ngx_http_upstream_rr_peer_t *peer, in_port_t live,
    in_port_t replay, ngx_log_t *log)
{
    uint32_t                           number, generation;
    ngx_uint_t                         moved;
    ngx_http_kvroute_events_source_t  *source;

    generation = conf->zone->core.registry->peer[id].generation;
    number = conf->ranks ? 0 : (uint32_t) rank;
    moved = 0;

    for (source = ngx_http_kvroute_events_sources; source;
         source = source->next)
    {
        if (source->id != id || source->generation != generation
            || source->number != number || source->conf->zone != conf->zone)
        {
            continue;
        }

        /* an engine in two upstreams has one source */

        if (source->conf != conf
            || (ngx_inet_get_port(&source->live.conn.sockaddr.sockaddr) == live
                && (source->replay.conn.socklen
                    ? ngx_inet_get_port(&source->replay.conn.sockaddr.sockaddr)
                    : 0)
                   == replay))
        {
            source->seen = 1;
            return source;
        }

        moved = 1;
    }

    source = ngx_calloc(sizeof(ngx_http_kvroute_events_source_t)
                        + peer->name.len, log);
    if (source == NULL) {
        return NULL;
    }

    source->conf = conf;
    source->id = id;
    source->generation = generation;
    source->number = number;
    source->rank = (uint32_t) rank;
    source->seen = 1;
    source->refused = moved;
    source->look = &ngx_http_kvroute_events_event;

    source->feeds = ngx_http_kvroute_events_get(conf)->feeds;
    source->peer = &source->feeds->events[id];
    source->shared = &source->peer->source[number];

    source->name.len = peer->name.len;
    source->name.data = (u_char *) (source + 1);
    ngx_memcpy(source->name.data, peer->name.data, peer->name.len);

    source->live.source = source;
    source->live.found = ngx_http_kvroute_events_read_live;
    source->live.closed = ngx_http_kvroute_events_closed;

    source->replay.source = source;
    source->replay.found = ngx_http_kvroute_events_read_replay;
    source->replay.closed = ngx_http_kvroute_events_read_replay_closed;

    ngx_http_kvroute_events_address(&source->live, peer, live);

    if (replay) {
        ngx_http_kvroute_events_address(&source->replay, peer, replay);
    }

    ngx_http_kvroute_timer_init(&source->timer, &source->dummy,
                                ngx_http_kvroute_events_timer, source, log);

    source->next = ngx_http_kvroute_events_sources;
    ngx_http_kvroute_events_sources = source;

    ngx_add_timer(&source->timer, 1);

    return source;
}


/* sets the server's address with the publisher's port */
static void
ngx_http_kvroute_events_address(ngx_http_kvroute_events_stream_t *stream,
    ngx_http_upstream_rr_peer_t *peer, in_port_t port)
{
    ngx_memcpy(&stream->conn.sockaddr, peer->sockaddr, peer->socklen);
    stream->conn.socklen = peer->socklen;

    ngx_inet_set_port(&stream->conn.sockaddr.sockaddr, port);
}


static void
ngx_http_kvroute_events_remove(ngx_http_kvroute_events_source_t *source)
{
    ngx_http_kvroute_events_stream_close(&source->live);
    ngx_http_kvroute_events_stream_close(&source->replay);

    if (source->timer.timer_set) {
        ngx_del_timer(&source->timer);
    }

    ngx_free(source);
}


/* sends PINGs, and closes connections without a sign of life */
static void
ngx_http_kvroute_events_watch(ngx_http_kvroute_events_source_t *source)
{
    uint64_t  now, time;

    source->complete = 1;

    if (!ngx_http_kvroute_zone_latest(source->conf->zone)) {
        ngx_http_kvroute_events_stream_close(&source->live);
        ngx_http_kvroute_events_stream_close(&source->replay);
        source->open = 0;
        return;
    }

    now = (uint64_t) ngx_current_msec;

    if (!source->open && source->live.conn.pc.connection
        && now - source->opened > NGX_HTTP_KVROUTE_EVENTS_SHAKE)
    {
        ngx_http_kvroute_events_stream_end(&source->live,
                                           "no complete ZeroMQ handshake");
        return;
    }

    if (!source->open || source->live.held) {
        return;
    }

    time = kvr_get(&source->shared->time);

    if (now - ngx_max(time, source->opened) > NGX_HTTP_KVROUTE_EVENTS_AGE) {
        ngx_http_kvroute_events_stream_end(&source->live, "no sign of life");
        return;
    }

    if (now - source->pinged < NGX_HTTP_KVROUTE_EVENTS_PING) {
        return;
    }

    source->pinged = now;

    kvr_zmtp_ping(&source->live.zmtp);

    if (ngx_http_kvroute_events_stream_send(&source->live) != NGX_OK) {
        ngx_http_kvroute_events_stream_end(&source->live,
                                           "the connection failed");
    }
}


/*
 * Finds out whether all sources of the peer are connected.  If one has been
 * missing for NGX_HTTP_KVROUTE_EVENTS_AGE, the index no longer uses the others.
 */
static void
ngx_http_kvroute_events_judge(ngx_http_kvroute_events_source_t *source)
{
    uint64_t                           now, time, connected;
    ngx_http_kvroute_zone_t           *zone;
    ngx_http_kvroute_events_source_t  *other;

    zone = source->conf->zone;
    now = (uint64_t) ngx_current_msec;
    connected = 0;
    source->only = 1;

    for (other = ngx_http_kvroute_events_sources; other; other = other->next) {

        if (other->id != source->id || other->conf->zone != zone) {
            continue;
        }

        connected += other->open;
        source->only &= (other == source);
        time = kvr_get(&other->shared->time);

        if (time == 0 || now - ngx_min(time, now)
                         > NGX_HTTP_KVROUTE_EVENTS_AGE)
        {
            source->complete = 0;
        }
    }

    kvr_set(&source->peer->connected, connected);

    if (source->complete) {
        kvr_capacity_update(&zone->core, &source->conf->pool, source->id, now);

    } else if (kvr_capacity_heard(&zone->core, source->id)) {
        kvr_sync_stopped(&zone->core, &source->conf->pool, source->id, now);
    }

    kvr_set(&source->peer->fresh,
            kvr_capacity_heard(&zone->core, source->id) != 0);
}


/* connects, or ends a replay that takes too long */
static void
ngx_http_kvroute_events_timer(ngx_event_t *ev)
{
    ngx_connection_t                  *c;
    ngx_http_kvroute_events_source_t  *source;

    c = ev->data;
    source = c->data;

    if (ngx_exiting || ngx_terminate || ngx_quit
        || !ngx_http_kvroute_zone_latest(source->conf->zone))
    {
        return;
    }

    if (source->open) {
        ngx_http_kvroute_events_read_give_up(source);
        return;
    }

    source->opened = (uint64_t) ngx_current_msec;

    ngx_http_kvroute_events_stream_open(&source->live, KVR_ZMTP_SUB);
}


static void
ngx_http_kvroute_events_closed(ngx_http_kvroute_events_stream_t *stream,
    const char *error)
{
    ngx_http_kvroute_events_source_t  *source;

    source = stream->source;

    ngx_http_kvroute_events_stream_close(&source->replay);

    source->verifying = 0;
    source->refused |= stream->refused;

    if (source->open) {
        source->open = 0;
        ngx_http_kvroute_events_source_warn(source, "KV events stopped",
                                            error);

    } else if (++source->bad == NGX_HTTP_KVROUTE_EVENTS_BAD) {
        ngx_http_kvroute_events_source_warn(source, "no KV events", error);
    }

    if (ngx_exiting || ngx_terminate || ngx_quit) {
        return;
    }

    ngx_add_timer(&source->timer,
                  ngx_http_kvroute_conn_delay(&source->delay,
                                             NGX_HTTP_KVROUTE_EVENTS_SOONEST,
                                             NGX_HTTP_KVROUTE_EVENTS_LATEST));
}
