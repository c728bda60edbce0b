#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/engine_http.h"
#include "base/engine_store.h"
#include "body/engine_parse.h"
#include "job/engine_inject.h"
#include "job/engine_job.h"
#include "job/engine_start.h"
#include "job/engine_sub.h"
#include "reply/engine_meet.h"
#include "reply/engine_reply.h"
#include "reply/engine_send.h"
#include "reply/engine_transfer.h"


/* s between two checks for the other request of a meeting */
#define KVE_JOB_MEET  0.002


static void kve_job_start(kve_job_t *job);


static int64_t
kve_job_header(kve_job_t *job, const char *name, int64_t missing)
{
    const char  *s;

    s = kve_http_header(job->http, name);

    return s ? strtoll(s, NULL, 10) : missing;
}


/*
 * Returns the rank that a header names, else the one with the least work, by
 * vLLM's measure.  vLLM and SGLang have the same header.  A header that is not
 * a number is ignored, as in vLLM, and so is any header if there are no ranks.
 */

static int
kve_job_rank(kve_job_t *job)
{
    int            i, rank;
    char          *end, message[96];
    uint32_t       load, least;
    const char    *header;
    kve_stats_t    st;
    kve_server_t  *s;

    s = job->server;
    header = kve_http_header(job->http, "X-data-parallel-rank");

    if (header && *header && s->engine->opt.dialect <= KVE_SGLANG) {
        rank = (int) strtol(header, &end, 10);

        if (*end == '\0' && (rank < 0 || rank >= s->ranks)) {
            snprintf(message, sizeof(message), "data_parallel_rank %d is out "
                     "of range [0, %d).", rank, s->ranks);
            kve_job_error(job, 400, "BadRequestError", message);
            return -1;
        }

        if (*end == '\0') {
            job->rank = rank;
            return 0;
        }
    }

    for (i = 0, least = UINT32_MAX; i < s->ranks; i++) {
        rank = (s->turn + i) % s->ranks;
        kve_replica_stats(s->rank[rank], &st);
        load = 4 * st.waiting + st.running;

        if (load < least) {
            least = load;
            job->rank = rank;
        }
    }

    s->turn = (job->rank + 1) % s->ranks;

    return 0;
}


static void
kve_job_timer(evutil_socket_t fd, short what, void *data)
{
    kve_job_t  *job;

    (void) fd;
    (void) what;

    job = data;

    event_free(job->timer);
    job->timer = NULL;
    kve_job_start(job);
}


static void
kve_job_timer_set(kve_job_t *job, double seconds, short flags)
{
    struct timeval  tv;

    tv.tv_sec = (time_t) seconds;
    tv.tv_usec = (suseconds_t) ((seconds - tv.tv_sec) * 1e6);

    job->timer = event_new(job->server->engine->base, -1, flags,
                           kve_job_timer, job);
    event_add(job->timer, &tv);
}


/* it continues without its client, who can read it later */

static void
kve_job_background(kve_job_t *job)
{
    kve_buf_t               b = { 0 };
    kve_conn_t             *c;
    struct evhttp_request  *req;

    kve_reply_responses_object(&b, job, "queued");
    kve_store_add(job->server, job->id, NULL, b.data);

    c = job->conn;
    req = job->http;

    c->job = NULL;
    job->conn = NULL;
    job->http = NULL;
    job->background = 1;
    job->fault = KVE_FAULT_NONE;

    kve_http_json(req, c, 200, &b);
}


static const char *
kve_job_prefix(kve_job_t *job)
{
    switch (job->parsed.api) {

    case KVE_COMPLETIONS:
        return "cmpl-";

    case KVE_RESPONSES:
        return "resp_";

    case KVE_MESSAGES:
        return "msg_";

    case KVE_EMBEDDINGS:
        return "embd-";

    default:
        return "chatcmpl-";
    }
}


void
kve_job_create(kve_server_t *s, kve_conn_t *c, struct evhttp_request *req,
    kve_api_e api, const char *path)
{
    size_t            len;
    double            delay;
    kve_job_t        *job;
    const char       *v;
    struct evbuffer  *in;

    job = calloc(1, sizeof(kve_job_t));
    if (job == NULL) {
        abort();
    }

    job->server = s;
    job->conn = c;
    job->http = req;
    job->path = path;
    job->arrived = kve_now();
    job->created = (time_t) kve_wall();

    c->job = job;
    c->gone = kve_job_gone;
    job->next = s->jobs;

    if (job->next) {
        job->next->prev = job;
    }

    s->jobs = job;
    s->open_requests++;
    s->counters.generate_requests++;

    v = kve_http_header(req, "X-Request-Id");
    job->request_id = v ? strdup(v) : NULL;

    job->want_output = kve_job_header(job, "X-Engine-Output-Tokens", -1);
    job->want_reasoning = kve_job_header(job, "X-Engine-Reasoning-Tokens",
                                         -1);
    job->want_tool = kve_job_header(job, "X-Engine-Tool-Call", 0);
    job->stall_ms = kve_job_header(job, "X-Engine-Stall-Ms",
                                   s->settings.stall_ms);

    in = evhttp_request_get_input_buffer(req);
    len = evbuffer_get_length(in);
    job->body_bytes = len;

    kve_parse(s, api, len ? (char *) evbuffer_pullup(in, -1) : "", len,
              &job->parsed);
    evbuffer_drain(in, len);

    snprintf(job->id, sizeof(job->id), "%s%016llx%016llx",
             kve_job_prefix(job), (unsigned long long) kve_random(&s->random),
             (unsigned long long) kve_random(&s->random));

    v = kve_json_str(job->parsed.body, "session_id");
    v = v ? v : kve_http_header(req, "X-Session-ID");
    job->session = v ? strdup(v) : NULL;

    delay = kve_job_header(job, "X-Engine-Delay-Ms", s->settings.delay_ms);

    if (delay > 0) {
        kve_job_timer_set(job, delay / 1000, 0);
        return;
    }

    kve_job_start(job);
}


