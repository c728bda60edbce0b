
/*
 * Copyright (C) kvroute contributors
 */


#include "core/prompt/kvr_prompt_int.h"


static int kvr_prompt_tokens(kvr_prompt_ctx_t *ctx, int64_t *n);


int
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

    /* half an identifier would be somebody else's */

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


/* so many tokens; 0: what is no number, or below */
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


/* the object in which some engines take sampling options */
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


/* so many tokens are left of the prompt, the last ones; -1: as many as fit */
int
kvr_prompt_truncate(kvr_prompt_ctx_t *ctx, const kvr_prompt_key_t *key)
{
    (void) key;

    return kvr_prompt_tokens(ctx, &ctx->left);
}


/* whether the option is given is told by how its value begins */
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

        /* a number, which may be 0, or true */

        set = (c != 'n' && c != 'f');
    }

    ctx->skips &= ~(1U << key->arg);
    ctx->skips |= (uint32_t) set << key->arg;

    return kvr_json_skip(&ctx->walk.json);
}


/* engines leave the tools out for "none", other choices render the same */
int
kvr_prompt_tool_choice(kvr_prompt_ctx_t *ctx, const kvr_prompt_key_t *key)
{
    int      rc;
    size_t   len;
    uint8_t  word[8];

    (void) key;

    rc = kvr_walk_word(&ctx->walk, word, sizeof(word), &len);

    kvr_prompt_set_root(ctx, KVR_ROOT_TOOL_CHOICE,
                        len == 4 && memcmp(word, "none", 4) == 0);

    return rc;
}
