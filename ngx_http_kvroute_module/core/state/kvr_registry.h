
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_REGISTRY_H_INCLUDED_
#define _KVR_REGISTRY_H_INCLUDED_


/*
 * Slots of a zone: peers by address, upstreams by name, and members: a peer in
 * an upstream.  An engine that serves two upstreams is one peer with two
 * members.  A peer's slot is its number in the index and its column in the
 * load table; the columns of members follow those of the peers.
 *
 * A slot stays with its name as long as there is room: a removed peer that
 * returns finds what the index knew.  A slot is reused only when no process's
 * configuration has the old name and nothing is counted under it.
 *
 * Writers hold the zone's mutex.  They complete a name before they store its
 * length, so a killed writer leaves the slot free.
 */


#include "core/state/kvr_load.h"
#include "core/index/kvr_index.h"
#include "core/learn/kvr_resume.h"
#include "core/learn/kvr_tier.h"
#include "core/learn/kvr_feedback.h"
#include "core/learn/kvr_prefill.h"
#include "core/engine/kvr_engine.h"
#include "core/health/kvr_outlier.h"
#include "core/state/kvr_stats.h"
#include "core/state/kvr_tally.h"
#include "core/learn/kvr_ttft.h"
#include "core/learn/kvr_whatif.h"


#define KVR_REGISTRY_NAME_LEN   112      /* a unix socket's path fits */
#define KVR_REGISTRY_TITLE_LEN  252      /* often a list of host names */
#define KVR_REGISTRY_UPSTREAMS  64
#define KVR_REGISTRY_WHATIFS    16       /* upstreams with estimates */

/* members: more than peers, as some peers are in several upstreams */
#define KVR_REGISTRY_SHARED     64
#define KVR_REGISTRY_MEMBERS    128      /* at least */

#define KVR_REGISTRY_NONE       ((uint32_t) -1)

#define KVR_REGISTRY_RANKS      KVR_METRICS_RANKS

#define KVR_STATUS_CLASSES      5        /* 1xx .. 5xx */


/* why a server of an upstream has no slot, or no member */
typedef enum {
    KVR_REGISTRY_LIMIT_PEERS = 0,
    KVR_REGISTRY_LIMIT_MEMBERS,
    KVR_REGISTRY_LIMIT_UPSTREAMS,
    KVR_REGISTRY_LIMIT_NAME,     /* the address is too long */
    KVR_REGISTRY_LIMIT_TITLE,    /* the upstream's name is too long */
    KVR_REGISTRY_LIMITS
} kvr_registry_limit_e;


typedef struct {
    _Alignas(KVR_CACHE_LINE)
    _Atomic uint32_t   len;
    _Atomic uint32_t   given;        /* picks of all peers at its last pick */
    _Atomic uint32_t   generation;   /* of the slot's name, from 1 */
    _Atomic uint32_t   since;        /* when it appeared or recovered, s */
    _Atomic uint64_t   assumed;      /* "capacity=" in units */
    _Atomic uint64_t   capacity;     /* units, set by the API; 0: not set */
    _Atomic uint32_t   fixed;        /* 1: "capacity=" has "!" */

    /* for data-parallel ranks behind one address, see kvr_registry_ranks() */

    uint32_t           address;      /* the peer of the address */
    uint32_t           rank;
    _Atomic uint32_t   ranks;        /* of the address; 0: unknown */

    uint8_t            name[KVR_REGISTRY_NAME_LEN];

    kvr_drain_t        drain;
    kvr_engine_t       engine;
    kvr_feedback_t     feedback;
    kvr_prefill_t      prefill;
    kvr_ttft_t         ttft;
    kvr_tier_t         tier[KVR_TIERS];
} kvr_peer_t;


