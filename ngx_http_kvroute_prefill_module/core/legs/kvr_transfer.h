
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_TRANSFER_H_INCLUDED_
#define _KVR_TRANSFER_H_INCLUDED_


/*
 * The descriptor of a transfer in the answer of a prefill server: the object
 * that is the value of a member of the root, byte for byte as it was written.
 * What is inside is the engines' own.
 *
 * The answer is fed in pieces cut anywhere.  It is used only if it came whole:
 * an answer that breaks off looks well to nginx, which ends the request with
 * no error.
 */


#include "core/base/kvr_core.h"


typedef struct {
    const char        *name;       /* of the member */
    uint8_t           *data;       /* memory of the caller for the object */
    size_t             size;
    size_t             len;        /* of the object, if it is found */

    uint32_t           depth;      /* brackets that are open */
    int32_t            match;      /* bytes of the key so far; -1: another */

    unsigned           string:1;   /* within a string */
    unsigned           escape:1;   /* behind a backslash */
    unsigned           key:1;      /* that string is a key of the root */
    unsigned           expect:1;   /* the next string would be */
    unsigned           named:1;    /* the value that follows is wanted */
    unsigned           inside:1;   /* of that object */

    unsigned           found:1;    /* there was such an object */
    unsigned           over:1;     /* longer than there is memory for */
    unsigned           whole:1;    /* the root has ended */
    unsigned           bad:1;      /* it is no object, or not alone */
} kvr_transfer_t;


/* name: plain letters; NULL: no member is wanted */
void kvr_transfer_init(kvr_transfer_t *t, const char *name, uint8_t *data,
    size_t size);

void kvr_transfer_read(kvr_transfer_t *t, const uint8_t *p, size_t n);


/* the answer has come whole */
static inline int
kvr_transfer_whole(const kvr_transfer_t *t)
{
    return t->whole && !t->bad;
}


/*
 * It has, and there is an object that may stand in a request (kvr_valid()).
 * Of anything else a server says that the request is no JSON.
 */
int kvr_transfer_usable(const kvr_transfer_t *t);


#endif /* _KVR_TRANSFER_H_INCLUDED_ */
