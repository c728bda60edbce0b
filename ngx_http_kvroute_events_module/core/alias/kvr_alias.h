
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_ALIAS_H_INCLUDED_
#define _KVR_ALIAS_H_INCLUDED_


/*
 * Which block of an engine is which place of a prompt's chain: aliases.
 *
 * An engine names blocks by hashes of its own, of tokens that nobody here has.
 * But when a request has ended it is known how many tokens its prompt had, how
 * many of them were cached, and when its first token came.  It has stored the
 * blocks from the last whole one that was cached to the last whole one of the
 * prompt: a run of events of just that length, the last of which came at about
 * the time of the first token.  If one run fits, and only one, its blocks are
 * those of the prompt.  If several fit nothing is done.  Where the engine tells
 * whose blocks they are, as the operator has it told by a request (a session),
 * time does not matter, and others that fit do not either.
 *
 * Places in the chain are bytes of a prompt, and blocks are tokens.  In between
 * goes a straight line: from the end of the prompt that this one goes on from,
 * where both are known, else from its start.
 *
 * Aliases.  A table of cells, four to a bucket: of the block by its name, the
 * entry of the chain that ends in it.  They stay when the block is removed, and
 * say so: it may be stored again, by anybody.  When a bucket is full, one that
 * is removed makes room, else any.  Most blocks that are told of are not known:
 * so each bucket has a hint of 16 bits, of which those of its cells are set, and
 * all hints are small enough to stay in the processor's cache.
 *
 * Runs.  What was stored lately is kept until the requests have ended: a run for
 * each event, in a ring, with its names in another.
 *
 * Wrong ones.  A wrong alias is a wrong hint.  It is found, and dropped, when a
 * block is tied to two places of different prompts; when the engine finds in its
 * cache what an alias says is removed; when what was taken to be held was stored
 * anew, by another name; and when a second request fits the same run only.
 *
 * In shared memory, one for each peer, written by the one process that hears the
 * peer's events.  It may be killed at any point: what is half written is not
 * found, or is a wrong alias at worst.
 */


#include "core/base/kvr_chain.h"
#include "core/events/kvr_events.h"


#define KVR_ALIAS_NOWHERE   UINT32_MAX
#define KVR_ALIAS_ENTRIES   4096     /* entries of a chain that have any */
#define KVR_ALIAS_ONE       1024     /* fraction of a share */


typedef struct {
    _Atomic uint64_t   place;        /* tag, gone, depth, entry; 0: free */
    _Atomic uint64_t   key;          /* of the chain's entry */
} kvr_alias_cell_t;


/* the blocks of an event */
typedef struct {
    _Atomic uint64_t   name;         /* where its names begin */
    _Atomic uint64_t   last;         /* the last of them */
    _Atomic uint64_t   time;         /* ms */
    _Atomic uint64_t   session;      /* 0: not told */
    _Atomic uint32_t   blocks;
    _Atomic uint32_t   depth;        /* blocks before it */
    _Atomic uint32_t   back;         /* so many runs before is the one that it
                                        goes on from; 0: not known */
    _Atomic uint32_t   taken;        /* a request ended with it */
} kvr_alias_run_t;


/* where a prompt ended */
typedef struct {
    _Atomic uint64_t   key;          /* of its last entry */
    _Atomic uint64_t   end;          /* bytes, tokens */
} kvr_alias_anchor_t;


typedef struct {
    _Alignas(KVR_CACHE_LINE)
    _Atomic uint64_t   runs;         /* ever */
    _Atomic uint64_t   names;        /* ever */
    _Atomic uint64_t   searched;     /* ms */
    _Atomic uint32_t   generation;   /* of the peer's number */
    _Atomic uint32_t   block;        /* tokens */
    _Atomic int32_t    lag;          /* ms, of events behind first tokens */
    _Atomic uint32_t   lags;         /* requests that told it */
    _Atomic uint32_t   sessions;     /* the engine tells them */
    _Atomic uint32_t   share;        /* of requests attributed, lately, x
                                        KVR_ALIAS_ONE */
} kvr_alias_t;


/* the same with its tables; n cells */
typedef struct {
    kvr_alias_t         *shared;
    kvr_events_alias_t  *count;
    kvr_alias_cell_t    *cell;
    kvr_alias_run_t     *run;
    kvr_alias_anchor_t  *anchor;
    _Atomic uint64_t    *name;
    _Atomic uint32_t    *tip;        /* runs, by their last names */
    _Atomic uint16_t    *hint;       /* of a bucket */
    uint32_t             n;
} kvr_alias_view_t;


/* a place of a chain */
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
    uint64_t           unit;         /* bytes of a unit of the chain */
    uint32_t           held;         /* units that the peer was taken to hold */
    uint32_t           from;         /* entry of the first key */
    uint32_t           n;            /* keys, to the last entry */
    const uint64_t    *key;
    unsigned           untold:1;     /* how much was cached is not known */
} kvr_alias_request_t;


typedef enum {
    KVR_ALIAS_NOTHING = 0,           /* it has stored no block */
    KVR_ALIAS_ATTRIBUTED,
    KVR_ALIAS_AMBIGUOUS,
    KVR_ALIAS_MISSING                /* no run fits */
} kvr_alias_e;


/* bytes for so many cells of one peer; and the reverse, 0: there is no room */
size_t kvr_alias_size(uint32_t n);
uint32_t kvr_alias_cells(size_t size);

/* where the parts are in zeroed memory for n cells, aligned to a cache line */
void kvr_alias_view(kvr_alias_view_t *v, void *p, uint32_t n,
    kvr_events_alias_t *counts);

/* another server: knows no block any more, which takes a while */
void kvr_alias_flush(const kvr_alias_view_t *v);

/*
 * Another process of it, which may be of another version.  A cache that is
 * emptied is no matter: names are of what is in blocks, and these may be stored
 * again.  If another process has other names, those of before are replaced.
 */
void kvr_alias_another(const kvr_alias_view_t *v);

/*
 * A source has stored the blocks of an event.  depth: tokens before them, or
 * KVR_ALIAS_NOWHERE.
 */
void kvr_alias_stored(const kvr_alias_view_t *v, const kvr_kvevent_t *event,
    unsigned source, uint32_t depth, uint64_t now);

/*
 * A block is stored, or removed (gone).  Returns 1 if it is known which entry
 * of a chain ends in it.
 */
int kvr_alias_mark(const kvr_alias_view_t *v, uint64_t hash, unsigned source,
    int gone, kvr_alias_place_t *place);

/* finds the blocks that a request has stored, and ties them to its chain */
kvr_alias_e kvr_alias_attribute(const kvr_alias_view_t *v,
    const kvr_alias_request_t *r);

/* whether most of the peer's requests were attributed, lately */
int kvr_alias_most(const kvr_alias_view_t *v);


#endif /* _KVR_ALIAS_H_INCLUDED_ */
