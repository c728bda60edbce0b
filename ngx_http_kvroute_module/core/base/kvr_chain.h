
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_CHAIN_H_INCLUDED_
#define _KVR_CHAIN_H_INCLUDED_


#include "core/base/kvr_core.h"


/*
 * Selects the values of a prompt's chain that get an entry in the index: each
 * of the first 128, then every 2nd, 4th and 8th, since a deep value implies
 * those before it.  Depths are in units: the blocks per entry of the zone.  Two
 * megabytes in units of 256 bytes have 1,296 entries.
 */


/* entries with the same distance */
#define KVR_CHAIN_RUN  128


/* Returns the depth of entry k (from 0): the units up to its end. */
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


/* Returns the units between entry k and the one before. */
static inline uint32_t
kvr_chain_step(uint32_t k)
{
    return 1U << kvr_min(k / KVR_CHAIN_RUN, 3);
}


/* Returns the number of entries of a prompt. */
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
