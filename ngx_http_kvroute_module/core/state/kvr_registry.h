
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_REGISTRY_H_INCLUDED_
#define _KVR_REGISTRY_H_INCLUDED_


/*
 * Who is who in a zone: peers by address, upstreams by name, and members: a
 * peer in an upstream. An engine that serves two upstreams is one peer with two
 * members. A peer's number is its bit in the index and its column in the load
 * table; a member's column comes after those of the peers.
 *
 * Numbers stay with their names for as long as there is room: a peer that is
 * taken out and put back finds what the index knew of it.  A number is given
 * to a new name only when no process's configuration has the old one and
 * nothing is counted under it.
 *
 * Writers hold the zone's mutex.  A name is complete before its length is
 * stored, so that a writer killed in between leaves the entry free.
 */


#include "core/state/kvr_load.h"
#include "core/index/kvr_index.h"
#include "core/learn/kvr_feedback.h"
#include "core/learn/kvr_prefill.h"
#include "core/engine/kvr_engine.h"
#include "core/health/kvr_outlier.h"
#include "core/state/kvr_stats.h"
#include "core/state/kvr_tally.h"
#include "core/learn/kvr_ttft.h"


#define KVR_REGISTRY_NAME_LEN   112      /* a unix socket's path fits */
#define KVR_REGISTRY_TITLE_LEN  252      /* made up of host names, often */
#define KVR_REGISTRY_UPSTREAMS  64

/* members: so many more than peers, as some are of several upstreams */
#define KVR_REGISTRY_SHARED     64
#define KVR_REGISTRY_MEMBERS    128      /* at least */

#define KVR_REGISTRY_NONE       ((uint32_t) -1)

#define KVR_REGISTRY_RANKS      KVR_METRICS_RANKS

#define KVR_STATUS_CLASSES      5        /* 1xx .. 5xx */


/* why a server of an upstream has no number, or no member */
typedef enum {
    KVR_REGISTRY_LIMIT_PEERS = 0,
    KVR_REGISTRY_LIMIT_MEMBERS,
    KVR_REGISTRY_LIMIT_UPSTREAMS,
    KVR_REGISTRY_LIMIT_NAME,     /* the address is too long */
    KVR_REGISTRY_LIMIT_TITLE,    /* the name of the upstream is */
    KVR_REGISTRY_LIMITS
} kvr_registry_limit_e;


typedef struct {
    _Alignas(KVR_CACHE_LINE)
    _Atomic uint32_t   len;
    _Atomic uint32_t   given;        /* picks of all peers at its last one */
    _Atomic uint32_t   generation;   /* which name has this number, from 1 */
    _Atomic uint32_t   since;        /* when it appeared or recovered, s */
    _Atomic uint64_t   assumed;      /* "capacity=" in units */
    _Atomic uint64_t   capacity;     /* units, set by the API; 0: not set */
    _Atomic uint32_t   fixed;        /* 1: "capacity=" has "!" */

    /* of data-parallel ranks behind one address, see kvr_registry_ranks() */

    uint32_t           address;      /* the peer that stands for it */
    uint32_t           rank;
    _Atomic uint32_t   ranks;        /* of the address; 0: not known */

    uint8_t            name[KVR_REGISTRY_NAME_LEN];

    kvr_drain_t        drain;
    kvr_engine_t       engine;
    kvr_feedback_t     feedback;
    kvr_prefill_t      prefill;
    kvr_ttft_t         ttft;
} kvr_peer_t;


