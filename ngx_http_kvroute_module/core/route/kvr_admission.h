
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_ADMISSION_H_INCLUDED_
#define _KVR_ADMISSION_H_INCLUDED_


/*
 * Tells whether a peer has room for a waiting request, and which peer gets it.
 *
 * The cost is that of the choice (kvr_score.h), but with the part of running
 * prefills that is left.  Pending bytes fall all at once, when a prompt is
 * done: by them a peer would stay closed for all of a large prompt's time.
 */


#include "core/route/kvr_candidate.h"
#include "core/queue/kvr_queue.h"


/* the best that was found, from the worst */
typedef enum {
    KVR_ADMISSION_NOBODY = 0,
    KVR_ADMISSION_TAKEN,         /* all peers are at max_conns */
    KVR_ADMISSION_CAPPED,        /* all are over their caps of work */
    KVR_ADMISSION_LATER,         /* there is room, soon a better one */
    KVR_ADMISSION_ROOM
} kvr_admission_e;


/* which peers with room are good enough */
typedef enum {
    KVR_ADMISSION_ANY = 0,
    KVR_ADMISSION_CHEAP,         /* unless a full peer costs less */
    KVR_ADMISSION_WARM           /* unless a full peer has more cached */
} kvr_admission_prefer_e;


/* a peer that nginx can use */
typedef struct {
    uint32_t                   peer;     /* or KVR_REGISTRY_NONE */
    uint32_t                   member;
    uint32_t                   weight;
    uint32_t                   conns;    /* by the caller's count */
    unsigned                   taken:1;  /* at its max_conns */
} kvr_offer_t;


/* a waiting request; the caller sets all fields */
typedef struct {
    kvr_view_t                *view;     /* matched may be NULL */
    kvr_queue_item_t          *item;
    uint64_t                   bytes;    /* of the prompt, all that counts */
    uint64_t                   resident; /* bytes of context, with the reply */
    kvr_admission_prefer_e     prefer;
    unsigned                   no_prefill:1;  /* it has no prompt */
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
