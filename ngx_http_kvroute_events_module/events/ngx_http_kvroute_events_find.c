
/*
 * Copyright (C) kvroute contributors
 */


/*
 * With port=auto each engine is asked where it publishes its KV events:
 * GET /kv_event_sources.  vLLM has used three forms of the answer:
 *
 *     {"0": {"endpoint": "tcp://HOST:5557", "replay_endpoint": null, ...}}
 *     {"sources": [{"data_parallel_rank": 0, "endpoint": ..., ...}, ...]}
 *     [{"data_parallel_rank": 0, "endpoint": ..., ...}, ...]
 *
 * A new engine is asked, and one that has a publisher which is not connected:
 * the engine may have restarted with other ports.  Only ports from 1024 on are
 * taken from an answer.  The host is the configured one, so that a forged
 * answer cannot redirect nginx to another machine.
 */


#include "events/ngx_http_kvroute_events_int.h"

#include <cjson/cJSON.h>


#define NGX_HTTP_KVROUTE_EVENTS_FIND_URI      "/kv_event_sources"
#define NGX_HTTP_KVROUTE_EVENTS_FIND_MAX      (64 * 1024)  /* of an answer */
#define NGX_HTTP_KVROUTE_EVENTS_FIND_BUSY     32       /* at a time */
#define NGX_HTTP_KVROUTE_EVENTS_FIND_TIMEOUT  2000     /* ms */
#define NGX_HTTP_KVROUTE_EVENTS_FIND_WAIT     50       /* ms, if more wait */
#define NGX_HTTP_KVROUTE_EVENTS_FIND_SOONEST  500      /* ms, the next one */
#define NGX_HTTP_KVROUTE_EVENTS_FIND_LATEST   32000

#define NGX_HTTP_KVROUTE_EVENTS_FIND_SCHEME   "tcp://"
#define NGX_HTTP_KVROUTE_EVENTS_FIND_LOWEST   1024     /* port */
#define NGX_HTTP_KVROUTE_EVENTS_FIND_INVALID                                  \
    "the answer must have a TCP endpoint with a port of its own, from 1024 "  \
    "on, for each rank"


static void ngx_http_kvroute_events_find_start(
    ngx_http_kvroute_events_find_t *find);
static void ngx_http_kvroute_events_find_body(ngx_http_kvroute_fetch_t *fetch,
    u_char *data, size_t len);
static void ngx_http_kvroute_events_find_done(ngx_http_kvroute_fetch_t *fetch,
    ngx_int_t rc);
static const char *ngx_http_kvroute_events_find_result(
    ngx_http_kvroute_events_find_t *find, ngx_int_t rc);
static const char *ngx_http_kvroute_events_find_take(
    ngx_http_kvroute_events_find_t *find);
static const char *ngx_http_kvroute_events_find_parse(const cJSON *json,
    ngx_http_kvroute_events_publisher_t *publisher, struct sockaddr *sa);
static const char *ngx_http_kvroute_events_find_port(in_port_t *port,
    const cJSON *item, const char *name, struct sockaddr *sa);
static ngx_uint_t ngx_http_kvroute_events_find_here(struct sockaddr *sa,
    u_char *host, size_t len);
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

    generation = conf->zone->core.registry->peer[id].generation;

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

    fetch->conn.name = find->name;
    ngx_memcpy(&fetch->conn.sockaddr, peer->sockaddr, peer->socklen);
    fetch->conn.socklen = peer->socklen;

    fetch->conf = &conf->engine;
    fetch->conn.timeout = NGX_HTTP_KVROUTE_EVENTS_FIND_TIMEOUT;
    fetch->max = NGX_HTTP_KVROUTE_EVENTS_FIND_MAX;
    fetch->body = ngx_http_kvroute_events_find_body;
    fetch->done = ngx_http_kvroute_events_find_done;
    fetch->data = find;

    find->next = ngx_http_kvroute_events_finds;
    ngx_http_kvroute_events_finds = find;

    return find;
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
    static ngx_str_t  uri = ngx_string(NGX_HTTP_KVROUTE_EVENTS_FIND_URI);

    find->again = (uint64_t) ngx_current_msec
                  + ngx_http_kvroute_conn_delay(&find->delay,
                                         NGX_HTTP_KVROUTE_EVENTS_FIND_SOONEST,
                                         NGX_HTTP_KVROUTE_EVENTS_FIND_LATEST);

    find->len = 0;

    ngx_http_kvroute_fetch_start(&find->fetch, &uri);
}


