
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_ENDPOINT_H_INCLUDED_
#define _KVR_ENDPOINT_H_INCLUDED_


/*
 * What a request makes an engine do, by its path alone.
 *
 * Bodies do not tell: count_tokens has the body of a message, and computes
 * nothing.  What puts nothing into the KV cache must not be taken to be held
 * there, and keeps no prompt waiting.
 */


#include "core/base/kvr_core.h"


/* ids of responses: "resp_" and more, no longer than this */
#define KVR_ENDPOINT_ID_LEN  64


typedef enum {
    KVR_ENDPOINT_PROMPT = 0,     /* computes a prompt, or is not known */
    KVR_ENDPOINT_MESSAGES,       /* likewise: Anthropic's */
    KVR_ENDPOINT_RESPONSES,      /* likewise: OpenAI's, which gives ids */
    KVR_ENDPOINT_RESPONSE,       /* what one of those has made, by its id */
    KVR_ENDPOINT_LIGHT           /* puts nothing into the KV cache */
} kvr_endpoint_e;


/* by a path without arguments */
kvr_endpoint_e kvr_endpoint(const uint8_t *path, size_t len);

/* the id in the path of a KVR_ENDPOINT_RESPONSE; returns its length */
size_t kvr_endpoint_id(const uint8_t *path, size_t len, const uint8_t **id);


static inline int
kvr_endpoint_computes(kvr_endpoint_e endpoint)
{
    return endpoint < KVR_ENDPOINT_RESPONSE;
}


#endif /* _KVR_ENDPOINT_H_INCLUDED_ */
