
/*
 * Copyright (C) kvroute contributors
 */


#include "kvr_prompt.h"


/* what belongs to the root, in the order in which it is mixed in */

typedef enum {
    KVR_ROOT_TOOLS = 0,
    KVR_ROOT_CACHE_SALT,
    KVR_ROOT_EXTRA_KEY,
    KVR_ROOT_TEMPLATE,
    KVR_ROOT_TEMPLATE_KWARGS,
    KVR_ROOT_EFFORT,
    KVR_ROOT_REASONING,
    KVR_ROOT_THINK,
    KVR_ROOT_TOOL_CHOICE,
    KVR_ROOT_DOCUMENTS,
    KVR_ROOT_SPECIAL,
    KVR_ROOT_MM,
    KVR_ROOT_TRUNCATE,
    KVR_ROOT_LORA,
    KVR_ROOT_CONTEXT,
    KVR_ROOT_IMAGES,
    KVR_ROOT_FUNCTIONS,
    KVR_ROOT_CHAT_TEMPLATE,
    KVR_ROOT_IMAGE_DATA,
    KVR_ROOT_VALUES
} kvr_root_e;


/*
 * One section for each key that holds text, so that it does not matter which
 * comes first.  Where a body has several prompts (no API wants that) the last
 * of these is taken.
 */

typedef enum {
    KVR_SECTION_SYSTEM = 0,
    KVR_SECTION_INSTRUCTIONS,
    KVR_SECTION_TOOLS,

    KVR_SECTION_TOKEN_IDS,
    KVR_SECTION_INPUT_IDS,
    KVR_SECTION_TEXT,
    KVR_SECTION_TEXT_INPUT,
    KVR_SECTION_INPUTS,
    KVR_SECTION_INPUT,
    KVR_SECTION_PROMPT,
    KVR_SECTION_MESSAGES,
    KVR_SECTIONS
} kvr_section_e;


/* the names of the limit of tokens; the first that is given is taken */

typedef enum {
    KVR_LIMIT_COMPLETION = 0,
    KVR_LIMIT_OUTPUT,
    KVR_LIMIT_TOKENS,
    KVR_LIMIT_NEW,
    KVR_LIMIT_PREDICT,
    KVR_LIMIT_OPTIONS,
    KVR_LIMIT_PARAMETERS,
    KVR_LIMIT_SAMPLING,
    KVR_LIMITS
} kvr_limit_e;


typedef struct {
    size_t               start;
    size_t               n;
    uint64_t             bytes;
    uint64_t             extra;
    kvr_prompt_shape_e   shape;  /* of a prompt, or KVR_PROMPT_NONE */
} kvr_section_t;


typedef struct {
    kvr_walk_t           walk;
    kvr_prompt_t        *pr;
    const kvr_prompt_conf_t  *conf;
    kvr_section_t        section[KVR_SECTIONS];
    uint64_t             root[KVR_ROOT_VALUES];
    int64_t              limit[KVR_LIMITS];
    int                  prompt; /* the section that is taken */
    unsigned             embedding:1;
} kvr_prompt_ctx_t;


typedef struct kvr_prompt_key_s  kvr_prompt_key_t;

typedef int (*kvr_prompt_pt)(kvr_prompt_ctx_t *ctx,
    const kvr_prompt_key_t *key);

struct kvr_prompt_key_s {
    const char          *name;
    kvr_prompt_pt        handler;
    unsigned             arg;
};


static int kvr_prompt_body(kvr_prompt_ctx_t *ctx);
static const kvr_prompt_key_t *kvr_prompt_find(const uint8_t *name,
    size_t len);
static int kvr_prompt_model(kvr_prompt_ctx_t *ctx,
    const kvr_prompt_key_t *key);
static int kvr_prompt_field(kvr_prompt_ctx_t *ctx,
    const kvr_prompt_key_t *key);
static int kvr_prompt_stream(kvr_prompt_ctx_t *ctx,
    const kvr_prompt_key_t *key);
static int kvr_prompt_priority(kvr_prompt_ctx_t *ctx,
    const kvr_prompt_key_t *key);
