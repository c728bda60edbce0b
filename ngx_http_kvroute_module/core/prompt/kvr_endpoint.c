
/*
 * Copyright (C) kvroute contributors
 */


#include "core/prompt/kvr_endpoint.h"


#define KVR_ENDPOINT_RESP      "resp_"
#define KVR_ENDPOINT_RESP_LEN  5

#define kvr_endpoint_name(s)   { s, sizeof(s) - 1 }


typedef struct {
    const char  *name;
    size_t       len;
} kvr_endpoint_name_t;


typedef struct {
    const uint8_t  *p;
    size_t          len;
} kvr_endpoint_segment_t;


static kvr_endpoint_segment_t kvr_endpoint_last(const uint8_t *path,
    size_t len);
static int kvr_endpoint_is(const kvr_endpoint_segment_t *s,
    const kvr_endpoint_name_t *name);


/* by the last segment of the path, under whatever prefix */

static const kvr_endpoint_name_t  kvr_endpoint_light[] = {

    /* they count, render or look up */

    kvr_endpoint_name("count_tokens"),
    kvr_endpoint_name("input_tokens"),      /* of Responses */
    kvr_endpoint_name("tokenize"),
    kvr_endpoint_name("chat_tokenize"),     /* TGI */
    kvr_endpoint_name("detokenize"),
    kvr_endpoint_name("render"),
    kvr_endpoint_name("apply-template"),    /* llama.cpp */

    /* they compute, and keep nothing of it */

    kvr_endpoint_name("embeddings"),
    kvr_endpoint_name("embedding"),         /* llama.cpp */
    kvr_endpoint_name("embed"),
    kvr_endpoint_name("embed_all"),
    kvr_endpoint_name("embed_sparse"),
    kvr_endpoint_name("encode"),            /* SGLang */
    kvr_endpoint_name("rerank"),
    kvr_endpoint_name("reranking"),
    kvr_endpoint_name("score"),
    kvr_endpoint_name("classify"),
    kvr_endpoint_name("pooling"),
    kvr_endpoint_name("moderations"),

    { NULL, 0 }
};


/* what may follow the id of a response */

static const kvr_endpoint_name_t  kvr_endpoint_parts[] = {
    kvr_endpoint_name("cancel"),
    kvr_endpoint_name("input_items"),
    { NULL, 0 }
};


static const kvr_endpoint_name_t  kvr_endpoint_completions =
                                      kvr_endpoint_name("completions");
static const kvr_endpoint_name_t  kvr_endpoint_messages =
                                      kvr_endpoint_name("messages");
static const kvr_endpoint_name_t  kvr_endpoint_responses =
                                      kvr_endpoint_name("responses");


kvr_endpoint_e
kvr_endpoint(const uint8_t *path, size_t len)
{
    const uint8_t              *id;
    kvr_endpoint_segment_t      s;
    const kvr_endpoint_name_t  *name;

    s = kvr_endpoint_last(path, len);

    /* most requests end here */

    if (kvr_endpoint_is(&s, &kvr_endpoint_completions)) {
        return KVR_ENDPOINT_PROMPT;
    }

    if (kvr_endpoint_is(&s, &kvr_endpoint_messages)) {
        return KVR_ENDPOINT_MESSAGES;
    }

    if (kvr_endpoint_is(&s, &kvr_endpoint_responses)) {
        return KVR_ENDPOINT_RESPONSES;
    }

    for (name = kvr_endpoint_light; name->name; name++) {
        if (kvr_endpoint_is(&s, name)) {
            return KVR_ENDPOINT_LIGHT;
        }
    }

    return kvr_endpoint_id(path, len, &id) ? KVR_ENDPOINT_RESPONSE
                                           : KVR_ENDPOINT_PROMPT;
}


size_t
kvr_endpoint_id(const uint8_t *path, size_t len, const uint8_t **id)
{
    kvr_endpoint_segment_t      s, before;
    const kvr_endpoint_name_t  *name;

    s = kvr_endpoint_last(path, len);

    for (name = kvr_endpoint_parts; s.len && name->name; name++) {

        if (kvr_endpoint_is(&s, name)) {
            len -= s.len + 1;
            s = kvr_endpoint_last(path, len);
            break;
        }
    }

    if (s.len <= KVR_ENDPOINT_RESP_LEN || s.len > KVR_ENDPOINT_ID_LEN
        || memcmp(s.p, KVR_ENDPOINT_RESP, KVR_ENDPOINT_RESP_LEN) != 0)
    {
        return 0;
    }

    before = kvr_endpoint_last(path, len - s.len - 1);

    if (!kvr_endpoint_is(&before, &kvr_endpoint_responses)) {
        return 0;
    }

    *id = s.p;

    return s.len;
}


/* what stands behind the last slash; empty if there is none */
static kvr_endpoint_segment_t
kvr_endpoint_last(const uint8_t *path, size_t len)
{
    const uint8_t           *p;
    kvr_endpoint_segment_t   s;

    p = len ? memrchr(path, '/', len) : NULL;

    s.p = p ? p + 1 : path;
    s.len = p ? len - (size_t) (s.p - path) : 0;

    return s;
}


static int
kvr_endpoint_is(const kvr_endpoint_segment_t *s,
    const kvr_endpoint_name_t *name)
{
    return s->len == name->len && memcmp(s->p, name->name, name->len) == 0;
}
