
/*
 * Copyright (C) kvroute contributors
 */


#include "util.h"

#include "core/prompt/kvr_endpoint.h"


static size_t
id(const char *path, const uint8_t **p)
{
    uint8_t  *copy;
    size_t    n, len;

    /* on the heap, where a sanitizer detects reads beyond the end */

    len = strlen(path);
    copy = malloc(len + !len);
    memcpy(copy, path, len);

    n = kvr_endpoint_id(copy, len, p);

    if (n) {
        *p = (const uint8_t *) path + (*p - copy);
    }

    free(copy);

    return n;
}


TEST(test_endpoint_kinds)
{
    size_t  i;

    static const struct {
        const char      *path;
        kvr_endpoint_e   kind;
    } cases[] = {
        { "/v1/chat/completions", KVR_ENDPOINT_PROMPT },
        { "/v1/completions", KVR_ENDPOINT_PROMPT },
        { "/generate", KVR_ENDPOINT_PROMPT },
        { "/v1/responses/compact", KVR_ENDPOINT_PROMPT },
        { "/", KVR_ENDPOINT_PROMPT },
        { "", KVR_ENDPOINT_PROMPT },
        { "tokenize", KVR_ENDPOINT_PROMPT },
        { "/tokenize/", KVR_ENDPOINT_PROMPT },
        { "/tokenize/v1/completions", KVR_ENDPOINT_PROMPT },
        { "/v1/Tokenize", KVR_ENDPOINT_PROMPT },
        { "/v1/tokenizer", KVR_ENDPOINT_PROMPT },
        { "/v1/messages", KVR_ENDPOINT_MESSAGES },
        { "/anthropic/v1/messages", KVR_ENDPOINT_MESSAGES },
        { "/v1/responses", KVR_ENDPOINT_RESPONSES },
        { "/v1/messages/count_tokens", KVR_ENDPOINT_NO_KV },
        { "/v1/responses/input_tokens", KVR_ENDPOINT_NO_KV },
        { "/tokenize", KVR_ENDPOINT_NO_KV },
        { "/chat_tokenize", KVR_ENDPOINT_NO_KV },
        { "/detokenize", KVR_ENDPOINT_NO_KV },
        { "/v1/chat/completions/render", KVR_ENDPOINT_NO_KV },
        { "/apply-template", KVR_ENDPOINT_NO_KV },
        { "/v1/embeddings", KVR_ENDPOINT_NO_KV },
        { "/v2/embed", KVR_ENDPOINT_NO_KV },
        { "/encode", KVR_ENDPOINT_NO_KV },
        { "/v2/rerank", KVR_ENDPOINT_NO_KV },
        { "/v1/reranking", KVR_ENDPOINT_NO_KV },
        { "/score", KVR_ENDPOINT_NO_KV },
        { "/classify", KVR_ENDPOINT_NO_KV },
        { "/pooling", KVR_ENDPOINT_NO_KV },
        { "/v1/moderations", KVR_ENDPOINT_NO_KV },
        { "/v1/responses/resp_1", KVR_ENDPOINT_RESPONSE },
        { "/a/v1/responses/resp_1/cancel", KVR_ENDPOINT_RESPONSE },
        { "/v1/responses/resp_1/input_items", KVR_ENDPOINT_RESPONSE }
    };

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        util_check(kvr_endpoint((const uint8_t *) cases[i].path,
                                strlen(cases[i].path))
                   == cases[i].kind, "%s", cases[i].path);
    }

    util_check(kvr_endpoint(NULL, 0) == KVR_ENDPOINT_PROMPT, "no path");

    util_check(kvr_endpoint_computes(KVR_ENDPOINT_PROMPT)
               && kvr_endpoint_computes(KVR_ENDPOINT_MESSAGES)
               && kvr_endpoint_computes(KVR_ENDPOINT_RESPONSES)
               && !kvr_endpoint_computes(KVR_ENDPOINT_RESPONSE)
               && !kvr_endpoint_computes(KVR_ENDPOINT_NO_KV),
               "which ones compute");
}


TEST(test_endpoint_ids)
{
    char            path[200];
    size_t          i, n;
    const uint8_t  *p;

    static const struct {
        const char  *path;
        const char  *id;
    } cases[] = {
        { "/v1/responses/resp_1", "resp_1" },
        { "/responses/resp_\n\"\xff", "resp_\n\"\xff" },
        { "/v1/responses/resp_1/cancel", "resp_1" },
        { "/v1/responses/resp_1/input_items", "resp_1" },
        { "/v1/responses/resp_1/other", NULL },
        { "/v1/responses/resp_", NULL },
        { "/v1/responses/1", NULL },
        { "/v1/responses/cancel", NULL },
        { "/v1/responses//cancel", NULL },
        { "/v1/responses/", NULL },
        { "/v1/responses", NULL },
        { "/v1/chat/resp_1", NULL },
        { "/resp_1", NULL },
        { "resp_1", NULL },
        { "responses/resp_1", NULL },
        { "/cancel", NULL },
        { "/", NULL },
        { "", NULL }
    };

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        n = id(cases[i].path, &p);

        util_check(n == (cases[i].id ? strlen(cases[i].id) : 0), "%s: %zu",
                   cases[i].path, n);
        util_check(n == 0 || memcmp(p, cases[i].id, n) == 0, "%s",
                   cases[i].path);
    }

    /* names that are not ids of responses */

    for (i = 1; i < 100; i++) {
        sprintf(path, "/v1/responses/resp_%0*d", (int) i, 1);
        n = id(path, &p);
        util_check(n == (i + 5 <= KVR_ENDPOINT_ID_LEN ? i + 5 : 0), "%zu", i);
    }
}