static int kvr_prompt_max_tokens(kvr_prompt_ctx_t *ctx,
    const kvr_prompt_key_t *key);
static int kvr_prompt_params(kvr_prompt_ctx_t *ctx,
    const kvr_prompt_key_t *key);
static int kvr_prompt_root(kvr_prompt_ctx_t *ctx,
    const kvr_prompt_key_t *key);
static int kvr_prompt_tool_choice(kvr_prompt_ctx_t *ctx,
    const kvr_prompt_key_t *key);
static int kvr_prompt_system(kvr_prompt_ctx_t *ctx,
    const kvr_prompt_key_t *key);
static int kvr_prompt_tools(kvr_prompt_ctx_t *ctx,
    const kvr_prompt_key_t *key);
static int kvr_prompt_messages(kvr_prompt_ctx_t *ctx,
    const kvr_prompt_key_t *key);
static int kvr_prompt_text(kvr_prompt_ctx_t *ctx,
    const kvr_prompt_key_t *key);
static int kvr_prompt_input(kvr_prompt_ctx_t *ctx,
    const kvr_prompt_key_t *key);
static int kvr_prompt_list(kvr_prompt_ctx_t *ctx, kvr_section_t *s);
static kvr_section_t *kvr_prompt_section(kvr_prompt_ctx_t *ctx,
    kvr_section_e section);
static void kvr_prompt_section_end(kvr_prompt_ctx_t *ctx, kvr_section_t *s);
static void kvr_prompt_path(kvr_prompt_ctx_t *ctx);
static void kvr_prompt_path_model(kvr_prompt_ctx_t *ctx);
static void kvr_prompt_result(kvr_prompt_ctx_t *ctx);
static void kvr_prompt_chain(kvr_prompt_ctx_t *ctx);
static uint64_t kvr_prompt_hash(kvr_prompt_ctx_t *ctx, const void *data,
    size_t len);


/* the keys of a body, by length, so that a look-up compares one or two */

static const kvr_prompt_key_t  kvr_prompt_keys[] = {
    { "text", kvr_prompt_text, KVR_SECTION_TEXT },

    { "model", kvr_prompt_model, 0 },
    { "tools", kvr_prompt_tools, KVR_SECTION_TOOLS },
    { "input", kvr_prompt_input, KVR_SECTION_INPUT },
    { "think", kvr_prompt_root, KVR_ROOT_THINK },

    { "stream", kvr_prompt_stream, 0 },
    { "system", kvr_prompt_system, KVR_SECTION_SYSTEM },
    { "prompt", kvr_prompt_text, KVR_SECTION_PROMPT },
    { "inputs", kvr_prompt_text, KVR_SECTION_INPUTS },
    { "images", kvr_prompt_root, KVR_ROOT_IMAGES },

    { "context", kvr_prompt_root, KVR_ROOT_CONTEXT },
    { "options", kvr_prompt_params, KVR_LIMIT_OPTIONS },

    { "messages", kvr_prompt_messages, KVR_SECTION_MESSAGES },
    { "priority", kvr_prompt_priority, 0 },
    { "template", kvr_prompt_root, KVR_ROOT_TEMPLATE },

    { "input_ids", kvr_prompt_text, KVR_SECTION_INPUT_IDS },
    { "token_ids", kvr_prompt_text, KVR_SECTION_TOKEN_IDS },
    { "n_predict", kvr_prompt_max_tokens, KVR_LIMIT_PREDICT },
    { "extra_key", kvr_prompt_root, KVR_ROOT_EXTRA_KEY },
    { "reasoning", kvr_prompt_root, KVR_ROOT_REASONING },
    { "lora_path", kvr_prompt_root, KVR_ROOT_LORA },
    { "documents", kvr_prompt_root, KVR_ROOT_DOCUMENTS },
    { "functions", kvr_prompt_root, KVR_ROOT_FUNCTIONS },

    { "text_input", kvr_prompt_text, KVR_SECTION_TEXT_INPUT },
    { "max_tokens", kvr_prompt_max_tokens, KVR_LIMIT_TOKENS },
    { "parameters", kvr_prompt_params, KVR_LIMIT_PARAMETERS },
    { "session_id", kvr_prompt_field, KVR_PROMPT_SESSION_ID },
    { "cache_salt", kvr_prompt_root, KVR_ROOT_CACHE_SALT },
    { "image_data", kvr_prompt_root, KVR_ROOT_IMAGE_DATA },

    { "tool_choice", kvr_prompt_tool_choice, 0 },

    { "instructions", kvr_prompt_system, KVR_SECTION_INSTRUCTIONS },
    { "service_tier", kvr_prompt_field, KVR_PROMPT_SERVICE_TIER },

    { "chat_template", kvr_prompt_root, KVR_ROOT_CHAT_TEMPLATE },

    { "max_new_tokens", kvr_prompt_max_tokens, KVR_LIMIT_NEW },

    { "sampling_params", kvr_prompt_params, KVR_LIMIT_SAMPLING },

    { "prompt_cache_key", kvr_prompt_field, KVR_PROMPT_CACHE_KEY },
    { "reasoning_effort", kvr_prompt_root, KVR_ROOT_EFFORT },

    { "max_output_tokens", kvr_prompt_max_tokens, KVR_LIMIT_OUTPUT },

    { "add_special_tokens", kvr_prompt_root, KVR_ROOT_SPECIAL },

    { "mm_processor_kwargs", kvr_prompt_root, KVR_ROOT_MM },

    { "chat_template_kwargs", kvr_prompt_root, KVR_ROOT_TEMPLATE_KWARGS },
    { "previous_response_id", kvr_prompt_field, KVR_PROMPT_PREVIOUS_ID },

    { "max_completion_tokens", kvr_prompt_max_tokens, KVR_LIMIT_COMPLETION },

    { "truncate_prompt_tokens", kvr_prompt_root, KVR_ROOT_TRUNCATE },

    { NULL, NULL, 0 }
};