/* a member's counters, since it was given out */
typedef struct {
    _Alignas(KVR_CACHE_LINE)
    _Atomic uint32_t   used;
    uint32_t           upstream;
    uint32_t           peer;

    _Atomic uint32_t   lost;         /* it was given up, or taken out */
    _Atomic uint32_t   since;        /* when it came back from that, s */
    _Atomic uint32_t   looked;       /* 1: the history has looked at it */
    int64_t            turn;         /* a rank's weight in smooth round robin,
                                        kept under nginx's lock of the peers */

    kvr_outlier_t      outlier;

    _Atomic uint64_t   requests;
    _Atomic uint64_t   fails;        /* attempts that came to nothing */
    _Atomic uint64_t   responses[KVR_STATUS_CLASSES];
    _Atomic uint64_t   prompt;       /* bytes */
    _Atomic uint64_t   matched;      /* bytes */
    _Atomic uint64_t   best;         /* bytes matched on the best peer */
    _Atomic uint64_t   mean;         /* bytes matched on all, to each */
    _Atomic uint64_t   reason[KVR_REASON_MAX];
    _Atomic uint64_t   selected;     /* time of the last pick, s */
    _Atomic uint64_t   unavail;      /* times it was given up for a while */
    _Atomic uint64_t   ejections;    /* times it was put out as an outlier */
    _Atomic uint64_t   firsts[2];    /* answers that began: wholes, streams */
    _Atomic uint64_t   ttft[2];      /* ms, of those together */
    _Atomic uint64_t   headers;      /* answers whose header has come */
    _Atomic uint64_t   header_ms;    /* from the pick, of those together */
    _Atomic uint64_t   ends;         /* answers that came to their end */
    _Atomic uint64_t   end_ms;
    _Atomic uint64_t   sent;         /* bytes, with headers */
    _Atomic uint64_t   received;
} kvr_member_t;


typedef struct {
    _Atomic uint64_t    model;       /* root of the last one seen */
    _Atomic uint32_t    models;      /* there have been several */
    _Atomic uint64_t    shared;      /* picks by a prefix that most have */
    _Atomic uint64_t    retries;     /* attempts after the first one */
    _Atomic uint64_t    denied;      /* that the budget did not allow */
    kvr_outlier_fleet_t  fleet;
    _Atomic uint64_t    shadow;      /* another balancer's picks, held against
                                        those there would have been */
    _Atomic uint64_t    same;        /* of them, at the same peer */
    _Atomic uint64_t    asked;       /* bytes of their prompts */
    _Atomic uint64_t    found;       /* of these, held by the peers picked */
    _Atomic uint64_t    would;       /* held by those that would have been */
    _Atomic uint64_t    legs[KVR_DISAGGREGATE_MAX];  /* requests that might
                                        have been disaggregated, by outcome */
    _Atomic uint64_t    demand;      /* as prefill servers, kvr_demand.h */
    kvr_ttft_prefill_t  prefill;     /* of all its peers */
    kvr_stats_t         stats;
    _Atomic uint32_t    looked;      /* 1: the history has looked at it */
    _Atomic uint32_t    len;
    uint8_t             name[KVR_REGISTRY_TITLE_LEN];
} kvr_upstream_t;


/* what all processes share; members come behind the peers */
typedef struct {
    _Atomic uint32_t   given;        /* picks */
    _Atomic uint32_t   ranked;       /* times that ranks have changed */
    _Atomic uint32_t   named;        /* times that names of numbers have */
    kvr_tally_t        tally;
    kvr_upstream_t     upstream[KVR_REGISTRY_UPSTREAMS];
    kvr_peer_t         peer[];
} kvr_registry_shared_t;


/* the same as a process sees it */
typedef struct {
    uint32_t           max_peers;
    uint32_t           max_members;
    kvr_peer_t        *peer;
    kvr_member_t      *member;
    kvr_upstream_t    *upstream;
    kvr_tally_t       *tally;
    _Atomic uint32_t  *given;
    _Atomic uint32_t  *ranked;
    _Atomic uint32_t  *named;
} kvr_registry_t;


/* members of a zone with so many peers */
static inline uint32_t
kvr_registry_max_members(uint32_t max_peers)
{
    return kvr_max(max_peers + KVR_REGISTRY_SHARED, KVR_REGISTRY_MEMBERS);
}


/* columns of a row: peers, members, kvr_registry_resident(), _reserved() */
static inline uint32_t
kvr_registry_columns(uint32_t max_peers)
{
    return 2 * max_peers + 2 * kvr_registry_max_members(max_peers);
}


/* words of the names of as many columns as there can be */
#define KVR_REGISTRY_NAMES                                                    \
    kvr_load_names_words(4 * KVR_PEERS + 2 * KVR_REGISTRY_SHARED)


/* bytes of what is shared; it begins zeroed, and aligned to KVR_CACHE_LINE */
size_t kvr_registry_size(uint32_t max_peers);

