#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/engine_fault.h"
#include "base/engine_http.h"
#include "engine_control.h"
#include "engine_restart.h"
#include "events/engine_events.h"
#include "metrics/engine_metrics.h"


/*
 * GET /control: counters of a replica.  POST /control: its behaviour from now
 * on.  "?replica=N" addresses another replica of the process, also one that is
 * down; "?log=1" adds the log of requests.
 */


typedef enum {
    KVE_CTL_NUM = 0,
    KVE_CTL_INT,
    KVE_CTL_COUNT
} kve_ctl_e;


typedef struct {
    const char  *name;
    kve_ctl_e    kind;
    size_t       offset;
} kve_ctl_t;


#define KVE_CTL(f, k)  { #f, k, offsetof(kve_settings_t, f) }


static const kve_ctl_t  kve_ctls[] = {
    KVE_CTL(retry_after, KVE_CTL_NUM),
    KVE_CTL(fault_rate, KVE_CTL_NUM),
    KVE_CTL(fault_count, KVE_CTL_COUNT),
    KVE_CTL(stall_ms, KVE_CTL_NUM),
    KVE_CTL(delay_ms, KVE_CTL_NUM),
    KVE_CTL(health_status, KVE_CTL_INT),
    KVE_CTL(keepalive_timeout, KVE_CTL_NUM),
    KVE_CTL(keepalive_max, KVE_CTL_INT),
    KVE_CTL(metrics_delay_ms, KVE_CTL_NUM),
    KVE_CTL(output_tokens, KVE_CTL_NUM),
    KVE_CTL(kv_lose, KVE_CTL_INT),
    KVE_CTL(kv_double, KVE_CTL_INT),
    KVE_CTL(kv_swap, KVE_CTL_INT),
    KVE_CTL(kv_replay_silent, KVE_CTL_INT),
    KVE_CTL(transfer_lost, KVE_CTL_INT),
    KVE_CTL(transfer_blocks, KVE_CTL_INT),
    { NULL, KVE_CTL_NUM, 0 }
};


static int
kve_control_set(kve_settings_t *set, const cJSON *v)
{
    char             *field;
    const kve_ctl_t  *ctl;

    for (ctl = kve_ctls; ctl->name; ctl++) {

        if (strcmp(ctl->name, v->string) != 0) {
            continue;
        }

        if (!cJSON_IsNumber(v)) {
            return -1;
        }

        field = (char *) set + ctl->offset;

        switch (ctl->kind) {

        case KVE_CTL_NUM:
            *(double *) field = v->valuedouble;
            break;

        case KVE_CTL_INT:
            *(int *) field = v->valueint;
            break;

        case KVE_CTL_COUNT:
            *(int64_t *) field = kve_json_whole(v->valuedouble);
            break;
        }

        return 1;
    }

    return 0;
}


static int
kve_control_metrics(kve_server_t *s, const char *mode)
{
    int  i;

    static const char  *modes[] = {
        "ok", "frozen", "garbage", "huge", "empty", "404", "500", NULL
    };

    for (i = 0; modes[i]; i++) {
        if (mode && strcmp(modes[i], mode) == 0) {
            break;
        }
    }

    if (modes[i] == NULL) {
        return -1;
    }

    snprintf(s->settings.metrics, sizeof(s->settings.metrics), "%s", mode);
    kve_buf_free(&s->frozen);

    return 0;
}


/* one member of the body; returns non-zero for an unknown one */

