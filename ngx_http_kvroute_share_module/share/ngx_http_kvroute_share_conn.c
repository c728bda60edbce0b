
/*
 * Copyright (C) kvroute contributors
 */


/*
 * A connection to the store.  It is closed, or waiting for the next attempt,
 * or being set up (name resolution, TCP, TLS, AUTH), or ready.  After any
 * error it is closed and tried again, beginning with the name.
 */


#include "share/ngx_http_kvroute_share_int.h"


/* ms between two attempts */
#define NGX_HTTP_KVROUTE_SHARE_DELAY_MIN  100
#define NGX_HTTP_KVROUTE_SHARE_DELAY_MAX  4000

/* parts of an answer; bytes of an error of the store that are logged */
#define NGX_HTTP_KVROUTE_SHARE_ELEMENTS   4096
#define NGX_HTTP_KVROUTE_SHARE_TEXT       128

/* bytes of the reader's buffer that are kept for the next answer */
#define NGX_HTTP_KVROUTE_SHARE_KEEP       (256 * 1024)

/* words of a command, at most */
#define NGX_HTTP_KVROUTE_SHARE_WORDS      8


static void ngx_http_kvroute_share_conn_again(ngx_event_t *ev);
static void ngx_http_kvroute_share_conn_resolved(ngx_resolver_ctx_t *ctx);
static void ngx_http_kvroute_share_conn_connect(
    ngx_http_kvroute_share_conn_t *sc, struct sockaddr *sockaddr,
    socklen_t socklen);
static redisReader *ngx_http_kvroute_share_conn_reader(void);
static void ngx_http_kvroute_share_conn_failed(ngx_http_kvroute_conn_t *conn,
    ngx_int_t rc, const char *why);
static void ngx_http_kvroute_share_conn_write(ngx_event_t *ev);
static void ngx_http_kvroute_share_conn_auth(
    ngx_http_kvroute_share_conn_t *sc);
static void ngx_http_kvroute_share_conn_flush(
    ngx_http_kvroute_share_conn_t *sc);
static void ngx_http_kvroute_share_conn_read(ngx_event_t *ev);
static void ngx_http_kvroute_share_conn_answer(
    ngx_http_kvroute_share_conn_t *sc, redisReply *reply);


void
ngx_http_kvroute_share_conn_open(ngx_http_kvroute_share_conn_t *sc)
{
    ngx_addr_t                     *addr;
    ngx_resolver_ctx_t             *ctx;
    ngx_http_kvroute_share_t       *share;
    ngx_http_kvroute_share_conf_t  *conf;

    share = sc->share;
    conf = share->conf;

    ngx_http_kvroute_timer_init(&sc->again, &sc->dummy,
                                ngx_http_kvroute_share_conn_again, sc,
                                share->log);

    if (conf->naddrs) {
        addr = &conf->addrs[ngx_random() % conf->naddrs];
        ngx_http_kvroute_share_conn_connect(sc, addr->sockaddr, addr->socklen);
        return;
    }

    if (share->resolver == NULL) {
        ngx_http_kvroute_share_conn_fail(sc, "no resolver", NULL);
        return;
    }

    ctx = ngx_resolve_start(share->resolver, NULL);

    if (ctx == NULL || ctx == NGX_NO_RESOLVER) {
        ngx_http_kvroute_share_conn_fail(sc, "no resolver", NULL);
        return;
    }

    ctx->name = conf->host;
    ctx->handler = ngx_http_kvroute_share_conn_resolved;
    ctx->data = sc;
    ctx->timeout = share->resolver_timeout;
    ctx->cancelable = 1;

    sc->ctx = ctx;

    if (ngx_resolve_name(ctx) != NGX_OK) {
        sc->ctx = NULL;
        ngx_http_kvroute_share_conn_fail(sc, "the name cannot be resolved",
                                         NULL);
    }
}


static void
ngx_http_kvroute_share_conn_again(ngx_event_t *ev)
{
    ngx_connection_t  *c;

    c = ev->data;

    ngx_http_kvroute_share_conn_open(c->data);
}


