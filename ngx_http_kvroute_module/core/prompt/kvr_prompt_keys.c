
/*
 * Copyright (C) kvroute contributors
 */


#include "core/prompt/kvr_prompt_int.h"


static int kvr_prompt_tokens(kvr_prompt_ctx_t *ctx, int64_t *n);
static void kvr_prompt_set_bit(uint32_t *set, unsigned bit, int on);
static int kvr_prompt_list(kvr_prompt_ctx_t *ctx, kvr_section_t *s);
static kvr_section_t *kvr_prompt_section(kvr_prompt_ctx_t *ctx,
    kvr_section_e section);
static void kvr_prompt_section_end(kvr_prompt_ctx_t *ctx, kvr_section_t *s);


/* "n" in the sampling options of some engines */
static const kvr_prompt_key_t  kvr_prompt_n = {
    "n", kvr_prompt_samples, KVR_ONE_ENGINE_SAMPLES
};


int
kvr_prompt_model(kvr_prompt_ctx_t *ctx, const kvr_prompt_key_t *key)
{
    (void) key;

    return kvr_walk_word(&ctx->walk, ctx->pr->model, KVR_PROMPT_MODEL_LEN,
                         &ctx->pr->model_len);
}


int
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

    /* a truncated identifier could be that of another session */

    if (s->len > KVR_PROMPT_FIELD_LEN || rc != KVR_OK) {
        s->len = 0;
    }

    return rc;
}


int
kvr_prompt_priority(kvr_prompt_ctx_t *ctx, const kvr_prompt_key_t *key)
{
    int  rc;

    (void) key;

    rc = kvr_json_integer(&ctx->walk.json, &ctx->pr->priority);
    ctx->pr->priority_set = (rc == KVR_OK);

    return rc == KVR_DECLINED ? KVR_OK : rc;
}


/* Reads a number of tokens; 0: the value is negative or no number. */
static int
kvr_prompt_tokens(kvr_prompt_ctx_t *ctx, int64_t *n)
{
    int  rc;

    *n = 0;
    rc = kvr_json_integer(&ctx->walk.json, n);
    *n = kvr_max(*n, 0);

    return rc == KVR_DECLINED ? KVR_OK : rc;
}


int
kvr_prompt_max_tokens(kvr_prompt_ctx_t *ctx, const kvr_prompt_key_t *key)
{
    int      rc;
    int64_t  n;

    rc = kvr_prompt_tokens(ctx, &n);
    kvr_prompt_set_limit(ctx, key->arg, n);

    return rc;
}


/* Reads the object in which some engines expect sampling options. */
int
kvr_prompt_params(kvr_prompt_ctx_t *ctx, const kvr_prompt_key_t *key)
{
    int          rc, first;
    kvr_json_t  *j;

    j = &ctx->walk.json;
    kvr_prompt_set_limit(ctx, key->arg, 0);

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

        if (key->arg == KVR_LIMIT_PARAMETERS
            && j->key_len == 8 && memcmp(j->key, "truncate", 8) == 0)
        {
            rc = kvr_prompt_truncate(ctx, key);

        } else if (key->arg == KVR_LIMIT_SAMPLING
                   && j->key_len == 1 && j->key[0] == 'n')
        {
            rc = kvr_prompt_samples(ctx, &kvr_prompt_n);

        } else if ((j->key_len == 14
                    && memcmp(j->key, "max_new_tokens", 14) == 0)
                   || (j->key_len == 11
                       && memcmp(j->key, "num_predict", 11) == 0))
        {
            rc = kvr_prompt_max_tokens(ctx, key);

        } else {
            rc = kvr_walk_other(&ctx->walk);
        }

        if (rc != KVR_OK) {
            return rc;
        }
    }
}


int
kvr_prompt_root(kvr_prompt_ctx_t *ctx, const kvr_prompt_key_t *key)
{
    int       rc;
    uint64_t  digest;

    digest = 0;
    rc = kvr_walk_digest(&ctx->walk, &digest);

    kvr_prompt_set_root(ctx, key->arg, digest);

    return rc;
}


/*
 * Reads how many of its last tokens a truncated prompt keeps; -1: as many as
 * the engine can take.
 */
int
kvr_prompt_truncate(kvr_prompt_ctx_t *ctx, const kvr_prompt_key_t *key)
{
    (void) key;

    return kvr_prompt_tokens(ctx, &ctx->left);
}


/* Reads the number of replies. */
int
kvr_prompt_samples(kvr_prompt_ctx_t *ctx, const kvr_prompt_key_t *key)
{
    int      rc;
    int64_t  n;

    rc = kvr_prompt_tokens(ctx, &n);

    if (key->arg == KVR_ONE_ENGINE_SAMPLES) {
        ctx->pr->sampled = (n > 1);
    }

    kvr_prompt_set_bit(&ctx->one_engine, key->arg, n > 1);

    return rc;
}


/* Sets or clears a bit: the last one of equal keys counts. */
static void
kvr_prompt_set_bit(uint32_t *set, unsigned bit, int on)
{
    *set &= ~(1U << bit);
    *set |= (uint32_t) on << bit;
}


int
kvr_prompt_beams(kvr_prompt_ctx_t *ctx, const kvr_prompt_key_t *key)
{
    kvr_prompt_set_bit(&ctx->one_engine, key->arg,
                       kvr_json_peek(&ctx->walk.json) == 't');

    return kvr_json_skip(&ctx->walk.json);
}


