
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_PROMPT_H_INCLUDED_
#define _KVR_PROMPT_H_INCLUDED_


/*
 * From the body of a request to the chain of hashes of its prompt.
 *
 *     root   = secret, salt, model, whatever else changes what the engine
 *              renders before the first message, and the digest of the tools
 *     h(0)   = root
 *     h(i)   = mix(h(i-1), digest of block i)
 *
 * over the blocks of the system prompt, the tools and the messages, each of
 * which starts a block.  Two prompts have h(i) in common if and only if (but
 * for collisions) an engine that has computed one of them holds the first i
 * blocks of the other.
 */


#include "core/prompt/kvr_message.h"
#include "core/base/kvr_chain.h"
#include "core/prompt/kvr_document.h"
#include "core/text/kvr_json.h"


#define KVR_PROMPT_MODEL_LEN  256
#define KVR_PROMPT_FIELD_LEN  128


typedef enum {
    KVR_PROMPT_NONE = 0,         /* nothing to hash: routed by load */
    KVR_PROMPT_CHAT,
    KVR_PROMPT_TEXT,
    KVR_PROMPT_TOKENS,
    KVR_PROMPT_INPUT,            /* Responses API */
    KVR_PROMPT_LIGHT             /* of a path that computes no KV */
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


/* what the caller gives */
typedef struct {
    const uint8_t      *secret;  /* KVR_SECRET_LEN bytes */
    const uint8_t      *salt;
    size_t              salt_len;
    const uint8_t      *path;    /* of the request, without arguments */
    size_t              path_len;
    unsigned            light:1; /* the path computes no KV, kvr_endpoint() */
    unsigned            unit;    /* blocks of KVR_BLOCK bytes an entry: 1.. */

    uint64_t           *digests; /* scratch */
    size_t              max_digests;
    uint64_t           *chain;   /* result */
    size_t              max_chain;
    kvr_documents_t    *documents;  /* result; NULL: not wanted */
    const kvr_json_names_t *names;  /* of members to look for, or NULL */
} kvr_prompt_conf_t;


/* what it gets */
typedef struct {
    kvr_prompt_shape_e  shape;

    uint64_t            bytes;   /* of canonical prompt; of body if light */
    uint64_t            extra;   /* bytes of further prompts of a batch */
    uint32_t            blocks;  /* of KVR_BLOCK bytes, in the whole chain */
    uint32_t            n;       /* entries of the chain for the index */
    uint64_t            root;    /* h(0) */
    uint64_t            model_root;  /* of secret, salt and model alone */
    uint64_t            model_hash;  /* of secret and model alone */

    uint64_t            last;    /* h of the last whole block of a chat */
    uint32_t            tail_len;    /* what comes after it, staged */
    uint8_t             tail[KVR_BLOCK];

    unsigned            tailed:1;    /* these are set */
    unsigned            skips:1;     /* the engine looks up none of it */
    unsigned            odd:1;       /* bytes do not go with tokens: not all of
                                        the prompt counts, or is here */
    unsigned            sampled:1;   /* several replies are asked for: what is
                                        told as cached is what a later one
                                        found of the first one's prompt */
    unsigned            clean:1;     /* all of it was read, and none of the
                                        names is there */
    unsigned            joint:1;     /* prefill and decode are for one engine:
                                        several replies, or one that a single
                                        token makes invalid */
    unsigned            priority_set:1;

    int64_t             priority;
    int64_t             max_tokens;  /* 0: not given */

    size_t              model_len;
    uint8_t             model[KVR_PROMPT_MODEL_LEN];
    kvr_prompt_str_t    field[KVR_PROMPT_FIELDS];
} kvr_prompt_t;


/*
 * Reads a body.  Of a prompt that the engine is to cut down to its last tokens
 * nobody knows what is cached: it has no entries, and what is left in bytes.
 *
 * KVR_OK: all of it was read; KVR_AGAIN: it ends too early, and
 * what is there was hashed; KVR_ERROR: not a JSON object.  In any case *pr
 * holds what could be found out, n = 0 if nothing.
 */
int kvr_prompt_read(kvr_prompt_t *pr, const kvr_prompt_conf_t *conf,
    kvr_json_fetch_pt fetch, void *data);


#endif /* _KVR_PROMPT_H_INCLUDED_ */
