
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_TRANSFER_H_INCLUDED_
#define _KVR_TRANSFER_H_INCLUDED_


/*
 * Finds the descriptor of a transfer in the answer of a prefill server: the
 * object that is the value of a member of the root, byte for byte.
 */


#include "core/base/kvr_core.h"


/* where it is in the answer; len is 0 if it is not there */
typedef struct {
    size_t             at;
    size_t             len;
} kvr_transfer_t;


/*
 * Finds the member of this name, or none if name is NULL.  KVR_ERROR: the
 * answer is not one complete JSON object.
 */
int kvr_transfer_find(kvr_transfer_t *t, const char *name, const uint8_t *p,
    size_t len);


#endif /* _KVR_TRANSFER_H_INCLUDED_ */