static void
ngx_http_kvroute_share_conn_resolved(ngx_resolver_ctx_t *ctx)
{
    socklen_t                       socklen;
    ngx_sockaddr_t                  sockaddr;
    ngx_resolver_addr_t            *addr;
    ngx_http_kvroute_share_conn_t  *sc;

    sc = ctx->data;
    sc->ctx = NULL;

    if (ctx->state || ctx->naddrs == 0) {
        ngx_resolve_name_done(ctx);
        ngx_http_kvroute_share_conn_fail(sc, "the name cannot be resolved",
                                         NULL);
        return;
    }

    addr = &ctx->addrs[ngx_random() % ctx->naddrs];

    socklen = addr->socklen;
    ngx_memcpy(&sockaddr, addr->sockaddr, socklen);
    ngx_inet_set_port(&sockaddr.sockaddr, sc->share->conf->port);

    ngx_resolve_name_done(ctx);

    ngx_http_kvroute_share_conn_connect(sc, &sockaddr.sockaddr, socklen);
}


static void
ngx_http_kvroute_share_conn_connect(ngx_http_kvroute_share_conn_t *sc,
    struct sockaddr *sockaddr, socklen_t socklen)
{
    ngx_http_kvroute_conn_t        *conn;
    ngx_http_kvroute_share_conf_t  *conf;

    conn = &sc->conn;
    conf = sc->share->conf;

    sc->reader = ngx_http_kvroute_share_conn_reader();

    if (sc->reader == NULL) {
        ngx_http_kvroute_share_conn_fail(sc, "no memory", NULL);
        return;
    }

    ngx_memcpy(&conn->sockaddr, sockaddr, socklen);

    conn->socklen = socklen;
    conn->name.data = sc->text;
    conn->name.len = ngx_sock_ntop(&conn->sockaddr.sockaddr, socklen, sc->text,
                                   NGX_SOCKADDR_STRLEN, 1);
    conn->timeout = NGX_HTTP_KVROUTE_SHARE_CONNECT;
    conn->ssl = conf->ssl;
    conn->host = &conf->host;
    conn->verify = conf->verify;
    conn->read = ngx_http_kvroute_share_conn_read;
    conn->write = ngx_http_kvroute_share_conn_write;
    conn->failed = ngx_http_kvroute_share_conn_failed;
    conn->data = sc;

    ngx_http_kvroute_conn_open(conn);
}


static void
ngx_http_kvroute_share_conn_failed(ngx_http_kvroute_conn_t *conn, ngx_int_t rc,
    const char *why)
{
    ngx_http_kvroute_share_conn_fail(conn->data,
                                     why ? why : "cannot connect", NULL);
}


/*
 * hiredis before 1.0 has no limit for the number of elements of an answer,
 * which it allocates at once.
 */

#if (HIREDIS_MAJOR == 0)

static redisReplyObjectFunctions  ngx_http_kvroute_share_conn_functions;
static void *(*ngx_http_kvroute_share_conn_array)(const redisReadTask *, int);

static void *
ngx_http_kvroute_share_conn_elements(const redisReadTask *task, int n)
{
    return n <= NGX_HTTP_KVROUTE_SHARE_ELEMENTS
           ? ngx_http_kvroute_share_conn_array(task, n) : NULL;
}

#endif


static redisReader *
ngx_http_kvroute_share_conn_reader(void)
{
    redisReader  *reader;

    reader = redisReaderCreate();

    if (reader == NULL) {
        return NULL;
    }

    /* keeps a buffer for a few batches */

    reader->maxbuf = NGX_HTTP_KVROUTE_SHARE_KEEP;

#if (HIREDIS_MAJOR == 0)

    if (ngx_http_kvroute_share_conn_array == NULL) {
        ngx_http_kvroute_share_conn_functions = *reader->fn;
        ngx_http_kvroute_share_conn_array = reader->fn->createArray;
        ngx_http_kvroute_share_conn_functions.createArray =
                                          ngx_http_kvroute_share_conn_elements;
    }

    reader->fn = &ngx_http_kvroute_share_conn_functions;

#else

    reader->maxelements = NGX_HTTP_KVROUTE_SHARE_ELEMENTS;

#endif

    return reader;
}


static void
ngx_http_kvroute_share_conn_write(ngx_event_t *ev)
{
    ngx_connection_t               *c;
    ngx_http_kvroute_conn_t        *conn;
    ngx_http_kvroute_share_conn_t  *sc;

    c = ev->data;
    conn = c->data;
    sc = conn->data;

    if (sc->known || sc->busy) {
        ngx_http_kvroute_share_conn_flush(sc);
        return;
    }

    (void) ngx_tcp_nodelay(c);

    ngx_http_kvroute_share_conn_auth(sc);
}


