
/*
 * Copyright (C) kvroute contributors
 */


#include "core/prompt/kvr_prompt_int.h"


/* maximum of keys of one length */
#define KVR_PROMPT_KEYS  8


/* a chain under construction */
typedef struct {
    uint64_t   h;
    uint64_t  *entry;
    size_t     k;                /* entries so far */
    size_t     max;
    size_t     left;             /* blocks to the next entry */
} kvr_prompt_links_t;


static int kvr_prompt_body(kvr_prompt_ctx_t *ctx);
static int kvr_prompt_named(kvr_prompt_ctx_t *ctx,
    const kvr_prompt_key_t *known);
static const kvr_prompt_key_t *kvr_prompt_find(const uint8_t *name,
    size_t len);
static void kvr_prompt_path_model(kvr_prompt_ctx_t *ctx);
static void kvr_prompt_result(kvr_prompt_ctx_t *ctx);
static void kvr_prompt_chain(kvr_prompt_ctx_t *ctx);
static unsigned kvr_prompt_skips(const kvr_prompt_ctx_t *ctx);
static unsigned kvr_prompt_unsized(const kvr_prompt_ctx_t *ctx);
static void kvr_prompt_link(kvr_prompt_links_t *l, const uint64_t *digest,
    size_t n);
static uint64_t kvr_prompt_hash(kvr_prompt_ctx_t *ctx, const void *data,
    size_t len);


/* the keys of a body, by their length */

static const kvr_prompt_key_t  kvr_prompt_keys[][KVR_PROMPT_KEYS] = {
    [1] = {
        { "n", kvr_prompt_samples, KVR_ONE_ENGINE_SAMPLES }
    },
    [4] = {
        { "text", kvr_prompt_text, KVR_SECTION_TEXT },
        { "echo", kvr_prompt_skip, KVR_SKIP_ECHO }
    },
    [5] = {
        { "model", kvr_prompt_model, 0 },
        { "tools", kvr_prompt_tools, KVR_SECTION_TOOLS },
        { "input", kvr_prompt_text, KVR_SECTION_INPUT },
        { "think", kvr_prompt_root, KVR_ROOT_THINK }
    },
    [6] = {
        { "system", kvr_prompt_system, KVR_SECTION_SYSTEM },
        { "prompt", kvr_prompt_text, KVR_SECTION_PROMPT },
        { "inputs", kvr_prompt_text, KVR_SECTION_INPUTS },
        { "images", kvr_prompt_root, KVR_ROOT_IMAGES },
        { "stream", kvr_prompt_stream, 0 }
    },
    [7] = {
        { "context", kvr_prompt_root, KVR_ROOT_CONTEXT },
        { "options", kvr_prompt_params, KVR_LIMIT_OPTIONS },
        { "best_of", kvr_prompt_samples, KVR_ONE_ENGINE_BEST }
    },
    [8] = {
        { "messages", kvr_prompt_messages, KVR_SECTION_MESSAGES },
        { "priority", kvr_prompt_priority, 0 },
        { "logprobs", kvr_prompt_skip, KVR_SKIP_LOGPROBS },
        { "template", kvr_prompt_root, KVR_ROOT_TEMPLATE }
    },
    [9] = {
        { "input_ids", kvr_prompt_text, KVR_SECTION_INPUT_IDS },
        { "token_ids", kvr_prompt_text, KVR_SECTION_TOKEN_IDS },
        { "n_predict", kvr_prompt_max_tokens, KVR_LIMIT_PREDICT },
        { "extra_key", kvr_prompt_root, KVR_ROOT_EXTRA_KEY },
        { "reasoning", kvr_prompt_root, KVR_ROOT_REASONING },
        { "lora_path", kvr_prompt_root, KVR_ROOT_LORA },
        { "documents", kvr_prompt_root, KVR_ROOT_DOCUMENTS },
        { "functions", kvr_prompt_root, KVR_ROOT_FUNCTIONS }
    },
    [10] = {
        { "text_input", kvr_prompt_text, KVR_SECTION_TEXT_INPUT },
        { "max_tokens", kvr_prompt_max_tokens, KVR_LIMIT_TOKENS },
        { "parameters", kvr_prompt_params, KVR_LIMIT_PARAMETERS },
        { "session_id", kvr_prompt_field, KVR_PROMPT_SESSION_ID },
        { "cache_salt", kvr_prompt_root, KVR_ROOT_CACHE_SALT },
        { "image_data", kvr_prompt_root, KVR_ROOT_IMAGE_DATA }
    },
    [11] = {
        { "tool_choice", kvr_prompt_tool_choice, 0 }
    },
    [12] = {
        { "cache_prompt", kvr_prompt_skip, KVR_SKIP_CACHE_PROMPT },
        { "instructions", kvr_prompt_system, KVR_SECTION_INSTRUCTIONS },
        { "service_tier", kvr_prompt_field, KVR_PROMPT_SERVICE_TIER }
    },
    [13] = {
        { "chat_template", kvr_prompt_root, KVR_ROOT_CHAT_TEMPLATE }
    },
    [14] = {
        { "max_new_tokens", kvr_prompt_max_tokens, KVR_LIMIT_NEW }
    },
    [15] = {
        { "prompt_logprobs", kvr_prompt_skip, KVR_SKIP_PROMPT_LOGPROBS },
        { "sampling_params", kvr_prompt_params, KVR_LIMIT_SAMPLING },
        { "use_beam_search", kvr_prompt_beams, KVR_ONE_ENGINE_BEAMS }
    },
    [16] = {
        { "prompt_cache_key", kvr_prompt_field, KVR_PROMPT_CACHE_KEY },
        { "reasoning_effort", kvr_prompt_root, KVR_ROOT_EFFORT }
    },
    [17] = {
        { "logprob_start_len", kvr_prompt_skip, KVR_SKIP_START },
        { "max_output_tokens", kvr_prompt_max_tokens, KVR_LIMIT_OUTPUT }
    },
    [18] = {
        { "add_special_tokens", kvr_prompt_root, KVR_ROOT_SPECIAL }
    },
    [19] = {
        { "mm_processor_kwargs", kvr_prompt_root, KVR_ROOT_MM }
    },
    [20] = {
        { "chat_template_kwargs", kvr_prompt_root, KVR_ROOT_TEMPLATE_KWARGS },
        { "previous_response_id", kvr_prompt_field, KVR_PROMPT_PREVIOUS_ID }
    },
    [21] = {
        { "max_completion_tokens", kvr_prompt_max_tokens, KVR_LIMIT_COMPLETION }
    },
    [22] = {
        { "truncate_prompt_tokens", kvr_prompt_truncate, 0 }
    }
};

