
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_RESERVATION_H_INCLUDED_
#define _KVR_RESERVATION_H_INCLUDED_


/*
 * What one request counts for at a peer, in the row of its process.
 *
 * Ownership.  The holder of a reservation releases it once.
 * kvr_reservation_release() of one that is not held does nothing.  A
 * reservation is passed on by assignment; then the source is no longer held.
 * If the process dies, its row is swept (kvr_load.h).
 */


#include "core/state/kvr_zone.h"


typedef struct {
    uint32_t           peer;         /* KVR_REGISTRY_NONE: not counted */
    uint32_t           member;
    uint64_t           pending;      /* bytes to prefill */
    uint64_t           resident;     /* bytes of context, with the reply */
    unsigned           unanswered:1; /* its prefill is not over */
    unsigned           queued:1;     /* not sent yet: nginx has not counted
                                        a connection for it */
    unsigned           held:1;
} kvr_reservation_t;


/* Counts a request as active, pending, resident and, if set, unanswered. */
void kvr_reservation_take(const kvr_zone_t *zone, kvr_reservation_t *r);

/* Marks a queued one as sent: nginx now counts a connection too. */
void kvr_reservation_sent(const kvr_zone_t *zone, kvr_reservation_t *r);

/* Notes the first event: nothing is pending any more. */
void kvr_reservation_answered(const kvr_zone_t *zone, kvr_reservation_t *r);

/* Takes out all that is still counted. */
void kvr_reservation_release(const kvr_zone_t *zone, kvr_reservation_t *r);


/* Tells whether two reservations count the same at the same place. */
static inline int
kvr_reservation_same(const kvr_reservation_t *a, const kvr_reservation_t *b)
{
    return a->peer == b->peer && a->member == b->member
           && a->pending == b->pending && a->resident == b->resident
           && a->unanswered == b->unanswered;
}


/*
 * The load of a peer without the reservation of the deciding request, if it
 * has one there; own may be NULL.
 */
typedef struct {
    uint32_t           active;
    uint32_t           unanswered;
    uint64_t           pending;
    uint64_t           resident;
} kvr_reservation_load_t;


static inline kvr_reservation_load_t
kvr_reservation_load(const kvr_load_view_t *view,
    const kvr_registry_t *registry, uint32_t peer,
    const kvr_reservation_t *own)
{
    kvr_load_sum_t          sum, resident;
    kvr_reservation_load_t  load;

    sum = kvr_load_both(view, peer, kvr_registry_resident(registry, peer),
                        &resident);

    load.active = sum.active;
    load.pending = sum.pending;
    load.unanswered = resident.active;
    load.resident = resident.pending;

    if (kvr_unlikely(own != NULL) && own->held && own->peer == peer) {
        load.active -= kvr_min(1, load.active);
        load.pending -= kvr_min(own->pending, load.pending);
        load.unanswered -= kvr_min(own->unanswered, load.unanswered);
        load.resident -= kvr_min(own->resident, load.resident);
    }

    return load;
}


#endif /* _KVR_RESERVATION_H_INCLUDED_ */
