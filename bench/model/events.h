/* Pending events, ordered by time, then by insertion. */

#ifndef KVS_EVENTS_H
#define KVS_EVENTS_H


#include "bench/model/kvs.h"


typedef struct {
    double         t;
    uint64_t       seq;
    uint32_t       type;
    uint32_t       gen;          /* generation, for the caller */
    void          *data;
} kvs_event_t;


typedef struct {
    kvs_event_t   *event;        /* a heap, the next event first */
    size_t         n, size;
    uint64_t       seq;
} kvs_events_t;


void kvs_events_push(kvs_events_t *e, double t, uint32_t type, void *data,
    uint32_t gen);
kvs_event_t kvs_events_pop(kvs_events_t *e);


static inline double
kvs_events_next(const kvs_events_t *e)
{
    return e->n ? e->event[0].t : INFINITY;
}


#endif
