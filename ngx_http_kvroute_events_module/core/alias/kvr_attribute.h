
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_ATTRIBUTE_H_INCLUDED_
#define _KVR_ATTRIBUTE_H_INCLUDED_


/*
 * Applies events of single blocks with an alias (kvr_alias.h) to the index: a
 * removed block removes the peer from that entry's holders, a block that is
 * stored again restores it.
 *
 * Requests end in any process, but one process reads the events.  So an ended
 * request is written to a ring and matched with blocks a little later, when all
 * of its events have come.
 */


#include "core/alias/kvr_alias.h"
#include "core/base/kvr_fifo.h"
#include "core/state/kvr_zone.h"


/* bytes of memory for a peer, at least */
#define KVR_ATTRIBUTE_LEAST  (64 * 1024)


typedef struct {
    _Alignas(KVR_CACHE_LINE)
    uint64_t            size;        /* of a peer */
    uint32_t            cells;
    uint32_t            max_peers;

    kvr_fifo_t          ring;

    /* then the peers */
} kvr_aliases_t;


/* events of the peers of a zone */
typedef struct {
    const kvr_zone_t   *zone;
    kvr_events_t       *events;      /* by peer */
    kvr_aliases_t      *aliases;     /* or NULL */
} kvr_feeds_t;


/* Returns the bytes of memory for max_peers peers with size bytes each. */
size_t kvr_attribute_size(uint32_t max_peers, size_t size);

/* Initializes zeroed memory, aligned to a cache line. */
void kvr_attribute_init(kvr_aliases_t *aliases, uint32_t max_peers,
    size_t size);

/* Returns the view of a peer. */
kvr_alias_view_t kvr_attribute_peer(const kvr_feeds_t *h, uint32_t peer);

/* Returns whether most blocks of the peer have aliases. */
int kvr_attribute_most(const kvr_feeds_t *h, uint32_t peer);

/* Writes an ended request to the ring; a long one without its first keys. */
void kvr_attribute_put(const kvr_feeds_t *h, uint32_t peer,
    kvr_alias_request_t *r);

/*
 * The following are for the process that reads the peer's events.
 */

/* Applies an event of stored or removed blocks; depth: of kvr_events_take(). */
void kvr_attribute_event(const kvr_feeds_t *h, uint32_t peer,
    unsigned source, const kvr_kvevent_t *event, uint32_t depth, uint64_t now);

/* The engine is a new process. */
void kvr_attribute_another(const kvr_feeds_t *h, uint32_t peer);

/* Another server has the slot. */
void kvr_attribute_flush(const kvr_feeds_t *h, uint32_t peer);

/*
 * Matches requests that have ended long enough ago with blocks, at most so
 * many.  Returns their number.
 */
uint32_t kvr_attribute_look(const kvr_feeds_t *h, uint32_t most,
    uint64_t now);


#endif /* _KVR_ATTRIBUTE_H_INCLUDED_ */