#define KVR_PROMPT_KEY_MAX  22


int
kvr_prompt_read(kvr_prompt_t *pr, const kvr_prompt_conf_t *conf,
    kvr_json_fetch_pt fetch, void *data)
{
    int                rc;
    kvr_walk_t        *w;
    kvr_prompt_ctx_t   ctx;

    pr->shape = KVR_PROMPT_NONE;
    pr->bytes = 0;
    pr->extra = 0;
    pr->blocks = 0;
    pr->n = 0;
    pr->root = 0;
    pr->model_root = 0;
    pr->stream = 0;
    pr->priority_set = 0;
    pr->priority = 0;
    pr->max_tokens = 0;
    pr->model_len = 0;

    for (rc = 0; rc < KVR_PROMPT_FIELDS; rc++) {
        pr->field[rc].len = 0;
    }

    w = &ctx.walk;

    kvr_json_init(&w->json, fetch, data);
    kvr_block_init(&w->block, conf->secret, w->json.ops->digest, conf->digests,
                   conf->max_digests);

    w->careful = 0;
    w->drop = 0;
    w->system = 0;
    w->head = 0;
    w->part = 0;
    w->separate = 0;
    w->depth = 0;
    w->media = 0;
    w->data = &ctx;

    ctx.pr = pr;
    ctx.conf = conf;
    ctx.prompt = KVR_SECTIONS;
    ctx.embedding = 0;

    memset(ctx.section, 0, sizeof(ctx.section));

    if (conf->chunks) {
        conf->chunks->n = 0;
    }
    memset(ctx.root, 0, sizeof(ctx.root));
    memset(ctx.limit, 0, sizeof(ctx.limit));

    kvr_prompt_path(&ctx);

    rc = kvr_prompt_body(&ctx);

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

        rc = key ? key->handler(ctx, key) : kvr_json_skip(j);

        if (rc != KVR_OK) {
            return rc;
        }
    }

    /* nothing may follow */

    return kvr_json_peek(j) == KVR_AGAIN ? KVR_OK : KVR_ERROR;
}


