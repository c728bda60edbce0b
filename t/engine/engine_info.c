#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/engine_http.h"
#include "body/engine_parse.h"
#include "engine_info.h"
#include "events/engine_events.h"
#include "reply/engine_request.h"


typedef struct {
    const char      *path;
    kve_handler_pt   handler;
} kve_info_t;


static const char *
kve_info_query(struct evhttp_request *req, const char *name, char *value,
    size_t size)
{
    const char        *query, *v;
    struct evkeyvalq   args;

    query = evhttp_uri_get_query(evhttp_request_get_evhttp_uri(req));

    if (query == NULL || evhttp_parse_query_str(query, &args) != 0) {
        return NULL;
    }

    v = evhttp_find_header(&args, name);

    if (v) {
        snprintf(value, size, "%s", v);
    }

    evhttp_clear_headers(&args);

    return v ? value : NULL;
}


static void
kve_info_model(kve_buf_t *b, kve_server_t *s, const char *id,
    const char *root, const char *parent)
{
    static const char  *owners[] = {
        "vllm", "vllm", "sglang", "tensorrt_llm", "llamacpp", "tgi"
    };

    _Static_assert(sizeof(owners) / sizeof(owners[0]) == KVE_TGI + 1,
                   "owners");

    kve_buf_str(b, "{\"id\":");
    kve_buf_quote(b, id);
    kve_buf_printf(b, ",\"object\":\"model\",\"created\":%.0f,"
                   "\"owned_by\":\"%s\",\"root\":", s->started,
                   owners[s->engine->opt.dialect]);
    kve_buf_quote(b, root);
    kve_buf_str(b, ",\"parent\":");

    if (parent) {
        kve_buf_quote(b, parent);

    } else {
        kve_buf_str(b, "null");
    }

    kve_buf_printf(b, ",\"max_model_len\":%lld}",
                   (long long) s->engine->opt.max_model_len);
}


static void
kve_info_models(kve_server_t *s, kve_conn_t *c, struct evhttp_request *req)
{
    int             i;
    kve_buf_t       b = { 0 };
    kve_options_t  *opt;

    opt = &s->engine->opt;
    kve_buf_str(&b, "{\"object\":\"list\",\"data\":[");

    for (i = 0; i < opt->served.n; i++) {
        kve_buf_str(&b, i ? "," : "");
        kve_info_model(&b, s, opt->served.name[i], opt->model, NULL);
    }

    for (i = 0; i < opt->nloras; i++) {
        kve_buf_str(&b, ",");
        kve_info_model(&b, s, opt->lora[i], opt->lora[i], opt->model);
    }

    kve_buf_str(&b, "]}");
    kve_http_json(req, c, 200, &b);
}


static int
kve_info_body(kve_server_t *s, kve_conn_t *c, struct evhttp_request *req,
    kve_api_e api, kve_parsed_t *p)
{
    size_t            len;
    struct evbuffer  *in;

    in = evhttp_request_get_input_buffer(req);
    len = evbuffer_get_length(in);

    kve_parse(s, api, len ? (char *) evbuffer_pullup(in, -1) : "", len, p);

    if (p->status) {
        kve_http_error(req, c, p->status, api, p->error_type, p->error);
        kve_parsed_free(p);
        return -1;
    }

    return 0;
}


static void
kve_info_count_tokens(kve_server_t *s, kve_conn_t *c,
    struct evhttp_request *req)
{
    kve_buf_t     b = { 0 };
    kve_parsed_t  p;

    if (kve_info_body(s, c, req, KVE_MESSAGES, &p) != 0) {
        return;
    }

    kve_buf_printf(&b, "{\"input_tokens\":%u}",
                   kve_tokens(&s->engine->opt, p.prompts[0].len));
    kve_parsed_free(&p);
    kve_http_json(req, c, 200, &b);
}


