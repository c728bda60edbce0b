
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_SINCE_H_INCLUDED_
#define _KVR_SINCE_H_INCLUDED_


/*
 * Remembers since when a server has its state, and since when each cause of an
 * upstream's health holds.  One process judges the upstream every few seconds
 * and passes the result here, so the times are exact to these seconds.
 *
 * Each is one word of the history.  A cause that ends and returns within
 * KVR_SINCE_HOLD s has not ended: causes by counters are of the last minute.
 */


#include "core/watch/kvr_history.h"


#define KVR_SINCE_HOLD  60           /* s */
#define KVR_SINCE_FULL  .9           /* of the index; filled by a sample */


/*
 * Returns the time since which a member has a state, any number below 256; now
 * is in s since 1970.
 */
uint32_t kvr_since_state(kvr_history_t *h, const kvr_zone_t *zone,
    uint32_t member, uint32_t state, uint32_t now);

/* Sets "since" of each cause.  A cause of one server has a time of its own. */
void kvr_since_causes(kvr_history_t *h, const kvr_zone_t *zone,
    uint32_t upstream, const kvr_verdict_server_t *server, kvr_verdict_t *v,
    uint32_t now);

/*
 * Returns the time since which the index is full and replaces entries in use;
 * 0: it does not.
 */
uint32_t kvr_since_full(kvr_history_t *h, double fill, uint64_t evicted,
    uint32_t now);


#endif /* _KVR_SINCE_H_INCLUDED_ */
