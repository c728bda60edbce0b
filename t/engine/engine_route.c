#include <string.h>

#include "base/engine_http.h"
#include "engine_control.h"
#include "engine_info.h"
#include "engine_responses.h"
#include "engine_route.h"
#include "job/engine_start.h"
#include "metrics/engine_metrics.h"


typedef struct {
    const char  *path;
    kve_api_e    api;
} kve_route_t;


static const kve_route_t  kve_routes[] = {
    { "/v1/chat/completions", KVE_CHAT },
    { "/chat/completions", KVE_CHAT },
    { "/v1/completions", KVE_COMPLETIONS },
    { "/completions", KVE_COMPLETIONS },
    { "/v1/responses", KVE_RESPONSES },
    { "/v1/messages", KVE_MESSAGES },
    { "/v1/embeddings", KVE_EMBEDDINGS },
    { "/embeddings", KVE_EMBEDDINGS },
    { NULL, KVE_CHAT }
};


static void
kve_route_loading(kve_conn_t *c, struct evhttp_request *req)
{
    kve_buf_t  b = { 0 };

    kve_buf_str(&b, "{\"error\":{\"message\":\"Loading model\","
                    "\"type\":\"unavailable_error\",\"code\":503}}");
    kve_http_json(req, c, 503, &b);
}


static void
kve_route_health(kve_server_t *s, kve_conn_t *c, struct evhttp_request *req)
{
    int  status;

    status = s->settings.health_status ? s->settings.health_status : 200;

    if (s->engine->opt.dialect == KVE_LLAMACPP) {
        kve_http_reply(req, c, status, "application/json",
                       "{\"status\":\"ok\"}", 15);
        return;
    }

    kve_http_reply(req, c, status, "text/plain; charset=utf-8", "", 0);
}


void
kve_route(kve_server_t *s, kve_conn_t *c, struct evhttp_request *req)
{
    const char            *path;
    const kve_route_t     *route;
    enum evhttp_cmd_type   method;

    method = evhttp_request_get_command(req);
    path = evhttp_uri_get_path(evhttp_request_get_evhttp_uri(req));

    if (path == NULL || *path == '\0') {
        path = "/";
    }

    /* our own paths work in any state of the engine, and do not count */

    if (strcmp(path, "/control") == 0) {
        kve_control_handle(s, c, req);
        return;
    }

    s->counters.requests++;
    s->counters.body_bytes +=
                     evbuffer_get_length(evhttp_request_get_input_buffer(req));

    if (kve_now() < s->ready) {
        kve_route_loading(c, req);
        return;
    }

    if (strcmp(path, "/health") == 0
        || strcmp(path, "/health_generate") == 0
        || strcmp(path, "/health/ready") == 0
        || strcmp(path, "/v1/health") == 0
        || strcmp(path, "/ping") == 0)
    {
        kve_route_health(s, c, req);
        return;
    }

    if (strcmp(path, "/metrics") == 0) {
        kve_metrics_handle(s, c, req);
        return;
    }

    if (strcmp(path, "/prometheus/metrics") == 0
        && s->engine->opt.dialect == KVE_TRTLLM)
    {
        kve_metrics_handle(s, c, req);
        return;
    }

    if (kve_info_handle(s, c, req, path)
        || kve_responses_handle(s, c, req, path))
    {
        return;
    }

    for (route = kve_routes; route->path; route++) {
        if (strcmp(path, route->path) == 0) {
            break;
        }
    }

    if (route->path == NULL) {
        kve_http_reply(req, c, 404, "application/json",
                       "{\"detail\":\"Not Found\"}", 22);
        return;
    }

    if (method != EVHTTP_REQ_POST) {
        kve_http_reply(req, c, 405, "application/json",
                       "{\"detail\":\"Method Not Allowed\"}", 31);
        return;
    }

    kve_job_create(s, c, req, route->api, route->path);
}
