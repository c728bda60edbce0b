#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

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


static void
kve_info_version(kve_server_t *s, kve_conn_t *c, struct evhttp_request *req)
{
    kve_buf_t  b = { 0 };

    (void) s;

    kve_buf_str(&b, "{\"version\":\"0.29.0+kve\"}");
    kve_http_json(req, c, 200, &b);
}


static void
kve_info_load(kve_server_t *s, kve_conn_t *c, struct evhttp_request *req)
{
    kve_buf_t  b = { 0 };

    /* always 0 unless it is told to count, as vLLM does it */

    kve_buf_printf(&b, "{\"server_load\":%u}",
                   s->engine->opt.load_tracking ? s->open_requests : 0);
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
kve_info_tokens(kve_buf_t *b, kve_server_t *s, const kve_buf_t *text, int tgi)
{
    size_t  i, n, bpt;

    bpt = s->engine->opt.bytes_per_token;
    kve_buf_str(b, "[");

    for (i = 0; i < text->len; i += bpt) {
        n = text->len - i < bpt ? text->len - i : bpt;
        kve_buf_str(b, i ? "," : "");

        if (!tgi) {
            kve_buf_printf(b, "%u", (unsigned)
                           (XXH3_64bits(text->data + i, n) % 150000));
            continue;
        }

        kve_buf_printf(b, "{\"id\":%u,\"start\":%zu,\"stop\":%zu}",
                       (unsigned) (XXH3_64bits(text->data + i, n) % 150000),
                       i, i + n);
    }

    kve_buf_str(b, "]");
}


static void
kve_info_tokenize(kve_server_t *s, kve_conn_t *c, struct evhttp_request *req)
{
    size_t            len;
    cJSON            *body;
    kve_api_e         api;
    kve_buf_t         b = { 0 }, text = { 0 };
    const char       *content;
    kve_parsed_t      p;
    struct evbuffer  *in;

    in = evhttp_request_get_input_buffer(req);
    len = evbuffer_get_length(in);
    body = cJSON_ParseWithLength(len ? (char *) evbuffer_pullup(in, -1) : "",
                                 len);

    content = kve_json_str(body, "content");
    if (content == NULL) {
        content = kve_json_str(body, "inputs");
    }

    if (content) {
        /* llama.cpp and TGI */
        kve_buf_str(&text, content);

        if (s->engine->opt.dialect == KVE_TGI) {
            kve_info_tokens(&b, s, &text, 1);

        } else {
            kve_buf_str(&b, "{\"tokens\":");
            kve_info_tokens(&b, s, &text, 0);
            kve_buf_str(&b, "}");
        }

        kve_buf_free(&text);
        cJSON_Delete(body);
        kve_http_json(req, c, 200, &b);
        return;
    }

    api = kve_json_get(body, "messages") ? KVE_CHAT : KVE_COMPLETIONS;
    cJSON_Delete(body);

    if (kve_info_body(s, c, req, api, &p) != 0) {
        return;
    }

    kve_buf_printf(&b, "{\"count\":%u,\"max_model_len\":%lld,\"tokens\":",
                   kve_tokens(&s->engine->opt, p.prompts[0].len),
                   (long long) s->engine->opt.max_model_len);
    kve_info_tokens(&b, s, &p.prompts[0], 0);
    kve_buf_str(&b, ",\"token_strs\":null}");

    kve_parsed_free(&p);
    kve_http_json(req, c, 200, &b);
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


/* what a chat would be, and nothing of it computed */

static void
kve_info_render(kve_server_t *s, kve_conn_t *c, struct evhttp_request *req)
{
    kve_api_e      api;
    kve_buf_t      b = { 0 };
    const char    *path;
    kve_parsed_t   p;

    path = evhttp_uri_get_path(evhttp_request_get_evhttp_uri(req));

    api = strstr(path, "/messages") ? KVE_MESSAGES
          : strstr(path, "/chat") ? KVE_CHAT : KVE_COMPLETIONS;

    if (kve_info_body(s, c, req, api, &p) != 0) {
        return;
    }

    kve_buf_str(&b, "{\"token_ids\":");
    kve_info_tokens(&b, s, &p.prompts[0], 0);
    kve_buf_str(&b, ",\"token_offsets\":null}");
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
kve_info_server(kve_server_t *s, kve_conn_t *c, struct evhttp_request *req)
{
    kve_buf_t            b = { 0 };
    kve_stats_t          st;
    const kve_config_t  *cf;

    cf = kve_replica_config(s->model);
    kve_replica_stats(s->model, &st);

    kve_buf_str(&b, "{\"model_path\":");
    kve_buf_quote(&b, s->engine->opt.model);
    kve_buf_str(&b, ",\"served_model_name\":");
    kve_buf_quote(&b, s->engine->opt.served.name[0]);
    kve_buf_printf(&b, ",\"tp_size\":1,\"dp_size\":1,\"page_size\":%u,"
                   "\"max_running_requests\":%u,\"max_total_num_tokens\":%u,"
                   "\"context_length\":%lld,\"version\":\"0.5.9+kve\","
                   "\"internal_states\":[{\"last_gen_throughput\":%.2f,"
                   "\"memory_usage\":{\"token_capacity\":%u}}]}",
                   cf->block_size, cf->max_seqs, st.blocks * cf->block_size,
                   (long long) s->engine->opt.max_model_len,
                   st.busy > 0 ? st.generation_tokens / st.busy : 0,
                   st.blocks * cf->block_size);
    kve_http_json(req, c, 200, &b);
}


/* llama.cpp: a slot for each sequence that may run */

static void
kve_info_slots(kve_server_t *s, kve_conn_t *c, struct evhttp_request *req)
{
    char           value[16];
    uint32_t       i, k, n, slots;
    kve_buf_t      b = { 0 };
    kve_job_t     *job;
    kve_sub_t     *sub, *busy[64];
    kve_stats_t    st;

    kve_replica_stats(s->model, &st);

    slots = kve_replica_config(s->model)->max_seqs;
    slots = slots > 64 ? 64 : slots;
    n = 0;

    for (job = s->jobs; job; job = job->next) {
        for (k = 0; job->submitted && k < (uint32_t) job->nsubs; k++) {
            if (n < slots && kve_req_is_running(&job->subs[k].req)) {
                busy[n++] = &job->subs[k];
            }
        }
    }

    if (n == slots
        && kve_info_query(req, "fail_on_no_slot", value, sizeof(value)))
    {
        kve_http_error(req, c, 503, KVE_CHAT, "unavailable_error",
                       "no slot available");
        return;
    }

    kve_buf_str(&b, "[");

    for (i = 0; i < slots; i++) {
        sub = i < n ? busy[i] : NULL;

        kve_buf_printf(&b, "%s{\"id\":%u,\"n_ctx\":%lld,"
                       "\"speculative\":false,\"is_processing\":%s,"
                       "\"n_prompt_tokens\":%u,"
                       "\"n_prompt_tokens_processed\":%u,"
                       "\"n_prompt_tokens_cache\":%u,\"next_token\":"
                       "[{\"has_next_token\":%s,\"n_decoded\":%u}]}",
                       i ? "," : "", i,
                       (long long) s->engine->opt.max_model_len,
                       sub ? "true" : "false",
                       sub ? sub->req.prompt_tokens : 0,
                       sub ? sub->req.prompt_tokens - sub->req.cached_tokens
                           : 0,
                       sub ? sub->req.cached_tokens : 0,
                       sub ? "true" : "false",
                       sub ? kve_req_tokens(s->rank[sub->job->rank], &sub->req) : 0);
    }

    kve_buf_str(&b, "]");
    kve_http_json(req, c, 200, &b);
}


static void
kve_info_props(kve_server_t *s, kve_conn_t *c, struct evhttp_request *req)
{
    kve_buf_t  b = { 0 };

    kve_buf_printf(&b, "{\"default_generation_settings\":{\"n_ctx\":%lld},"
                   "\"total_slots\":%u,\"model_alias\":",
                   (long long) s->engine->opt.max_model_len,
                   kve_replica_config(s->model)->max_seqs);
    kve_buf_quote(&b, s->engine->opt.model);
    kve_buf_str(&b, ",\"model_path\":");
    kve_buf_quote(&b, s->engine->opt.model);
    kve_buf_str(&b, ",\"chat_template\":\"chatml\",\"build_info\":"
                    "\"b11669-kve\",\"is_sleeping\":false}");
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
    { "/version", kve_info_version },
    { "/load", kve_info_load },
    { "/tokenize", kve_info_tokenize },
    { "/v1/messages/count_tokens", kve_info_count_tokens },
    { "/v1/chat/completions/render", kve_info_render },
    { "/v1/completions/render", kve_info_render },
    { "/v1/messages/render", kve_info_render },
    { "/v1/loads", kve_info_loads },
    { "/server_info", kve_info_server },
    { "/get_server_info", kve_info_server },
    { "/slots", kve_info_slots },
    { "/props", kve_info_props },
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
