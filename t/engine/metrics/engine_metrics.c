#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/engine_http.h"
#include "metrics/engine_dialects.h"
#include "metrics/engine_metrics.h"


/*
 * GET /metrics, with faults that a router must survive.
 */


static const double  kve_ttft_le[] = {
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0,
    2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0
};

static const double  kve_itl_le[] = {
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5,
    5.0, 7.5, 10.0, 20.0, 40.0, 80.0
};

static const double  kve_e2e_le[] = {
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0,
    50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0
};


#define kve_le(a)  a, sizeof(a) / sizeof(a[0])


void
kve_metrics_init(kve_server_t *s)
{
    kve_hist_init(&s->ttft, kve_le(kve_ttft_le));
    kve_hist_init(&s->itl, kve_le(kve_itl_le));
    kve_hist_init(&s->e2e, kve_le(kve_e2e_le));
    kve_hist_init(&s->queue, kve_le(kve_e2e_le));
    kve_hist_init(&s->prefill, kve_le(kve_e2e_le));
    kve_hist_init(&s->decode, kve_le(kve_e2e_le));
}


void
kve_metrics_done(kve_server_t *s, kve_sub_t *sub)
{
    double      real, speed;
    kve_req_t  *req;

    real = kve_now();
    speed = s->engine->opt.speed;
    req = &sub->req;

    kve_hist_add(&s->ttft, sub->job->first - sub->job->arrived);
    kve_hist_add(&s->e2e, real - sub->job->arrived);
    kve_hist_add(&s->queue, (req->admit_time - req->submit_time) / speed);
    kve_hist_add(&s->prefill, (req->first_time - req->admit_time) / speed);
    kve_hist_add(&s->decode, (req->done_time - req->first_time) / speed);
}


static void kve_metrics_rank(kve_server_t *s, kve_buf_t *b, int rank);


static void
kve_metrics_write(kve_server_t *s, kve_buf_t *b)
{
    int  i;

    for (i = 0; i < s->ranks; i++) {
        kve_metrics_rank(s, b, i);
    }
}


/* real ones group the series of a name; here the order does not matter */

static void
kve_metrics_rank(kve_server_t *s, kve_buf_t *b, int rank)
{
    char            early[64];
    kve_scrape_t    m = { 0 };
    kve_options_t  *opt;

    opt = &s->engine->opt;

    m.b = b;
    m.s = s;
    m.engines = 1;
    m.early = "";
    m.rank = rank;

    kve_replica_stats(s->rank[rank], &m.st);

    m.running = m.st.running;
    m.waiting = m.st.waiting;
    m.kv_usage = m.st.kv_usage;

    switch (opt->dialect) {

    case KVE_VLLM:
    case KVE_VLLM_OLD:
        m.engines = opt->dialect == KVE_VLLM ? opt->metrics_engines : 1;
        m.created = 1;
        m.ranked = opt->dialect == KVE_VLLM;
        snprintf(m.late, sizeof(m.late), "model_name=\"%.400s\"",
                 opt->model);
        kve_metrics_vllm(&m);
        break;

    case KVE_SGLANG:
        snprintf(early, sizeof(early), "engine_type=\"unified\"");

        if (s->ranks > 1) {
            snprintf(early, sizeof(early),
                     "dp_rank=\"%d\",engine_type=\"unified\"", rank);
        }

        m.early = early;
        snprintf(m.late, sizeof(m.late), "model_name=\"%.400s\","
                 "pp_rank=\"0\",tp_rank=\"0\"", opt->model);
        kve_metrics_sglang(&m);
        break;

    case KVE_TRTLLM:
        m.early = "engine_type=\"trtllm\"";
        snprintf(m.late, sizeof(m.late), "model_name=\"%.400s\"",
                 opt->model);
        kve_metrics_trtllm(&m);
        break;

    case KVE_LLAMACPP:
        kve_metrics_llamacpp(&m);
        break;

    case KVE_TGI:
        kve_metrics_tgi(&m);
        break;
    }
}


/* TensorRT-LLM's own /metrics: statistics of the steps since the last read */

