
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_ATTRIBUTE_H_INCLUDED_
#define _KVR_ATTRIBUTE_H_INCLUDED_


/*
 * What engines tell of single blocks, where it is known which places of prompts
 * these are (kvr_alias.h): one that is removed takes just that place away from
 * its peer, one that is stored again gives it back.
 *
 * Requests end in any process, and events come to one.  So a request that has
 * ended puts what is to be known of it into a ring, and is looked for among the
 * blocks a little later, when all of its events have come.
 */


#include "core/alias/kvr_alias.h"
#include "core/base/kvr_fifo.h"
#include "core/state/kvr_zone.h"


/* memory of a peer; fewer bytes have no room */
#define KVR_ATTRIBUTE_LEAST  (64 * 1024)


typedef struct {
    _Alignas(KVR_CACHE_LINE)
    _Atomic uint64_t    owner;       /* the process that hears events */
    _Atomic uint64_t    stuck;       /* place of the ring that is not written, */
    _Atomic uint64_t    since;       /* ms: since then */
    uint64_t            size;        /* of a peer */
    uint32_t            cells;
    uint32_t            max_peers;

    kvr_fifo_t          ring;

    /* then the peers */
} kvr_aliases_t;


/* what is heard of the peers of a zone */
typedef struct {
    const kvr_zone_t   *zone;
    kvr_events_t       *events;      /* by peer */
    kvr_aliases_t      *aliases;     /* NULL: blocks are not told apart */
} kvr_heard_t;


/* bytes of so many peers with so many each; a peer's are at least the least */
size_t kvr_attribute_size(uint32_t max_peers, size_t size);

/* sets it up, in zeroed memory aligned to a cache line */
void kvr_attribute_init(kvr_aliases_t *aliases, uint32_t max_peers,
    size_t size);

/* of a peer; there are aliases */
kvr_alias_view_t kvr_attribute_peer(const kvr_heard_t *h, uint32_t peer);

/* whether most blocks of the peer are known, so that each is removed by its event */
int kvr_attribute_most(const kvr_heard_t *h, uint32_t peer);

/* hands over a request that has ended; what is long loses its beginning */
void kvr_attribute_put(const kvr_heard_t *h, uint32_t peer,
    kvr_alias_request_t *r);

/*
 * What follows is for the process that hears the peer's events.
 */

/* an event of stored or removed blocks; depth: as of kvr_events_take() */
void kvr_attribute_event(const kvr_heard_t *h, uint32_t peer,
    unsigned source, const kvr_kvevent_t *event, uint32_t depth, uint64_t now);

/* its engine is another process */
void kvr_attribute_another(const kvr_heard_t *h, uint32_t peer);

/* another server has the number */
void kvr_attribute_flush(const kvr_heard_t *h, uint32_t peer);

/*
 * Looks for the blocks of those requests that have ended long enough ago, at
 * most so many.  Returns how many there were.
 */
uint32_t kvr_attribute_look(const kvr_heard_t *h, uint32_t most,
    uint64_t now);


#endif /* _KVR_ATTRIBUTE_H_INCLUDED_ */