static int
kve_job_check(kve_job_t *job)
{
    int             i;
    char            message[256];
    int64_t         prompt, max;
    const char     *error;
    kve_stats_t     st;
    kve_parsed_t   *p;
    kve_options_t  *opt;

    p = &job->parsed;
    opt = &job->server->engine->opt;

    if (p->status) {
        kve_job_error(job, p->status, p->error_type, p->error);
        return -1;
    }

    job->lora = -1;

    for (i = 0; i < opt->nloras; i++) {
        if (strcmp(p->model, opt->lora[i]) == 0) {
            job->lora = i;
        }
    }

    for (i = 0; i < opt->served.n; i++) {
        if (strcmp(p->model, opt->served.name[i]) == 0) {
            break;
        }
    }

    if (i == opt->served.n && job->lora < 0
        && opt->dialect != KVE_LLAMACPP && opt->dialect != KVE_SGLANG
        && opt->dialect != KVE_TGI)
    {
        snprintf(message, sizeof(message),
                 "The model `%.200s` does not exist.", p->model);
        kve_job_error(job, 404, "NotFoundError", message);
        return -1;
    }

    for (i = 0; i < p->nprompts; i++) {
        prompt = kve_tokens(opt, p->prompts[i].len);
        max = p->max_tokens > 0 ? p->max_tokens : 1;

        if (prompt + max > opt->max_model_len) {
            snprintf(message, sizeof(message),
                     "This model's maximum context length is %lld tokens. "
                     "However, you requested %lld output tokens and your "
                     "prompt contains %lld input tokens.",
                     (long long) opt->max_model_len, (long long) max,
                     (long long) prompt);
            kve_job_error(job, 400, opt->dialect == KVE_LLAMACPP
                                    ? "exceed_context_size_error"
                                    : "BadRequestError", message);
            return -1;
        }
    }

    error = kve_meet_start(job);

    if (error == NULL && job->meet == NULL && !job->corrupt) {
        error = kve_transfer_start(job);
    }

    if (error) {
        kve_job_error(job, 400, "BadRequestError", error);
        return -1;
    }

    if (kve_job_rank(job) != 0) {
        return -1;
    }

    kve_server_stats(job->server, &st);

    /* vLLM sends no Retry-After */

    if (opt->max_queued >= 0
        && st.running + st.waiting + (uint32_t) job->parsed.n
           > (uint32_t) opt->max_queued)
    {
        job->server->counters.rejected++;
        kve_job_error(job, 503, "Service Unavailable",
                      "The engine is currently busy and cannot accept new "
                      "requests. Please try again later.");
        return -1;
    }

    return 0;
}


static void
kve_job_subs(kve_job_t *job)
{
    int            i;
    kve_parsed_t  *p;

    p = &job->parsed;

    if (p->api == KVE_RESPONSES || p->api == KVE_MESSAGES) {
        p->n = 1;
    }

    job->nsubs = p->nprompts * p->n;

    job->subs = calloc(job->nsubs, sizeof(kve_sub_t));
    if (job->subs == NULL) {
        abort();
    }

    for (i = 0; i < job->nsubs; i++) {
        kve_sub_init(job, i, &p->prompts[i / p->n]);
    }
}


static void
kve_job_start(kve_job_t *job)
{
    int              i;
    double           now, wait;
    kve_server_t    *s;
    kve_parsed_t    *p;
    kve_settings_t  *set;

    s = job->server;
    p = &job->parsed;
    set = &s->settings;

    if (!job->checked
        && (kve_inject_choose(job) || kve_inject_at_start(job)
            || kve_job_check(job) != 0))
    {
        return;
    }

    job->checked = 1;

    if (job->subs == NULL) {

        if (kve_meet_waits(job)) {
            kve_job_timer_set(job, KVE_JOB_MEET, 0);
            return;
        }

        kve_job_subs(job);
    }

    wait = kve_transfer_wait(job);

    if (wait > 0) {
        kve_job_timer_set(job, wait, 0);
        return;
    }

    now = kve_virtual(s->engine);
    job->submitted = 1;

    for (i = 0; i < job->nsubs; i++) {
        kve_replica_submit(s->rank[job->rank], &job->subs[i].req, now);
    }

    for (i = 0; i < p->nprompts; i++) {
        kve_buf_free(&p->prompts[i]);
    }

    if (p->api == KVE_EMBEDDINGS) {
        p->stream = 0;
    }

    if (p->stream) {
        job->is_stream = 1;
        s->open_streams++;

        if (!set->first_token_headers) {
            kve_job_headers(job);
        }
    }

    s->wake = now;
    kve_engine_wake(s->engine);

    if (p->background) {
        kve_job_background(job);
    }
}