static void
kve_metrics_iterations(kve_server_t *s, kve_buf_t *b)
{
    kve_stats_t          st;
    const kve_config_t  *cf;

    cf = kve_replica_config(s->model);
    kve_replica_stats(s->model, &st);

    if (st.steps == s->steps_read) {
        kve_buf_str(b, "[]");
        return;
    }

    s->steps_read = st.steps;

    kve_buf_printf(b, "[{\"iter\":%llu,\"numActiveRequests\":%u,"
                   "\"numQueuedRequests\":%u,\"kvCacheStats\":{"
                   "\"maxNumBlocks\":%u,\"freeNumBlocks\":%u,"
                   "\"usedNumBlocks\":%u,\"tokensPerBlock\":%u,"
                   "\"reusedBlocks\":%llu,\"missedBlocks\":%llu,"
                   "\"cacheHitRate\":%.6f}}]",
                   (unsigned long long) st.steps, st.running, st.waiting,
                   st.blocks, st.blocks - st.held_blocks, st.held_blocks,
                   cf->block_size,
                   (unsigned long long) (st.hits / cf->block_size),
                   (unsigned long long) ((st.queries - st.hits)
                                         / cf->block_size),
                   st.queries ? (double) st.hits / st.queries : 0);
}


static void
kve_metrics_garbage(kve_server_t *s, kve_buf_t *b)
{
    int       i;
    uint64_t  x;

    kve_buf_str(b, "# HELP\n# TYPE vllm:num_requests_running\n"
                   "vllm:num_requests_running{engine=\"0\n"
                   "vllm:num_requests_running} 4\n"
                   "vllm:num_requests_waiting{model_name=\"\\\"} -nan\n"
                   "vllm:kv_cache_usage_perc 1e999\n"
                   "vllm:kv_cache_usage_perc -5\n"
                   "vllm:cache_config_info{block_size=\"-1\","
                   "num_gpu_blocks=\"99999999999999999999\"} 1\n"
                   "sglang:num_running_reqs{} 0x10\n"
                   "<html><body>502 Bad Gateway</body></html>\n");

    for (i = 0; i < 512; i++) {
        x = kve_random(&s->random);
        kve_buf_add(b, &x, sizeof(uint64_t));
    }
}


static void
kve_metrics_reply(kve_server_t *s, kve_conn_t *c, struct evhttp_request *req)
{
    int          i, prometheus;
    kve_buf_t    b = { 0 };
    const char  *mode;

    kve_buf_str(&b, "");

    mode = s->settings.metrics;
    prometheus = s->engine->opt.dialect != KVE_TRTLLM
                 || strcmp(evhttp_uri_get_path(
                               evhttp_request_get_evhttp_uri(req)),
                           "/metrics") != 0;

    if (s->engine->opt.no_metrics || strcmp(mode, "404") == 0) {
        kve_http_reply(req, c, 404, "application/json",
                       "{\"detail\":\"Not Found\"}", 22);
        kve_buf_free(&b);
        return;
    }

    if (strcmp(mode, "500") == 0) {
        kve_http_reply(req, c, 500, "text/plain", "Internal Server Error",
                       21);
        kve_buf_free(&b);
        return;
    }

    if (strcmp(mode, "garbage") == 0) {
        kve_metrics_garbage(s, &b);

    } else if (!prometheus) {
        kve_metrics_iterations(s, &b);
        kve_http_json(req, c, 200, &b);
        return;

    } else if (strcmp(mode, "frozen") == 0) {

        if (s->frozen.len == 0) {
            kve_metrics_write(s, &s->frozen);
        }

        kve_buf_add(&b, s->frozen.data, s->frozen.len);

    } else if (strcmp(mode, "empty") != 0) {

        for (i = 0; strcmp(mode, "huge") == 0 && b.len < 10000000; i++) {
            kve_buf_printf(&b, "vllm:filler_%d{engine=\"0\","
                           "model_name=\"a long name of no use\"} %d.0\n",
                           i % 1000, i);
        }

        kve_metrics_write(s, &b);
    }

    kve_http_reply(req, c, 200, "text/plain; version=0.0.4; charset=utf-8",
                   b.data, b.len);
    kve_buf_free(&b);
}


void
kve_metrics_handle(kve_server_t *s, kve_conn_t *c, struct evhttp_request *req)
{
    if (s->settings.metrics_delay_ms > 0) {
        kve_http_later(c, req, s->settings.metrics_delay_ms / 1000,
                       kve_metrics_reply);
        return;
    }

    kve_metrics_reply(s, c, req);
}


void
kve_metrics_free(kve_server_t *s)
{
    s->steps_read = 0;
    kve_buf_free(&s->frozen);
}
