
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_RESERVATION_H_INCLUDED_
#define _KVR_RESERVATION_H_INCLUDED_


/*
 * What one request counts for at a peer, in the row of the process that has
 * the request.
 *
 * Ownership. Whoever holds a reservation gives it back once:
 * kvr_reservation_release() of one that is not held does nothing. It may be
 * handed on by assignment, if the one that was assigned from is then no longer
 * held. A process that dies gives nothing back: its row is swept (kvr_load.h).
 */


#include "core/state/kvr_zone.h"


typedef struct {
    uint32_t           peer;         /* KVR_REGISTRY_NONE: counted nowhere */
    uint32_t           member;
    uint64_t           pending;      /* bytes to prefill */
    uint64_t           resident;     /* bytes of context that it comes to */
    unsigned           unanswered:1; /* its prefill is not over */
    unsigned           queued:1;     /* it is not sent yet: nginx has no
                                        connection to go with it */
    unsigned           held:1;
} kvr_reservation_t;


/* counts a request in: as active, pending, resident and, if so, unanswered */
void kvr_reservation_take(const kvr_zone_t *zone, kvr_reservation_t *r);

/* a queued one is sent: from now on nginx has a connection as well */
void kvr_reservation_sent(const kvr_zone_t *zone, kvr_reservation_t *r);

/* the peer has begun to answer: nothing is pending any more */
void kvr_reservation_answered(const kvr_zone_t *zone, kvr_reservation_t *r);

/* counts out all that is left of it */
void kvr_reservation_release(const kvr_zone_t *zone, kvr_reservation_t *r);


/* whether the two count the same at the same place */
static inline int
kvr_reservation_same(const kvr_reservation_t *a, const kvr_reservation_t *b)
{
    return a->peer == b->peer && a->member == b->member
           && a->pending == b->pending && a->resident == b->resident
           && a->unanswered == b->unanswered;
}


/*
 * The load of a peer without a reservation that the request which asks has
 * there itself; own may be NULL.
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
