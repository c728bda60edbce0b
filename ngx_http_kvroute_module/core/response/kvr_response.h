
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_RESPONSE_H_INCLUDED_
#define _KVR_RESPONSE_H_INCLUDED_


/*
 * Reads the body of a response while it streams by, cut anywhere.  It finds the
 * first event, which ends the engine's prefill; the numbers of prompt tokens,
 * cached tokens and generated tokens; the id that a later request can refer to;
 * and the reply.
 *
 * It reads event streams and plain JSON of OpenAI's chat completions,
 * completions and Responses, Anthropic's messages, and the own formats of
 * SGLang, TGI and llama.cpp.
 *
 * Before the prefill, engines send comments, pings, the first two events of
 * Responses, and llama.cpp's progress.  None of these counts as first event,
 * and neither does an error.
 *
 * An error can come in a response of status 200, because the header was sent
 * before.  An event is an error if "error" is an object or a text, if its name
 * says so, or if the field is named "error" instead of "data", as in older
 * llama.cpp.  A code of 4xx means that the client caused it.
 *
 * After the first event, only numbers and the reply are read.  If the reply is
 * not needed, events without numbers are not parsed: they cost one search.
 */


#include "core/text/kvr_json_push.h"


#define KVR_RESPONSE_ID_LEN    64
#define KVR_RESPONSE_WORD_LEN  40

/* bytes of a plain reply that are read */
#define KVR_RESPONSE_MAX    (4 * 1024 * 1024)


typedef enum {
    KVR_RESPONSE_FIRST = 0,      /* only the first event */
    KVR_RESPONSE_TOKENS,         /* and the numbers of tokens */
    KVR_RESPONSE_REPLY           /* and the text, for kvr_response_part_pt */
} kvr_response_mode_e;


/* parts of a reply, in their order */
typedef enum {
    KVR_RESPONSE_CONTENT = 0,
    KVR_RESPONSE_REASONING,
    KVR_RESPONSE_CALL,           /* begins a call: a piece of its name */
    KVR_RESPONSE_ARGUMENTS,      /* as a string */
    KVR_RESPONSE_INPUT,          /* of a call, as JSON in a string */
    KVR_RESPONSE_OTHER           /* there is more than one reply, or media */
} kvr_response_part_e;


/*
 * Receives the pieces of the reply as written in JSON strings; a piece can end
 * inside an escape.  NULL ends the pieces of one string.
 */
typedef void (*kvr_response_part_pt)(void *data, kvr_response_part_e part,
    const uint8_t *p, size_t len);


/* whose fault an error in the response is */
typedef enum {
    KVR_RESPONSE_NO_ERROR = 0,
    KVR_RESPONSE_UNCLEAR,        /* the error has no code */
    KVR_RESPONSE_CLIENT,
    KVR_RESPONSE_SERVER
} kvr_response_error_e;


/* numbers that have been seen */
#define KVR_RESPONSE_PROMPT       0x01
#define KVR_RESPONSE_CACHED       0x02
#define KVR_RESPONSE_COMPLETION   0x04
#define KVR_RESPONSE_CACHE_READ   0x08  /* Anthropic's, not in input */
#define KVR_RESPONSE_CACHE_WRITE  0x10
#define KVR_RESPONSE_COMPUTED     0x20  /* llama.cpp's timings */


typedef struct {
    kvr_push_t     json;

    uint8_t        mode;
    uint8_t        state;        /* kvr_response_state_e */
    uint8_t        seen;         /* numbers, as above */
    uint8_t        word_len;
    uint8_t        id_len;       /* KVR_RESPONSE_ID_LEN + 1: too long */
    uint8_t        kind;         /* of the event */

    unsigned       stream:1;
    unsigned       first:1;      /* the first event was seen */
    unsigned       early:1;      /* this event comes before the prefill */
    unsigned       counted:1;    /* this line has the generated tokens */
    unsigned       id_done:1;
    unsigned       error:2;      /* kvr_response_error_e */

    uint32_t       prompt;
    uint32_t       cached;
    uint32_t       completion;
    uint32_t       cache_read;
    uint32_t       cache_write;
    uint32_t       computed;

    uint64_t       left;         /* bytes that can still be read */

    uint64_t       around;       /* hash of the line around the text, or 0 */
    uint16_t       before;       /* bytes before and after that text */
    uint16_t       after;

    uint8_t        word[KVR_RESPONSE_WORD_LEN];
    uint8_t        id[KVR_RESPONSE_ID_LEN];
} kvr_response_t;

_Static_assert(sizeof(kvr_response_t) <= 224, "kvr_response_t");


/* tokens; -1: not reported */
typedef struct {
    int64_t        prompt;       /* cached ones included */
    int64_t        cached;
    int64_t        completion;
} kvr_tokens_t;


/* Starts a body; stream is set if it is a text/event-stream. */
void kvr_response_init(kvr_response_t *u, kvr_response_mode_e mode,
    unsigned stream);

/*
 * Reads the next bytes; part can be NULL.  Returns 0 if the rest is not needed.
 */
int kvr_response_read(kvr_response_t *u, const uint8_t *data, size_t len,
    kvr_response_part_pt part, void *ctx);

/* Ends the body. */
void kvr_response_end(kvr_response_t *u, kvr_response_part_pt part, void *ctx);

/* Returns the tokens seen so far. */
void kvr_response_tokens(const kvr_response_t *u, kvr_tokens_t *t);


#endif /* _KVR_RESPONSE_H_INCLUDED_ */