/* bytes of a token: rarely fewer than MIN, on average TOKEN */
#define KVR_PROMPT_TOKEN_MIN  3
#define KVR_PROMPT_TOKEN      4

/* members of the prompt that bytes does not count */
#define KVR_PROMPT_UNCOUNTED  (1U << KVR_ROOT_DOCUMENTS                    \
                               | 1U << KVR_ROOT_CONTEXT                    \
                               | 1U << KVR_ROOT_IMAGES                     \
                               | 1U << KVR_ROOT_IMAGE_DATA)


int
kvr_prompt_read(kvr_prompt_t *pr, const kvr_prompt_conf_t *conf,
    kvr_json_fetch_pt fetch, void *data)
{
    int                rc;
    kvr_walk_t        *w;
    kvr_prompt_ctx_t   ctx;

    memset(pr, 0, offsetof(kvr_prompt_t, field));

    for (rc = 0; rc < KVR_PROMPT_FIELDS; rc++) {
        pr->field[rc].len = 0;
    }

    pr->clean = (conf->names != NULL);

    memset(&ctx, 0, offsetof(kvr_prompt_ctx_t, walk));

    ctx.pr = pr;
    ctx.conf = conf;
    ctx.prompt = KVR_SECTIONS;

    w = &ctx.walk;

    memset(w, 0, offsetof(kvr_walk_t, json));

    kvr_json_init(&w->json, kvr_text_ops(), fetch, data);
    kvr_block_init(&w->block, conf->secret, w->json.ops->digest, conf->digests,
                   conf->max_digests);

    rc = kvr_prompt_body(&ctx);

    if (rc != KVR_OK) {
        pr->clean = 0;
    }

    if (rc == KVR_JSON_COSTLY) {
        rc = KVR_ERROR;
    }

    kvr_prompt_result(&ctx);

    if (rc == KVR_OK || rc == KVR_AGAIN) {
        kvr_prompt_chain(&ctx);
    }

    return rc;
}


static int
kvr_prompt_body(kvr_prompt_ctx_t *ctx)
{
    int                      c, rc, first;
    kvr_json_t              *j;
    const kvr_prompt_key_t  *key;

    j = &ctx->walk.json;

    c = kvr_json_peek(j);

    if (c != '{') {
        return c < 0 ? c : KVR_ERROR;
    }

    j->p++;
    first = 1;

    for ( ;; ) {
        rc = kvr_json_key(j, &first);

        if (rc == KVR_DECLINED) {
            break;
        }

        if (rc != KVR_OK) {
            return rc;
        }

        key = kvr_prompt_find(j->key, j->key_len);

        rc = kvr_json_spend(j, 1);

        if (rc == KVR_OK && ctx->conf->names) {
            rc = kvr_prompt_named(ctx, key);

            if (rc == KVR_DECLINED) {
                continue;
            }
        }

        if (rc == KVR_OK) {
            rc = key ? key->handler(ctx, key) : kvr_json_skip(j);
        }

        if (rc != KVR_OK) {
            return rc;
        }
    }

    /* the text ends here */

    return kvr_json_peek(j) == KVR_AGAIN ? KVR_OK : KVR_ERROR;
}


