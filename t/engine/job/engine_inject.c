#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/engine_http.h"
#include "job/engine_inject.h"
#include "job/engine_job.h"
#include "reply/engine_send.h"
#include "reply/engine_stream.h"


/*
 * Faults.  A header asks for one, or a share of all requests gets it.
 */


static void
kve_inject_status(kve_job_t *job, int status, const char *type,
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


int
kve_inject_choose(kve_job_t *job)
{
    const char      *s;
    kve_settings_t  *set;

    set = &job->server->settings;

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
kve_inject_break(kve_job_t *job, int reset)
{
    kve_http_doom(job->conn, reset);
    kve_job_end(job, 0, "fault");
}


static void
kve_inject_raw_headers(kve_job_t *job, size_t len)
{
    kve_buf_t  b = { 0 };

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
kve_inject_garbage(kve_job_t *job)
{
    int       i;
    uint64_t  noise[64];

    for (i = 0; i < 64; i++) {
        noise[i] = kve_random(&job->server->random) | 0x8080;
    }

    kve_http_raw(job->conn, noise, sizeof(noise));
}


/* a reply of 200 without an answer */

static void
kve_inject_body(kve_job_t *job)
{
    const char  *s, *type;

    type = job->parsed.stream ? "text/event-stream" : "application/json";

    if (job->fault == KVE_FAULT_ERROR_BODY) {
        type = "application/json";
        s = "{\"error\":{\"message\":\"EngineCore encountered an issue.\","
            "\"type\":\"InternalServerError\",\"param\":null,\"code\":500}}";

    } else if (job->fault == KVE_FAULT_EMPTY_STREAM) {
        s = job->parsed.stream ? ": nothing\n\ndata: [DONE]\n\n" : "";

    } else if (job->parsed.stream) {
        s = "data: {\"choices\":[{\"delta\":{\"content\":\n\n"
            "event\ndata\n: \ndata: [1,2\ndata: ]]}\n\ndata:\x01\x02\xff\n\n"
            "data: {\"usage\":{\"prompt_tokens\":-1,\"prompt_tokens_details\""
            ":{\"cached_tokens\":1e99}}}\n\nretry: x\n\ndata: [DONE";

    } else {
        s = "{\"id\":\"\\ud800\",\"usage\":{\"prompt_tokens\":\"many\","
            "\"prompt_tokens_details\":[[[[,\"cached_tokens\":-7}";
    }

    kve_http_reply(job->http, job->conn, 200, type, s, strlen(s));
    kve_job_end(job, 200, "fault");
}


int
kve_inject_at_start(kve_job_t *job)
{
    switch (job->fault) {

    case KVE_FAULT_STATUS:
        kve_inject_status(job, job->fault_n,
                         job->fault_n == 429 ? "rate_limit_error"
                         : job->fault_n < 500 ? "invalid_request_error"
                                              : "InternalServerError",
                         "failure on demand");
        return 1;

    case KVE_FAULT_CLOSE:
        kve_inject_break(job, 0);
        return 1;

    case KVE_FAULT_RESET:
        kve_inject_break(job, 1);
        return 1;

    case KVE_FAULT_RESET_HEADERS:
        kve_inject_raw_headers(job, 4096);
        kve_inject_break(job, 1);
        return 1;

    case KVE_FAULT_GARBAGE:
        kve_inject_garbage(job);
        kve_inject_break(job, 0);
        return 1;

    case KVE_FAULT_GARBAGE_BODY:
    case KVE_FAULT_ERROR_BODY:
    case KVE_FAULT_EMPTY_STREAM:
        kve_inject_body(job);
        return 1;

    case KVE_FAULT_ERROR_STREAM:
        if (!job->parsed.stream) {
            kve_inject_status(job, 500, "InternalServerError",
                             "failure on demand");
            return 1;
        }

        return 0;

    case KVE_FAULT_HANG:
        /* the job stays for ever */
        return 1;

    default:
        return 0;
    }
}


/* a whole reply, or half of it */

int
kve_inject_at_reply(kve_job_t *job, const kve_buf_t *body)
{
    if (job->fault != KVE_FAULT_RESET_STREAM
        && job->fault != KVE_FAULT_TRUNCATE)
    {
        return 0;
    }

    kve_inject_raw_headers(job, body->len);
    kve_http_raw(job->conn, body->data, body->len / 2);
    kve_inject_break(job, job->fault == KVE_FAULT_RESET_STREAM);

    return 1;
}


int
kve_inject_at_token(kve_job_t *job, kve_sub_t *sub, double now, double *until)
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

        kve_send_flush(job);
        kve_inject_break(job, job->fault == KVE_FAULT_RESET_STREAM);
        return 1;

    case KVE_FAULT_ERROR_STREAM:
    case KVE_FAULT_CLIENT_ERROR_STREAM:
    case KVE_FAULT_BARE_ERROR_STREAM:
        if (!job->parsed.stream || n < job->fault_n) {
            return 0;
        }

        kve_stream_error(job, job->fault == KVE_FAULT_ERROR_STREAM ? 500
                         : job->fault == KVE_FAULT_CLIENT_ERROR_STREAM ? 400
                                                                       : 0,
                         "EngineCore encountered an issue.");
        kve_send_flush(job);
        kve_send_end(job);
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
