
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_HOOKS_H_INCLUDED_
#define _KVR_HOOKS_H_INCLUDED_


/*
 * Extensions: modules that the router does not know.  An extension has one table
 * of functions that the router calls, and attaches it to each zone that it works
 * for, with data of its own.  It calls the router's functions as anybody does.
 *
 * What the table does not have, NULL, is not called.  Functions are called in
 * the process that handles the request, in the middle of it: they must be quick,
 * take no lock and leave nothing behind if that process is killed.
 *
 * A further hook is a field here, and a call at the one place where it happens.
 */


#include "core/state/kvr_counter.h"


/* a request that has been answered, with all that was predicted of it */
typedef struct {
    uint32_t              peer;
    const uint64_t       *chain;
    uint32_t              entries;
    uint32_t              units;
    uint32_t              held;      /* leading units that the pick counted on */
    uint32_t              prompted;  /* units inserted before by prompts */
    uint64_t              bytes;     /* of the prompt */
    uint64_t              start;     /* ms */
    uint64_t              first;     /* ms; its first token */
    uint64_t              now;       /* ms */
    uint64_t              session;   /* what the engine calls it, or 0 */
    int64_t               prompt;    /* tokens, */
    int64_t               cached;    /* -1: it did not say, */
    int64_t               completion;
} kvr_settled_t;


typedef struct {

    /* n entries of a chain were inserted, and that was undone; by undo's peer */

    void      (*inserted)(const kvr_zone_t *zone, void *data,
                          const uint64_t *chain, uint32_t n,
                          const kvr_index_undo_t *undo);
    void      (*undone)(const kvr_zone_t *zone, void *data,
                        const uint64_t *chain, uint32_t n,
                        const kvr_index_undo_t *undo);

    /* kvr_index_extend() was called with these: for a reply, or once more */

    void      (*extended)(const kvr_zone_t *zone, void *data,
                          const uint64_t *value, uint32_t first, uint32_t n,
                          uint32_t units, uint32_t peer, uint32_t behind);

    /* an answer has begun, and the prefixes of its prompt were counted */

    void      (*counted)(const kvr_zone_t *zone, void *data,
                         const kvr_hot_keys_t *keys, uint32_t peer);

    /* a session is about to be bound for so many seconds; now: s */

    void      (*bound)(const kvr_zone_t *zone, void *data, uint64_t key,
                       uint32_t peer, uint32_t seconds, uint32_t now);

    /* the peer has lost what it held before its clock stood there, in units */

    void      (*flushed)(const kvr_zone_t *zone, void *data, uint32_t peer,
                         uint64_t clock);

    /*
     * Of a peer's cache, by what its engine tells: how old blocks get, in units,
     * 0: not known; since when something of it may be missing, ms, 0: never.
     */

    uint64_t  (*age)(const kvr_zone_t *zone, void *data, uint32_t peer);
    uint64_t  (*doubt)(const kvr_zone_t *zone, void *data, uint32_t peer);

    /* whether requests at the peer are wanted once they have settled; those */

    int       (*wants)(const kvr_zone_t *zone, void *data, uint32_t peer);
    void      (*settled)(const kvr_zone_t *zone, void *data,
                         const kvr_settled_t *s);

    /*
     * Rows of what the extension counts, in groups KVR_COUNTER_ZONE (of a zone),
     * _UPSTREAM (of one by number) and _NOW (of a peer by number).  base() returns
     * the structure that these are in, or NULL: there is none; and bits that rows
     * may need are added to set.
     */

    const kvr_counter_t  *counters;
    uint32_t              ncounters;

    void     *(*base)(const kvr_zone_t *zone, void *data,
                      kvr_counter_group_e group, uint32_t number,
                      uint32_t *set);
} kvr_hooks_t;


/* an extension at a zone; ordered as they were attached */
struct kvr_hook_s {
    const kvr_hooks_t    *call;
    void                 *data;
    const void           *owner;     /* what else it has for the caller */
    const kvr_hook_t     *next;
};


/* calls a function of all extensions at a zone that have it */
#define kvr_hooks(zone_, function, ...)                                       \
    do {                                                                      \
        const kvr_hook_t  *hook_;                                             \
                                                                              \
        for (hook_ = (zone_)->hooks; hook_; hook_ = hook_->next) {            \
            if (hook_->call->function) {                                      \
                hook_->call->function(zone_, hook_->data, __VA_ARGS__);       \
            }                                                                 \
        }                                                                     \
    } while (0)


/* asks those that have such a function: the most, the latest, whether any */
uint64_t kvr_hooks_age(const kvr_zone_t *zone, uint32_t peer);
uint64_t kvr_hooks_doubt(const kvr_zone_t *zone, uint32_t peer);
int kvr_hooks_wants_any(const kvr_zone_t *zone, uint32_t peer);

#define kvr_hooks_wants(zone_, peer)                                          \
    ((zone_)->hooks && kvr_hooks_wants_any(zone_, peer))

/* counters from zero: of a peer, or with KVR_REGISTRY_NONE of all */
void kvr_hooks_reset(const kvr_zone_t *zone, uint32_t peer);


#endif /* _KVR_HOOKS_H_INCLUDED_ */
