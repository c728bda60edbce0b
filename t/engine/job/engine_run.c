#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/engine_http.h"
#include "base/engine_store.h"
#include "job/engine_inject.h"
#include "job/engine_job.h"
#include "job/engine_run.h"
#include "metrics/engine_metrics.h"
#include "reply/engine_meet.h"
#include "reply/engine_reply.h"
#include "reply/engine_send.h"
#include "reply/engine_stream.h"
#include "reply/engine_whole.h"


/*
 * From the model's time to the sockets: events, due tokens, ends.
 */


/* stores a Responses request, so that it can be continued */

static void
kve_job_store(kve_job_t *job)
{
    cJSON       *messages, *m;
    kve_buf_t    b = { 0 };
    kve_sub_t   *sub;
    const char  *role;
    kve_buf_t    object = { 0 };

    if (job->parsed.api != KVE_RESPONSES
        || !kve_json_true(job->parsed.body, "store", 1))
    {
        return;
    }

    kve_reply_responses_object(&object, job, "completed");

    messages = job->parsed.messages;
    job->parsed.messages = NULL;
    sub = &job->subs[0];

    role = kve_json_str(messages->child, "role");

    if (role && strcmp(role, "system") == 0
        && kve_json_str(job->parsed.body, "instructions"))
    {
        cJSON_DeleteItemFromArray(messages, 0);
    }

    m = cJSON_CreateObject();
    cJSON_AddStringToObject(m, "role", "assistant");

    kve_reply_part(&b, sub, KVE_PART_CONTENT);
    if (b.len) {
        cJSON_AddStringToObject(m, "content", b.data);
    }

    kve_buf_free(&b);
    cJSON_AddItemToArray(messages, m);
    kve_store_add(job->server, job->id, messages, object.data);
    kve_buf_free(&object);
}


static void
kve_job_finish(kve_job_t *job)
{
    int         i;
    kve_buf_t   b = { 0 };
    const char *finish;

    for (i = 0; i < job->nsubs; i++) {
        kve_metrics_done(job->server, &job->subs[i]);
        finish = job->subs[i].reply.finish;

        if (strcmp(finish, "length") == 0) {
            job->server->counters.lengths++;

        } else if (strcmp(finish, "stop") == 0) {
            job->server->counters.stops++;

        } else {
            job->server->counters.tool_calls++;
        }
    }

    if (job->background) {
        kve_job_store(job);
        kve_job_end(job, 200, "done");
        return;
    }

    if (job->parsed.stream) {
        kve_stream_close(job);
        kve_send_flush(job);
        kve_job_store(job);
        kve_send_end(job);
        kve_job_end(job, 200, "done");
        return;
    }

    kve_reply_body(job, &b);
    kve_job_store(job);

    if (kve_inject_at_reply(job, &b)) {
        kve_buf_free(&b);
        return;
    }

    kve_http_json(job->http, job->conn, 200, &b);
    kve_job_end(job, 200, "done");
}


static double
kve_sub_time(kve_sub_t *sub, uint32_t n)
{
    double  t;

    if (sub->times) {
        return sub->times[n - sub->times_from];
    }

    kve_req_times(sub->job->server->model, &sub->req, n, 1, &t);

    return t;
}


/*
 * Sends the tokens that are due; lowers *due to the time of the next one.
 * Returns non-zero if the job has ended.
 */