/* where its parts are; max_peers: 1 .. KVR_PEERS */
void kvr_registry_view(kvr_registry_t *reg, kvr_registry_shared_t *shared,
    uint32_t max_peers);


static inline uint32_t
kvr_registry_column(const kvr_registry_t *reg, uint32_t member)
{
    return reg->max_peers + member;
}


/*
 * What is at a peer, in bytes of context, as pending; as active the requests
 * that have had no answer yet.
 */
static inline uint32_t
kvr_registry_resident(const kvr_registry_t *reg, uint32_t peer)
{
    return reg->max_peers + reg->max_members + peer;
}


/*
 * What is reserved at a member for requests that are let in and not yet sent:
 * it is not in the member's own column, since nginx has not counted them.
 */
static inline uint32_t
kvr_registry_reserved(const kvr_registry_t *reg, uint32_t member)
{
    return 2 * reg->max_peers + reg->max_members + member;
}


_Static_assert(KVR_REGISTRY_UPSTREAMS == KVR_TALLY_UPSTREAMS,
               "upstreams of a tally");
_Static_assert(KVR_PEERS <= 65536 && KVR_REGISTRY_UPSTREAMS <= 256,
               "bytes of a receipt");


/*
 * The number of the peer of this address, which it gets if it has none yet,
 * with a clean slate in the index. If the capacity is not the one before, the
 * peer gets it, unless an exact one is known. The peer is named in the row of
 * the process that asks. KVR_REGISTRY_NONE if no slot is free, or the address is
 * too long.
 */
uint32_t kvr_registry_peer(kvr_registry_t *reg, kvr_load_t *load,
    uint32_t row, kvr_index_t *ix, const void *name, size_t len,
    uint64_t capacity);

/*
 * The same for a data-parallel rank of the engine at an address, whose number
 * is known: rank 0 is the peer of the address itself, the others have names
 * made of the address.  What belongs to the address (health, draining, being
 * left alone) is kept with each of its ranks alike.
 */
uint32_t kvr_registry_rank(kvr_registry_t *reg, kvr_load_t *load,
    uint32_t row, kvr_index_t *ix, uint32_t address, uint32_t rank,
    uint64_t capacity);

/* only looks up; KVR_REGISTRY_NONE if unknown */
uint32_t kvr_registry_find_rank(kvr_registry_t *reg, uint32_t address,
    uint32_t rank);

/* how many ranks there are at an address, 0: not known; returns 1 if new */
int kvr_registry_ranks(kvr_registry_t *reg, uint32_t address, uint32_t ranks);

/* the peer is given work, by this host or another one */
static inline void
kvr_registry_given(const kvr_registry_t *reg, uint32_t peer)
{
    reg->peer[peer].given = ++*reg->given;
}


/* whether a peer is the address of this number, or one of its ranks */
static inline int
kvr_registry_behind(kvr_registry_t *reg, uint32_t peer, uint32_t address)
{
    return reg->peer[peer].address == address
           && kvr_get(&reg->peer[peer].len) != 0;
}


/* copies to the other ranks of an address what belongs to the address */
void kvr_registry_share(kvr_registry_t *reg, uint32_t address);

/* the same for its member in the upstream of this name */
uint32_t kvr_registry_member(kvr_registry_t *reg, kvr_load_t *load,
    uint32_t row, uint32_t peer, const void *upstream, size_t len);

/* only looks up; KVR_REGISTRY_NONE if unknown */
uint32_t kvr_registry_find_peer(kvr_registry_t *reg, const void *name,
    size_t len);


/*
 * Which limit keeps a rank of a peer from its number, or its member in an
 * upstream; of a peer without ranks it is rank 0.
 */
kvr_registry_limit_e kvr_registry_limit(kvr_registry_t *reg, const void *name,
    size_t len, uint32_t rank, const void *upstream, size_t upstream_len);


/*
 * Sets to zero what was counted for a peer in all upstreams; if it is
 * KVR_REGISTRY_NONE, for all peers, with the counters of upstreams and tenants.
 * What is in flight stays counted, and what was learned is kept.
 */
void kvr_registry_reset(kvr_registry_t *reg, uint32_t peer);


#endif /* _KVR_REGISTRY_H_INCLUDED_ */
