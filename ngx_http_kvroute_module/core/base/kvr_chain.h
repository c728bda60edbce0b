
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_CHAIN_H_INCLUDED_
#define _KVR_CHAIN_H_INCLUDED_


#include "core/base/kvr_core.h"


/*
 * Selects the values of a prompt's chain that get an entry in the index: each
 * of the first KVR_CHAIN_RUN, then as many of every 2nd and of every 4th, then
 * every 8th, since a deep value implies those before it.  Depths are in units,
 * the blocks of a prompt: 32 KB have 96 entries, two megabytes 1,160.
 */


/* bytes of a block */
#define KVR_BLOCK      256

/* entries with the same distance */
#define KVR_CHAIN_RUN  64


/* Returns the depth of entry k (from 0): the units up to its end. */
static inline uint32_t
kvr_chain_depth(uint32_t k)
{
    if (kvr_likely(k < KVR_CHAIN_RUN)) {
        return k + 1;
    }

    if (k < 2 * KVR_CHAIN_RUN) {
        return (k + 1) * 2 - KVR_CHAIN_RUN;
    }

    if (k < 3 * KVR_CHAIN_RUN) {
        return (k + 1) * 4 - 5 * KVR_CHAIN_RUN;
    }

    return (k + 1) * 8 - 17 * KVR_CHAIN_RUN;
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
    if (units <= KVR_CHAIN_RUN) {
        return units;
    }

    if (units <= 3 * KVR_CHAIN_RUN) {
        return (units + KVR_CHAIN_RUN) / 2;
    }

    if (units <= 7 * KVR_CHAIN_RUN) {
        return (units + 5 * KVR_CHAIN_RUN) / 4;
    }

    return (units + 17 * KVR_CHAIN_RUN) / 8;
}


#endif /* _KVR_CHAIN_H_INCLUDED_ */
