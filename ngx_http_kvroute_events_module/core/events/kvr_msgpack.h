
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_MSGPACK_H_INCLUDED_
#define _KVR_MSGPACK_H_INCLUDED_


/*
 * Reads MessagePack, value by value.  A container is returned as one value with
 * the number of its items; the items follow as values of their own.
 */


#include "core/base/kvr_core.h"


typedef enum {
    KVR_MSGPACK_ERROR = 0,       /* no valid value, or it is cut off */
    KVR_MSGPACK_INT,             /* number; negative ones as 2^64 minus it */
    KVR_MSGPACK_STR,             /* text, len: a string or binary data */
    KVR_MSGPACK_ARRAY,           /* number of items */
    KVR_MSGPACK_MAP,             /* number of pairs */
    KVR_MSGPACK_OTHER            /* nil, a boolean, a float, an extension */
} kvr_msgpack_e;


typedef struct {
    const uint8_t     *p;        /* the next value */
    const uint8_t     *end;
    const uint8_t     *text;
    uint64_t           number;
    uint32_t           len;
} kvr_msgpack_t;


static inline void
kvr_msgpack_init(kvr_msgpack_t *m, const uint8_t *p, size_t len)
{
    m->p = p;
    m->end = p + len;
}


/* Reads the next value.  After an error every further value is one, too. */
kvr_msgpack_e kvr_msgpack_next(kvr_msgpack_t *m);

/* Skips n values with everything in them.  Returns KVR_OK or KVR_ERROR. */
int kvr_msgpack_skip(kvr_msgpack_t *m, uint64_t n);


#endif /* _KVR_MSGPACK_H_INCLUDED_ */