static const kvr_prompt_key_t *
kvr_prompt_find(const uint8_t *name, size_t len)
{
    size_t                   n;
    const kvr_prompt_key_t  *key;

    static const kvr_prompt_key_t  *by_len[KVR_PROMPT_KEY_MAX + 2];

    if (kvr_unlikely(by_len[0] == NULL)) {

        n = 0;

        for (key = kvr_prompt_keys; key->name; key++) {
            while (n <= strlen(key->name)) {
                by_len[n++] = key;
            }
        }

        while (n < KVR_PROMPT_KEY_MAX + 2) {
            by_len[n++] = key;
        }
    }

    if (len > KVR_PROMPT_KEY_MAX) {
        return NULL;
    }

    for (key = by_len[len]; key != by_len[len + 1]; key++) {

        if (memcmp(key->name, name, len) == 0) {
            return key;
        }
    }

    return NULL;
}


static int
kvr_prompt_model(kvr_prompt_ctx_t *ctx, const kvr_prompt_key_t *key)
{
    int            rc;
    kvr_prompt_t  *pr;

    (void) key;

    pr = ctx->pr;
    pr->model_len = 0;

    if (kvr_json_peek(&ctx->walk.json) != '"') {
        return kvr_walk_skip(&ctx->walk);
    }

    rc = kvr_json_string(&ctx->walk.json, pr->model, KVR_PROMPT_MODEL_LEN,
                         &pr->model_len);

    if (pr->model_len > KVR_PROMPT_MODEL_LEN) {
        pr->model_len = KVR_PROMPT_MODEL_LEN;
    }

    return rc;
}


static int
kvr_prompt_field(kvr_prompt_ctx_t *ctx, const kvr_prompt_key_t *key)
{
    int                rc;
    kvr_prompt_str_t  *s;

    s = &ctx->pr->field[key->arg];
    s->len = 0;

    if (kvr_json_peek(&ctx->walk.json) != '"') {
        return kvr_walk_skip(&ctx->walk);
    }

    rc = kvr_json_string(&ctx->walk.json, s->data, KVR_PROMPT_FIELD_LEN,
                         &s->len);

    /* half an identifier would be somebody else's */

    if (s->len > KVR_PROMPT_FIELD_LEN || rc != KVR_OK) {
        s->len = 0;
    }

    return rc;
}


static int
kvr_prompt_stream(kvr_prompt_ctx_t *ctx, const kvr_prompt_key_t *key)
{
    int       rc;
    unsigned  value;

    (void) key;

    value = 0;
    rc = kvr_json_boolean(&ctx->walk.json, &value);
    ctx->pr->stream = (value != 0);

    return rc == KVR_DECLINED ? KVR_OK : rc;
}


static int
kvr_prompt_priority(kvr_prompt_ctx_t *ctx, const kvr_prompt_key_t *key)
{
    int  rc;

    (void) key;

    rc = kvr_json_integer(&ctx->walk.json, &ctx->pr->priority);
    ctx->pr->priority_set = (rc == KVR_OK);

    return rc == KVR_DECLINED ? KVR_OK : rc;
}


static int
kvr_prompt_max_tokens(kvr_prompt_ctx_t *ctx, const kvr_prompt_key_t *key)
{
    int      rc;
    int64_t  n;

    n = 0;
    rc = kvr_json_integer(&ctx->walk.json, &n);
    ctx->limit[key->arg] = kvr_max(n, 0);

    return rc == KVR_DECLINED ? KVR_OK : rc;
}


/* the object in which some engines take sampling options */
static int
kvr_prompt_params(kvr_prompt_ctx_t *ctx, const kvr_prompt_key_t *key)
{
    int          rc, first;
    kvr_json_t  *j;

    j = &ctx->walk.json;
    ctx->limit[key->arg] = 0;

    if (kvr_json_peek(j) != '{') {
        return kvr_json_skip(j);
    }

    j->p++;
    first = 1;

    for ( ;; ) {
        rc = kvr_json_key(j, &first);

        if (rc != KVR_OK) {
            return rc == KVR_DECLINED ? KVR_OK : rc;
        }

        if ((j->key_len == 14 && memcmp(j->key, "max_new_tokens", 14) == 0)
            || (j->key_len == 11 && memcmp(j->key, "num_predict", 11) == 0))
        {
            rc = kvr_prompt_max_tokens(ctx, key);

        } else {
            rc = kvr_json_skip(j);
        }

        if (rc != KVR_OK) {
            return rc;
        }
    }
}


