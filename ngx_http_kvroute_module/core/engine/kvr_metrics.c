
/*
 * Copyright (C) kvroute contributors
 */


#include "core/engine/kvr_metrics_text.h"


/* what a series means */

typedef enum {
    KVR_SERIES_RUNNING = 0,
    KVR_SERIES_WAITING,
    KVR_SERIES_WAITING_REASON,   /* only "capacity": takes precedence */
    KVR_SERIES_KV,
    KVR_SERIES_KV_OLD,           /* if there is no new one */
    KVR_SERIES_HITS,
    KVR_SERIES_HITS_OLD,
    KVR_SERIES_QUERIES,
    KVR_SERIES_QUERIES_OLD,
    KVR_SERIES_COMPUTED,         /* prompt tokens less the hits */
    KVR_SERIES_PREEMPTIONS,
    KVR_SERIES_START,
    KVR_SERIES_TOKENS,           /* capacity */
    KVR_SERIES_CONFIG,           /* in its labels */
    KVR_SERIES_BLOCKS,
    KVR_SERIES_BLOCK_SIZE,
    KVR_SERIES_LORA,
    KVR_SERIES_TRITON_REQUESTS,
    KVR_SERIES_TRITON_BLOCKS,
    KVR_SERIES_NO_CACHE,
    KVR_SERIES_MAX
} kvr_series_e;

_Static_assert(KVR_SERIES_MAX <= KVR_METRICS_SUMS, "sums");


static const char *const  kvr_engines[] = {
    "auto", "vllm", "sglang", "trtllm", "llamacpp", "tgi"
};

_Static_assert(kvr_nelts(kvr_engines) == KVR_ENGINES, "kvr_engines");


/* names come after the engine's prefix and a ":" or "_" */

static const struct {
    kvr_engine_e  engine;
    const char   *name;
    kvr_series_e  series;
} kvr_metrics_names[] = {
    { KVR_ENGINE_VLLM, "num_requests_running", KVR_SERIES_RUNNING },
    { KVR_ENGINE_VLLM, "num_requests_waiting", KVR_SERIES_WAITING },
    { KVR_ENGINE_VLLM, "num_requests_waiting_by_reason",
      KVR_SERIES_WAITING_REASON },
    { KVR_ENGINE_VLLM, "kv_cache_usage_perc", KVR_SERIES_KV },
    { KVR_ENGINE_VLLM, "gpu_cache_usage_perc", KVR_SERIES_KV_OLD },
    { KVR_ENGINE_VLLM, "prefix_cache_hits_total", KVR_SERIES_HITS },
    { KVR_ENGINE_VLLM, "gpu_prefix_cache_hits_total", KVR_SERIES_HITS_OLD },
    { KVR_ENGINE_VLLM, "prefix_cache_queries_total", KVR_SERIES_QUERIES },
    { KVR_ENGINE_VLLM, "gpu_prefix_cache_queries_total",
      KVR_SERIES_QUERIES_OLD },
    { KVR_ENGINE_VLLM, "num_preemptions_total", KVR_SERIES_PREEMPTIONS },
    { KVR_ENGINE_VLLM, "cache_config_info", KVR_SERIES_CONFIG },
    { KVR_ENGINE_VLLM, "lora_requests_info", KVR_SERIES_LORA },

    { KVR_ENGINE_SGLANG, "num_running_reqs", KVR_SERIES_RUNNING },
    { KVR_ENGINE_SGLANG, "num_queue_reqs", KVR_SERIES_WAITING },
    { KVR_ENGINE_SGLANG, "num_waiting_reqs", KVR_SERIES_WAITING },
    { KVR_ENGINE_SGLANG, "full_token_usage", KVR_SERIES_KV },
    { KVR_ENGINE_SGLANG, "token_usage", KVR_SERIES_KV_OLD },
    { KVR_ENGINE_SGLANG, "cached_tokens_total", KVR_SERIES_HITS },
    { KVR_ENGINE_SGLANG, "prompt_tokens_total", KVR_SERIES_QUERIES },
    { KVR_ENGINE_SGLANG, "num_retracted_requests_total",
      KVR_SERIES_PREEMPTIONS },
    { KVR_ENGINE_SGLANG, "max_total_num_tokens", KVR_SERIES_TOKENS },
    { KVR_ENGINE_SGLANG, "cache_config_info", KVR_SERIES_CONFIG },

    { KVR_ENGINE_TRTLLM, "num_requests_running", KVR_SERIES_RUNNING },
    { KVR_ENGINE_TRTLLM, "num_requests_waiting", KVR_SERIES_WAITING },
    { KVR_ENGINE_TRTLLM, "kv_cache_utilization", KVR_SERIES_KV },
    { KVR_ENGINE_TRTLLM, "kv_cache_max_blocks", KVR_SERIES_BLOCKS },
    { KVR_ENGINE_TRTLLM, "kv_cache_tokens_per_block", KVR_SERIES_BLOCK_SIZE },

    { KVR_ENGINE_LLAMACPP, "requests_processing", KVR_SERIES_RUNNING },
    { KVR_ENGINE_LLAMACPP, "requests_deferred", KVR_SERIES_WAITING },
    { KVR_ENGINE_LLAMACPP, "kv_cache_usage_ratio", KVR_SERIES_KV },
    { KVR_ENGINE_LLAMACPP, "prompt_tokens_cached_total", KVR_SERIES_HITS },
    { KVR_ENGINE_LLAMACPP, "prompt_tokens_total", KVR_SERIES_COMPUTED },

    { KVR_ENGINE_TGI, "batch_current_size", KVR_SERIES_RUNNING },
    { KVR_ENGINE_TGI, "queue_size", KVR_SERIES_WAITING },
    { KVR_ENGINE_TGI, "batch_max_total_tokens", KVR_SERIES_TOKENS },

    { KVR_ENGINE_AUTO, NULL, KVR_SERIES_MAX }
};


