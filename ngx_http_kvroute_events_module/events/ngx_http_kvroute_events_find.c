
/*
 * Copyright (C) kvroute contributors
 */


/*
 * Where publishers are, if the engine is to be asked for it (port=auto): its
 * answer to GET /kv_event_sources.
 *
 * An engine is asked when it is new, and as long as one of its publishers is
 * not connected: it may have been started again, with other ports.  It can name
 * ports, and no host but its own: where we connect to is for the configuration
 * to say, and not for what an engine, or somebody between, answers.
 */


#include "events/ngx_http_kvroute_events_int.h"


#define NGX_HTTP_KVROUTE_EVENTS_FIND_URI      "/kv_event_sources"
#define NGX_HTTP_KVROUTE_EVENTS_FIND_MAX      (64 * 1024)  /* of an answer */
#define NGX_HTTP_KVROUTE_EVENTS_FIND_BUSY     32       /* at a time */
#define NGX_HTTP_KVROUTE_EVENTS_FIND_TIMEOUT  2000     /* ms */
#define NGX_HTTP_KVROUTE_EVENTS_FIND_WAIT     50       /* for those */
#define NGX_HTTP_KVROUTE_EVENTS_FIND_SOONEST  500      /* of the next one */
#define NGX_HTTP_KVROUTE_EVENTS_FIND_LATEST   32000


static ngx_http_kvroute_probe_conf_t *ngx_http_kvroute_events_find_conf(
    ngx_http_kvroute_srv_conf_t *conf);
static void ngx_http_kvroute_events_find_start(
    ngx_http_kvroute_events_find_t *find);
static void ngx_http_kvroute_events_find_body(ngx_http_kvroute_fetch_t *fetch,
    u_char *data, size_t len);
static void ngx_http_kvroute_events_find_done(ngx_http_kvroute_fetch_t *fetch,
    ngx_int_t rc);
static const char *ngx_http_kvroute_events_find_take(
    ngx_http_kvroute_events_find_t *find);
static ngx_uint_t ngx_http_kvroute_events_find_here(struct sockaddr *sa,
    char *host);
static void ngx_http_kvroute_events_find_remove(
    ngx_http_kvroute_events_find_t *find);


static ngx_http_kvroute_events_find_t  *ngx_http_kvroute_events_finds;
static ngx_event_t                     *ngx_http_kvroute_events_find_look;


ngx_http_kvroute_events_find_t *
ngx_http_kvroute_events_find(ngx_http_kvroute_srv_conf_t *conf, uint32_t id,
    ngx_http_upstream_rr_peer_t *peer, ngx_log_t *log)
{
    uint32_t                         generation;
    ngx_http_kvroute_fetch_t        *fetch;
    ngx_http_kvroute_events_find_t  *find;

    generation = conf->zone->sh->registry->peer[id].generation;

    for (find = ngx_http_kvroute_events_finds; find; find = find->next) {

        if (find->id == id && find->generation == generation
            && find->conf->zone == conf->zone)
        {
            find->seen = 1;
            return find;
        }
    }

    find = ngx_calloc(sizeof(ngx_http_kvroute_events_find_t) + peer->name.len,
                      log);
    if (find == NULL) {
        return NULL;
    }

    find->conf = conf;
    find->id = id;
    find->generation = generation;
    find->seen = 1;
    find->missing = 1;

    find->name.len = peer->name.len;
    find->name.data = (u_char *) (find + 1);
    ngx_memcpy(find->name.data, peer->name.data, peer->name.len);

    fetch = &find->fetch;

    fetch->name = find->name;
    ngx_memcpy(&fetch->sockaddr, peer->sockaddr, peer->socklen);
    fetch->socklen = peer->socklen;

    fetch->log = &ngx_http_kvroute_events_source_log;
    fetch->conf = ngx_http_kvroute_events_find_conf(conf);
    fetch->timeout = NGX_HTTP_KVROUTE_EVENTS_FIND_TIMEOUT;
    fetch->max = NGX_HTTP_KVROUTE_EVENTS_FIND_MAX;
    fetch->body = ngx_http_kvroute_events_find_body;
    fetch->done = ngx_http_kvroute_events_find_done;
    fetch->data = find;

    find->next = ngx_http_kvroute_events_finds;
    ngx_http_kvroute_events_finds = find;

    return find;
}