static void
ngx_http_kvroute_share_conn_auth(ngx_http_kvroute_share_conn_t *sc)
{
    ngx_str_t                      *p, word[3];
    ngx_http_kvroute_share_conf_t  *conf;

    conf = sc->share->conf;

    if (conf->password.len == 0) {
        sc->known = 1;
        ngx_del_timer(sc->conn.pc.connection->read);
        sc->ready(sc);
        return;
    }

    p = word;

    ngx_str_set(p, "AUTH");
    p++;

    if (conf->user.len) {
        *p++ = conf->user;
    }

    *p++ = conf->password;

    ngx_http_kvroute_share_conn_send(sc, word, p - word);
}


void
ngx_http_kvroute_share_conn_send(ngx_http_kvroute_share_conn_t *sc,
    const ngx_str_t *word, ngx_uint_t n)
{
    int          rc;
    char        *out;
    size_t       len[NGX_HTTP_KVROUTE_SHARE_WORDS];
    ngx_uint_t   i;
    const char  *data[NGX_HTTP_KVROUTE_SHARE_WORDS];

    for (i = 0; i < n; i++) {
        data[i] = (char *) word[i].data;
        len[i] = word[i].len;
    }

    rc = redisFormatCommandArgv(&out, (int) n, data, len);

    if (rc < 0) {
        ngx_http_kvroute_share_conn_fail(sc, "no memory", NULL);
        return;
    }

    sc->out = out;
    sc->sent = (u_char *) out;
    sc->end = sc->sent + rc;
    sc->fed = 0;
    sc->busy = 1;

    ngx_add_timer(sc->conn.pc.connection->read, NGX_HTTP_KVROUTE_SHARE_ANSWER);

    ngx_http_kvroute_share_conn_flush(sc);
}


static void
ngx_http_kvroute_share_conn_flush(ngx_http_kvroute_share_conn_t *sc)
{
    u_char     *from;
    ngx_int_t   rc;

    from = sc->sent;

    rc = ngx_http_kvroute_conn_send(&sc->conn, &sc->sent, sc->end);

    kvr_add(&sc->share->core->stats.bytes_sent, (uint64_t) (sc->sent - from));

    if (rc != NGX_OK) {
        ngx_http_kvroute_share_conn_fail(sc, "the connection was closed", NULL);
        return;
    }

    if (sc->out && sc->sent == sc->end) {
        redisFreeCommand(sc->out);
        sc->out = NULL;
    }
}


static void
ngx_http_kvroute_share_conn_read(ngx_event_t *ev)
{
    void                           *reply;
    ssize_t                         n;
    ngx_connection_t               *c;
    ngx_http_kvroute_conn_t        *conn;
    ngx_http_kvroute_share_conn_t  *sc;

    /* used within one event only */
    static u_char                   buf[65536];

    c = ev->data;
    conn = c->data;
    sc = conn->data;

    if (ev->timedout) {
        ngx_http_kvroute_share_conn_fail(sc, "no answer", NULL);
        return;
    }

    for ( ;; ) {
        n = c->recv(c, buf, sizeof(buf));

        if (n == NGX_AGAIN) {
            break;
        }

        if (n == NGX_ERROR && ngx_socket_errno == NGX_ECONNREFUSED) {
            sc->conn.fault = KVR_FAULT_REFUSED;
            ngx_http_kvroute_share_conn_fail(sc, "connection refused", NULL);
            return;
        }

        if (n == NGX_ERROR || n == 0) {
            ngx_http_kvroute_share_conn_fail(sc, "the connection was closed",
                                             NULL);
            return;
        }

        sc->fed += n;

        if (sc->fed > NGX_HTTP_KVROUTE_SHARE_REPLY) {
            ngx_http_kvroute_share_conn_fail(sc, "the answer is too long",
                                             NULL);
            return;
        }

        if (redisReaderFeed(sc->reader, (char *) buf, n) != REDIS_OK) {
            ngx_http_kvroute_share_conn_fail(sc, "no memory", NULL);
            return;
        }
    }

    if (ngx_handle_read_event(c->read, 0) != NGX_OK) {
        ngx_http_kvroute_share_conn_fail(sc, "the connection failed", NULL);
        return;
    }

    reply = NULL;

    if (redisReaderGetReply(sc->reader, &reply) != REDIS_OK) {
        ngx_http_kvroute_share_conn_fail(sc, "not the protocol of Redis", NULL);
        return;
    }

    if (reply) {
        ngx_http_kvroute_share_conn_answer(sc, reply);
    }
}