static int
kve_control_apply(kve_server_t *s, const cJSON *v)
{
    int              i, n;
    double           now;
    const char      *name, *str;
    kve_settings_t  *set;

    set = &s->settings;
    name = v->string;
    str = cJSON_GetStringValue(v);
    now = kve_virtual(s->engine);

    n = kve_control_set(set, v);
    if (n) {
        return n < 0;
    }

    n = kve_events_control(s, v);
    if (n) {
        return n < 0;
    }

    if (strcmp(name, "fault") == 0) {
        if (cJSON_IsNull(v) || (str && *str == '\0')) {
            set->fault[0] = '\0';
            return 0;
        }

        if (str == NULL || kve_fault_parse(str, &n) == KVE_FAULT_INVALID) {
            return -1;
        }

        snprintf(set->fault, sizeof(set->fault), "%s", str);
        return 0;
    }

    if (strcmp(name, "metrics") == 0) {
        return kve_control_metrics(s, str);
    }

    if (strcmp(name, "reset_cache") == 0) {
        for (i = 0; i < s->ranks; i++) {
            kve_replica_reset_cache(s->rank[i], now);
        }

        return 0;
    }

    if (!cJSON_IsNumber(v) && !cJSON_IsBool(v)) {
        return -1;
    }

    if (strcmp(name, "loading_s") == 0) {
        s->ready = kve_now() + v->valuedouble;
        return 0;
    }

    if (strcmp(name, "kv_cache_size") == 0) {
        for (i = 0; i < s->ranks; i++) {
            kve_replica_set_blocks(s->rank[i],
                                   v->valueint > 0 ? v->valueint : 1, now);
        }

        kve_engine_wake(s->engine);
        return 0;
    }

    if (strcmp(name, "replica_speed") == 0) {
        for (i = 0; i < s->ranks; i++) {
            kve_replica_set_speed(s->rank[i], v->valuedouble, now);
        }

        kve_engine_wake(s->engine);
        return 0;
    }

    /*
     * one rank drops its cache; real engines do so by reset_prefix_cache only
     */

    if (strcmp(name, "reset_rank") == 0) {
        return v->valueint >= 0 && v->valueint < s->ranks
               && kve_replica_reset_cache(s->rank[v->valueint], now)
               ? 0 : -1;
    }

    /* these run after the reply is sent */

    if (strcmp(name, "restart") == 0 || strcmp(name, "down") == 0
        || strcmp(name, "down_s") == 0)
    {
        return 0;
    }

    return -1;
}


static void
kve_control_action(kve_server_t *s, const cJSON *body, const kve_conn_t *c)
{
    double  down;

    down = kve_json_num(body, "down_s", 0);

    if (kve_json_true(body, "restart", 0) || down > 0
        || kve_json_true(body, "down", 0))
    {
        kve_server_restart(s, c);
    }

    if (down > 0 || kve_json_true(body, "down", 0)) {
        kve_server_deafen(s, down);

    } else if (kve_json_get(body, "down")) {
        (void) kve_server_listen(s);
    }
}


static void
kve_control_log(kve_buf_t *b, kve_server_t *s)
{
    uint64_t          i, n, size;
    kve_log_entry_t  *e;

    size = s->engine->opt.request_log;
    n = s->nlog < size ? s->nlog : size;

    kve_buf_str(b, ",\"log\":[");

    for (i = s->nlog - n; i < s->nlog; i++) {
        e = &s->log[i % size];

        kve_buf_printf(b, "%s{\"id\":", i > s->nlog - n ? "," : "");

        if (e->id) {
            kve_buf_quote(b, e->id);

        } else {
            kve_buf_str(b, "null");
        }

        kve_buf_printf(b, ",\"path\":\"%s\",\"arrived\":%.6f,"
                       "\"body_bytes\":%llu,\"prompt_tokens\":%u,"
                       "\"cached_tokens\":%u,\"output_tokens\":%u,"
                       "\"ttft\":%.6f,\"e2e\":%.6f,\"status\":%d,"
                       "\"end\":\"%s\"}", e->path, e->arrived,
                       (unsigned long long) e->body_bytes, e->prompt_tokens,
                       e->cached_tokens, e->output_tokens, e->ttft, e->e2e,
                       e->status, e->end);
    }

    kve_buf_str(b, "]");
}


static void
kve_control_count(kve_buf_t *b, const char *name, uint64_t n)
{
    kve_buf_printf(b, ",\"%s\":%llu", name, (unsigned long long) n);
}


