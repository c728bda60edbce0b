
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_RESPONSE_JSON_H_INCLUDED_
#define _KVR_RESPONSE_JSON_H_INCLUDED_


/*
 * Which members of the JSON of responses mean what: of kvr_response.c, nobody
 * else's business.
 */


#include "core/response/kvr_response.h"


typedef struct kvr_response_leaf_s  kvr_response_leaf_t;


typedef struct {
    kvr_response_t             *u;
    kvr_response_part_pt        part;    /* the reply goes there */
    void                       *ctx;

    /* of the line: where its content is, and whether it has more than that */

    const uint8_t              *from;
    const uint8_t              *to;
    unsigned                    texts;
    unsigned                    other;

    /* the value, as kvr_push_pt has it */

    const kvr_response_leaf_t  *leaf;
    kvr_push_e                  what;
    const uint8_t              *p;
    size_t                      len;
    uint64_t                    number;
} kvr_response_sink_t;


/* feeds a line's data, or all of a plain body, as kvr_push_feed() does */
int kvr_response_feed(kvr_response_t *u, const uint8_t *data, size_t len,
    kvr_response_sink_t *sink);

/* takes a piece of the name of an event, or of the type in its data */
void kvr_response_word(kvr_response_t *u, const uint8_t *p, size_t len);

/*
 * The name is complete: what kind of event it is.  Returns whether it is of any
 * kind that matters.
 */
unsigned kvr_response_kind(kvr_response_t *u);

/* this event is an error, of nobody knows whom yet */
void kvr_response_failed(kvr_response_t *u);


#endif /* _KVR_RESPONSE_JSON_H_INCLUDED_ */