/* of /v1/loads */

#define kvr_metrics_loads_root(_)                                             \
    _("loads", KVR_PUSH_ARRAY, 1, 0, 0)

#define kvr_metrics_loads_item(_)                                             \
    _("num_running_reqs", KVR_PUSH_NUMBER, 0, 1 + KVR_SERIES_RUNNING, 0)      \
    _("num_waiting_reqs", KVR_PUSH_NUMBER, 0, 1 + KVR_SERIES_WAITING, 0)      \
    _("num_used_tokens", KVR_PUSH_NUMBER, 0, 1 + KVR_SERIES_BLOCKS, 0)        \
    _("max_total_num_tokens", KVR_PUSH_NUMBER, 0, 1 + KVR_SERIES_TOKENS, 0)

static const kvr_push_node_t  kvr_metrics_loads[] = {
    kvr_push_node(kvr_metrics_loads_root),
    kvr_push_node(kvr_metrics_loads_item)
};

_Static_assert(1 + KVR_SERIES_MAX <= 256, "leaves are bytes");


static void kvr_metrics_line(kvr_metrics_reader_t *r, char *line);
static void kvr_metrics_series(kvr_metrics_reader_t *r, kvr_engine_e engine,
    kvr_series_e series, const char *labels, double value);
static void kvr_metrics_config(kvr_metrics_reader_t *r, const char *labels);
static void kvr_metrics_adapters(kvr_metrics_reader_t *r, const char *labels,
    double value);
static void kvr_metrics_adapter(kvr_metrics_t *m, uint64_t lora);
static void kvr_metrics_load(void *data, unsigned leaf, kvr_push_e what,
    const uint8_t *p, size_t len, uint64_t number);
static void kvr_metrics_add(kvr_metrics_reader_t *r, kvr_series_e series,
    double value);
static int kvr_metrics_take(kvr_metrics_reader_t *r, kvr_series_e series,
    kvr_series_e other, double *value);
static uint64_t kvr_metrics_count(double value);


void
kvr_metrics_init(kvr_metrics_reader_t *r)
{
    memset(r, 0, offsetof(kvr_metrics_reader_t, line));

    r->newest = -1;
    kvr_push_init(&r->json, 0);
}


void
kvr_metrics_read(kvr_metrics_reader_t *r, const uint8_t *data, size_t len)
{
    size_t          n;
    const uint8_t  *p, *end;

    for (end = data + len; r->mode == 0 && data < end; data++) {
        if (*data > ' ') {
            r->mode = (*data == '{' || *data == '[') ? 'j' : 'p';
            break;
        }
    }

    if (r->mode == 'j') {
        (void) kvr_push_feed(&r->json, kvr_metrics_loads, data,
                             (size_t) (end - data), kvr_metrics_load, r);
        return;
    }

    while (data < end) {
        p = memchr(data, '\n', (size_t) (end - data));
        n = (size_t) ((p ? p : end) - data);

        if (r->drop || n > KVR_METRICS_LINE - r->len) {
            r->drop = 1;

        } else {
            memcpy(r->line + r->len, data, n);
            r->len += (uint32_t) n;
        }

        if (p == NULL) {
            return;
        }

        if (!r->drop) {
            r->line[r->len] = '\0';
            kvr_metrics_line(r, r->line);
        }

        r->drop = 0;
        r->len = 0;
        data += n + 1;
    }
}


