
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_TALLY_H_INCLUDED_
#define _KVR_TALLY_H_INCLUDED_


/*
 * Who asks for how much: what was counted for each model and for each tenant of
 * an upstream.  In shared memory, one table in a zone, of fixed size.
 *
 * Names may come from clients.  So a name gets an entry only when the caller
 * says so, which he does once a server has answered it with success; and when
 * all entries are taken it gets that of a name without a request for
 * KVR_TALLY_IDLE seconds, or none.  What has no entry is counted together as
 * "other", for each upstream, and an entry that is given away leaves its counts
 * there.  So all counts of an upstream add up.
 *
 * An entry is claimed by compare and swap of its key.  A process that is killed
 * meanwhile leaves a claim, which holds for KVR_TALLY_CLAIM seconds.  Two
 * processes may claim two entries for one name at the same time: the one behind
 * then falls idle.  A reader takes no lock: he leaves out an entry whose key has
 * changed while he read it.
 */


#include "core/base/kvr_core.h"


#define KVR_TALLY_ENTRIES    32      /* of a kind in a zone */
#define KVR_TALLY_UPSTREAMS  64
#define KVR_TALLY_NAME_LEN   64
#define KVR_TALLY_IDLE       600     /* s */
#define KVR_TALLY_CLAIM      10      /* s */


typedef enum {
    KVR_TALLY_MODEL = 0,
    KVR_TALLY_TENANT,
    KVR_TALLY_KINDS
} kvr_tally_kind_e;


typedef struct {
    _Atomic uint64_t    requests;    /* that ended at a server */
    _Atomic uint64_t    errors;      /* of these, 5xx or no answer */
    _Atomic uint64_t    rejects;     /* by the queue: no requests of above */
    _Atomic uint64_t    prompt;      /* bytes */
    _Atomic uint64_t    matched;     /* of these, held by the server */
    _Atomic uint64_t    firsts;      /* streams that began */
    _Atomic uint64_t    ttft;        /* ms, of those together */
} kvr_tally_counts_t;


typedef struct {
    _Alignas(KVR_CACHE_LINE)
    kvr_tally_counts_t  counts;
    _Atomic uint64_t    last;        /* s since the epoch */
    _Atomic uint32_t    upstream;
    _Atomic uint32_t    len;
    _Atomic uint8_t     name[KVR_TALLY_NAME_LEN];
} kvr_tally_entry_t;


typedef struct {

    /* 0: free; odd: being claimed, since this s shifted by one */

    _Alignas(KVR_CACHE_LINE)
    _Atomic uint64_t    key[KVR_TALLY_KINDS][KVR_TALLY_ENTRIES];

    kvr_tally_entry_t   entry[KVR_TALLY_KINDS][KVR_TALLY_ENTRIES];
    kvr_tally_counts_t  other[KVR_TALLY_KINDS][KVR_TALLY_UPSTREAMS];
} kvr_tally_t;


/* whom something is counted for */
typedef struct {
    kvr_tally_kind_e    kind;
    uint32_t            upstream;
    uint64_t            hash;        /* of the name */
    const void         *name;
    size_t              len;         /* 0: nobody knows */
} kvr_tally_owner_t;


/* a copy */
typedef struct {
    size_t              len;
    char                name[KVR_TALLY_NAME_LEN];
    kvr_tally_counts_t  counts;
} kvr_tally_view_t;


/*
 * Adds counts.  claim: who has no entry may get one.  now: s since the epoch.
 * Of a long name only the beginning is kept, and what is no printable ASCII is
 * kept as "?".
 */
void kvr_tally_take(kvr_tally_t *tally, const kvr_tally_owner_t *owner,
    const kvr_tally_counts_t *counts, int claim, uint64_t now);

/* copies an entry; returns 0 if it is none of this upstream */
int kvr_tally_get(const kvr_tally_t *tally, kvr_tally_kind_e kind, uint32_t n,
    uint32_t upstream, kvr_tally_view_t *view);

/* all counts from zero; names stay */
void kvr_tally_reset(kvr_tally_t *tally);

/* an upstream has gone: its entries are free, what it counted is not kept */
void kvr_tally_forget(kvr_tally_t *tally, uint32_t upstream);


#endif /* _KVR_TALLY_H_INCLUDED_ */
