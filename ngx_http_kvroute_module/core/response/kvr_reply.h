
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_REPLY_H_INCLUDED_
#define _KVR_REPLY_H_INCLUDED_


/*
 * Hashes a reply while it streams by, as it will appear in the messages of the
 * next request: the engine that produced it has it in its cache.
 *
 * It continues the prompt's chain, also in the middle of a block, with the
 * canonical form of an assistant's message (see kvr_canon.h).  It does not hash
 * a reply with reasoning, since templates omit the reasoning of earlier turns,
 * nor one of several replies, nor one with a piece missing.
 */


#include "core/prompt/kvr_prompt.h"
#include "core/response/kvr_response.h"


#define KVR_REPLY_VALUES  32     /* entries; longer replies are truncated */


typedef struct {
    uint64_t           h;
    uint32_t           blocks;
    uint32_t           first;    /* next entry of the chain */
    uint32_t           n;        /* entries */
    uint32_t           start;    /* blocks of the prompt */
    uint16_t           fill;
    uint8_t            part;     /* kvr_response_part_e */
    uint8_t            escape_len;

    unsigned           begun:1;
    unsigned           open:1;   /* inside a run of pieces */
    unsigned           parts:1;  /* content is an array: Anthropic's */
    unsigned           called:1; /* a call precedes */
    unsigned           argued:1; /* and so do its arguments */
    unsigned           quoted:1; /* inside a string of the input of a call */
    unsigned           slash:1;  /* after a backslash in that string */
    unsigned           bad:1;    /* the reply cannot be hashed */

    const uint8_t     *secret;
    kvr_digest_pt      digest;

    uint64_t           value[KVR_REPLY_VALUES];
    uint8_t            escape[12];   /* an incomplete escape */
    uint8_t            stage[KVR_BLOCK];
} kvr_reply_t;


/*
 * Starts at the end of a prompt; parts is set for Anthropic's messages.
 * KVR_DECLINED: the prompt is no chat.
 */
int kvr_reply_init(kvr_reply_t *r, const kvr_prompt_t *pr,
    const uint8_t *secret, unsigned parts);

/* Takes a piece of the reply; a kvr_response_part_pt. */
void kvr_reply_part(void *data, kvr_response_part_e part, const uint8_t *p,
    size_t len);


#endif /* _KVR_REPLY_H_INCLUDED_ */
