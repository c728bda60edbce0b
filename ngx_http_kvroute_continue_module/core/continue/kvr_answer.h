
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_ANSWER_H_INCLUDED_
#define _KVR_ANSWER_H_INCLUDED_


/*
 * A streamed answer that one engine begins and others may continue in further
 * parts: what the client has received, and what it gets of each further event.
 *
 * Events of the first part pass byte for byte.  Events of a further part get
 * the first part's id, model and time, lose a role that the client already
 * has, and report the tokens of all parts.
 *
 * An event whose text ends inside a character is held back until the next one
 * completes it, since another engine would repeat the whole character.  Most
 * events differ from the one before only in their text.  They are compared,
 * not parsed.
 *
 * An event with an error is held back, too.  The client gets it only if the
 * answer is not continued.
 */


#include "core/continue/kvr_splice.h"


#define KVR_ANSWER_NAME  256     /* of an id, or a model */
#define KVR_ANSWER_HELD  1024    /* most bytes that are held back */
#define KVR_ANSWER_FRAME 512     /* bytes around a text */


/* the API of the events */
typedef enum {
    KVR_ANSWER_CHAT = 0,
    KVR_ANSWER_COMPLETION,

    /* from here on events are only watched: engines cannot continue them */

    KVR_ANSWER_MESSAGES,
    KVR_ANSWER_RESPONSES,
    KVR_ANSWER_APIS
} kvr_answer_api_e;


/* why a broken answer is not continued */
typedef enum {
    KVR_ANSWER_WHOLE = 0,        /* it is complete, or was continued */
    KVR_ANSWER_CHOICES,          /* it is one of several */
    KVR_ANSWER_LOGPROBS,
    KVR_ANSWER_STRUCTURED,       /* its grammar would start again */
    KVR_ANSWER_TOOLS,            /* a tool call has begun */
    KVR_ANSWER_REASONING,        /* chat templates drop reasoning */
    KVR_ANSWER_MEDIA,
    KVR_ANSWER_REQUEST,          /* no text can be appended to the request */
    KVR_ANSWER_EVENT,            /* an event cannot be read */
    KVR_ANSWER_ENGINE,           /* the engines do not support it */
    KVR_ANSWER_LONG,             /* "max=" */
    KVR_ANSWER_TRIES,            /* "tries=" */
    KVR_ANSWER_BUDGET,           /* no retry budget left */
    KVR_ANSWER_PREFILL,          /* two servers serve the request */
    KVR_ANSWER_FAILED,           /* the last continuation failed */
    KVR_ANSWER_API,              /* engines do not continue this one's */
    KVR_ANSWER_CUTS
} kvr_answer_cut_e;


typedef struct {
    uint16_t           len;
    uint8_t            data[KVR_ANSWER_NAME];
} kvr_answer_name_t;


typedef struct {
    uint8_t           *text;     /* JSON-escaped; the caller's memory */
    size_t             size;
    size_t             len;      /* of it */
    size_t             given;    /* sent to the client */

    uint32_t           part;     /* 0: the first */
    uint64_t           earlier;  /* tokens of earlier parts */
    uint64_t           tokens;   /* of this part */

    kvr_answer_name_t  id;
    kvr_answer_name_t  model;
    uint64_t           created;

    uint8_t            api;      /* kvr_answer_api_e */
    uint8_t            cut;      /* kvr_answer_cut_e, if it broke now */
    unsigned           begun:1;  /* an event was sent */
    unsigned           role:1;   /* the role was sent */
    unsigned           quiet:1;  /* the client did not ask for usage */
    unsigned           finished:1;  /* a reason to stop has come */
    unsigned           done:1;   /* the final event has passed */
    unsigned           failed:1; /* an error event is held */

    /* the bytes around the text of the last event */

    size_t             before;
    size_t             after;    /* 0: none */
    uint8_t            frame[KVR_ANSWER_FRAME];

    size_t             held;
    uint8_t            hold[KVR_ANSWER_HELD];
} kvr_answer_t;


/*
 * Tells whether a status means that the client's request is wrong, so that any
 * other engine would reject it too.
 */
static inline int
kvr_answer_rejects(int64_t status)
{
    return status == 400 || status == 413 || status == 422;
}


/* Returns the API of a path; KVR_ANSWER_APIS: another one. */
kvr_answer_api_e kvr_answer_api(const uint8_t *path, size_t len);

/*
 * Returns the length of the first event with the empty line that ends it; 0:
 * it is incomplete.  The search starts at from.
 */
size_t kvr_answer_scan(const uint8_t *p, size_t len, size_t *from);

/*
 * Takes an event, and passes what the client gets to put.  text must have room
 * for all bytes of the event.
 */
void kvr_answer_event(kvr_answer_t *a, const uint8_t *p, size_t len,
    kvr_splice_put_pt put, void *data);

/* The same for an API whose events are only watched. */
void kvr_answer_watch(kvr_answer_t *a, const uint8_t *p, size_t len,
    kvr_splice_put_pt put, void *data);

/* Starts a further part. */
void kvr_answer_next(kvr_answer_t *a);

/*
 * Writes the end of an answer that cannot be continued: its final event if only
 * that is missing, else the error.  limit: all requested tokens were sent.
 */
void kvr_answer_end(kvr_answer_t *a, int limit, kvr_splice_put_pt put,
    void *data);

/* Returns the name of a reason. */
const char *kvr_answer_cut_name(uint32_t cut);


#endif /* _KVR_ANSWER_H_INCLUDED_ */