static void
kve_control_show(kve_buf_t *b, kve_server_t *s, int with_log)
{
    kve_stats_t      st;
    kve_counters_t  *n;

    n = &s->counters;
    kve_server_stats(s, &st);

    kve_buf_printf(b, "{\"replica\":%d,\"port\":%d,\"started\":%.6f,"
                   "\"restarts\":%u,\"ready\":%s,\"down\":%s", s->index,
                   s->port, s->started, s->restarts,
                   kve_now() < s->ready ? "false" : "true",
                   s->socket ? "false" : "true");

    kve_control_count(b, "requests", n->requests);
    kve_control_count(b, "generate_requests", n->generate_requests);
    kve_control_count(b, "body_bytes", n->body_bytes);
    kve_control_count(b, "completed", n->completed);
    kve_control_count(b, "aborted", n->aborted);
    kve_control_count(b, "failed", n->failed);
    kve_control_count(b, "faults", n->faults);
    kve_control_count(b, "prefills", n->prefills);
    kve_control_count(b, "pulls", n->pulls);
    kve_control_count(b, "corrupt", n->corrupt);
    kve_control_count(b, "transferred",
                      n->transferred + st.loaded[KVE_PEER]);
    kve_control_count(b, "connections", n->connections);
    kve_control_count(b, "open_connections", s->nconns);
    kve_control_count(b, "open_requests", s->open_requests);
    kve_control_count(b, "open_streams", s->open_streams);
    kve_control_count(b, "tokens_sent", n->tokens_sent);
    kve_control_count(b, "prompt_tokens", n->prompt_tokens);
    kve_control_count(b, "cached_tokens", n->cached_tokens);
    kve_control_count(b, "running", st.running);
    kve_control_count(b, "waiting", st.waiting);
    kve_control_count(b, "preemptions", st.preemptions);
    kve_control_count(b, "kv_blocks", st.blocks);
    kve_control_count(b, "kv_blocks_held", st.held_blocks);
    kve_control_count(b, "logged", s->nlog);

    kve_buf_printf(b, ",\"drift_ms\":{\"mean\":%.3f,\"max\":%.3f,"
                   "\"over_5ms\":%llu,\"tokens\":%llu}",
                   n->drift_n ? n->drift_sum / n->drift_n * 1000 : 0,
                   n->drift_max * 1000, (unsigned long long) n->drift_over,
                   (unsigned long long) n->drift_n);

    kve_events_show(b, s);

    if (with_log) {
        kve_control_log(b, s);
    }

    kve_buf_str(b, "}");
}


static kve_server_t *
kve_control_server(kve_server_t *s, struct evhttp_request *req, int *log)
{
    int                i;
    const char        *query, *v;
    struct evkeyvalq   args;

    query = evhttp_uri_get_query(evhttp_request_get_evhttp_uri(req));
    *log = 0;

    if (query == NULL || evhttp_parse_query_str(query, &args) != 0) {
        return s;
    }

    v = evhttp_find_header(&args, "log");
    *log = v && *v == '1';

    v = evhttp_find_header(&args, "replica");

    if (v) {
        i = atoi(v);
        s = i >= 0 && i < s->engine->nservers ? &s->engine->servers[i] : NULL;
    }

    evhttp_clear_headers(&args);

    return s;
}


static cJSON *
kve_control_body(struct evhttp_request *req)
{
    size_t            len;
    cJSON            *body;
    struct evbuffer  *in;

    in = evhttp_request_get_input_buffer(req);
    len = evbuffer_get_length(in);
    body = cJSON_ParseWithLength(len ? (char *) evbuffer_pullup(in, -1) : "",
                                 len);

    if (!cJSON_IsObject(body)) {
        cJSON_Delete(body);
        return NULL;
    }

    return body;
}


static void
kve_control_refuse(kve_conn_t *c, struct evhttp_request *req, const char *what)
{
    kve_buf_t  b = { 0 };

    kve_buf_str(&b, "{\"error\":");
    kve_buf_quote(&b, what);
    kve_buf_str(&b, "}");
    kve_http_json(req, c, 400, &b);
}


void
kve_control_handle(kve_server_t *s, kve_conn_t *c, struct evhttp_request *req)
{
    int           log;
    cJSON        *body;
    kve_buf_t     b = { 0 };
    const cJSON  *v;

    s = kve_control_server(s, req, &log);

    if (s == NULL) {
        kve_control_refuse(c, req, "no such replica");
        return;
    }

    if (evhttp_request_get_command(req) == EVHTTP_REQ_POST) {
        body = kve_control_body(req);

        if (body == NULL) {
            kve_control_refuse(c, req, "not a JSON object");
            return;
        }

        cJSON_ArrayForEach(v, body) {
            if (kve_control_apply(s, v) != 0) {
                kve_control_refuse(c, req, v->string);
                cJSON_Delete(body);
                return;
            }
        }

        kve_control_action(s, body, c);
        cJSON_Delete(body);
    }

    kve_control_show(&b, s, log);
    kve_http_json(req, c, 200, &b);
}
