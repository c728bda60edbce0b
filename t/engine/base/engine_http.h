/*
 * Connections, and replies to requests.
 */

#ifndef KVE_ENGINE_HTTP_H
#define KVE_ENGINE_HTTP_H


#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/http_struct.h>
#include <event2/keyvalq_struct.h>

#include "base/engine_server.h"


#define KVE_BODY_MAX       (64u * 1024 * 1024 + 65536)


typedef enum {
    KVE_CHAT = 0,
    KVE_COMPLETIONS,
    KVE_RESPONSES,
    KVE_MESSAGES,
    KVE_EMBEDDINGS
} kve_api_e;


struct kve_conn_s {
    kve_server_t       *server;
    kve_conn_t         *prev, *next;
    struct bufferevent *bev;
    struct evhttp_connection  *evcon;
    struct evhttp_request     *http;        /* without a reply so far */
    kve_job_t          *job;
    void              (*gone)(kve_job_t *job, int killed);
    struct event       *doom;               /* closes it when drained */
    struct event       *later;              /* a delayed reply */
    kve_handler_pt      handler;
    int                 doom_ticks;
    int                 requests;
    unsigned            reset:1;
    unsigned            closing:1;          /* by us */
};


/* the handler gets the requests */
void kve_http_setup(kve_server_t *s, kve_handler_pt handler);
const char *kve_http_header(struct evhttp_request *req, const char *name);
void kve_http_reply(struct evhttp_request *req, kve_conn_t *c, int status,
    const char *type, const void *data, size_t len);
void kve_http_json(struct evhttp_request *req, kve_conn_t *c, int status,
    kve_buf_t *b);
void kve_http_error(struct evhttp_request *req, kve_conn_t *c, int status,
    kve_api_e api, const char *type, const char *message);
void kve_http_headers(struct evhttp_request *req, kve_conn_t *c);
void kve_http_later(kve_conn_t *c, struct evhttp_request *req,
    double seconds, kve_handler_pt handler);
void kve_http_raw(kve_conn_t *c, const void *data, size_t len);
void kve_http_doom(kve_conn_t *c, int reset);
void kve_conns_kill(kve_server_t *s, const kve_conn_t *except);


#endif
