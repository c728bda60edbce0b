#include <stdlib.h>
#include <string.h>

#include "base/engine_http.h"
#include "base/engine_store.h"
#include "engine_responses.h"
#include "job/engine_job.h"
#include "reply/engine_reply.h"


#define KVE_RESPONSES_PATH  "/v1/responses/"


static void
kve_responses_cancel(kve_server_t *s, kve_conn_t *c, struct evhttp_request *req,
    kve_stored_t *r)
{
    kve_buf_t   b = { 0 };
    kve_job_t  *job;

    for (job = s->jobs; job; job = job->next) {
        if (job->background && strcmp(job->id, r->id) == 0) {
            break;
        }
    }

    if (job == NULL) {
        kve_http_error(req, c, 400, KVE_RESPONSES, "invalid_request_error",
                       "Cannot cancel a response that is not running.");
        return;
    }

    kve_reply_responses_object(&b, job, "cancelled");
    kve_store_add(s, job->id, NULL, b.data);
    kve_job_end(job, 200, "aborted");

    kve_http_json(req, c, 200, &b);
}


static void
kve_responses_items(kve_conn_t *c, struct evhttp_request *req,
    const kve_stored_t *r)
{
    char       *text;
    kve_buf_t   b = { 0 };

    text = r->messages ? cJSON_PrintUnformatted(r->messages) : NULL;

    kve_buf_printf(&b, "{\"object\":\"list\",\"data\":%s}",
                   text ? text : "[]");
    free(text);
    kve_http_json(req, c, 200, &b);
}


int
kve_responses_handle(kve_server_t *s, kve_conn_t *c, struct evhttp_request *req,
    const char *path)
{
    char                   id[128];
    size_t                 len;
    kve_buf_t              b = { 0 };
    const char            *rest;
    kve_stored_t          *r;
    enum evhttp_cmd_type   method;

    if (strncmp(path, KVE_RESPONSES_PATH, sizeof(KVE_RESPONSES_PATH) - 1) != 0)
    {
        return 0;
    }

    path += sizeof(KVE_RESPONSES_PATH) - 1;
    len = strcspn(path, "/");
    rest = path + len;

    if (len >= sizeof(id)) {
        len = sizeof(id) - 1;
    }

    memcpy(id, path, len);
    id[len] = '\0';

    r = kve_store_find(s, id);

    if (r == NULL) {
        kve_http_error(req, c, 404, KVE_RESPONSES, "invalid_request_error",
                       "Response not found.");
        return 1;
    }

    method = evhttp_request_get_command(req);

    if (strcmp(rest, "/cancel") == 0 && method == EVHTTP_REQ_POST) {
        kve_responses_cancel(s, c, req, r);

    } else if (strcmp(rest, "/input_items") == 0) {
        kve_responses_items(c, req, r);

    } else if (*rest == '\0' && method == EVHTTP_REQ_DELETE) {
        kve_buf_printf(&b, "{\"id\":\"%s\",\"object\":\"response\","
                       "\"deleted\":true}", r->id);
        kve_store_drop(r);
        kve_http_json(req, c, 200, &b);

    } else if (*rest == '\0' && method == EVHTTP_REQ_GET) {
        kve_buf_str(&b, r->object);
        kve_http_json(req, c, 200, &b);

    } else {
        kve_http_reply(req, c, 405, "application/json",
                       "{\"detail\":\"Method Not Allowed\"}", 31);
    }

    return 1;
}
