
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_ANSWER_H_INCLUDED_
#define _KVR_ANSWER_H_INCLUDED_


/*
 * A streamed answer that one engine begins and another one may continue: what
 * its client has been given so far, and what of each further event it gets.
 *
 * Events of the first part pass byte for byte.  Those of a further part get the
 * id, the model and the time of the first one, lose a role that the client has,
 * and tell the sum of the tokens.
 *
 * An event whose text ends inside a character is held back until the next one
 * has the rest of it, since another engine would write all of the character.
 * Most events differ from the one before by their text alone: they are not read
 * but compared.
 *
 * An event with an error is held back too: it is the client's only if nobody
 * continues.
 */


#include "core/continue/kvr_splice.h"


#define KVR_ANSWER_NAME  256     /* of an id, or a model */
#define KVR_ANSWER_HELD  1024    /* bytes that are held back, at most */
#define KVR_ANSWER_FRAME 512     /* bytes around a text */


/* what the events are of */
typedef enum {
    KVR_ANSWER_CHAT = 0,
    KVR_ANSWER_COMPLETION
} kvr_answer_api_e;


/* why an answer that breaks is not continued */
typedef enum {
    KVR_ANSWER_WHOLE = 0,        /* it did not break, or was continued */
    KVR_ANSWER_CHOICES,          /* it is one of several */
    KVR_ANSWER_LOGPROBS,
    KVR_ANSWER_STRUCTURED,       /* its grammar would begin anew */
    KVR_ANSWER_TOOLS,            /* a call has begun */
    KVR_ANSWER_REASONING,        /* templates drop it */
    KVR_ANSWER_MEDIA,
    KVR_ANSWER_REQUEST,          /* the request cannot be given a text */
    KVR_ANSWER_EVENT,            /* an event cannot be read */
    KVR_ANSWER_ENGINE,           /* the engines cannot do it */
    KVR_ANSWER_LONG,             /* "max=" */
    KVR_ANSWER_TRIES,            /* "tries=" */
    KVR_ANSWER_BUDGET,           /* of retries */
    KVR_ANSWER_PREFILL,          /* two servers serve the request */
    KVR_ANSWER_FAILED,           /* the last continuation */
    KVR_ANSWER_CUTS
} kvr_answer_cut_e;


typedef struct {
    uint16_t           len;
    uint8_t            data[KVR_ANSWER_NAME];
} kvr_answer_name_t;


typedef struct {
    uint8_t           *text;     /* as JSON has it; the caller's memory */
    size_t             size;
    size_t             len;      /* of it */
    size_t             given;    /* that the client has */

    uint32_t           part;     /* 0: the first */
    uint64_t           earlier;  /* tokens of parts before */
    uint64_t           tokens;   /* of this one */

    kvr_answer_name_t  id;
    kvr_answer_name_t  model;
    uint64_t           created;

    uint8_t            api;      /* kvr_answer_api_e */
    uint8_t            cut;      /* kvr_answer_cut_e, if it breaks now */
    unsigned           begun:1;  /* the client has an event */
    unsigned           role:1;   /* and the role */
    unsigned           finished:1;  /* the engine has told why it stopped */
    unsigned           done:1;   /* the final event has passed */
    unsigned           failed:1; /* an error event is held */

    /* of the last event with a text: what stood around that */

    size_t             before;
    size_t             after;    /* 0: there is none */
    uint8_t            frame[KVR_ANSWER_FRAME];

    size_t             held;
    uint8_t            hold[KVR_ANSWER_HELD];
} kvr_answer_t;


/*
 * Returns the length of the first event with the empty line that ends it; 0:
 * it is not complete.  Bytes before from have been looked at before.
 */
size_t kvr_answer_scan(const uint8_t *p, size_t len, size_t *from);

/*
 * Takes an event; text has room for all of its bytes.  put gets what the client
 * gets.
 */
void kvr_answer_event(kvr_answer_t *a, const uint8_t *p, size_t len,
    kvr_splice_put_pt put, void *data);

/* another engine begins to continue what the client has */
void kvr_answer_next(kvr_answer_t *a);

/*
 * Writes what ends an answer that cannot be continued: its final event if only
 * that is missing, else the error; limit: all tokens that the client asked for
 * have been given.
 */
void kvr_answer_end(kvr_answer_t *a, int limit, kvr_splice_put_pt put,
    void *data);

/* what a reason is called */
const char *kvr_answer_cut_name(uint32_t cut);


#endif /* _KVR_ANSWER_H_INCLUDED_ */
