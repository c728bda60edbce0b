
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_RESPONSE_H_INCLUDED_
#define _KVR_RESPONSE_H_INCLUDED_


/*
 * What the body of a response tells, read as it streams by, cut anywhere: when
 * its first event comes, which ends the engine's prefill; how many tokens the
 * prompt had, how many of them the engine had cached, how many it produced;
 * the id that a later request may refer to; the reply itself.
 *
 * Reads event streams and plain JSON of OpenAI's chat completions, completions
 * and Responses, Anthropic's messages, SGLang's, TGI's and llama.cpp's own.
 *
 * Engines send before the prefill: comments, pings, the first two events of
 * Responses, llama.cpp's progress.  None of these is a first event, and an
 * error is none either.
 *
 * An error may come in a response of 200, as its status has gone out long ago.
 * It is one if "error" is an object or a text, if the event is of that name, or
 * if the line is, which older llama.cpp has instead of "data".  Its code says
 * whose fault it is: 4xx is the client's.
 *
 * Once the first event was seen, only numbers and the reply are looked for, and
 * without the reply an event that cannot have a number costs one search for a
 * word; it is not parsed.
 */


#include "core/text/kvr_json_push.h"


#define KVR_RESPONSE_ID_LEN    64
#define KVR_RESPONSE_WORD_LEN  40

/* a plain reply longer than this is not read to its end */
#define KVR_RESPONSE_MAX    (4 * 1024 * 1024)


typedef enum {
    KVR_RESPONSE_FIRST = 0,      /* only its first event is of interest */
    KVR_RESPONSE_TOKENS,
    KVR_RESPONSE_REPLY           /* the text too, for kvr_response_part_pt */
} kvr_response_mode_e;


/* parts of a reply, in the order in which they come */
typedef enum {
    KVR_RESPONSE_CONTENT = 0,
    KVR_RESPONSE_REASONING,
    KVR_RESPONSE_CALL,           /* begins a call: a piece of its name */
    KVR_RESPONSE_ARGUMENTS,      /* as a string */
    KVR_RESPONSE_INPUT,          /* of a call, as JSON in a string */
    KVR_RESPONSE_OTHER           /* there is more than one reply, or media */
} kvr_response_part_e;


/*
 * Is given the pieces of the reply, as they are written in JSON strings; a
 * piece may end within an escape.  NULL ends a run of pieces of one string.
 */
typedef void (*kvr_response_part_pt)(void *data, kvr_response_part_e part,
    const uint8_t *p, size_t len);


/* whose error came in the response */
typedef enum {
    KVR_RESPONSE_NO_ERROR = 0,
    KVR_RESPONSE_UNCLEAR,        /* it has no code */
    KVR_RESPONSE_CLIENT,
    KVR_RESPONSE_SERVER
} kvr_response_error_e;


/* which of the numbers have been seen */
#define KVR_RESPONSE_PROMPT       0x01
#define KVR_RESPONSE_CACHED       0x02
#define KVR_RESPONSE_COMPLETION   0x04
#define KVR_RESPONSE_CACHE_READ   0x08  /* of Anthropic's, apart from input */
#define KVR_RESPONSE_CACHE_WRITE  0x10
#define KVR_RESPONSE_COMPUTED     0x20  /* of llama.cpp's timings */


typedef struct {
    kvr_push_t     json;

    uint8_t        mode;
    uint8_t        state;        /* kvr_response_state_e */
    uint8_t        seen;         /* numbers, as above */
    uint8_t        word_len;
    uint8_t        id_len;       /* KVR_RESPONSE_ID_LEN + 1: too long */
    uint8_t        kind;         /* what the event is */

    unsigned       stream:1;
    unsigned       first:1;      /* the first event was seen */
    unsigned       early:1;      /* this event comes before the prefill */
    unsigned       counted:1;    /* this line tells what was generated */
    unsigned       id_done:1;
    unsigned       error:2;      /* kvr_response_error_e */

    uint32_t       prompt;
    uint32_t       cached;
    uint32_t       completion;
    uint32_t       cache_read;
    uint32_t       cache_write;
    uint32_t       computed;

    uint64_t       left;         /* bytes that are still looked at */

    uint64_t       around;       /* what stood around the last text; 0: none */
    uint16_t       before;       /* bytes of it */
    uint16_t       after;

    uint8_t        word[KVR_RESPONSE_WORD_LEN];
    uint8_t        id[KVR_RESPONSE_ID_LEN];
} kvr_response_t;

_Static_assert(sizeof(kvr_response_t) <= 224, "kvr_response_t");


/* tokens; -1: not told */
typedef struct {
    int64_t        prompt;       /* cached ones included */
    int64_t        cached;
    int64_t        completion;
} kvr_tokens_t;


/* starts reading; stream says that the body is a text/event-stream */
void kvr_response_init(kvr_response_t *u, kvr_response_mode_e mode,
    unsigned stream);

/*
 * Looks at the next bytes; part may be NULL.  Returns 1 as long as there is
 * more to be learned from what follows.
 */
int kvr_response_read(kvr_response_t *u, const uint8_t *data, size_t len,
    kvr_response_part_pt part, void *ctx);

/* the body is over */
void kvr_response_end(kvr_response_t *u, kvr_response_part_pt part, void *ctx);

/*
 * Takes a header of the response, where TGI tells its tokens; the name in
 * lower case.
 */
void kvr_response_header(kvr_response_t *u, const uint8_t *name, size_t len,
    const uint8_t *value, size_t value_len);

/* what is known by now */
void kvr_response_tokens(const kvr_response_t *u, kvr_tokens_t *t);


#endif /* _KVR_RESPONSE_H_INCLUDED_ */
