
/*
 * Copyright (C) kvroute contributors
 */


#include "core/prompt/kvr_endpoint.h"


#define KVR_ENDPOINT_RESP_LEN  5

#define kvr_endpoint_name(s, endpoint)   { s, sizeof(s) - 1, endpoint }


typedef struct {
    const char      *name;
    size_t           len;
    kvr_endpoint_e   endpoint;
} kvr_endpoint_name_t;


static size_t kvr_endpoint_last(const uint8_t *path, size_t len);


/* endpoints by the last segment of the path, frequent ones first */

static const kvr_endpoint_name_t  kvr_endpoint_names[] = {
    kvr_endpoint_name("completions", KVR_ENDPOINT_PROMPT),
    kvr_endpoint_name("messages", KVR_ENDPOINT_MESSAGES),
    kvr_endpoint_name("responses", KVR_ENDPOINT_RESPONSES),

    /* they count, render or look up */

    kvr_endpoint_name("count_tokens", KVR_ENDPOINT_NO_KV),
    kvr_endpoint_name("input_tokens", KVR_ENDPOINT_NO_KV),   /* Responses */
    kvr_endpoint_name("tokenize", KVR_ENDPOINT_NO_KV),
    kvr_endpoint_name("chat_tokenize", KVR_ENDPOINT_NO_KV),  /* TGI */
    kvr_endpoint_name("detokenize", KVR_ENDPOINT_NO_KV),
    kvr_endpoint_name("render", KVR_ENDPOINT_NO_KV),
    kvr_endpoint_name("apply-template", KVR_ENDPOINT_NO_KV), /* llama.cpp */

    /* they compute a prompt, but do not cache it */

    kvr_endpoint_name("embeddings", KVR_ENDPOINT_NO_KV),
    kvr_endpoint_name("embedding", KVR_ENDPOINT_NO_KV),      /* llama.cpp */
    kvr_endpoint_name("embed", KVR_ENDPOINT_NO_KV),
    kvr_endpoint_name("embed_all", KVR_ENDPOINT_NO_KV),
    kvr_endpoint_name("embed_sparse", KVR_ENDPOINT_NO_KV),
    kvr_endpoint_name("encode", KVR_ENDPOINT_NO_KV),         /* SGLang */
    kvr_endpoint_name("rerank", KVR_ENDPOINT_NO_KV),
    kvr_endpoint_name("reranking", KVR_ENDPOINT_NO_KV),
    kvr_endpoint_name("score", KVR_ENDPOINT_NO_KV),
    kvr_endpoint_name("classify", KVR_ENDPOINT_NO_KV),
    kvr_endpoint_name("pooling", KVR_ENDPOINT_NO_KV),
    kvr_endpoint_name("moderations", KVR_ENDPOINT_NO_KV)
};


kvr_endpoint_e
kvr_endpoint(const uint8_t *path, size_t len)
{
    size_t                      n;
    unsigned                    i;
    const uint8_t              *id;
    const kvr_endpoint_name_t  *name;

    n = kvr_endpoint_last(path, len);

    for (i = 0; i < kvr_nelts(kvr_endpoint_names); i++) {
        name = &kvr_endpoint_names[i];

        if (name->len == n && memcmp(name->name, path + len - n, n) == 0) {
            return name->endpoint;
        }
    }

    return kvr_endpoint_id(path, len, &id) ? KVR_ENDPOINT_RESPONSE
                                           : KVR_ENDPOINT_PROMPT;
}


size_t
kvr_endpoint_id(const uint8_t *path, size_t len, const uint8_t **id)
{
    size_t          n;
    const uint8_t  *last;

    n = kvr_endpoint_last(path, len);
    last = path + len - n;

    /* "cancel" or "input_items" can follow the id */

    if ((n == 6 && memcmp(last, "cancel", 6) == 0)
        || (n == 11 && memcmp(last, "input_items", 11) == 0))
    {
        len -= n + 1;
        n = kvr_endpoint_last(path, len);
    }

    *id = path + len - n;

    if (n <= KVR_ENDPOINT_RESP_LEN || n > KVR_ENDPOINT_ID_LEN
        || memcmp(*id, "resp_", KVR_ENDPOINT_RESP_LEN) != 0)
    {
        return 0;
    }

    len -= n + 1;

    return kvr_endpoint_last(path, len) == 9
           && memcmp(path + len - 9, "responses", 9) == 0 ? n : 0;
}


/* Returns the length of the segment after the last slash; 0: no slash. */
static size_t
kvr_endpoint_last(const uint8_t *path, size_t len)
{
    const uint8_t  *p;

    p = len ? memrchr(path, '/', len) : NULL;

    return p ? len - (size_t) (p + 1 - path) : 0;
}