/*
 * Searches the value of a member for the names.  KVR_DECLINED: the key is not
 * known, and its value was consumed.
 */
static int
kvr_prompt_named(kvr_prompt_ctx_t *ctx, const kvr_prompt_key_t *known)
{
    int                      rc, content;
    size_t                   depth;
    uint64_t                 offset, key;
    kvr_json_t              *j;
    const kvr_json_names_t  *names;

    j = &ctx->walk.json;
    names = ctx->conf->names;

    if (strchr(names->first, j->key[0])
        && kvr_json_names_has(names->name, j->key, j->key_len))
    {
        ctx->pr->clean = 0;
    }

    if (j->p < j->e && *j->p > ' ' && !kvr_json_names_inside(*j->p)) {
        return KVR_OK;
    }

    /* the key in the window is lost when the window moves */

    content = kvr_json_names_has(names->content, j->key, j->key_len);

    if (!ctx->pr->clean || content
        || !kvr_json_names_inside(kvr_json_peek(j)))
    {
        return KVR_OK;
    }

    depth = 0;
    offset = kvr_json_offset(j);

    rc = kvr_json_names_next(names, j, &depth, &key);

    if (rc == KVR_DECLINED && known == NULL) {
        return KVR_DECLINED;
    }

    if (rc == KVR_OK) {
        ctx->pr->clean = 0;

    } else if (rc != KVR_DECLINED) {
        return rc;
    }

    return kvr_json_seek(j, offset);
}


static const kvr_prompt_key_t *
kvr_prompt_find(const uint8_t *name, size_t len)
{
    unsigned                 i;
    const kvr_prompt_key_t  *key;

    if (len >= kvr_nelts(kvr_prompt_keys)) {
        return NULL;
    }

    key = kvr_prompt_keys[len];

    for (i = 0; i < KVR_PROMPT_KEYS && key->name; i++, key++) {

        if (key->name[0] == (char) name[0]
            && memcmp(key->name, name, len) == 0)
        {
            return key;
        }
    }

    return NULL;
}


/* Takes the model from the path, where KServe has it. */
static void
kvr_prompt_path_model(kvr_prompt_ctx_t *ctx)
{
    size_t          len, n;
    const uint8_t  *p, *model, *slash;

    p = ctx->conf->path;
    len = ctx->conf->path_len;

    model = memmem(p, len, "/models/", 8);

    if (model) {
        model += 8;
        n = len - (size_t) (model - p);
        slash = memchr(model, '/', n);
        n = slash ? (size_t) (slash - model) : n;

        ctx->pr->model_len = kvr_min(n, KVR_PROMPT_MODEL_LEN);
        memcpy(ctx->pr->model, model, ctx->pr->model_len);
    }
}


static void
kvr_prompt_result(kvr_prompt_ctx_t *ctx)
{
    int            i;
    uint32_t       set;
    kvr_prompt_t  *pr;

    pr = ctx->pr;

    if (pr->model_len == 0) {
        kvr_prompt_path_model(ctx);
    }

    for (set = ctx->limits; set && pr->max_tokens == 0; set &= set - 1) {
        pr->max_tokens = ctx->limit[__builtin_ctz(set)];
    }

    if (ctx->conf->no_prefill) {
        pr->shape = KVR_PROMPT_NO_KV;
        return;
    }

    for (set = ctx->sections >> KVR_SECTION_TOKEN_IDS; set; set &= set - 1) {

        i = KVR_SECTION_TOKEN_IDS + __builtin_ctz(set);

        if (ctx->section[i].shape == KVR_PROMPT_NONE) {
            continue;
        }

        ctx->prompt = i;
        pr->shape = ctx->section[i].shape;
        pr->extra = ctx->section[i].extra;
    }
}