static int
kvr_prompt_root(kvr_prompt_ctx_t *ctx, const kvr_prompt_key_t *key)
{
    return kvr_walk_digest(&ctx->walk, &ctx->root[key->arg], NULL);
}


/* engines leave the tools out for "none", other choices render the same */
static int
kvr_prompt_tool_choice(kvr_prompt_ctx_t *ctx, const kvr_prompt_key_t *key)
{
    int      rc;
    size_t   len;
    uint8_t  word[8];

    (void) key;

    rc = kvr_walk_word(&ctx->walk, word, sizeof(word), &len);

    ctx->root[KVR_ROOT_TOOL_CHOICE] = (len == 4
                                       && memcmp(word, "none", 4) == 0);

    return rc;
}


static int
kvr_prompt_system(kvr_prompt_ctx_t *ctx, const kvr_prompt_key_t *key)
{
    int             rc;
    uint64_t        offset;
    kvr_walk_t     *w;
    kvr_section_t  *s;

    w = &ctx->walk;
    offset = kvr_json_offset(&w->json);

    s = kvr_prompt_section(ctx, key->arg);

    w->system = 1;
    w->head = 1;
    w->separate = 0;

    rc = kvr_message_content(w);

    if (rc == KVR_WALK_ORDER) {

        rc = kvr_json_seek(&w->json, offset);
        if (rc != KVR_OK) {
            return rc;
        }

        w->depth = 0;
        w->media = 0;
        w->drop = 0;
        w->separate = 0;
        w->block.n = s->start;
        w->block.fill = 0;
        w->block.bytes = 0;

        w->careful = 1;
        rc = kvr_message_content(w);
        w->careful = 0;
    }

    w->system = 0;

    kvr_block_finish(&w->block);
    kvr_prompt_section_end(ctx, s);

    return rc;
}


static int
kvr_prompt_tools(kvr_prompt_ctx_t *ctx, const kvr_prompt_key_t *key)
{
    int             c, rc;
    size_t          i;
    uint64_t        root;
    kvr_block_t    *b;
    kvr_section_t  *s;

    b = &ctx->walk.block;
    s = kvr_prompt_section(ctx, key->arg);

    root = 0;
    c = kvr_json_peek(&ctx->walk.json);

    if (c != '[') {
        rc = kvr_walk_skip(&ctx->walk);

    } else {
        rc = kvr_text_raw(&ctx->walk.json, b);

        /* an empty array is no tools: two bytes, never a prompt's */

        if (b->bytes + b->fill <= 2) {
            b->fill = 0;

        } else {
            kvr_block_finish(b);

            root = 1;

            for (i = s->start; i < b->n; i++) {
                root = kvr_mix(root, b->out[i]);
            }
        }
    }

    ctx->root[KVR_ROOT_TOOLS] = root;
    kvr_prompt_section_end(ctx, s);

    return rc;
}


static int
kvr_prompt_messages(kvr_prompt_ctx_t *ctx, const kvr_prompt_key_t *key)
{
    int             rc;
    kvr_section_t  *s;

    if (ctx->embedding) {
        return kvr_walk_skip(&ctx->walk);
    }

    s = kvr_prompt_section(ctx, key->arg);

    if (kvr_json_peek(&ctx->walk.json) != '[') {
        return kvr_walk_skip(&ctx->walk);
    }

    s->shape = KVR_PROMPT_CHAT;

    rc = kvr_message_list(&ctx->walk);

    kvr_prompt_section_end(ctx, s);

    return rc;
}


