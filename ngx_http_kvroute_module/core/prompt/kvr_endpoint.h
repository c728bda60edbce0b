
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_ENDPOINT_H_INCLUDED_
#define _KVR_ENDPOINT_H_INCLUDED_


/*
 * Tells by the path of a request whether an engine computes KV for it.
 *
 * The body does not tell: count_tokens has the body of a message.  A request
 * that puts nothing into the KV cache must not be added to the index, and makes
 * no prompt wait.
 */


#include "core/base/kvr_core.h"


/* maximum length of the id of a response, which begins with "resp_" */
#define KVR_ENDPOINT_ID_LEN  64


typedef enum {
    KVR_ENDPOINT_PROMPT = 0,     /* computes a prompt, or is not known */
    KVR_ENDPOINT_MESSAGES,       /* Anthropic's messages */
    KVR_ENDPOINT_RESPONSES,      /* OpenAI's Responses, which return ids */
    KVR_ENDPOINT_RESPONSE,       /* an earlier response, by its id */
    KVR_ENDPOINT_NO_KV           /* puts nothing into the KV cache */
} kvr_endpoint_e;


/* Returns the endpoint of a path without arguments. */
kvr_endpoint_e kvr_endpoint(const uint8_t *path, size_t len);

/* Finds the id in the path of a KVR_ENDPOINT_RESPONSE; returns its length. */
size_t kvr_endpoint_id(const uint8_t *path, size_t len, const uint8_t **id);


static inline int
kvr_endpoint_computes(kvr_endpoint_e endpoint)
{
    return endpoint < KVR_ENDPOINT_RESPONSE;
}


#endif /* _KVR_ENDPOINT_H_INCLUDED_ */
