
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_MSGPACK_H_INCLUDED_
#define _KVR_MSGPACK_H_INCLUDED_


/*
 * MessagePack, value by value, from bytes that may be cut anywhere.
 *
 * A container is told as one value, with the number of its items; the items
 * come after it.  Of a string or of binary data the first bytes are kept, and
 * the last eight as a number; so a reader has one size, whatever it reads.
 *
 * An input has no limits here but those of the format: an array may say that it
 * has 2^32 items.  The caller bounds what it reads.
 */


#include "core/base/kvr_core.h"


#define KVR_MSGPACK_TEXT  32     /* bytes of a string that are kept */


typedef enum {
    KVR_MSGPACK_AGAIN = 0,       /* all bytes are read */
    KVR_MSGPACK_NIL,
    KVR_MSGPACK_BOOL,            /* number */
    KVR_MSGPACK_INT,             /* number; a negative one as 2^64 less it */
    KVR_MSGPACK_FLOAT,           /* its bits are not kept */
    KVR_MSGPACK_STR,             /* text, len, tail */
    KVR_MSGPACK_BIN,             /* likewise */
    KVR_MSGPACK_EXT,             /* likewise, without its type */
    KVR_MSGPACK_ARRAY,           /* number of items */
    KVR_MSGPACK_MAP,             /* number of pairs */
    KVR_MSGPACK_ERROR            /* a byte that begins no value */
} kvr_msgpack_e;


typedef struct {
    uint64_t           number;
    uint64_t           tail;     /* the last eight bytes, big-endian */
    uint64_t           left;     /* bytes of a string that are missing */
    uint64_t           values;   /* to be passed over */
    uint32_t           len;      /* of the string, all of it */
    uint8_t            kind;     /* of the value whose bytes are read */
    uint8_t            have;     /* bytes of a head that was cut */
    uint8_t            head[9];
    uint8_t            text[KVR_MSGPACK_TEXT];
} kvr_msgpack_t;


/* begins anew */
static inline void
kvr_msgpack_init(kvr_msgpack_t *m)
{
    m->left = 0;
    m->values = 0;
    m->kind = KVR_MSGPACK_AGAIN;
    m->have = 0;
}


/*
 * The next value; *p is moved on.  After KVR_MSGPACK_AGAIN more bytes are to be
 * given; after KVR_MSGPACK_ERROR nothing is.
 */
kvr_msgpack_e kvr_msgpack_next(kvr_msgpack_t *m, const uint8_t **p,
    const uint8_t *end);

/*
 * Passes over values with all that is in them: as many as m->values, which the
 * caller sets when the call before has returned KVR_OK.  Returns KVR_AGAIN if
 * bytes are missing, KVR_ERROR after a byte that begins no value.
 */
int kvr_msgpack_skip(kvr_msgpack_t *m, const uint8_t **p, const uint8_t *end);

/* whether the string that was read is this one, in any case of its letters */
int kvr_msgpack_is(const kvr_msgpack_t *m, const char *word);

/* whether it begins so */
int kvr_msgpack_begins(const kvr_msgpack_t *m, const char *word);


#endif /* _KVR_MSGPACK_H_INCLUDED_ */
