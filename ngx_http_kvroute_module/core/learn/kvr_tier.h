
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_TIER_H_INCLUDED_
#define _KVR_TIER_H_INCLUDED_


/*
 * The tiers of an engine's cache: GPU memory, host memory, disk.  A tier
 * stores the blocks of all tiers above it, and evicts the least recently used
 * block.  So the age of a block tells its tier, and no tier needs an index.
 *
 * The price of a load is its time, divided by that of computing the same
 * tokens.  It is learned from the times of first tokens of prompts that are
 * nearly completely in one tier.
 *
 * It is in shared memory; each word is independent.
 */


#include "core/base/kvr_core.h"


typedef enum {
    KVR_TIER_GPU = 0,
    KVR_TIER_HOST,
    KVR_TIER_DISK,
    KVR_TIERS
} kvr_tier_e;


#define KVR_TIER_ONE  1024           /* a price: as slow as computing */


typedef struct {
    _Atomic uint64_t   told;         /* units, as configured; 0: unknown */
    _Atomic uint32_t   until;        /* age in units at which blocks are in the
                                        lower tiers only; 0: never */
    _Atomic uint32_t   price;        /* in 1/1024; 0: unknown */
    _Atomic uint32_t   heard;        /* 1: KV events of such a tier have come;
                                        only in that of the host */
} kvr_tier_t;


/* units of a prompt in each of the lower tiers */
typedef struct {
    uint32_t           host;
    uint32_t           disk;
} kvr_tier_split_t;


/*
 * Returns which of the leading units of a prompt are in lower tiers.  age is
 * that of the deepest unit.  The tail is evicted first.
 */
kvr_tier_split_t kvr_tier_split(const kvr_tier_t *tier, uint32_t units,
    uint32_t age);

/* Returns the units of prefill that take as long as loading them. */
uint32_t kvr_tier_cost(const kvr_tier_t *tier, const kvr_tier_split_t *split);

/*
 * Takes the part of a time to first token that loading took, in ms.  Computing
 * the units of the split would have taken "whole" ms.
 */
void kvr_tier_first(kvr_tier_t *tier, const kvr_tier_split_t *split,
    double took, double whole);


#endif /* _KVR_TIER_H_INCLUDED_ */