/* name{labels} value [time], the line ending in '\0' */
static void
kvr_metrics_line(kvr_metrics_reader_t *r, char *line)
{
    char          *p, *name, *labels;
    size_t         len;
    double         value;
    unsigned       i, quoted;
    kvr_engine_e   engine;

    for (p = line; *p == ' '; p++) { /* void */ }

    if (*p == '#' || *p == '\0') {
        return;
    }

    name = p;
    p += strcspn(p, "{ \t");
    len = (size_t) (p - name);

    labels = NULL;

    if (*p == '{') {
        labels = ++p;
        quoted = 0;

        for ( /* void */ ; *p && (quoted || *p != '}'); p++) {
            if (*p == '\\' && p[1]) {
                p++;

            } else if (*p == '"') {
                quoted = !quoted;
            }
        }

        if (*p == '\0') {
            return;
        }

        *p++ = '\0';
    }

    if (!kvr_metrics_number(p, &value)) {
        return;
    }

    if (len == 26 && memcmp(name, "process_start_time_seconds", 26) == 0) {
        kvr_metrics_series(r, KVR_ENGINE_AUTO, KVR_SERIES_START, labels,
                           value);
        return;
    }

    if (len == 26 && memcmp(name, "nv_trt_llm_request_metrics", 26) == 0) {
        kvr_metrics_series(r, KVR_ENGINE_TRTLLM, KVR_SERIES_TRITON_REQUESTS,
                           labels, value);
        return;
    }

    if (len == 33
        && memcmp(name, "nv_trt_llm_kv_cache_block_metrics", 33) == 0)
    {
        kvr_metrics_series(r, KVR_ENGINE_TRTLLM, KVR_SERIES_TRITON_BLOCKS,
                           labels, value);
        return;
    }

    for (engine = KVR_ENGINE_VLLM; engine < KVR_ENGINES; engine++) {
        i = (unsigned) strlen(kvr_engines[engine]);

        if (len > i + 1 && memcmp(name, kvr_engines[engine], i) == 0
            && (name[i] == ':' || name[i] == '_'))
        {
            name += i + 1;
            len -= i + 1;
            break;
        }
    }

    for (i = 0; engine < KVR_ENGINES && kvr_metrics_names[i].name; i++) {

        if (kvr_metrics_names[i].engine == engine
            && strlen(kvr_metrics_names[i].name) == len
            && memcmp(kvr_metrics_names[i].name, name, len) == 0)
        {
            kvr_metrics_series(r, engine, kvr_metrics_names[i].series,
                               labels, value);
            return;
        }
    }
}


static void
kvr_metrics_series(kvr_metrics_reader_t *r, kvr_engine_e engine,
    kvr_series_e series, const char *labels, double value)
{
    size_t       len;
    const char  *label;

    if (engine != KVR_ENGINE_AUTO) {
        r->m.engine = engine;
    }

    /* ranks of one model tell the same: the first of them will do */

    if (engine == KVR_ENGINE_SGLANG
        && (kvr_metrics_label_number(labels, "tp_rank") > 0
            || kvr_metrics_label_number(labels, "pp_rank") > 0))
    {
        return;
    }

    switch (series) {

    case KVR_SERIES_CONFIG:
        kvr_metrics_config(r, labels);
        return;

    case KVR_SERIES_LORA:
        kvr_metrics_adapters(r, labels, value);
        return;

    case KVR_SERIES_WAITING_REASON:
        label = kvr_metrics_label(labels, "reason", &len);

        if (label && len == 8 && memcmp(label, "capacity", 8) == 0) {
            kvr_metrics_add(r, series, value);
        }

        return;

    case KVR_SERIES_TRITON_REQUESTS:
        label = kvr_metrics_label(labels, "request_type", &len);

        if (label && len == 7 && memcmp(label, "waiting", 7) == 0) {
            kvr_metrics_add(r, KVR_SERIES_WAITING, value);

        } else if (label && len == 9 && memcmp(label, "scheduled", 9) == 0) {
            kvr_metrics_add(r, KVR_SERIES_RUNNING, value);
        }

        return;

    case KVR_SERIES_TRITON_BLOCKS:
        label = kvr_metrics_label(labels, "kv_cache_block_type", &len);

        if (label && len == 8 && memcmp(label, "fraction", 8) == 0) {
            kvr_metrics_add(r, KVR_SERIES_KV, value);

        } else if (label && len == 10 && memcmp(label, "tokens_per", 10) == 0)
        {
            kvr_metrics_add(r, KVR_SERIES_BLOCK_SIZE, value);

        } else if (label && len == 3 && memcmp(label, "max", 3) == 0) {
            kvr_metrics_add(r, KVR_SERIES_BLOCKS, value);
        }

        return;

    default:
        kvr_metrics_add(r, series, value);
    }
}


