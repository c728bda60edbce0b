
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_PROMPT_CTX_H_INCLUDED_
#define _KVR_PROMPT_CTX_H_INCLUDED_


/*
 * The state that the handlers of a body's keys share.  Each key of the table in
 * kvr_prompt.c has a handler in kvr_prompt_keys.c.
 */


#include "core/prompt/kvr_prompt.h"


/* values that are mixed into the root, in this order */

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
    KVR_ROOT_LORA,
    KVR_ROOT_CONTEXT,
    KVR_ROOT_IMAGES,
    KVR_ROOT_FUNCTIONS,
    KVR_ROOT_CHAT_TEMPLATE,
    KVR_ROOT_IMAGE_DATA,
    KVR_ROOT_VALUES
} kvr_root_e;


/*
 * One section for each key with text, so that their order in the body does not
 * matter.  If a body has several prompts, which no API allows, the last section
 * counts.
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


/* the names of the token limit; the first one in the body counts */

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


/* options that keep an engine from using its cache, see kvr_prompt_skips() */

typedef enum {
    KVR_SKIP_PROMPT_LOGPROBS = 0,
    KVR_SKIP_LOGPROBS,
    KVR_SKIP_ECHO,
    KVR_SKIP_CACHE_PROMPT,
    KVR_SKIP_START
} kvr_skip_e;


/* options that keep prefill and decode on one engine */

typedef enum {
    KVR_ONE_ENGINE_SAMPLES = 0,
    KVR_ONE_ENGINE_BEST,
    KVR_ONE_ENGINE_BEAMS,
    KVR_ONE_ENGINE_TOOLS
} kvr_one_engine_e;


typedef struct {
    size_t               start;
    size_t               n;
    uint64_t             bytes;
    uint64_t             extra;
    kvr_prompt_shape_e   shape;  /* of a prompt, or KVR_PROMPT_NONE */
} kvr_section_t;


typedef struct {
    kvr_prompt_t        *pr;
    const kvr_prompt_conf_t  *conf;

    uint32_t             sections;   /* bits of kvr_section_e that are set */
    uint32_t             roots;      /* kvr_root_e */
    uint32_t             limits;     /* kvr_limit_e */
    uint32_t             skips;      /* kvr_skip_e */
    uint32_t             one_engine; /* kvr_one_engine_e */

    int64_t              left;   /* tokens of a truncated prompt, or 0 */

    int                  prompt; /* the section that counts */

    kvr_walk_t           walk;

    kvr_section_t        section[KVR_SECTIONS];
    uint64_t             root[KVR_ROOT_VALUES];
    int64_t              limit[KVR_LIMITS];
} kvr_prompt_ctx_t;


_Static_assert(KVR_SECTIONS < 32 && KVR_ROOT_VALUES < 32 && KVR_LIMITS < 32,
               "kvr_prompt_ctx_t");

typedef struct kvr_prompt_key_s  kvr_prompt_key_t;

typedef int (*kvr_prompt_pt)(kvr_prompt_ctx_t *ctx,
    const kvr_prompt_key_t *key);

struct kvr_prompt_key_s {
    const char          *name;
    kvr_prompt_pt        handler;
    unsigned             arg;
};


static inline void
kvr_prompt_set_root(kvr_prompt_ctx_t *ctx, unsigned root, uint64_t value)
{
    ctx->roots |= 1U << root;
    ctx->root[root] = value;
}


static inline void
kvr_prompt_set_limit(kvr_prompt_ctx_t *ctx, unsigned limit, int64_t value)
{
    ctx->limits |= 1U << limit;
    ctx->limit[limit] = value;
}


int kvr_prompt_model(kvr_prompt_ctx_t *ctx, const kvr_prompt_key_t *key);
int kvr_prompt_field(kvr_prompt_ctx_t *ctx, const kvr_prompt_key_t *key);
int kvr_prompt_priority(kvr_prompt_ctx_t *ctx, const kvr_prompt_key_t *key);
int kvr_prompt_max_tokens(kvr_prompt_ctx_t *ctx, const kvr_prompt_key_t *key);
int kvr_prompt_params(kvr_prompt_ctx_t *ctx, const kvr_prompt_key_t *key);
int kvr_prompt_root(kvr_prompt_ctx_t *ctx, const kvr_prompt_key_t *key);
int kvr_prompt_tool_choice(kvr_prompt_ctx_t *ctx, const kvr_prompt_key_t *key);
int kvr_prompt_truncate(kvr_prompt_ctx_t *ctx, const kvr_prompt_key_t *key);
int kvr_prompt_skip(kvr_prompt_ctx_t *ctx, const kvr_prompt_key_t *key);
int kvr_prompt_samples(kvr_prompt_ctx_t *ctx, const kvr_prompt_key_t *key);
int kvr_prompt_beams(kvr_prompt_ctx_t *ctx, const kvr_prompt_key_t *key);
int kvr_prompt_stream(kvr_prompt_ctx_t *ctx, const kvr_prompt_key_t *key);

int kvr_prompt_system(kvr_prompt_ctx_t *ctx, const kvr_prompt_key_t *key);
int kvr_prompt_tools(kvr_prompt_ctx_t *ctx, const kvr_prompt_key_t *key);
int kvr_prompt_messages(kvr_prompt_ctx_t *ctx, const kvr_prompt_key_t *key);
int kvr_prompt_text(kvr_prompt_ctx_t *ctx, const kvr_prompt_key_t *key);


#endif /* _KVR_PROMPT_CTX_H_INCLUDED_ */
