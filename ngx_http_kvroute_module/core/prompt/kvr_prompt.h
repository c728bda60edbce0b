
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_PROMPT_H_INCLUDED_
#define _KVR_PROMPT_H_INCLUDED_


/*
 * Computes the chain of hashes of a prompt from the body of its request.
 *
 *     root   = secret, salt, model, everything else that changes what the
 *              engine renders before the first message, digest of the tools
 *     h(0)   = root
 *     h(i)   = mix(h(i-1), digest of block i)
 *
 * The blocks are those of the system prompt, the tools and the messages; each
 * of these three starts a block.  Apart from collisions, two prompts share h(i)
 * if and only if an engine that has computed one of them has the first i blocks
 * of the other in its cache.
 */


#include "core/prompt/kvr_message.h"
#include "core/base/kvr_chain.h"
#include "core/hash/kvr_block.h"
#include "core/text/kvr_json.h"


#define KVR_PROMPT_MODEL_LEN  256
#define KVR_PROMPT_FIELD_LEN  128


typedef enum {
    KVR_PROMPT_NONE = 0,         /* no prompt: routed by load */
    KVR_PROMPT_CHAT,
    KVR_PROMPT_TEXT,
    KVR_PROMPT_TOKENS,
    KVR_PROMPT_INPUT,            /* Responses API */
    KVR_PROMPT_NO_KV             /* the path computes no KV */
} kvr_prompt_shape_e;


typedef enum {
    KVR_PROMPT_CACHE_KEY = 0,
    KVR_PROMPT_SESSION_ID,
    KVR_PROMPT_PREVIOUS_ID,
    KVR_PROMPT_SERVICE_TIER,
    KVR_PROMPT_FIELDS
} kvr_prompt_field_e;


typedef struct {
    size_t              len;     /* 0: absent, or longer than the buffer */
    uint8_t             data[KVR_PROMPT_FIELD_LEN];
} kvr_prompt_str_t;


/* the arguments of kvr_prompt_read() */
typedef struct {
    const uint8_t      *secret;  /* KVR_SECRET_LEN bytes */
    const uint8_t      *salt;
    size_t              salt_len;
    const uint8_t      *path;    /* of the request, without arguments */
    size_t              path_len;
    unsigned            no_prefill:1; /* the path caches no KV */

    uint64_t           *digests; /* scratch */
    size_t              max_digests;
    uint64_t           *chain;   /* result */
    size_t              max_chain;
    const kvr_json_names_t *names;  /* members to search for, or NULL */
} kvr_prompt_conf_t;


/* the result of kvr_prompt_read() */
typedef struct {
    kvr_prompt_shape_e  shape;

    uint64_t            bytes;   /* canonical prompt; if no_prefill, the body */
    uint64_t            extra;   /* bytes of further prompts of a batch */
    uint32_t            blocks;  /* blocks of KVR_BLOCK bytes in the chain */
    uint32_t            n;       /* entries of the chain for the index */
    uint64_t            root;    /* h(0) */
    uint64_t            model_root;  /* of secret, salt and model only */
    uint64_t            model_hash;  /* of secret and model only */

    uint64_t            last;    /* h of the last whole block of a chat */
    uint32_t            tail_len;    /* bytes after that block, in tail */

    unsigned            tailed:1;    /* last and tail are set */
    unsigned            skips:1;     /* the engine does not use its cache */
    unsigned            unsized:1;   /* part of the prompt is not counted, or
                                        not in this body */
    unsigned            sampled:1;   /* several replies are requested: a later
                                        one reports the prompt of the first one
                                        as cached */
    unsigned            clean:1;     /* the whole body was read and has none of
                                        the names */
    unsigned            one_engine:1;  /* prefill and decode need one engine:
                                        there are several replies, or a prefill
                                        of one token is not valid */
    unsigned            priority_set:1;
    unsigned            stream:1;    /* a stream is requested */

    int64_t             priority;
    int64_t             max_tokens;  /* 0: not given */

    size_t              model_len;
    kvr_prompt_str_t    field[KVR_PROMPT_FIELDS];
    uint8_t             tail[KVR_BLOCK];
    uint8_t             model[KVR_PROMPT_MODEL_LEN];
} kvr_prompt_t;


/*
 * Reads a body.  If the engine is to truncate the prompt to its last tokens,
 * its cache state is unknown: the chain has no entries, and bytes is an
 * estimate of the remaining part.
 *
 * KVR_OK: the whole body was read.  KVR_AGAIN: it ends too early, and its
 * beginning was hashed.  KVR_ERROR: it is no JSON object, or costs too much.
 * *pr is always valid; n is 0 if there is no chain.
 */
int kvr_prompt_read(kvr_prompt_t *pr, const kvr_prompt_conf_t *conf,
    kvr_json_fetch_pt fetch, void *data);


#endif /* _KVR_PROMPT_H_INCLUDED_ */
