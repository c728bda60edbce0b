
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_REPLY_H_INCLUDED_
#define _KVR_REPLY_H_INCLUDED_


/*
 * A reply as it will stand in the next request's messages, hashed as it streams
 * by: the engine that has produced it holds it already.
 *
 * It goes on where the prompt's chain ended, in the middle of a block, with the
 * canonical form of an assistant's message (see kvr_message.h).  A reply with
 * reasoning is not learned, since templates leave out reasoning of earlier
 * turns, nor is one of several, nor one of which a piece was not seen.
 */


#include "core/prompt/kvr_prompt.h"
#include "core/response/kvr_response.h"


#define KVR_REPLY_VALUES  32     /* of the chain; longer replies are cut */


typedef struct {
    uint64_t           h;
    uint32_t           blocks;
    uint32_t           unit;
    uint32_t           first;    /* entry of the chain that comes next */
    uint32_t           n;        /* how many there are */
    uint32_t           start;    /* blocks of the prompt */
    uint16_t           fill;
    uint8_t            part;     /* kvr_response_part_e */
    uint8_t            escape_len;

    unsigned           begun:1;
    unsigned           open:1;   /* in a run of pieces */
    unsigned           parts:1;  /* content is a list: Anthropic's */
    unsigned           called:1; /* a call is being read */
    unsigned           argued:1; /* and its arguments */
    unsigned           quoted:1; /* in a string of the input of a call */
    unsigned           slash:1;  /* after a backslash in it */
    unsigned           bad:1;

    const uint8_t     *secret;
    kvr_digest_pt      digest;

    uint64_t           value[KVR_REPLY_VALUES];
    uint8_t            escape[12];
    uint8_t            stage[KVR_BLOCK];
} kvr_reply_t;


/*
 * Starts where a prompt ended; parts says that the messages are Anthropic's.
 * KVR_DECLINED: it is no chat.
 */
int kvr_reply_init(kvr_reply_t *r, const kvr_prompt_t *pr,
    const uint8_t *secret, unsigned unit, unsigned parts);

/* takes a piece of the reply; a kvr_response_part_pt */
void kvr_reply_part(void *data, kvr_response_part_e part, const uint8_t *p,
    size_t len);


#endif /* _KVR_REPLY_H_INCLUDED_ */