/* a prompt as text, as tokens, or a batch of either */
static int
kvr_prompt_text(kvr_prompt_ctx_t *ctx, const kvr_prompt_key_t *key)
{
    int             c, rc;
    kvr_json_t     *j;
    kvr_section_t  *s;

    if (ctx->embedding) {
        return kvr_walk_skip(&ctx->walk);
    }

    j = &ctx->walk.json;
    s = kvr_prompt_section(ctx, key->arg);

    c = kvr_json_peek(j);

    /* "text" is an object of options in the Responses API */

    if (c != '"' && c != '[') {
        return kvr_json_skip(j);
    }

    if (c == '"') {
        s->shape = KVR_PROMPT_TEXT;
        j->p++;
        rc = j->ops->string(j, &ctx->walk.block);

    } else {
        rc = kvr_prompt_list(ctx, s);
    }

    kvr_prompt_section_end(ctx, s);

    return rc;
}


/*
 * An array: of tokens, which are hashed as they are written; or of prompts, of
 * which the first decides the way and the others only weigh.
 */
static int
kvr_prompt_list(kvr_prompt_ctx_t *ctx, kvr_section_t *s)
{
    int          c, rc, first;
    uint64_t     offset;
    kvr_json_t  *j;

    j = &ctx->walk.json;
    offset = kvr_json_offset(j);

    j->p++;
    first = 1;

    rc = kvr_json_item(j, &first);

    if (rc != KVR_OK) {
        return rc == KVR_DECLINED ? KVR_OK : rc;
    }

    c = kvr_json_peek(j);

    switch (c) {

    case '"':
        s->shape = KVR_PROMPT_TEXT;
        j->p++;
        rc = j->ops->string(j, &ctx->walk.block);
        break;

    case '[':
        s->shape = KVR_PROMPT_TOKENS;
        rc = kvr_text_raw(j, &ctx->walk.block);
        break;

    default:
        s->shape = KVR_PROMPT_TOKENS;

        rc = kvr_json_seek(j, offset);

        return rc == KVR_OK ? kvr_text_raw(j, &ctx->walk.block) : rc;
    }

    offset = kvr_json_offset(j);

    while (rc == KVR_OK) {
        rc = kvr_json_item(j, &first);

        if (rc == KVR_OK) {
            rc = kvr_json_skip(j);
        }
    }

    s->extra = kvr_json_offset(j) - offset;

    if (rc != KVR_DECLINED) {
        return rc;
    }

    /* less the bracket */

    s->extra--;

    return KVR_OK;
}


static int
kvr_prompt_input(kvr_prompt_ctx_t *ctx, const kvr_prompt_key_t *key)
{
    int             c, rc;
    kvr_json_t     *j;
    kvr_section_t  *s;

    if (ctx->embedding) {
        return kvr_walk_skip(&ctx->walk);
    }

    j = &ctx->walk.json;
    s = kvr_prompt_section(ctx, key->arg);

    c = kvr_json_peek(j);

    if (c != '"' && c != '[') {
        return kvr_json_skip(j);
    }

    s->shape = KVR_PROMPT_INPUT;

    if (c == '"') {

        /* stands for one message of the user */

        kvr_message_head(&ctx->walk, "user", 4);
        j->p++;
        rc = j->ops->string(j, &ctx->walk.block);

    } else {
        rc = kvr_message_list(&ctx->walk);
    }

    kvr_prompt_section_end(ctx, s);

    return rc;
}


/* starts a section, or starts it again if the key is there twice */
static kvr_section_t *
kvr_prompt_section(kvr_prompt_ctx_t *ctx, kvr_section_e section)
{
    kvr_block_t    *b;
    kvr_section_t  *s;

    s = &ctx->section[section];
    b = &ctx->walk.block;

    /* the digests of an equal key, seen earlier, stay behind unused */

    s->start = b->n;
    s->n = 0;
    s->bytes = 0;
    s->extra = 0;
    s->shape = KVR_PROMPT_NONE;

    b->fill = 0;
    b->bytes = 0;

    /* documents are shared by messages, not by system prompts */

    if (ctx->conf->chunks && section >= KVR_SECTION_TOKEN_IDS) {
        kvr_chunk_init(ctx->conf->chunks, b->secret, b->digest);
        b->tap = kvr_chunk_tap;
        b->tap_data = ctx->conf->chunks;
    }

    ctx->walk.media = 0;

    return s;
}