static int
kve_sub_pump(kve_sub_t *sub, double now, double real, double *due)
{
    int            rc;
    double         t, until, speed;
    uint32_t       have;
    kve_job_t     *job;
    kve_server_t  *s;

    job = sub->job;
    s = job->server;
    speed = s->engine->opt.speed;
    have = kve_req_tokens(s->rank[sub->job->rank], &sub->req);

    while (sub->sent < have) {
        t = kve_sub_time(sub, sub->sent + 1);

        if (t > now) {
            *due = fmin(*due, t);
            return 0;
        }

        if (job->fault) {
            rc = kve_inject_at_token(job, sub, real, &until);

            if (rc > 0) {
                return 1;
            }

            if (rc < 0) {
                *due = fmin(*due, now + (until - real) * speed);
                return 0;
            }
        }

        if (job->first == 0) {
            job->first = real;
            kve_meet_computed(job);
        }

        if (job->parsed.stream) {
            kve_job_headers(job);
            job->begun = 1;

            if (!sub->begun) {
                kve_stream_first(job, sub);
                sub->begun = 1;
            }

            kve_stream_token(job, sub, sub->sent + 1);

            t = (now - t) / speed;
            s->counters.tokens_sent++;
            s->counters.drift_n++;
            s->counters.drift_sum += t;
            s->counters.drift_over += t > 0.005;
            s->counters.drift_max = fmax(s->counters.drift_max, t);
        }

        if (sub->sent && sub->last > 0) {
            kve_hist_add(&s->itl, real - sub->last);
        }

        sub->last = real;
        sub->sent++;
    }

    if (sub->done && sub->sent == sub->req.output_tokens) {
        sub->finished = 1;

        if (job->parsed.stream) {
            kve_stream_finish(job, sub);
        }
    }

    return 0;
}


static void
kve_job_pump(kve_job_t *job, double now, double real, double *due)
{
    int  i, left;

    left = 0;

    for (i = 0; i < job->nsubs; i++) {

        if (job->subs[i].failed) {

            if (job->started) {
                kve_stream_error(job, 500, "The request was aborted.");
                kve_send_flush(job);
                kve_send_end(job);
                kve_job_end(job, 200, "error");

            } else {
                kve_job_error(job, 400, "BadRequestError",
                              "The prompt does not fit the KV cache.");
            }

            return;
        }

        if (job->subs[i].finished) {
            continue;
        }

        if (kve_sub_pump(&job->subs[i], now, real, due)) {
            return;
        }

        left += !job->subs[i].finished;
    }

    if (left == 0) {
        kve_job_finish(job);
        return;
    }

    kve_send_flush(job);
}


/* reads the model's events */

static void
kve_server_events(kve_server_t *s, const kve_event_t *ev, size_t n)
{
    uint32_t    left;
    kve_sub_t  *sub;

    for ( /* void */ ; n; n--, ev++) {
        sub = ev->req->data;

        switch (ev->type) {

        case KVE_ADMITTED:
            s->counters.prompt_tokens += ev->req->prompt_tokens;
            s->counters.cached_tokens += ev->req->cached_tokens;

            break;

        case KVE_DONE:
            sub->done = 1;

            /* the model forgets the times, and some tokens are not due yet */

            left = ev->req->output_tokens - sub->sent;
            sub->times_from = sub->sent + 1;
            sub->times = malloc((left + 1) * sizeof(double));
            if (sub->times == NULL) {
                abort();
            }

            kve_req_times(s->rank[sub->job->rank], ev->req, sub->times_from, left,
                          sub->times);
            break;

        case KVE_ABORTED:
            sub->failed = 1;
            break;

        default:
            break;
        }
    }
}


void
kve_server_run(kve_server_t *s, double now)
{
    int                 i;
    size_t              n;
    double              due, real;
    kve_job_t          *job, *next;
    const kve_event_t  *ev;

    for (i = 0; i < s->ranks; i++) {
        n = kve_replica_advance(s->rank[i], now, &ev);
        kve_server_events(s, ev, n);
    }

    due = INFINITY;
    real = kve_now();

    for (job = s->jobs; job; job = next) {
        next = job->next;

        if (job->submitted) {
            kve_job_pump(job, now, real, &due);
        }
    }

    s->wake = due;

    for (i = 0; i < s->ranks; i++) {
        s->wake = fmin(s->wake, kve_replica_next_step(s->rank[i]));
    }
}
