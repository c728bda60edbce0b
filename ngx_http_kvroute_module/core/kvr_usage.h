
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_USAGE_H_INCLUDED_
#define _KVR_USAGE_H_INCLUDED_


/*
 * What the body of a response tells, read as it streams by.  So far: when its
 * first event comes, which ends the engine's prefill.  Comments and pings of
 * an event stream are sent before and do not count.  Lines end in LF or CRLF.
 */


#include "kvr_core.h"


typedef enum {
    KVR_USAGE_LINE = 0,          /* at the start of a line */
    KVR_USAGE_WORD,              /* in what may be "event: ping" */
    KVR_USAGE_COMMENT,           /* to the end of the line */
    KVR_USAGE_PING,              /* in a line of a ping */
    KVR_USAGE_PING_LINE,         /* at the start of one */
    KVR_USAGE_EVENT              /* seen */
} kvr_usage_state_e;


typedef struct {
    uint8_t    state;            /* kvr_usage_state_e */
    uint8_t    match;            /* bytes of "event: ping" seen */
} kvr_usage_t;


/* starts reading; stream says that the body is a text/event-stream */
void kvr_usage_init(kvr_usage_t *u, unsigned stream);

/* looks at the next bytes; returns 1 once an event has begun */
int kvr_usage_event(kvr_usage_t *u, const uint8_t *data, size_t len);


#endif /* _KVR_USAGE_H_INCLUDED_ */
