
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_ADMISSION_H_INCLUDED_
#define _KVR_ADMISSION_H_INCLUDED_


/*
 * Whether a peer has room for a request that waits, and which one it goes to.
 *
 * The cost is that of the choice (kvr_score.h), but with what is left of
 * prefills under way: pending bytes fall when a prompt is done, all at once,
 * and against them a peer would be closed for as long as a large one takes.
 */


#include "core/route/kvr_candidate.h"
#include "core/queue/kvr_queue.h"


/* what there is to be had, from the least */
typedef enum {
    KVR_ADMISSION_NOBODY = 0,
    KVR_ADMISSION_TAKEN,         /* all at max_conns */
    KVR_ADMISSION_CAPPED,        /* over their caps of work */
    KVR_ADMISSION_LATER,         /* there is room, and soon a better place */
    KVR_ADMISSION_ROOM
} kvr_admission_e;


/* which of the peers that have room will do */
typedef enum {
    KVR_ADMISSION_ANY = 0,
    KVR_ADMISSION_CHEAP,         /* if none that has none costs less */
    KVR_ADMISSION_WARM           /* if none that has none holds more */
} kvr_admission_wish_e;


/* a peer that nginx would offer */
typedef struct {
    uint32_t                   peer;     /* or KVR_REGISTRY_NONE */
    uint32_t                   member;
    uint32_t                   weight;
    uint32_t                   conns;    /* by the caller's count */
    unsigned                   taken:1;  /* at its max_conns */
} kvr_offer_t;


/* a request that waits, all set by the caller */
typedef struct {
    kvr_view_t                *view;     /* matched may be NULL */
    kvr_queue_item_t          *item;
    uint64_t                   bytes;    /* of the prompt, all that counts */
    uint64_t                   resident; /* bytes of context it comes to */
    kvr_admission_wish_e       wish;
    unsigned                   light:1;  /* it computes no prompt */
} kvr_admission_t;


/*
 * Chooses the cheapest peer with room.  Sets r to what is to be reserved there,
 * and the item's charge to what the peer computes.  Peers that are drained,
 * ejected, unhealthy or overloaded are chosen only if there are no others.
 *
 * With r NULL only tells whether there is room, before the prompt is looked
 * up; then KVR_ADMISSION_LATER is not returned.
 */
kvr_admission_e kvr_admission_choose(const kvr_admission_t *a,
    const kvr_offer_t *offer, uint32_t n, kvr_reservation_t *r);


#endif /* _KVR_ADMISSION_H_INCLUDED_ */
