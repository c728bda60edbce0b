#include <stdlib.h>

#include "replica_int.h"


void *
kve_grow(void *p, size_t *size, size_t n, size_t elt)
{
    if (n < *size) {
        return p;
    }

    *size = *size ? *size * 2 : 64;

    p = realloc(p, *size * elt);
    if (p == NULL) {
        abort();
    }

    return p;
}


void
kve_replica_event(kve_replica_t *r, kve_event_e type, kve_req_t *req, double t)
{
    kve_event_t  *ev;

    r->events = kve_grow(r->events, &r->events_size, r->nevents,
                         sizeof(kve_event_t));

    ev = &r->events[r->nevents++];
    ev->type = type;
    ev->time = t;
    ev->req = req;
}