static void
kve_info_loads(kve_server_t *s, kve_conn_t *c, struct evhttp_request *req)
{
    int                  i;
    char                 format[32], stamp[64];
    time_t               now;
    double               total;
    struct tm            tm;
    kve_buf_t            b = { 0 };
    kve_stats_t          st;
    const kve_config_t  *cf;

    if (s->engine->opt.dialect != KVE_SGLANG) {
        kve_http_reply(req, c, 404, "application/json",
                       "{\"detail\":\"Not Found\"}", 22);
        return;
    }

    cf = kve_replica_config(s->model);
    kve_replica_stats(s->model, &st);
    total = (double) st.blocks * cf->block_size;

    if (kve_info_query(req, "format", format, sizeof(format))
        && strcmp(format, "prometheus") == 0)
    {
        kve_buf_printf(&b, "# TYPE sglang_num_running_reqs gauge\n"
                       "sglang_num_running_reqs{dp_rank=\"0\"} %u\n"
                       "# TYPE sglang_num_waiting_reqs gauge\n"
                       "sglang_num_waiting_reqs{dp_rank=\"0\"} %u\n"
                       "# TYPE sglang_max_total_num_tokens gauge\n"
                       "sglang_max_total_num_tokens{dp_rank=\"0\"} %.0f\n"
                       "# TYPE sglang_token_usage gauge\n"
                       "sglang_token_usage{dp_rank=\"0\"} %.4f\n",
                       st.running, st.waiting, total, st.kv_usage);
        kve_http_reply(req, c, 200,
                       "text/plain; version=0.0.4; charset=utf-8", b.data,
                       b.len);
        kve_buf_free(&b);
        return;
    }

    now = time(NULL);
    gmtime_r(&now, &tm);
    strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%S+00:00", &tm);

    kve_buf_printf(&b, "{\"timestamp\":\"%s\",\"version\":\"0.5.9+kve\","
                   "\"accelerator\":", stamp);
    kve_buf_quote(&b, s->engine->opt.hw_name);
    kve_buf_printf(&b, ",\"num_accelerators\":%d,\"loads\":[", s->ranks);

    for (i = 0; i < s->ranks; i++) {
        kve_replica_stats(s->rank[i], &st);
        total = (double) st.blocks * cf->block_size;

        kve_buf_printf(&b, "%s{\"dp_rank\":%d,"
                   "\"num_running_reqs\":%u,\"num_waiting_reqs\":%u,"
                   "\"num_waiting_uncached_tokens\":%llu,"
                   "\"num_used_tokens\":%.0f,\"num_total_tokens\":%.0f,"
                   "\"max_total_num_tokens\":%.0f,"
                   "\"max_running_requests\":%u,\"token_usage\":%.4f,"
                   "\"gen_throughput\":%.2f,\"cache_hit_rate\":%.4f,"
                   "\"utilization\":%.4f}",
                   i ? "," : "", i, st.running, st.waiting,
                   (unsigned long long) st.waiting_tokens,
                   (double) st.held_blocks * cf->block_size,
                   (double) st.held_blocks * cf->block_size
                   + (double) st.waiting_tokens, total, cf->max_seqs,
                   st.kv_usage,
                   st.busy > 0 ? st.generation_tokens / st.busy : 0,
                   st.queries ? (double) st.hits / st.queries : 0,
                   (double) st.running / cf->max_seqs);
    }

    kve_buf_str(&b, "]}");
    kve_http_json(req, c, 200, &b);
}


static void
kve_info_reset(kve_server_t *s, kve_conn_t *c, struct evhttp_request *req)
{
    int  i;

    for (i = 0; i < s->ranks; i++) {
        kve_replica_reset_cache(s->rank[i], kve_virtual(s->engine));
    }

    if (s->engine->opt.dialect == KVE_SGLANG) {
        kve_http_reply(req, c, 200, "text/plain", "Cache flushed.\n", 15);
        return;
    }

    kve_http_reply(req, c, 200, "text/plain", "", 0);
}


static void
kve_info_sources(kve_server_t *s, kve_conn_t *c, struct evhttp_request *req)
{
    kve_buf_t  b = { 0 };

    kve_events_sources(&b, s);
    kve_http_json(req, c, 200, &b);
}


static const kve_info_t  kve_info[] = {
    { "/v1/models", kve_info_models },
    { "/models", kve_info_models },
    { "/v1/messages/count_tokens", kve_info_count_tokens },
    { "/v1/loads", kve_info_loads },
    { "/kv_event_sources", kve_info_sources },
    { "/reset_prefix_cache", kve_info_reset },
    { "/flush_cache", kve_info_reset },
    { NULL, NULL }
};


int
kve_info_handle(kve_server_t *s, kve_conn_t *c, struct evhttp_request *req,
    const char *path)
{
    const kve_info_t  *i;

    for (i = kve_info; i->path; i++) {
        if (strcmp(path, i->path) == 0) {
            i->handler(s, c, req);
            return 1;
        }
    }

    return 0;
}
