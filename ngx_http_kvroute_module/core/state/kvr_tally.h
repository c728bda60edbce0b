
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_TALLY_H_INCLUDED_
#define _KVR_TALLY_H_INCLUDED_


/*
 * Counts traffic and usage by model and by tenant for each upstream, in one
 * table of fixed size in shared memory.
 *
 * Names can come from clients.  So a name gets an entry only if the caller
 * allows it, which it does after a server has answered with success.  If all
 * entries are taken, the name gets that of a name without requests for
 * KVR_TALLY_IDLE seconds, or none.  Names without an entry are counted together
 * as "other" of the upstream, and a reused entry leaves its counts there.  So
 * the counts of an upstream add up.
 *
 * A process claims an entry by compare and swap of its key.  If it is killed
 * meanwhile, its claim expires after KVR_TALLY_CLAIM seconds.  Two processes
 * can claim two entries for one name; the later one then becomes idle.
 * Readers take no lock: they skip an entry whose key has changed while they
 * read it.
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
    _Atomic uint64_t    rejects;     /* by the queue; not in requests */
    _Atomic uint64_t    prompt;      /* bytes */
    _Atomic uint64_t    matched;     /* of these, cached by the server */
    _Atomic uint64_t    tokens;      /* of prompts, as engines report */
    _Atomic uint64_t    cached;      /* of these */
    _Atomic uint64_t    computed;    /* the others */
    _Atomic uint64_t    output;      /* generated tokens */
    _Atomic uint64_t    waited;      /* ms in the queue, sum */
    _Atomic uint64_t    firsts;      /* streams that have started */
    _Atomic uint64_t    ttft;        /* ms, sum */
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

    /* 0: free; odd: a claim, with its time in s shifted by one */

    _Alignas(KVR_CACHE_LINE)
    _Atomic uint64_t    key[KVR_TALLY_KINDS][KVR_TALLY_ENTRIES];

    kvr_tally_entry_t   entry[KVR_TALLY_KINDS][KVR_TALLY_ENTRIES];
    kvr_tally_counts_t  other[KVR_TALLY_KINDS][KVR_TALLY_UPSTREAMS];
} kvr_tally_t;


/* the model or tenant that something is counted for */
typedef struct {
    kvr_tally_kind_e    kind;
    uint32_t            upstream;
    uint64_t            hash;        /* of the name */
    const void         *name;
    size_t              len;         /* 0: unknown */
} kvr_tally_owner_t;


/* a copy of an entry */
typedef struct {
    size_t              len;         /* 0: no name */
    char                name[KVR_TALLY_NAME_LEN];
    kvr_tally_counts_t  counts;
} kvr_tally_view_t;


/*
 * Adds counts.  claim: a name without an entry may get one.  now: s since the
 * epoch.  A long name is truncated, and bytes that are not printable ASCII
 * become "?".
 */
void kvr_tally_take(kvr_tally_t *tally, const kvr_tally_owner_t *owner,
    const kvr_tally_counts_t *counts, int claim, uint64_t now);

/* Copies an entry; returns 0 if it is not of this upstream. */
int kvr_tally_get(const kvr_tally_t *tally, kvr_tally_kind_e kind, uint32_t n,
    uint32_t upstream, kvr_tally_view_t *view);

/*
 * Copies all entries of an upstream, those with one name as one, and at the end
 * the counts without a name, if there are any.  Returns the number of views.
 */
uint32_t kvr_tally_list(const kvr_tally_t *tally, kvr_tally_kind_e kind,
    uint32_t upstream, kvr_tally_view_t view[KVR_TALLY_ENTRIES + 1]);

/* Sets all counts to zero; names stay. */
void kvr_tally_reset(kvr_tally_t *tally);

/* Frees the entries and counts of a removed upstream. */
void kvr_tally_forget(kvr_tally_t *tally, uint32_t upstream);


#endif /* _KVR_TALLY_H_INCLUDED_ */