/* TLS and keys are those with which its health, or its metrics, are asked for */
static ngx_http_kvroute_probe_conf_t *
ngx_http_kvroute_events_find_conf(ngx_http_kvroute_srv_conf_t *conf)
{
    ngx_uint_t                      i;
    ngx_http_kvroute_probe_conf_t  *probe;

    static ngx_http_kvroute_probe_conf_t  plain;

    for (i = 0; i < 2; i++) {
        probe = i ? conf->probe : conf->health;

        if (probe && probe->port == 0 && probe->addr == NULL) {
            return probe;
        }
    }

    return &plain;
}


void
ngx_http_kvroute_events_find_unseen(void)
{
    ngx_http_kvroute_events_find_t  *find;

    for (find = ngx_http_kvroute_events_finds; find; find = find->next) {
        find->seen = 0;
        find->missing = (find->number == 0);
    }
}


void
ngx_http_kvroute_events_find_keep(ngx_http_kvroute_srv_conf_t *conf)
{
    ngx_http_kvroute_events_find_t  *find;

    for (find = ngx_http_kvroute_events_finds; find; find = find->next) {
        find->seen |= (find->conf == conf);
    }
}


void
ngx_http_kvroute_events_find_ask(ngx_event_t *look)
{
    ngx_uint_t                       busy;
    ngx_http_kvroute_events_find_t  *find, **last;

    ngx_http_kvroute_events_find_look = look;

    last = &ngx_http_kvroute_events_finds;
    busy = 0;

    while (*last) {
        find = *last;

        if (find->seen) {
            busy += find->fetch.busy;
            last = &find->next;
            continue;
        }

        *last = find->next;
        ngx_http_kvroute_events_find_remove(find);
    }

    for (find = ngx_http_kvroute_events_finds; find; find = find->next) {

        if (!find->missing) {
            find->delay = 0;
            find->again = 0;
            continue;
        }

        if (find->fetch.busy || (uint64_t) ngx_current_msec < find->again) {
            continue;
        }

        if (busy == NGX_HTTP_KVROUTE_EVENTS_FIND_BUSY) {
            ngx_add_timer(look, NGX_HTTP_KVROUTE_EVENTS_FIND_WAIT);
            break;
        }

        ngx_http_kvroute_events_find_start(find);
        busy += find->fetch.busy;
    }
}


static void
ngx_http_kvroute_events_find_start(ngx_http_kvroute_events_find_t *find)
{
    ngx_msec_t  delay;

    static ngx_str_t  uri = ngx_string(NGX_HTTP_KVROUTE_EVENTS_FIND_URI);

    delay = ngx_max(find->delay, NGX_HTTP_KVROUTE_EVENTS_FIND_SOONEST);

    find->delay = ngx_min(2 * delay, NGX_HTTP_KVROUTE_EVENTS_FIND_LATEST);
    find->again = (uint64_t) ngx_current_msec + delay
                  + (ngx_msec_t) ngx_random() % (delay / 4);

    kvr_publishers_init(&find->answer);

    ngx_http_kvroute_fetch_start(&find->fetch, &uri);
}


static void
ngx_http_kvroute_events_find_body(ngx_http_kvroute_fetch_t *fetch,
    u_char *data, size_t len)
{
    ngx_http_kvroute_events_find_t  *find;

    find = fetch->data;

    if (fetch->status == NGX_HTTP_OK) {
        kvr_publishers_read(&find->answer, data, len);
    }
}


