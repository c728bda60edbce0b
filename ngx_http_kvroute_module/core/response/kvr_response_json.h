
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_RESPONSE_JSON_H_INCLUDED_
#define _KVR_RESPONSE_JSON_H_INCLUDED_


/* The meaning of the JSON members of responses: a part of kvr_response.c. */


#include "core/response/kvr_response.h"


typedef struct kvr_response_leaf_s  kvr_response_leaf_t;


typedef struct {
    kvr_response_t             *u;
    kvr_response_part_pt        part;    /* receives the reply */
    void                       *ctx;

    /* the content of the line, and whether it has other members */

    const uint8_t              *from;
    const uint8_t              *to;
    unsigned                    texts;
    unsigned                    other;

    /* the arguments of kvr_push_pt */

    const kvr_response_leaf_t  *leaf;
    kvr_push_e                  what;
    const uint8_t              *p;
    size_t                      len;
    uint64_t                    number;
} kvr_response_sink_t;


/* Feeds the data of a line, or a plain body, to kvr_push_feed(). */
int kvr_response_feed(kvr_response_t *u, const uint8_t *data, size_t len,
    kvr_response_sink_t *sink);

/* Takes a piece of the name of an event, or of the type in its data. */
void kvr_response_word(kvr_response_t *u, const uint8_t *p, size_t len);

/*
 * Ends the name and sets the kind of the event.  Returns whether it is known.
 */
unsigned kvr_response_kind(kvr_response_t *u);

/* Marks the event as an error; its cause is not known yet. */
void kvr_response_failed(kvr_response_t *u);


#endif /* _KVR_RESPONSE_JSON_H_INCLUDED_ */
