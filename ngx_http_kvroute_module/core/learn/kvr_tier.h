
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
 * What a load costs is learned from the times of first tokens.  A store that
 * all peers of an upstream share counts as their disk.
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


#define KVR_TIER_ONE  65536          /* a price: as slow as computing */

/* before the first measurement: PCIe */
#define KVR_TIER_HOST_PRICE  (KVR_TIER_ONE / 10)


typedef struct {
    _Atomic uint64_t   told;         /* units, as configured; 0: unknown */
    _Atomic uint32_t   until;        /* age in units at which blocks are in the
                                        lower tiers only; 0: never */
    _Atomic uint32_t   heard;        /* 1: KV events of such a tier were read;
                                        only in that of the host */
} kvr_tier_t;


/*
 * The price of a load from a lower tier: its time, divided by that of computing
 * the same tokens, in 1/KVR_TIER_ONE; 0: unknown.  One for all peers of an upstream:
 * measurements scatter, and a peer with a price that is too low by chance would
 * get more than its share.
 */
typedef struct {
    _Atomic uint32_t   host;
    _Atomic uint32_t   disk;
} kvr_tier_prices_t;


/* units of a prompt in each of the lower tiers */
typedef struct {
    uint32_t           host;
    uint32_t           disk;
} kvr_tier_split_t;


/*
 * Returns which of the leading units of a prompt are in lower tiers.  age is
 * that of the deepest unit.  The tail is evicted first.  stored: units that a
 * store of all peers has, which is below the GPU's memory; 0: there is none.
 */
kvr_tier_split_t kvr_tier_split(const kvr_tier_t *tier, uint32_t units,
    uint32_t age, uint32_t stored);

/* Returns the units of prefill that take as long as loading them. */
uint32_t kvr_tier_cost(const kvr_tier_prices_t *p,
    const kvr_tier_split_t *split);

/*
 * Takes the part of a time to first token that loading took, in ms.  Computing
 * the units of the split would have taken "whole" ms.
 */
void kvr_tier_first(kvr_tier_prices_t *p, const kvr_tier_split_t *split,
    double took, double whole);


#endif /* _KVR_TIER_H_INCLUDED_ */