static void
ngx_http_kvroute_events_find_done(ngx_http_kvroute_fetch_t *fetch,
    ngx_int_t rc)
{
    const char                      *why;
    ngx_http_kvroute_events_find_t  *find;

    find = fetch->data;

    if (ngx_exiting || ngx_terminate || ngx_quit) {
        return;
    }

    if (rc == NGX_OK && fetch->status == NGX_HTTP_OK) {
        why = ngx_http_kvroute_events_find_take(find);

        if (why == NULL) {
            ngx_add_timer(ngx_http_kvroute_events_find_look, 1);
            return;
        }

    } else if (fetch->status == 0) {

        /* it is not there yet: that costs little, so it is asked often */

        find->delay = 0;
        return;

    } else if (rc == NGX_OK) {
        why = "the answer to " NGX_HTTP_KVROUTE_EVENTS_FIND_URI
              " was not 200: write \"port=\" for engines that have no such";

    } else {
        why = "the answer to " NGX_HTTP_KVROUTE_EVENTS_FIND_URI
              " did not end, or was too long";
    }

    kvr_add(&find->conf->zone->core.events[find->id].refused, 1);

    if (ngx_http_kvroute_events_source_due(&find->warned)) {
        ngx_log_error(NGX_LOG_WARN, ngx_cycle->log, 0,
                      "kvroute events of %V are not found: %s", &find->name,
                      why);
    }
}


/* what is wrong with an answer, or NULL: it is gone by */
static const char *
ngx_http_kvroute_events_find_take(ngx_http_kvroute_events_find_t *find)
{
    kvr_publishers_t  *answer;

    answer = &find->answer;

    switch (kvr_publishers_end(answer)) {

    case KVR_OK:
        break;

    case KVR_DECLINED:
        return "it publishes none: see the flags of KV events for engines";

    default: /* KVR_ERROR */
        return "what it says of its publishers is none of TCP, with a port "
               "from 1024 on for each";
    }

    if (answer->host[0]
        && !ngx_http_kvroute_events_find_here(&find->fetch.sockaddr.sockaddr,
                                              answer->host))
    {
        return "it names another host than its own: only \"*\", or the address "
               "of the server, is gone by";
    }

    if (find->conf->ranks == 0 && answer->number > KVR_EVENTS_SOURCES) {
        return "it has more than 8 ranks: \"kvroute_ranks\" makes each of them "
               "a server of its own";
    }

    find->number = answer->number;
    ngx_memcpy(find->publisher, answer->publisher, sizeof(find->publisher));

    return NULL;
}


static ngx_uint_t
ngx_http_kvroute_events_find_here(struct sockaddr *sa, char *host)
{
    size_t     len;
    in_addr_t  addr;
#if (NGX_HAVE_INET6)
    u_char     addr6[16];
#endif

    len = ngx_strlen(host);

#if (NGX_HAVE_INET6)
    if (sa->sa_family == AF_INET6) {
        return ngx_inet6_addr((u_char *) host, len, addr6) == NGX_OK
               && ngx_memcmp(((struct sockaddr_in6 *) sa)->sin6_addr.s6_addr,
                             addr6, 16) == 0;
    }
#endif

    addr = ngx_inet_addr((u_char *) host, len);

    return sa->sa_family == AF_INET && addr != INADDR_NONE
           && ((struct sockaddr_in *) sa)->sin_addr.s_addr == addr;
}


void
ngx_http_kvroute_events_find_exit(void)
{
    ngx_http_kvroute_events_find_t  *find;

    while (ngx_http_kvroute_events_finds) {
        find = ngx_http_kvroute_events_finds;
        ngx_http_kvroute_events_finds = find->next;

        ngx_http_kvroute_events_find_remove(find);
    }
}


static void
ngx_http_kvroute_events_find_remove(ngx_http_kvroute_events_find_t *find)
{
    if (find->fetch.busy) {
        ngx_http_kvroute_fetch_stop(&find->fetch);
    }

    ngx_free(find);
}
