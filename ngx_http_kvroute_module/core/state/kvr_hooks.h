
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_HOOKS_H_INCLUDED_
#define _KVR_HOOKS_H_INCLUDED_


/*
 * Extensions: modules that the router does not know.  An extension has one
 * table of functions that the router calls, and attaches it, with data of its
 * own, to each zone that it works for.  It calls the router's functions
 * directly.
 *
 * Functions that are NULL are not called.  The others are called while a
 * request is handled: they must be quick, take no lock, and leave nothing
 * behind if the process is killed.
 *
 * A further hook is a field here and a call at the place of its event.
 */


#include "core/state/kvr_counter.h"


/* an answered request, with what was predicted */
typedef struct {
    uint32_t              peer;
    const uint64_t       *chain;
    uint32_t              entries;
    uint32_t              units;
    uint32_t              held;      /* leading units predicted as cached */
    uint32_t              prompted;  /* units inserted before by prompts */
    uint64_t              bytes;     /* of the prompt */
    uint64_t              start;     /* ms */
    uint64_t              first;     /* ms; time of its first token */
    uint64_t              now;       /* ms */
    uint64_t              session;   /* the engine's name for it, or 0 */
    int64_t               prompt;    /* tokens, */
    int64_t               cached;    /* -1: not reported, */
    int64_t               completion;
} kvr_settled_t;


typedef struct {

    /* n entries of a chain were inserted for undo->peer, or that was undone */

    void      (*inserted)(const kvr_zone_t *zone, void *data,
                          const uint64_t *chain, uint32_t n,
                          const kvr_index_undo_t *undo);
    void      (*undone)(const kvr_zone_t *zone, void *data,
                        const uint64_t *chain, uint32_t n,
                        const kvr_index_undo_t *undo);

    /* kvr_index_extend() was called with these arguments */

    void      (*extended)(const kvr_zone_t *zone, void *data,
                          const uint64_t *value, uint32_t first, uint32_t n,
                          uint32_t units, uint32_t peer, uint32_t behind);

    /* a prompt's prefixes were counted, for the first time for this request */

    void      (*counted)(const kvr_zone_t *zone, void *data,
                         const kvr_hot_keys_t *keys, uint32_t peer);

    /* a session will be bound for these seconds; now: s */

    void      (*bound)(const kvr_zone_t *zone, void *data, uint64_t key,
                       uint32_t peer, uint32_t seconds, uint32_t now);

    /* the peer has lost what it held when its clock was here, in units */

    void      (*flushed)(const kvr_zone_t *zone, void *data, uint32_t peer,
                         uint64_t clock);

    /*
     * Returns the age of a peer's evicted blocks as its engine reports it, in
     * units, 0: unknown; the time since when reports may be missing, ms, 0:
     * never.
     */

    uint64_t  (*age)(const kvr_zone_t *zone, void *data, uint32_t peer);
    uint64_t  (*doubt)(const kvr_zone_t *zone, void *data, uint32_t peer);

    /* Tells whether settled requests at the peer are wanted; gets those. */

    int       (*wants)(const kvr_zone_t *zone, void *data, uint32_t peer);
    void      (*settled)(const kvr_zone_t *zone, void *data,
                         const kvr_settled_t *s);

    /*
     * Rows of the extension's counters, in groups KVR_COUNTER_ZONE (of a zone),
     * _UPSTREAM (of one by its slot) and _NOW (of a peer by its slot).  base()
     * returns the structure that has the fields, or NULL; it adds to *set the
     * bits that rows need.
     */

    const kvr_counter_t  *counters;
    uint32_t              ncounters;

    void     *(*base)(const kvr_zone_t *zone, void *data,
                      kvr_counter_group_e group, uint32_t number,
                      uint32_t *set);
} kvr_hooks_t;


/* an extension attached to a zone, in the order of attaching */
struct kvr_hook_s {
    const kvr_hooks_t    *call;
    void                 *data;
    const void           *owner;     /* of the caller of attach */
    const kvr_hook_t     *next;
};


/* Calls a function of all extensions at a zone that have it. */
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


/* Ask those that have the function: the maximum, the latest, or any. */
uint64_t kvr_hooks_age(const kvr_zone_t *zone, uint32_t peer);
uint64_t kvr_hooks_doubt(const kvr_zone_t *zone, uint32_t peer);
int kvr_hooks_wants(const kvr_zone_t *zone, uint32_t peer);

/* Sets counters to zero: of a peer, or with KVR_REGISTRY_NONE all. */
void kvr_hooks_reset(const kvr_zone_t *zone, uint32_t peer);


#endif /* _KVR_HOOKS_H_INCLUDED_ */