int
kvr_prompt_stream(kvr_prompt_ctx_t *ctx, const kvr_prompt_key_t *key)
{
    (void) key;

    ctx->pr->stream = (kvr_json_peek(&ctx->walk.json) == 't');

    return kvr_json_skip(&ctx->walk.json);
}


/* Reads an option: the first byte of its value tells whether it is set. */
int
kvr_prompt_skip(kvr_prompt_ctx_t *ctx, const kvr_prompt_key_t *key)
{
    int  c, set;

    c = kvr_json_peek(&ctx->walk.json);

    switch (key->arg) {

    case KVR_SKIP_ECHO:
        set = (c == 't');
        break;

    case KVR_SKIP_CACHE_PROMPT:
        set = (c == 'f');
        break;

    case KVR_SKIP_START:
        set = (c == '0');
        break;

    default:

        /* a number, also 0, or true */

        set = (c != 'n' && c != 'f');
    }

    kvr_prompt_set_bit(&ctx->skips, key->arg, set);

    return kvr_json_skip(&ctx->walk.json);
}


/*
 * Engines omit the tools for "none" and render them alike for all other
 * choices.  All choices but "none" and "auto" require a tool call, which a
 * prefill of one token cannot produce.
 */
int
kvr_prompt_tool_choice(kvr_prompt_ctx_t *ctx, const kvr_prompt_key_t *key)
{
    int      c, rc, none, automatic;
    size_t   len;
    uint8_t  word[8];

    (void) key;

    c = kvr_json_peek(&ctx->walk.json);

    rc = kvr_walk_word(&ctx->walk, word, sizeof(word), &len);

    none = (len == 4 && memcmp(word, "none", 4) == 0);
    automatic = (c == 'n' || (len == 4 && memcmp(word, "auto", 4) == 0));

    kvr_prompt_set_bit(&ctx->one_engine, KVR_ONE_ENGINE_TOOLS,
                       !none && !automatic);
    kvr_prompt_set_root(ctx, KVR_ROOT_TOOL_CHOICE, (uint64_t) none);

    return rc;
}


/* keys with text, each of which has a section */

int
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


int
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

        /* an empty array, of two bytes, means no tools */

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

    kvr_prompt_set_root(ctx, KVR_ROOT_TOOLS, root);
    kvr_prompt_section_end(ctx, s);

    return rc;
}


int
kvr_prompt_messages(kvr_prompt_ctx_t *ctx, const kvr_prompt_key_t *key)
{
    int             rc;
    kvr_section_t  *s;

    if (ctx->conf->no_prefill) {
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


/*
 * Reads a prompt: text, tokens or a batch of either; for the Responses API text
 * or items.
 */
int
kvr_prompt_text(kvr_prompt_ctx_t *ctx, const kvr_prompt_key_t *key)
{
    int             c, rc, input;
    kvr_json_t     *j;
    kvr_section_t  *s;

    if (ctx->conf->no_prefill) {
        return kvr_walk_skip(&ctx->walk);
    }

    j = &ctx->walk.json;
    s = kvr_prompt_section(ctx, key->arg);

    c = kvr_json_peek(j);
    input = (key->arg == KVR_SECTION_INPUT);

    /* "text" is an object of options in the Responses API */

    if (c != '"' && c != '[') {
        return kvr_json_skip(j);
    }

    if (input) {
        s->shape = KVR_PROMPT_INPUT;
    }

    if (c == '"') {

        if (input) {
            /* equal to one message of the user */
            kvr_message_head(&ctx->walk, "user", 4);

        } else {
            s->shape = KVR_PROMPT_TEXT;
        }

        j->p++;
        rc = j->ops->string(j, &ctx->walk.block);

    } else if (input) {
        rc = kvr_message_list(&ctx->walk);

    } else {
        rc = kvr_prompt_list(ctx, s);
    }

    kvr_prompt_section_end(ctx, s);

    return rc;
}


/*
 * Reads an array of tokens, which are hashed as written, or of prompts.  The
 * first prompt decides the route, the others only count as load.
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
            rc = kvr_walk_other(&ctx->walk);
        }
    }

    s->extra = kvr_json_offset(j) - offset;

    if (rc != KVR_DECLINED) {
        return rc;
    }

    /* without the bracket */

    s->extra--;

    return KVR_OK;
}


/* Starts a section; a second key of the same name starts it again. */
static kvr_section_t *
kvr_prompt_section(kvr_prompt_ctx_t *ctx, kvr_section_e section)
{
    kvr_block_t    *b;
    kvr_section_t  *s;

    ctx->sections |= 1U << section;

    s = &ctx->section[section];
    b = &ctx->walk.block;

    /* the digests of an earlier equal key are not used */

    s->start = b->n;
    s->n = 0;
    s->bytes = 0;
    s->extra = 0;
    s->shape = KVR_PROMPT_NONE;

    b->fill = 0;
    b->bytes = 0;

    /* counts like 4 keys; the next key checks the limit */

    ctx->walk.json.left -= 4;

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

    /* the reply continues here */

    if (s == &ctx->section[KVR_SECTION_MESSAGES]) {
        ctx->pr->tail_len = b->fill;
        memcpy(ctx->pr->tail, b->stage[b->cur], b->fill);
    }

    b->fill = 0;
    b->bytes = 0;
}