static void
ngx_http_kvroute_events_find_body(ngx_http_kvroute_fetch_t *fetch,
    u_char *data, size_t len)
{
    ngx_http_kvroute_events_find_t  *find;

    find = fetch->data;

    if (find->answer == NULL) {
        find->answer = ngx_alloc(NGX_HTTP_KVROUTE_EVENTS_FIND_MAX + 1,
                                 fetch->conn.pc.log);
    }

    /* fetch->max is the limit of all pieces together */

    if (find->answer) {
        ngx_memcpy(find->answer + find->len, data, len);
        find->len += len;
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

    why = ngx_http_kvroute_events_find_result(find, rc);

    ngx_free(find->answer);
    find->answer = NULL;

    if (why == NULL) {
        return;
    }

    kvr_add(&ngx_http_kvroute_events_get(find->conf)->feeds->events[find->id]
             .refused, 1);

    if (ngx_http_kvroute_timer_minute(&find->warned)) {
        ngx_log_error(NGX_LOG_WARN, ngx_cycle->log, 0,
                      "kvroute: KV events of server %V not found: %s",
                      &find->name, why);
    }
}


/* Uses the response to a request.  Returns NULL, or why it is refused. */
static const char *
ngx_http_kvroute_events_find_result(ngx_http_kvroute_events_find_t *find,
    ngx_int_t rc)
{
    const char  *why;

    if (find->fetch.status == 0) {

        /* the engine has not started yet: a failed connect costs little */

        find->delay = 0;
        return NULL;
    }

    if (rc != NGX_OK) {
        return "the answer to " NGX_HTTP_KVROUTE_EVENTS_FIND_URI
               " did not end, or was too long";
    }

    if (find->fetch.status != NGX_HTTP_OK) {
        return "the answer to " NGX_HTTP_KVROUTE_EVENTS_FIND_URI
               " was not 200: write \"port=\" for engines without this URI";
    }

    why = ngx_http_kvroute_events_find_take(find);

    if (why == NULL) {
        ngx_add_timer(ngx_http_kvroute_events_find_look, 1);
    }

    return why;
}


/* Takes the publishers of an answer.  Returns NULL, or why it is refused. */
static const char *
ngx_http_kvroute_events_find_take(ngx_http_kvroute_events_find_t *find)
{
    cJSON       *json;
    ngx_uint_t   i, n;
    const char  *why;

    ngx_http_kvroute_events_publisher_t
                 publisher[NGX_HTTP_KVROUTE_EVENTS_PUBLISHERS];

    ngx_memzero(publisher, sizeof(publisher));

    if (find->answer) {
        find->answer[find->len] = '\0';
    }

    json = cJSON_Parse((char *) find->answer);
    why = ngx_http_kvroute_events_find_parse(json, publisher,
                                             &find->fetch.conn.sockaddr.sockaddr);
    cJSON_Delete(json);

    if (why) {
        return why;
    }

    for (i = 0, n = 0; i < NGX_HTTP_KVROUTE_EVENTS_PUBLISHERS; i++) {
        if (publisher[i].live) {
            publisher[n++] = publisher[i];
        }
    }

    if (n == 0) {
        return "the engine has no publisher: see the flags for KV events";
    }

    if (find->conf->ranks == 0 && n > KVR_EVENTS_SOURCES) {
        return "the engine has more than 8 ranks: use \"kvroute_ranks\"";
    }

    find->number = n;
    ngx_memcpy(find->publisher, publisher, sizeof(publisher));

    return NULL;
}


/* Reads the publishers, by rank.  Returns NULL, or why they are refused. */
static const char *
ngx_http_kvroute_events_find_parse(const cJSON *json,
    ngx_http_kvroute_events_publisher_t *publisher, struct sockaddr *sa)
{
    ngx_int_t                             rank, place;
    const char                           *why;
    const cJSON                          *item, *key;
    ngx_http_kvroute_events_publisher_t   p;

    key = cJSON_GetObjectItemCaseSensitive(json, "sources");
    json = cJSON_IsArray(key) ? key : json;
    place = 0;

    if (!cJSON_IsArray(json) && !cJSON_IsObject(json)) {
        return NGX_HTTP_KVROUTE_EVENTS_FIND_INVALID;
    }

    cJSON_ArrayForEach(item, json) {

        why = ngx_http_kvroute_events_find_port(&p.live, item, "endpoint", sa);

        if (why == NULL) {
            why = ngx_http_kvroute_events_find_port(&p.replay, item,
                                                    "replay_endpoint", sa);
        }

        if (why) {
            return why;
        }

        if (p.live == 0) {
            continue;
        }

        key = cJSON_GetObjectItemCaseSensitive(item, "data_parallel_rank");

        rank = item->string ? ngx_atoi((u_char *) item->string,
                                       ngx_strlen(item->string))
                            : cJSON_IsNumber(key) ? key->valueint : place;
        place++;

        if (rank < 0 || rank >= NGX_HTTP_KVROUTE_EVENTS_PUBLISHERS
            || publisher[rank].live || p.live == p.replay)
        {
            return NGX_HTTP_KVROUTE_EVENTS_FIND_INVALID;
        }

        publisher[rank] = p;
    }

    return NULL;
}


/* Reads the port of an endpoint, 0 if there is none; the host is the server. */
static const char *
ngx_http_kvroute_events_find_port(in_port_t *port, const cJSON *item,
    const char *name, struct sockaddr *sa)
{
    size_t        len;
    u_char       *host, *colon;
    ngx_int_t     n;
    ngx_uint_t    i;
    const cJSON  *endpoint;

    static const char *const  any[] = { "*", "0.0.0.0", "::", "[::]" };

    *port = 0;

    endpoint = cJSON_GetObjectItemCaseSensitive(item, name);

    if (!cJSON_IsString(endpoint)) {
        return NULL;
    }

    host = (u_char *) endpoint->valuestring
           + sizeof(NGX_HTTP_KVROUTE_EVENTS_FIND_SCHEME) - 1;
    colon = (u_char *) strrchr(endpoint->valuestring, ':');

    if (ngx_strncmp(endpoint->valuestring, NGX_HTTP_KVROUTE_EVENTS_FIND_SCHEME,
                    sizeof(NGX_HTTP_KVROUTE_EVENTS_FIND_SCHEME) - 1) != 0
        || colon < host)
    {
        return NGX_HTTP_KVROUTE_EVENTS_FIND_INVALID;
    }

    n = ngx_atoi(colon + 1, ngx_strlen(colon + 1));

    if (n < NGX_HTTP_KVROUTE_EVENTS_FIND_LOWEST || n > 65535) {
        return NGX_HTTP_KVROUTE_EVENTS_FIND_INVALID;
    }

    *port = (in_port_t) n;
    len = colon - host;

    for (i = 0; i < sizeof(any) / sizeof(any[0]); i++) {
        if (len == ngx_strlen(any[i]) && ngx_memcmp(host, any[i], len) == 0) {
            return NULL;
        }
    }

    return ngx_http_kvroute_events_find_here(sa, host, len) ? NULL
               : "a publisher's endpoint names a different host: only \"*\" or "
                 "the server's own address is accepted";
}


static ngx_uint_t
ngx_http_kvroute_events_find_here(struct sockaddr *sa, u_char *host,
    size_t len)
{
#if (NGX_HAVE_INET6)
    u_char  addr6[16];

    if (sa->sa_family == AF_INET6) {

        if (len > 2 && host[0] == '[' && host[len - 1] == ']') {
            host++;
            len -= 2;
        }

        return ngx_inet6_addr(host, len, addr6) == NGX_OK
               && ngx_memcmp(((struct sockaddr_in6 *) sa)->sin6_addr.s6_addr,
                             addr6, 16) == 0;
    }
#endif

    return sa->sa_family == AF_INET
           && ((struct sockaddr_in *) sa)->sin_addr.s_addr != INADDR_NONE
           && ((struct sockaddr_in *) sa)->sin_addr.s_addr
              == ngx_inet_addr(host, len);
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

    ngx_free(find->answer);
    ngx_free(find);
}