static void
kvr_prompt_section_end(kvr_prompt_ctx_t *ctx, kvr_section_t *s)
{
    kvr_block_t  *b;

    b = &ctx->walk.block;

    s->n = b->n - s->start;
    s->bytes = b->bytes + b->fill;

    if (b->tap) {
        kvr_chunk_put(ctx->conf->chunks, b->stage[b->cur], b->fill);
        kvr_chunk_finish(ctx->conf->chunks);
        b->tap = NULL;
    }

    b->fill = 0;
    b->bytes = 0;
}


/* the path decides where the body alone cannot */
static void
kvr_prompt_path(kvr_prompt_ctx_t *ctx)
{
    int             i;
    size_t          len, n;
    const uint8_t  *p;

    static const char  *const  embeddings[] = {
        "/embed", "/rerank", "/score", "/pooling", "/classify", "/moderation",
        "/tokenize", "/detokenize", NULL
    };

    /* by the start of its last segment */

    for (n = ctx->conf->path_len; n && ctx->conf->path[n - 1] != '/'; n--) {
        /* void */
    }

    if (n == 0) {
        return;
    }

    p = ctx->conf->path + n - 1;
    len = ctx->conf->path_len - n + 1;

    for (i = 0; embeddings[i]; i++) {
        n = strlen(embeddings[i]);

        if (len >= n && memcmp(p, embeddings[i], n) == 0) {
            ctx->embedding = 1;
        }
    }
}


/* KServe has the model in the path */
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
    kvr_prompt_t  *pr;

    pr = ctx->pr;

    if (pr->model_len == 0) {
        kvr_prompt_path_model(ctx);
    }

    for (i = 0; i < KVR_LIMITS && pr->max_tokens == 0; i++) {
        pr->max_tokens = ctx->limit[i];
    }

    if (ctx->embedding) {
        pr->shape = KVR_PROMPT_EMBEDDING;
        return;
    }

    for (i = KVR_SECTION_TOKEN_IDS; i < KVR_SECTIONS; i++) {

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
    size_t          i, unit;
    uint32_t        k, next;
    uint64_t        h, pos;
    kvr_prompt_t   *pr;
    kvr_section_t  *s, *end;

    pr = ctx->pr;

    h = kvr_prompt_hash(ctx, ctx->conf->salt, ctx->conf->salt_len);
    h = kvr_mix(h, kvr_prompt_hash(ctx, pr->model, pr->model_len));

    pr->model_root = h;

    for (i = 0; i < KVR_ROOT_VALUES; i++) {
        if (ctx->root[i]) {
            h = kvr_mix(kvr_mix(h, i), ctx->root[i]);
        }
    }

    pr->root = h;

    if (pr->shape == KVR_PROMPT_NONE) {
        return;
    }

    if (pr->shape == KVR_PROMPT_EMBEDDING) {
        pr->bytes = kvr_json_offset(&ctx->walk.json);
        return;
    }

    unit = ctx->conf->unit;
    pos = 0;
    k = 0;
    next = kvr_chain_depth(0);

    for (s = ctx->section, end = s + KVR_SECTIONS; s < end; s++) {

        if (s - ctx->section >= KVR_SECTION_TOKEN_IDS
            && s - ctx->section != ctx->prompt)
        {
            continue;
        }

        pr->bytes += s->bytes;

        for (i = s->start; i < s->start + s->n; i++) {

            h = kvr_mix(h, ctx->conf->digests[i]);

            if (++pos == (uint64_t) next * unit && k < ctx->conf->max_chain) {
                ctx->conf->chain[k++] = h;
                next = kvr_chain_depth(k);
            }
        }
    }

    pr->blocks = (uint32_t) pos;
    pr->n = k;

    if (ctx->conf->chunks && ctx->prompt < KVR_SECTIONS) {
        kvr_chunk_place(ctx->conf->chunks, pr->model_root,
                        pr->bytes - ctx->section[ctx->prompt].bytes);
    }
}


static uint64_t
kvr_prompt_hash(kvr_prompt_ctx_t *ctx, const void *data, size_t len)
{
    kvr_block_t  *b;

    b = &ctx->walk.block;

    return b->digest(b->secret, len ? data : (const void *) "", len);
}
