
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_CHAIN_H_INCLUDED_
#define _KVR_CHAIN_H_INCLUDED_


#include "core/base/kvr_core.h"


/*
 * Which values of a prompt's chain are worth a place in the index: each of the
 * first 128, then each 2nd, 4th and 8th, since a deep one proves those before
 * it.  Depths are in units: as many blocks as the zone has to an entry.  Two
 * megabytes in units of 256 bytes make 1,296 entries.
 */


/* so many entries are equally far from each other */
#define KVR_CHAIN_RUN  128


/* depth of the k-th entry (from 0): the units of the prompt up to its end */
static inline uint32_t
kvr_chain_depth(uint32_t k)
{
    if (kvr_likely(k < 128)) {
        return k + 1;
    }

    if (k < 256) {
        return 128 + (k - 127) * 2;
    }

    if (k < 384) {
        return 384 + (k - 255) * 4;
    }

    return 896 + (k - 383) * 8;
}


/* units that the k-th entry is behind the one before */
static inline uint32_t
kvr_chain_step(uint32_t k)
{
    return 1U << kvr_min(k / KVR_CHAIN_RUN, 3);
}


/* how many entries a prompt of so many units has */
static inline uint32_t
kvr_chain_entries(uint32_t units)
{
    if (units <= 128) {
        return units;
    }

    if (units <= 384) {
        return 128 + (units - 128) / 2;
    }

    if (units <= 896) {
        return 256 + (units - 384) / 4;
    }

    return 384 + (units - 896) / 8;
}


#endif /* _KVR_CHAIN_H_INCLUDED_ */