/* a member, and its counters since it got the slot */
typedef struct {
    _Alignas(KVR_CACHE_LINE)
    _Atomic uint32_t   used;
    uint32_t           upstream;
    uint32_t           peer;

    _Atomic uint32_t   lost;         /* it had failed, or was removed */
    _Atomic uint32_t   since;        /* when it recovered from that, s */
    _Atomic uint32_t   looked;       /* 1: known to the history */
    int64_t            turn;         /* a rank's weight in smooth round robin,
                                        under nginx's lock of the peers */

    kvr_outlier_t      outlier;

    _Atomic uint64_t   requests;
    _Atomic uint64_t   fails;        /* failed attempts */
    _Atomic uint64_t   responses[KVR_STATUS_CLASSES];
    _Atomic uint64_t   prompt;       /* bytes */
    _Atomic uint64_t   matched;      /* bytes */
    _Atomic uint64_t   best;         /* bytes matched on the best peer */
    _Atomic uint64_t   mean;         /* bytes matched on average */
    _Atomic uint64_t   reason[KVR_REASON_MAX];
    _Atomic uint64_t   selected;     /* time of the last pick, s */
    _Atomic uint64_t   unavail;      /* times it was marked failed */
    _Atomic uint64_t   ejections;    /* times it was ejected */
    _Atomic uint64_t   firsts[2];    /* first events: whole answers, streams */
    _Atomic uint64_t   ttft[2];      /* ms, sum */
    _Atomic uint64_t   headers;      /* response headers received */
    _Atomic uint64_t   header_ms;    /* ms from the pick, sum */
    _Atomic uint64_t   ends;         /* complete responses */
    _Atomic uint64_t   end_ms;
    _Atomic uint64_t   sent;         /* bytes, with headers */
    _Atomic uint64_t   received;
} kvr_member_t;


typedef struct {
    _Atomic uint64_t    model;       /* root of the last request */
    _Atomic uint32_t    models;      /* 1: there are several */
    _Atomic uint64_t    retries;     /* attempts after a request's first */
    _Atomic uint64_t    denied;      /* retries beyond the budget */
    kvr_outlier_fleet_t  fleet;
    _Atomic uint64_t    shadow;      /* another balancer's picks */
    _Atomic uint64_t    same;        /* of them, equal to the policy's */
    _Atomic uint64_t    asked;       /* bytes of their prompts */
    _Atomic uint64_t    found;       /* cached by the peers picked */
    _Atomic uint64_t    would;       /* cached by the policy's picks */
    _Atomic uint64_t    legs[KVR_DISAGGREGATE_MAX];  /* requests with
                                        kvroute_prefill, by outcome */
    _Atomic uint64_t    demand;      /* for prefill servers, kvr_demand.h */
    kvr_ttft_prefill_t  prefill;     /* of all its peers */
    kvr_resume_t        resume;      /* of its model */
    kvr_tier_prices_t   loads;       /* from lower tiers */
    _Atomic uint32_t    store;       /* of what only others were sent, the part
                                        delivered, of late; 1/KVR_TIER_ONE */
    kvr_stats_t         stats;
    _Atomic uint32_t    looked;      /* 1: known to the history */
    _Atomic uint32_t    len;
    uint8_t             name[KVR_REGISTRY_TITLE_LEN];
} kvr_upstream_t;


/* shared by all processes; members follow the peers */
typedef struct {
    _Atomic uint32_t   given;        /* picks */
    _Atomic uint32_t   ranked;       /* changes of ranks */
    _Atomic uint32_t   named;        /* changes of names */
    _Atomic uint32_t   tiered;       /* 1: a peer has more tiers than one */
    kvr_tally_t        tally;
    kvr_upstream_t     upstream[KVR_REGISTRY_UPSTREAMS];
    kvr_whatif_t       whatif[KVR_REGISTRY_WHATIFS];
    kvr_peer_t         peer[];
} kvr_registry_shared_t;


/* the same as one process sees it */
typedef struct {
    uint32_t           max_peers;
    uint32_t           max_members;
    kvr_peer_t        *peer;
    kvr_member_t      *member;
    kvr_upstream_t    *upstream;
    kvr_tally_t       *tally;
    kvr_whatif_t      *whatif;
    _Atomic uint32_t  *given;
    _Atomic uint32_t  *ranked;
    _Atomic uint32_t  *named;
    _Atomic uint32_t  *tiered;
} kvr_registry_t;


/* Returns the members of a zone with this many peers. */
static inline uint32_t
kvr_registry_max_members(uint32_t max_peers)
{
    return kvr_max(max_peers + KVR_REGISTRY_SHARED, KVR_REGISTRY_MEMBERS);
}


/* Returns the columns: peers, members, resident, reserved. */
static inline uint32_t
kvr_registry_columns(uint32_t max_peers)
{
    return 2 * max_peers + 2 * kvr_registry_max_members(max_peers);
}


/* words for the bits of the most columns */
#define KVR_REGISTRY_NAMES                                                    \
    kvr_load_names_words(4 * KVR_PEERS + 2 * KVR_REGISTRY_SHARED)