static void
kvr_metrics_config(kvr_metrics_reader_t *r, const char *labels)
{
    double       blocks, size;
    size_t       len;
    const char  *label;

    label = kvr_metrics_label(labels, "enable_prefix_caching", &len);

    if (label && len == 5 && memcmp(label, "False", 5) == 0) {
        kvr_metrics_add(r, KVR_SERIES_NO_CACHE, 1);
    }

    /* for hybrid models this is not the product of the others */

    blocks = kvr_metrics_label_number(labels, "kv_cache_size_tokens");

    if (blocks <= 0) {
        blocks = kvr_metrics_label_number(labels, "num_gpu_blocks");

        if (blocks <= 0) {
            blocks = kvr_metrics_label_number(labels, "num_pages");
        }

        size = kvr_metrics_label_number(labels, "block_size");

        if (size <= 0) {
            size = kvr_metrics_label_number(labels, "page_size");
        }

        blocks *= size;
    }

    /* SGLang says the same in a series of its own */

    if (blocks > 0 && r->m.engine == KVR_ENGINE_VLLM) {
        kvr_metrics_add(r, KVR_SERIES_TOKENS, blocks);
    }
}


/* old sets stay in the text: the newest has the largest value, its time */
static void
kvr_metrics_adapters(kvr_metrics_reader_t *r, const char *labels,
    double value)
{
    double         max;
    size_t         len, n;
    unsigned       i;
    const char    *p, *names[2];

    if (value <= r->newest) {
        return;
    }

    r->newest = value;
    r->m.loras = 0;
    r->m.set |= KVR_METRICS_LORA;

    max = kvr_metrics_label_number(labels, "max_lora");
    r->m.max_loras = (max > 0 && max < 1e6) ? (uint32_t) max : 0;

    names[0] = "running_lora_adapters";
    names[1] = "waiting_lora_adapters";

    for (i = 0; i < 2; i++) {

        p = kvr_metrics_label(labels, names[i], &len);

        while (p && len) {

            n = 0;

            while (n < len && p[n] != ',') {
                n++;
            }

            if (n) {
                kvr_metrics_adapter(&r->m, kvr_metrics_lora(p, n));
            }

            n += (n < len);
            p += n;
            len -= n;
        }
    }
}


/* one may both run and wait */
static void
kvr_metrics_adapter(kvr_metrics_t *m, uint64_t lora)
{
    unsigned  i;

    for (i = 0; i < m->loras; i++) {
        if (m->lora[i] == lora) {
            return;
        }
    }

    if (i < KVR_METRICS_LORAS) {
        m->lora[m->loras++] = lora;
    }
}


uint64_t
kvr_metrics_lora(const void *name, size_t len)
{
    uint64_t        h;
    const uint8_t  *p;

    h = 0xcbf29ce484222325ULL;

    for (p = name; len; len--) {
        h = (h ^ *p++) * 0x100000001b3ULL;
    }

    return h ? h : 1;
}


static void
kvr_metrics_load(void *data, unsigned leaf, kvr_push_e what,
    const uint8_t *p, size_t len, uint64_t number)
{
    kvr_metrics_reader_t *r = data;

    (void) p;
    (void) len;

    if (leaf && what == KVR_PUSH_VALUE) {
        r->m.engine = KVR_ENGINE_SGLANG;
        kvr_metrics_add(r, (kvr_series_e) (leaf - 1), (double) number);
    }
}


static void
kvr_metrics_add(kvr_metrics_reader_t *r, kvr_series_e series, double value)
{
    r->sum[series] += value;
    r->count[series]++;
}


