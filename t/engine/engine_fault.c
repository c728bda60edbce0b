#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"


/*
 * Misbehaviour.  A request asks for it in a header, or it befalls a share of
 * all requests.  A fault is a name and perhaps "=" and a number: a status, or
 * how many tokens go out before it, or milliseconds.
 */

typedef struct {
    const char   *name;
    kve_fault_e   fault;
    int           n;
} kve_fault_name_t;


static const kve_fault_name_t  kve_fault_names[] = {
    { "none", KVE_FAULT_NONE, 0 },
    { "status", KVE_FAULT_STATUS, 500 },
    { "close-before-headers", KVE_FAULT_CLOSE, 0 },
    { "reset-before-headers", KVE_FAULT_RESET, 0 },
    { "reset-after-headers", KVE_FAULT_RESET_HEADERS, 0 },
    { "reset-mid-stream", KVE_FAULT_RESET_STREAM, 3 },
    { "truncate", KVE_FAULT_TRUNCATE, 3 },
    { "garbage", KVE_FAULT_GARBAGE, 0 },
    { "garbage-body", KVE_FAULT_GARBAGE_BODY, 0 },
    { "hang", KVE_FAULT_HANG, 0 },
    { "stall", KVE_FAULT_STALL, 3 },
    { "slow", KVE_FAULT_SLOW, 100 },
    { "error-in-stream", KVE_FAULT_ERROR_STREAM, 3 },
    { NULL, KVE_FAULT_INVALID, 0 }
};


typedef struct {
    const char   *name;
    int           status;
    const char   *type;
    const char   *message;
} kve_fail_type_t;


static const kve_fail_type_t  kve_fail_types[] = {
    { "rate_limit", 429, "rate_limit_error",
      "Rate limit reached. Please try again later." },
    { "invalid_api_key", 401, "invalid_request_error",
      "Incorrect API key provided." },
    { "context_length", 400, "invalid_request_error",
      "This model's maximum context length is exceeded." },
    { "server_error", 503, "server_error",
      "The server is overloaded or not ready yet." },
    { "invalid_request", 400, "invalid_request_error",
      "Invalid request: missing required parameter." },
    { "model_not_found", 404, "NotFoundError",
      "The model does not exist." },
    { NULL, 0, NULL, NULL }
};


kve_fault_e
kve_fault_parse(const char *s, int *n)
{
    size_t                   len;
    const char              *eq;
    const kve_fault_name_t  *f;

    eq = strchr(s, '=');
    len = eq ? (size_t) (eq - s) : strlen(s);

    for (f = kve_fault_names; f->name; f++) {
        if (strlen(f->name) == len && strncmp(f->name, s, len) == 0) {
            break;
        }
    }

    *n = eq ? atoi(eq + 1) : f->n;

    if (f->fault == KVE_FAULT_STATUS && (*n < 200 || *n > 599)) {
        return KVE_FAULT_INVALID;
    }

    return f->fault;
}


const char *
kve_fault_type_name(int i)
{
    return kve_fail_types[i].name;
}


int
kve_fault_types(const cJSON *list, unsigned *types)
{
    int           i;
    unsigned      bits;
    const cJSON  *item;

    bits = 0;

    cJSON_ArrayForEach(item, list) {

        for (i = 0; kve_fail_types[i].name; i++) {
            if (cJSON_IsString(item)
                && strcmp(item->valuestring, kve_fail_types[i].name) == 0)
            {
                bits |= 1u << i;
                break;
            }
        }

        if (kve_fail_types[i].name == NULL) {
            return -1;
        }
    }

    *types = bits;

    return 0;
}


static void
kve_fault_status(kve_job_t *job, int status, const char *type,
    const char *message)
{
    char             s[32];
    double           after;
    const char      *header;
    kve_settings_t  *set;

    set = &job->server->settings;
    header = kve_http_header(job->http, "X-Engine-Retry-After");
    after = header ? atof(header) : set->retry_after;

    if (after >= 0) {
        snprintf(s, sizeof(s), "%g", after);
        evhttp_add_header(evhttp_request_get_output_headers(job->http),
                          "Retry-After", s);
    }

    kve_http_error(job->http, job->conn, status, job->parsed.api, type,
                   message);
    kve_job_end(job, status, "fault");
}