/* each command has one answer; more would be taken for the next command's */
static void
ngx_http_kvroute_share_conn_answer(ngx_http_kvroute_share_conn_t *sc,
    redisReply *reply)
{
    if (!sc->busy || sc->reader->pos != sc->reader->len) {
        ngx_http_kvroute_share_conn_fail(sc, "unexpected answer", NULL);
        freeReplyObject(reply);
        return;
    }

    sc->busy = 0;
    ngx_del_timer(sc->conn.pc.connection->read);

    if (sc->known) {
        sc->answer(sc, reply);
        return;
    }

    if (reply->type == REDIS_REPLY_ERROR) {
        ngx_http_kvroute_share_conn_fail(sc, "AUTH failed", reply);

    } else {
        sc->known = 1;
        sc->ready(sc);
    }

    freeReplyObject(reply);
}


void
ngx_http_kvroute_share_conn_fail(ngx_http_kvroute_share_conn_t *sc,
    const char *why, redisReply *error)
{
    size_t                     len;
    u_char                    *p, *last;
    ngx_connection_t          *c;
    ngx_http_kvroute_share_t  *share;

    share = sc->share;
    c = sc->conn.pc.connection;

    kvr_set(&share->core->stats.united.fault,
            sc->conn.fault ? sc->conn.fault
            : c == NULL ? KVR_FAULT_UNRESOLVED
            : error ? (sc->known ? KVR_FAULT_REJECTED : KVR_FAULT_PASSWORD)
            : c->read->timedout ? KVR_FAULT_TIMEOUT : KVR_FAULT_CLOSED);

    sc->conn.fault = KVR_FAULT_NONE;

    sc->broken = sc->known && sc->busy && sc->fed;

    ngx_http_kvroute_share_conn_close(sc);

    ngx_add_timer(&sc->again,
                  ngx_http_kvroute_conn_delay(&sc->delay,
                                              NGX_HTTP_KVROUTE_SHARE_DELAY_MIN,
                                              NGX_HTTP_KVROUTE_SHARE_DELAY_MAX));

    kvr_add(&share->core->stats.reconnects, 1);

    p = share->reason;
    last = p + sizeof(share->reason) - 1;

    p = ngx_slprintf(p, last, "%s", why);

    if (error) {
        kvr_add(&share->core->stats.refused, 1);

        len = ngx_min((size_t) error->len, NGX_HTTP_KVROUTE_SHARE_TEXT);
        p = ngx_slprintf(p, last, " (%*s)", len, error->str);
    }

    *p = '\0';

    /* the store's text must not begin a new line of the log */

    for (p = share->reason; *p; p++) {
        if (*p < ' ' || *p > '~') {
            *p = '?';
        }
    }

    ngx_http_kvroute_share_conn_log(share);
}


void
ngx_http_kvroute_share_conn_log(ngx_http_kvroute_share_t *share)
{
    if (!ngx_http_kvroute_timer_minute(&share->warned)) {
        return;
    }

    ngx_log_error(NGX_LOG_WARN, share->log, 0,
                  "kvroute_share of zone \"%V\" is not working with \"%V\": %s",
                  &share->zone->name, &share->conf->store,
                  share->reason[0] ? share->reason
                  : (u_char *) "own batches are not received back");
}


void
ngx_http_kvroute_share_conn_close(ngx_http_kvroute_share_conn_t *sc)
{
    if (sc->ctx) {
        ngx_resolve_name_done(sc->ctx);
        sc->ctx = NULL;
    }

    if (sc->again.timer_set) {
        ngx_del_timer(&sc->again);
    }

    ngx_http_kvroute_conn_close(&sc->conn);

    if (sc->reader) {
        redisReaderFree(sc->reader);
        sc->reader = NULL;
    }

    if (sc->out) {
        redisFreeCommand(sc->out);
        sc->out = NULL;
    }

    sc->known = 0;
    sc->busy = 0;
}
