
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_ALIAS_H_INCLUDED_
#define _KVR_ALIAS_H_INCLUDED_


/*
 * Aliases: which block of an engine is which entry of a prompt's chain.
 *
 * An engine names blocks by hashes of tokens, which are unknown here.  But
 * when a request has ended, its usage says how many tokens its prompt had and
 * how many were cached, and the time of its first token is known.  The engine
 * has stored the blocks from the last whole cached one to the last whole one
 * of the prompt: a run of exactly that length, whose last event came at about
 * the time of the first token.  If exactly one run fits, its blocks are those
 * of the prompt.  If several fit, nothing happens.  If the engine reports the
 * request's id with its blocks (a session), neither the time nor other runs
 * matter.
 *
 * Entries of the chain count bytes of a prompt, blocks count tokens.  They are
 * converted by a straight line: from the end of the prompt that this one
 * continues, where both are known, else from its start.
 *
 * Aliases.  A table has cells, four to a bucket: for a block's name the entry
 * of the chain that ends in it.  A cell stays when the block is removed, and
 * records that: any request may store the block again.  A full bucket replaces
 * a removed block, else any.
 *
 * Runs.  Recently stored blocks are kept until their requests have ended: a run
 * for each event in a ring, with its names in another.
 *
 * Wrong aliases.  A wrong alias is a wrong hint.  It stays until its block is
 * assigned to an entry of another prompt, or its cell is used for another
 * block.
 *
 * The state is in shared memory, one for each peer, written by the process
 * that reads the peer's events.  If that is killed, a half-written part is not
 * found, or is a wrong alias.
 */


#include "core/base/kvr_chain.h"
#include "core/events/kvr_events.h"


#define KVR_ALIAS_NOWHERE   UINT32_MAX
#define KVR_ALIAS_ENTRIES   4096     /* entries of a chain with aliases */
#define KVR_ALIAS_ONE       1024     /* fraction of a share */


typedef struct {
    _Atomic uint64_t   place;        /* tag, removed, entry; 0: free */
    _Atomic uint64_t   key;          /* of the chain's entry */
} kvr_alias_cell_t;


/* the blocks of an event */
typedef struct {
    _Atomic uint64_t   name;         /* place of its first name */
    _Atomic uint64_t   last;         /* its last name */
    _Atomic uint64_t   time;         /* ms */
    _Atomic uint64_t   session;      /* 0: not reported */
    _Atomic uint32_t   blocks;
    _Atomic uint32_t   depth;        /* blocks before it */
    _Atomic uint32_t   back;         /* distance to the run that it continues;
                                        0: not known */
    _Atomic uint32_t   taken;        /* attributed to a request */
} kvr_alias_run_t;


/* the end of a prompt */
typedef struct {
    _Atomic uint64_t   key;          /* of its last entry */
    _Atomic uint64_t   end;          /* bytes, tokens */
} kvr_alias_anchor_t;


typedef struct {
    _Alignas(KVR_CACHE_LINE)
    _Atomic uint64_t   runs;         /* ever */
    _Atomic uint64_t   names;        /* ever */
    _Atomic uint32_t   generation;   /* of the peer's slot */
    _Atomic uint32_t   block;        /* tokens */
    _Atomic int32_t    lag;          /* ms, of events behind first tokens */
    _Atomic uint32_t   lags;         /* requests measured for it */
    _Atomic uint32_t   sessions;     /* the engine reports them */
    _Atomic uint32_t   share;        /* of requests attributed recently, x
                                        KVR_ALIAS_ONE */
} kvr_alias_t;


/* the same with its tables, of n cells */
typedef struct {
    kvr_alias_t         *shared;
    kvr_events_alias_t  *count;
    kvr_alias_cell_t    *cell;
    kvr_alias_run_t     *run;
    kvr_alias_anchor_t  *anchor;
    _Atomic uint64_t    *name;
    _Atomic uint32_t    *tip;        /* runs, by their last names */
    uint32_t             n;
} kvr_alias_view_t;


/* an entry of a chain */
typedef struct {
    uint64_t           key;
    uint32_t           entry;
} kvr_alias_place_t;


/* a request that has ended */
typedef struct {
    uint64_t           start;        /* ms */
    uint64_t           first;        /* ms, its first token */
    uint64_t           now;          /* ms */
    uint64_t           session;      /* 0: none */
    uint32_t           prompt;       /* tokens */
    uint32_t           cached;       /* of them */
    uint64_t           bytes;        /* of the prompt */
    uint32_t           from;         /* entry of the first key */
    uint32_t           n;            /* keys, to the last entry */
    const uint64_t    *key;
    unsigned           unknown:1;    /* the number of cached tokens */
} kvr_alias_request_t;


typedef enum {
    KVR_ALIAS_NOTHING = 0,           /* the request has stored no block */
    KVR_ALIAS_ATTRIBUTED,
    KVR_ALIAS_AMBIGUOUS,
    KVR_ALIAS_MISSING                /* no run fits */
} kvr_alias_e;


/* Returns the bytes for n cells of one peer; and the reverse, 0: no room. */
size_t kvr_alias_size(uint32_t n);
uint32_t kvr_alias_cells(size_t size);

/* Sets up a view of zeroed memory for n cells, aligned to a cache line. */
void kvr_alias_view(kvr_alias_view_t *v, void *p, uint32_t n,
    kvr_events_alias_t *counts);

/* Forgets everything, for another server; takes a while. */
void kvr_alias_flush(const kvr_alias_view_t *v);

/*
 * The engine is a new process, perhaps of another version.  Aliases stay,
 * because names depend on the tokens in blocks, which may be stored again; if
 * its names differ, they replace the old ones.
 */
void kvr_alias_another(const kvr_alias_view_t *v);

/*
 * Adds a run for an event of a source.  depth: tokens before its blocks, or
 * KVR_ALIAS_NOWHERE.
 */
void kvr_alias_stored(const kvr_alias_view_t *v, const kvr_kvevent_t *event,
    unsigned source, uint32_t depth, uint64_t now);

/*
 * Records that a block was stored or removed.  Returns 1 and its entry of a
 * chain if it has an alias.
 */
int kvr_alias_mark(const kvr_alias_view_t *v, uint64_t hash, unsigned source,
    int removed, kvr_alias_place_t *place);

/* Finds the blocks that a request has stored, and makes aliases of them. */
kvr_alias_e kvr_alias_attribute(const kvr_alias_view_t *v,
    const kvr_alias_request_t *r);

/* Returns whether most of the peer's recent requests were attributed. */
int kvr_alias_most(const kvr_alias_view_t *v);


#endif /* _KVR_ALIAS_H_INCLUDED_ */