/* one of llm-d-inference-sim's failures, each with its own status */

static int
kve_fault_fail(kve_job_t *job)
{
    int                     i, n, pick;
    kve_settings_t         *set;
    const kve_fail_type_t  *fail;

    set = &job->server->settings;

    if (set->fail_status) {
        job->fault = KVE_FAULT_STATUS;
        job->fault_n = set->fail_status;
        return 0;
    }

    for (i = 0, n = 0; kve_fail_types[i].name; i++) {
        n += set->fail_types == 0 || (set->fail_types >> i & 1);
    }

    pick = kve_random(&job->server->random) % n;

    for (i = 0; ; i++) {
        if ((set->fail_types == 0 || (set->fail_types >> i & 1))
            && pick-- == 0)
        {
            break;
        }
    }

    fail = &kve_fail_types[i];
    job->server->counters.faults++;
    kve_fault_status(job, fail->status, fail->type, fail->message);

    return 1;
}


int
kve_fault_choose(kve_job_t *job)
{
    const char      *s;
    kve_settings_t  *set;

    set = &job->server->settings;

    s = kve_http_header(job->http, "X-Return-Error");
    if (s) {
        job->fault_n = atoi(s);
        job->fault = job->fault_n < 200 || job->fault_n > 599
                     ? KVE_FAULT_INVALID : KVE_FAULT_STATUS;
    }

    s = kve_http_header(job->http, "X-Engine-Fault");
    if (s) {
        job->fault = kve_fault_parse(s, &job->fault_n);

        if (job->fault == KVE_FAULT_NONE) {
            return 0;
        }
    }

    if (job->fault == KVE_FAULT_INVALID) {
        kve_http_error(job->http, job->conn, 400, job->parsed.api,
                       "invalid_request_error", "no such fault");
        kve_job_end(job, 400, "error");
        return 1;
    }

    if (job->fault == KVE_FAULT_NONE && set->fail_rate > 0
        && kve_random_unit(&job->server->random) < set->fail_rate
        && kve_fault_fail(job))
    {
        return 1;
    }

    if (job->fault == KVE_FAULT_NONE && set->fault[0] && set->fault_count
        && kve_random_unit(&job->server->random) < set->fault_rate)
    {
        job->fault = kve_fault_parse(set->fault, &job->fault_n);

        if (set->fault_count > 0) {
            set->fault_count--;
        }
    }

    job->server->counters.faults += job->fault != KVE_FAULT_NONE;

    return 0;
}


static void
kve_fault_break(kve_job_t *job, int reset)
{
    kve_http_doom(job->conn, reset);
    kve_job_end(job, 0, "fault");
}


static void
kve_fault_raw_headers(kve_job_t *job, size_t len)
{
    kve_buf_t  b;

    memset(&b, 0, sizeof(kve_buf_t));

    kve_buf_str(&b, "HTTP/1.1 200 OK\r\n");

    if (job->parsed.stream) {
        kve_buf_str(&b, "Content-Type: text/event-stream\r\n"
                        "Transfer-Encoding: chunked\r\n\r\n");
    } else {
        kve_buf_printf(&b, "Content-Type: application/json\r\n"
                       "Content-Length: %zu\r\n\r\n", len);
    }

    kve_http_raw(job->conn, b.data, b.len);
    kve_buf_free(&b);
}


static void
kve_fault_garbage(kve_job_t *job)
{
    int       i;
    uint64_t  noise[64];

    for (i = 0; i < 64; i++) {
        noise[i] = kve_random(&job->server->random) | 0x8080;
    }

    kve_http_raw(job->conn, noise, sizeof(noise));
}