/* Returns the size of the shared part; it starts zeroed and aligned. */
size_t kvr_registry_size(uint32_t max_peers);

/* Locates its parts; max_peers: 1 .. KVR_PEERS. */
void kvr_registry_view(kvr_registry_t *reg, kvr_registry_shared_t *shared,
    uint32_t max_peers);


/* Returns the estimates of an upstream, or NULL. */
static inline kvr_whatif_t *
kvr_registry_whatif(const kvr_registry_t *reg, uint32_t upstream)
{
    return upstream < KVR_REGISTRY_WHATIFS ? &reg->whatif[upstream] : NULL;
}


static inline uint32_t
kvr_registry_column(const kvr_registry_t *reg, uint32_t member)
{
    return reg->max_peers + member;
}


/*
 * Returns the column of a peer's bytes of context, as pending, and of its
 * requests without a first event, as active.
 */
static inline uint32_t
kvr_registry_resident(const kvr_registry_t *reg, uint32_t peer)
{
    return reg->max_peers + reg->max_members + peer;
}


/*
 * Returns the column of a member's reservations for requests that are not sent
 * yet: its own column has what nginx has counted.
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
 * Returns the slot of an address, and takes a new one if needed, with an empty
 * index.  If "capacity" has changed it is applied, unless an exact value is
 * known.  Notes in the caller's row that the slot is used.  KVR_REGISTRY_NONE
 * if no slot is free, or the address is too long.
 */
uint32_t kvr_registry_peer(kvr_registry_t *reg, kvr_load_t *load,
    uint32_t row, kvr_index_t *ix, const void *name, size_t len,
    uint64_t capacity);

/*
 * The same for a data-parallel rank of the engine at an address whose slot is
 * known.  Rank 0 is the peer of the address, other ranks have names made of
 * it. Properties of the address (health, draining, overload) are kept in each
 * of its ranks.
 */
uint32_t kvr_registry_rank(kvr_registry_t *reg, kvr_load_t *load,
    uint32_t row, kvr_index_t *ix, uint32_t address, uint32_t rank,
    uint64_t capacity);

/* Returns the slot of a rank; KVR_REGISTRY_NONE if unknown. */
uint32_t kvr_registry_find_rank(kvr_registry_t *reg, uint32_t address,
    uint32_t rank);

/* Sets the number of ranks of an address, 0: unknown; returns 1 if changed. */
int kvr_registry_ranks(kvr_registry_t *reg, uint32_t address, uint32_t ranks);

/* Notes that this host or another one has picked the peer. */
static inline void
kvr_registry_given(const kvr_registry_t *reg, uint32_t peer)
{
    reg->peer[peer].given = ++*reg->given;
}


/* Tells whether a peer is this address or one of its ranks. */
static inline int
kvr_registry_behind(kvr_registry_t *reg, uint32_t peer, uint32_t address)
{
    return reg->peer[peer].address == address
           && kvr_get(&reg->peer[peer].len) != 0;
}


/* Copies the properties of an address to its other ranks. */
void kvr_registry_share(kvr_registry_t *reg, uint32_t address);

/* Returns the member of a peer in an upstream, and takes one if needed. */
uint32_t kvr_registry_member(kvr_registry_t *reg, kvr_load_t *load,
    uint32_t row, uint32_t peer, const void *upstream, size_t len);

/* Returns the slot of an address; KVR_REGISTRY_NONE if unknown. */
uint32_t kvr_registry_find_peer(kvr_registry_t *reg, const void *name,
    size_t len);


/*
 * Returns which limit keeps a rank of a peer from a slot, or from a member in
 * an upstream; rank 0: a peer without ranks.
 */
kvr_registry_limit_e kvr_registry_limit(kvr_registry_t *reg, const void *name,
    size_t len, uint32_t rank, const void *upstream, size_t upstream_len);


/*
 * Sets to zero the counters of a peer in all upstreams; with KVR_REGISTRY_NONE
 * those of all peers, upstreams and tenants.  Requests in flight stay counted,
 * and what was learned is kept.
 */
void kvr_registry_reset(kvr_registry_t *reg, uint32_t peer);


/* Tells whether the peers of an upstream load what others have computed. */
static inline int
kvr_registry_stored(const kvr_registry_t *reg, uint32_t upstream)
{
    return kvr_get(reg->tiered)
           && kvr_get(&reg->upstream[upstream].store) > KVR_TIER_ONE / 2;
}


#endif /* _KVR_REGISTRY_H_INCLUDED_ */
