#include <stdlib.h>
#include <string.h>

#include "base/engine_http.h"
#include "job/engine_job.h"
#include "reply/engine_meet.h"
#include "reply/engine_reply.h"
#include "reply/engine_stream.h"


/*
 * The life of a request.  Its sequences are the model's requests.  While the
 * model's events are read, results are only recorded; they are handled after
 * all events, because handling can end other requests.
 */


static void
kve_job_log(kve_job_t *job, int status, const char *how)
{
    double            now;
    kve_server_t     *s;
    kve_log_entry_t  *e;

    s = job->server;

    if (s->engine->opt.request_log == 0) {
        return;
    }

    e = &s->log[s->nlog++ % s->engine->opt.request_log];
    free(e->id);

    now = kve_now();

    e->arrived = kve_wall() - (now - job->arrived);
    e->id = job->request_id ? strdup(job->request_id) : NULL;
    e->path = job->path;
    e->body_bytes = job->body_bytes;
    e->prompt_tokens = job->submitted ? kve_reply_prompt_tokens(job) : 0;
    e->cached_tokens = job->submitted ? kve_reply_cached_tokens(job) : 0;
    e->output_tokens = job->submitted ? kve_reply_output_tokens(job) : 0;
    e->ttft = job->first > 0 ? job->first - job->arrived : -1;
    e->e2e = now - job->arrived;
    e->status = status;
    e->end = how;
}


void
kve_job_end(kve_job_t *job, int status, const char *how)
{
    int            i;
    double         now;
    kve_sub_t     *sub;
    kve_server_t  *s;

    s = job->server;

    kve_meet_end(job);

    if (strcmp(how, "done") == 0) {
        s->counters.completed++;

    } else if (strcmp(how, "aborted") == 0) {
        s->counters.aborted++;

    } else {
        s->counters.failed++;
    }

    kve_job_log(job, status, how);

    now = kve_virtual(s->engine);

    for (i = 0; i < job->nsubs; i++) {
        sub = &job->subs[i];

        if (job->submitted && !sub->done && !sub->failed) {
            kve_replica_abort(s->rank[job->rank], &sub->req, now);
            s->wake = now;
        }

        kve_reply_free(&sub->reply);
        free(sub->hashes);
        free(sub->times);
    }

    if (s->wake <= now && !s->engine->exiting) {
        kve_engine_wake(s->engine);
    }

    if (job->prev) {
        job->prev->next = job->next;

    } else {
        s->jobs = job->next;
    }

    if (job->next) {
        job->next->prev = job->prev;
    }

    if (job->conn) {
        job->conn->job = NULL;
    }

    s->open_requests--;
    s->open_streams -= job->is_stream;

    if (job->timer) {
        event_free(job->timer);
    }

    kve_parsed_free(&job->parsed);
    kve_buf_free(&job->out);
    kve_buf_free(&job->head);
    kve_buf_free(&job->tail);
    free(job->subs);
    free(job->request_id);
    free(job->session);
    free(job);
}


/* the connection is closed, by the client or by us */

void
kve_job_gone(kve_job_t *job, int killed)
{
    job->conn = NULL;
    kve_job_end(job, 499, killed ? "killed" : "aborted");
}


void
kve_job_error(kve_job_t *job, int status, const char *type,
    const char *message)
{
    if (!job->background) {
        kve_http_error(job->http, job->conn, status, job->parsed.api, type,
                       message);
    }

    kve_job_end(job, status, "error");
}


void
kve_job_headers(kve_job_t *job)
{
    struct evkeyvalq  *h;

    if (job->started) {
        return;
    }

    h = evhttp_request_get_output_headers(job->http);

    evhttp_add_header(h, "Content-Type",
                      job->server->engine->opt.dialect <= KVE_SGLANG
                      ? "text/event-stream; charset=utf-8"
                      : "text/event-stream");
    evhttp_add_header(h, "Cache-Control", "no-cache");
    kve_http_headers(job->http, job->conn);

    evhttp_send_reply_start(job->http, 200, NULL);
    job->started = 1;

    kve_stream_open(job);
}


/* ends jobs without a connection */

void
kve_jobs_background(kve_server_t *s)
{
    kve_job_t  *job, *next;

    for (job = s->jobs; job; job = next) {
        next = job->next;

        if (job->background) {
            kve_job_end(job, 499, "killed");
        }
    }
}
