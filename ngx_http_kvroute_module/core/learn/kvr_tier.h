
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_TIER_H_INCLUDED_
#define _KVR_TIER_H_INCLUDED_


/*
 * The tiers of an engine's cache: GPU memory, host memory, disk.  A tier stores
 * all that those above it have, and each drops what was not used for longest.
 * So the age of a block tells its tier, and no tier needs an index of its own.
 *
 * The price of a load is its time as a share of computing the same tokens.  It
 * is learned from first tokens of prompts that one tier held nearly whole.
 *
 * In shared memory; words stand for themselves.
 */


#include "core/base/kvr_core.h"


typedef enum {
    KVR_TIER_GPU = 0,
    KVR_TIER_HOST,
    KVR_TIER_DISK,
    KVR_TIERS
} kvr_tier_e;


#define KVR_TIER_ONE  1024           /* a price: as dear as computing */


typedef struct {
    _Atomic uint64_t   told;         /* units, as configured; 0: not known */
    _Atomic uint32_t   until;        /* age in units at which blocks leave it
                                        for the tier below; 0: for none */
    _Atomic uint32_t   price;        /* in 1/1024; 0: not known yet */
} kvr_tier_t;


/* units of a prompt in each of the lower tiers */
typedef struct {
    uint32_t           host;
    uint32_t           disk;
} kvr_tier_split_t;


/*
 * Tells the tiers of the leading units of a prompt, the deepest of which has
 * this age.  The tail is evicted first.
 */
kvr_tier_split_t kvr_tier_split(const kvr_tier_t *tier, uint32_t units,
    uint32_t age);

/* returns the units of prefill that loading them takes as long as */
uint32_t kvr_tier_cost(const kvr_tier_t *tier, const kvr_tier_split_t *split);

/*
 * Takes the time of a first token beyond that of all else, in ms; computing the
 * split's units would have taken "whole" ms.
 */
void kvr_tier_first(kvr_tier_t *tier, const kvr_tier_split_t *split,
    double took, double whole);


#endif /* _KVR_TIER_H_INCLUDED_ */