static void
kve_fault_garbage_body(kve_job_t *job)
{
    const char  *s;

    if (job->parsed.stream) {
        s = "data: {\"choices\":[{\"delta\":{\"content\":\n\n"
            "event\ndata\n: \ndata: [1,2\ndata: ]]}\n\ndata:\x01\x02\xff\n\n"
            "data: {\"usage\":{\"prompt_tokens\":-1,\"prompt_tokens_details\""
            ":{\"cached_tokens\":1e99}}}\n\nretry: x\n\ndata: [DONE";
        kve_http_reply(job->http, job->conn, 200, "text/event-stream", s,
                       strlen(s));
    } else {
        s = "{\"id\":\"\\ud800\",\"usage\":{\"prompt_tokens\":\"many\","
            "\"prompt_tokens_details\":[[[[,\"cached_tokens\":-7}";
        kve_http_reply(job->http, job->conn, 200, "application/json", s,
                       strlen(s));
    }

    kve_job_end(job, 200, "fault");
}


int
kve_fault_at_start(kve_job_t *job)
{
    switch (job->fault) {

    case KVE_FAULT_STATUS:
        kve_fault_status(job, job->fault_n,
                         job->fault_n == 429 ? "rate_limit_error"
                         : job->fault_n < 500 ? "invalid_request_error"
                                              : "InternalServerError",
                         "failure on demand");
        return 1;

    case KVE_FAULT_CLOSE:
        kve_fault_break(job, 0);
        return 1;

    case KVE_FAULT_RESET:
        kve_fault_break(job, 1);
        return 1;

    case KVE_FAULT_RESET_HEADERS:
        kve_fault_raw_headers(job, 4096);
        kve_fault_break(job, 1);
        return 1;

    case KVE_FAULT_GARBAGE:
        kve_fault_garbage(job);
        kve_fault_break(job, 0);
        return 1;

    case KVE_FAULT_GARBAGE_BODY:
        kve_fault_garbage_body(job);
        return 1;

    case KVE_FAULT_ERROR_STREAM:
        if (!job->parsed.stream) {
            kve_fault_status(job, 500, "InternalServerError",
                             "failure on demand");
            return 1;
        }

        return 0;

    case KVE_FAULT_HANG:
        /* the job stays, and nobody ever looks at it */
        return 1;

    default:
        return 0;
    }
}


/* a whole reply, or half of it */

int
kve_fault_at_reply(kve_job_t *job, const kve_buf_t *body)
{
    if (job->fault != KVE_FAULT_RESET_STREAM
        && job->fault != KVE_FAULT_TRUNCATE)
    {
        return 0;
    }

    kve_fault_raw_headers(job, body->len);
    kve_http_raw(job->conn, body->data, body->len / 2);
    kve_fault_break(job, job->fault == KVE_FAULT_RESET_STREAM);

    return 1;
}


int
kve_fault_at_token(kve_job_t *job, kve_sub_t *sub, double now, double *until)
{
    int     n;
    double  ms;

    n = (int) sub->sent;
    ms = job->stall_ms;

    switch (job->fault) {

    case KVE_FAULT_RESET_STREAM:
    case KVE_FAULT_TRUNCATE:
        if (!job->parsed.stream || n < job->fault_n) {
            return 0;
        }

        kve_stream_flush(job);
        kve_fault_break(job, job->fault == KVE_FAULT_RESET_STREAM);
        return 1;

    case KVE_FAULT_ERROR_STREAM:
        if (n < job->fault_n) {
            return 0;
        }

        kve_stream_error(job, "EngineCore encountered an issue.");
        kve_stream_flush(job);
        kve_job_send_end(job);
        kve_job_end(job, 200, "fault");
        return 1;

    case KVE_FAULT_STALL:
        if (n < job->fault_n || job->stalled < 0) {
            return 0;
        }

        if (job->stalled == 0) {
            job->stalled = now;
        }

        if (ms > 0 && now >= job->stalled + ms / 1000) {
            job->stalled = -1;
            return 0;
        }

        *until = ms > 0 ? job->stalled + ms / 1000 : INFINITY;
        return -1;

    case KVE_FAULT_SLOW:
        if (n == 0 || now >= sub->last + job->fault_n / 1000.0) {
            return 0;
        }

        *until = sub->last + job->fault_n / 1000.0;
        return -1;

    default:
        return 0;
    }
}