static int
kvr_metrics_take(kvr_metrics_reader_t *r, kvr_series_e series,
    kvr_series_e other, double *value)
{
    if (r->count[series] == 0) {
        series = other;
    }

    *value = r->sum[series];

    return r->count[series] != 0;
}


/* a sum of garbage may be more than an integer holds */
static uint64_t
kvr_metrics_count(double value)
{
    return (uint64_t) kvr_min(value, 1e18);
}


void
kvr_metrics_end(kvr_metrics_reader_t *r)
{
    double          v;
    kvr_metrics_t  *m;

    m = &r->m;

    if (r->mode == 'p' && !r->drop && r->len) {
        r->line[r->len] = '\0';
        kvr_metrics_line(r, r->line);
        r->len = 0;
    }

    if (kvr_metrics_take(r, KVR_SERIES_RUNNING, KVR_SERIES_RUNNING, &v)
        && v < 1e9)
    {
        m->set |= KVR_METRICS_RUNNING;
        m->running = (uint32_t) v;
    }

    if (kvr_metrics_take(r, KVR_SERIES_WAITING_REASON, KVR_SERIES_WAITING, &v)
        && v < 1e9)
    {
        m->set |= KVR_METRICS_WAITING;
        m->waiting = (uint32_t) v;
    }

    if (kvr_metrics_take(r, KVR_SERIES_KV, KVR_SERIES_KV_OLD, &v)) {
        v /= r->count[r->count[KVR_SERIES_KV] ? KVR_SERIES_KV
                                              : KVR_SERIES_KV_OLD];
        if (v <= 1.001) {
            m->set |= KVR_METRICS_KV;
            m->kv = v;
        }
    }

    if (kvr_metrics_take(r, KVR_SERIES_HITS, KVR_SERIES_HITS_OLD, &v)) {
        m->set |= KVR_METRICS_HITS;
        m->hits = kvr_metrics_count(v);
    }

    if (kvr_metrics_take(r, KVR_SERIES_QUERIES, KVR_SERIES_QUERIES_OLD, &v)) {
        m->set |= KVR_METRICS_QUERIES;
        m->queries = kvr_metrics_count(v);

    } else if (r->count[KVR_SERIES_COMPUTED] && m->set & KVR_METRICS_HITS) {
        m->set |= KVR_METRICS_QUERIES;
        m->queries = m->hits
                     + kvr_metrics_count(r->sum[KVR_SERIES_COMPUTED]);
    }

    if (r->count[KVR_SERIES_PREEMPTIONS]) {
        m->set |= KVR_METRICS_PREEMPTIONS;
        m->preemptions = kvr_metrics_count(r->sum[KVR_SERIES_PREEMPTIONS]);
    }

    v = r->sum[KVR_SERIES_START];

    if (v > 0 && v < 1e12) {
        m->set |= KVR_METRICS_START;
        m->start = v / r->count[KVR_SERIES_START];
    }

    v = r->sum[KVR_SERIES_TOKENS];

    if (v == 0 && r->mode == 'p') {
        v = r->sum[KVR_SERIES_BLOCKS] * r->sum[KVR_SERIES_BLOCK_SIZE];

        if (r->count[KVR_SERIES_BLOCK_SIZE] > 1) {
            v /= r->count[KVR_SERIES_BLOCK_SIZE];
        }
    }

    if (v >= 1 && v < 1e15) {
        m->set |= KVR_METRICS_CAPACITY;
        m->capacity = (uint64_t) v;

        if (r->mode == 'j' && r->sum[KVR_SERIES_BLOCKS] <= v
            && r->count[KVR_SERIES_BLOCKS])
        {
            m->set |= KVR_METRICS_KV;
            m->kv = r->sum[KVR_SERIES_BLOCKS] / v;
        }
    }

    if (r->count[KVR_SERIES_NO_CACHE]) {
        m->set |= KVR_METRICS_NO_CACHE;
    }
}


const char *
kvr_engine_name(kvr_engine_e engine)
{
    return (unsigned) engine < KVR_ENGINES ? kvr_engines[engine] : NULL;
}


kvr_engine_e
kvr_engine_by_name(const void *name, size_t len)
{
    unsigned  i;

    for (i = 0; i < KVR_ENGINES; i++) {
        if (strlen(kvr_engines[i]) == len
            && memcmp(kvr_engines[i], name, len) == 0)
        {
            break;
        }
    }

    return (kvr_engine_e) i;
}
