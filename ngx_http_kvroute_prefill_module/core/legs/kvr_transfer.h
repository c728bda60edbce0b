
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_TRANSFER_H_INCLUDED_
#define _KVR_TRANSFER_H_INCLUDED_


/*
 * Finds the descriptor of a transfer in the answer of a prefill server: the
 * object that is the value of a member of the root, byte for byte.
 *
 * The answer may be cut anywhere.  Its descriptor is used only if the answer is
 * complete: nginx reports no error for a connection that breaks off.
 */


#include "core/base/kvr_core.h"


typedef struct {
    const char        *name;       /* of the member */
    uint8_t           *data;       /* the caller's memory for the object */
    size_t             size;
    size_t             len;        /* of the object, if found */

    uint32_t           depth;      /* open brackets */
    int32_t            match;      /* matching bytes of the key; -1: none */

    unsigned           string:1;   /* within a string */
    unsigned           escape:1;   /* behind a backslash */
    unsigned           key:1;      /* the string is a key of the root */
    unsigned           expect:1;   /* the next string will be one */
    unsigned           named:1;    /* the key has the name */
    unsigned           inside:1;   /* within the object */

    unsigned           found:1;    /* there was such an object */
    unsigned           over:1;     /* it is longer than the memory */
    unsigned           whole:1;    /* the root has ended */
    unsigned           bad:1;      /* no object, or something behind it */
} kvr_transfer_t;


/* name: plain letters only; NULL: find no member */
void kvr_transfer_init(kvr_transfer_t *t, const char *name, uint8_t *data,
    size_t size);

void kvr_transfer_read(kvr_transfer_t *t, const uint8_t *p, size_t n);


/* Returns whether the answer is complete. */
static inline int
kvr_transfer_whole(const kvr_transfer_t *t)
{
    return t->whole && !t->bad;
}


#endif /* _KVR_TRANSFER_H_INCLUDED_ */