static void
kvr_prompt_chain(kvr_prompt_ctx_t *ctx)
{
    uint32_t             i, set;
    uint64_t             h, pos;
    kvr_prompt_t        *pr;
    kvr_section_t       *s;
    kvr_prompt_links_t   l;

    pr = ctx->pr;

    h = kvr_prompt_hash(ctx, ctx->conf->salt, ctx->conf->salt_len);
    pr->model_hash = kvr_prompt_hash(ctx, pr->model, pr->model_len);
    h = kvr_mix(h, pr->model_hash);

    pr->model_root = h;

    for (set = ctx->roots; set; set &= set - 1) {
        i = (uint32_t) __builtin_ctz(set);

        if (ctx->root[i]) {
            h = kvr_mix(kvr_mix(h, i), ctx->root[i]);
        }
    }

    pr->root = h;

    if (pr->shape == KVR_PROMPT_NONE) {
        return;
    }

    if (pr->shape == KVR_PROMPT_NO_KV) {
        pr->bytes = kvr_json_offset(&ctx->walk.json);
        return;
    }

    l.h = h;
    l.entry = ctx->conf->chain;
    l.k = 0;
    l.max = ctx->conf->max_chain;
    l.left = 1;

    pos = 0;

    for (set = ctx->sections; set; set &= set - 1) {

        i = (uint32_t) __builtin_ctz(set);
        s = &ctx->section[i];

        if (i >= KVR_SECTION_TOKEN_IDS && i != (uint32_t) ctx->prompt) {
            continue;
        }

        pr->bytes += s->bytes;
        pos += s->n;

        kvr_prompt_link(&l, ctx->conf->digests + s->start, s->n);
    }

    pr->blocks = (uint32_t) pos;
    pr->n = (uint32_t) l.k;

    pr->skips = kvr_prompt_skips(ctx);
    pr->unsized = kvr_prompt_unsized(ctx);

    /*
     * Only the engine that computes a prompt has the probabilities of its
     * tokens.  With several replies, the first one would use up the transfer.
     */

    pr->one_engine = ctx->one_engine || pr->extra
                     || ctx->skips & (1U << KVR_SKIP_PROMPT_LOGPROBS
                                      | 1U << KVR_SKIP_ECHO
                                      | 1U << KVR_SKIP_START);

    if (ctx->left && pr->bytes / KVR_PROMPT_TOKEN_MIN > (uint64_t) ctx->left) {
        pr->bytes = kvr_min(pr->bytes,
                            KVR_PROMPT_TOKEN * (uint64_t) ctx->left);
        pr->blocks = 0;
        pr->n = 0;
        pr->unsized = 1;
        return;
    }

    pr->last = l.h;
    pr->tailed = (ctx->prompt == KVR_SECTION_MESSAGES);
}


/*
 * Returns whether the engine computes the whole prompt without its cache,
 * because it returns the probability of each token: vLLM with prompt_logprobs,
 * or with "echo" and logprobs, which a chat always has; SGLang from the token
 * that the request names.  A client of llama.cpp can switch its cache off.
 */
static unsigned
kvr_prompt_skips(const kvr_prompt_ctx_t *ctx)
{
    uint32_t  skips;

    skips = ctx->skips;

    if (skips & (1U << KVR_SKIP_PROMPT_LOGPROBS | 1U << KVR_SKIP_CACHE_PROMPT
                 | 1U << KVR_SKIP_START))
    {
        return 1;
    }

    return skips & 1U << KVR_SKIP_ECHO
           && (skips & 1U << KVR_SKIP_LOGPROBS
               || ctx->pr->shape == KVR_PROMPT_CHAT);
}


/* Returns whether the prompt has parts that are not counted or not here. */
static unsigned
kvr_prompt_unsized(const kvr_prompt_ctx_t *ctx)
{
    uint32_t  set;

    for (set = ctx->roots & KVR_PROMPT_UNCOUNTED; set; set &= set - 1) {
        if (ctx->root[__builtin_ctz(set)]) {
            return 1;
        }
    }

    return ctx->pr->field[KVR_PROMPT_PREVIOUS_ID].len != 0;
}


/*
 * Extends a chain.  It is not inlined: the compiler would keep h in memory, and
 * each link would wait for it.
 */
static __attribute__ ((noinline)) void
kvr_prompt_link(kvr_prompt_links_t *l, const uint64_t *digest, size_t n)
{
    size_t           k, left, step;
    uint64_t         h;
    const uint64_t  *last;

    h = l->h;
    k = l->k;
    left = l->left;
    step = kvr_chain_step((uint32_t) k);

    for (last = digest + n; digest < last; digest++) {

        h = kvr_mix(h, *digest);

        if (--left) {
            continue;
        }

        if (k == l->max) {
            break;
        }

        l->entry[k++] = h;

        if (k % KVR_CHAIN_RUN == 0) {
            step = kvr_chain_step((uint32_t) k);
        }

        left = step;
    }

    l->h = h;
    l->k = k;
    l->left = left;
}


static uint64_t
kvr_prompt_hash(kvr_prompt_ctx_t *ctx, const void *data, size_t len)
{
    kvr_block_t  *b;

    b = &ctx->walk.block;

    return b->digest(b->secret, len ? data : (const void *) "", len);
}
